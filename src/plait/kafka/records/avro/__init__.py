"""Avro records decoded into Arrow columns, one field of all records at a time."""
