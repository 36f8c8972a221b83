"""Plait in Spark: the session, the distributed writer and reader, the data source.

Only this room and ``pyspark_plait`` import pyspark.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from plait.spark.packaging import pack
from plait.spark.session import session

if TYPE_CHECKING:
    from plait.spark.stream import foreach_batch

__all__ = ["foreach_batch", "pack", "session"]


def __getattr__(name: str) -> object:
    """Import what needs pyspark when it is first asked for."""
    if name != "foreach_batch":
        raise AttributeError(f"module 'plait.spark' has no attribute {name!r}")
    return importlib.import_module("plait.spark.stream").foreach_batch
