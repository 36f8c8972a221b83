"""Plait beside Delta Lake, Apache Iceberg and Apache Hudi on Spark, in one run."""
