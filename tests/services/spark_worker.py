"""The process of ``tests.services.engines.DeltaSpark``: one statement a line, its rows into a file.

``{"conf": ...}`` is the first line: the settings of the session.
"""

from __future__ import annotations

import json
import os
import sys

import pyarrow.parquet as pq
from pyspark.sql import SparkSession


def main() -> None:
    """Answer until the other side ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the JVM prints is no answer
    builder = SparkSession.builder.master("local[2]")
    for key, value in json.loads(sys.stdin.readline())["conf"].items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for line in sys.stdin:
        asked, error = json.loads(line), ""
        try:
            pq.write_table(spark.sql(asked["sql"]).toArrow(), asked["file"])
        except Exception as problem:  # noqa: BLE001 - it is told to whoever asked
            error = str(problem) or type(problem).__name__
        answers.write(json.dumps({"error": error}) + "\n")
        answers.flush()
    spark.stop()


if __name__ == "__main__":
    main()
