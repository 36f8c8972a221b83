"""Found by Spark itself for ``format("plait")``: no registration is needed."""

from __future__ import annotations

from plait.spark.source import PlaitSource

__all__ = ["DefaultSource"]


class DefaultSource(PlaitSource):
    """The data source ``plait``."""
