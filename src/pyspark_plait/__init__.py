"""Found by Spark itself for ``format("plait")``: no registration is needed."""

from __future__ import annotations

from plait.spark.catalog import CatalogSource

__all__ = ["DefaultSource"]


class DefaultSource(CatalogSource):
    """The data source ``plait``."""
