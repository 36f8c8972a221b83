"""Plait in Spark: the session, the distributed writer and reader, the data source.

Only this room and ``pyspark_plait`` import pyspark.
"""

from __future__ import annotations

from plait.spark.pack import pack
from plait.spark.session import session

__all__ = ["pack", "session"]
