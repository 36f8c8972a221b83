"""Plait in Spark: the session, the distributed writer and reader, the data source.

Only this room and ``pyspark_plait`` import pyspark.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from plait.spark.packaging import pack
from plait.spark.session import session

if TYPE_CHECKING:
    from plait.spark.catalog import create_views, save, table
    from plait.spark.stream import foreach_batch

__all__ = ["create_views", "foreach_batch", "pack", "save", "session", "table"]

_LATER = {
    "create_views": "plait.spark.catalog",
    "foreach_batch": "plait.spark.stream",
    "save": "plait.spark.catalog",
    "table": "plait.spark.catalog",
}


def __getattr__(name: str) -> object:
    """Import what needs pyspark, or most of Plait, when it is first asked for."""
    if name not in _LATER:
        raise AttributeError(f"module 'plait.spark' has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)
