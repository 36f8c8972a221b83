"""Other engines that read a published table, each as a function from a place to its rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

Rows = list[dict[str, Any]]
Reader = Callable[[str, int], pa.Table]


def _by_deltalake(place: str, version: int) -> pa.Table:
    import deltalake

    table = deltalake.DeltaTable(place, version=version)
    builder = deltalake.QueryBuilder().register("t", table)
    return pa.table(builder.execute("select * from t").read_all())


def _by_polars(place: str, version: int) -> pa.Table:
    import polars as pl

    return pl.scan_delta(place, version=version).collect().to_arrow()


def _by_pyarrow(place: str, version: int) -> pa.Table:
    import deltalake

    return deltalake.DeltaTable(place, version=version).to_pyarrow_table()


DELTA: Mapping[str, Reader] = {
    "deltalake": _by_deltalake,
    "polars": _by_polars,
    "pyarrow": _by_pyarrow,
}
"""The readers of a Delta log that run in this process."""


def _by_pyiceberg(place: str, version: int) -> pa.Table:
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(place).scan(snapshot_id=version).to_arrow()


def _by_polars_iceberg(place: str, version: int) -> pa.Table:
    import os

    import polars as pl
    from pyiceberg.table import StaticTable

    os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"  # its own one is another package
    table = StaticTable.from_metadata(place)
    return pl.scan_iceberg(table, snapshot_id=version).collect().to_arrow()


ICEBERG: Mapping[str, Reader] = {"pyiceberg": _by_pyiceberg, "polars": _by_polars_iceberg}
"""The readers of Iceberg metadata that run in this process; a place is a file of metadata."""


def comparable(rows: pa.Table | Rows) -> list[str]:
    """Return rows so that those of two engines can be compared: texts, sorted.

    Engines differ in types (large strings, views, zones of timestamps, maps as lists of structs);
    what is compared is the values.
    """
    found = rows.to_pylist() if isinstance(rows, pa.Table) else rows
    return sorted(repr(_plain(row)) for row in found)


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in sorted(value.items())}
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, list):
        found = [_pair(each) for each in value]
        return sorted(found, key=repr) if found and all(type(e) is tuple for e in found) else found
    return value


def _pair(value: object) -> object:
    """Return an entry of a map as a pair; anything else as it is."""
    if isinstance(value, dict) and set(value) == {"key", "value"}:
        return _plain(value["key"]), _plain(value["value"])
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return _plain(value)
