"""What names cost in requests: nothing grows with the tables of a catalog (RFC 0047, 11)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TypeVar

import pyarrow as pa
import pytest

from plait import Catalog, StorageError, Table
from plait.catalog.names import DIRECTORY, Row
from plait.testing import CountingStore, open_wrapped

T = TypeVar("T")
QUIET = {"find": 2}
"""The next slot, and the slot of the version that is known: nothing came, and it is the table."""
ANEW = {"find": 4, "put": 1, "delete": 1}
"""The same, and what came since; the file of the names, under a read pin."""


class ReadOnly(CountingStore):
    """A store whose client may not write."""

    def call(self, operation: str, path: str, run: Callable[[], T]) -> T:
        if operation in ("put", "put_if_absent", "replace", "delete"):
            raise StorageError("read-only", path=path)
        return super().call(operation, path, run)


def _catalog(uri: str, tables: int) -> Catalog:
    """Give a catalog of many names, written as one commit; there are no tables at their places."""
    Catalog.create(uri).create_namespace("s")
    rows = [
        asdict(Row("s", f"t{each:05d}", "", "table", f"tables/{each:016x}", 1))
        for each in range(tables)
    ]
    Table.open(f"{uri}/{DIRECTORY}").upsert(pa.Table.from_pylist(rows))
    return Catalog(uri)


@pytest.mark.parametrize("tables", [10, 10_000])
def test_a_name_costs_the_same_in_a_catalog_of_any_size(uri: str, tables: int) -> None:
    catalog = _catalog(uri, tables)
    catalog._names, store = open_wrapped(f"{uri}/{DIRECTORY}", CountingStore)

    def cost(ask: Callable[[], object]) -> dict[str, int]:
        store.reset()
        ask()
        return store.counts("metadata")

    assert len(catalog.tables()) == tables
    for ask in (
        lambda: catalog.exists("s.t00007"),
        lambda: catalog.location("s.t00003"),
        lambda: catalog.tables("s"),
        catalog.namespaces,
        catalog.dropped,
    ):
        assert cost(ask) == QUIET
    renamed = cost(lambda: catalog.rename("s.t00007", "s.u"))
    assert renamed == {"find": 3, "put": 2, "put_if_absent": 1, "delete": 2}
    assert cost(lambda: catalog.exists("s.u")).keys() <= ANEW.keys()
    Catalog(uri).rename("s.u", "s.v")
    assert cost(lambda: catalog.exists("s.v")) == ANEW
    assert cost(lambda: catalog.exists("s.u")) == QUIET


def test_names_are_read_where_nothing_may_be_written(uri: str) -> None:
    catalog = _catalog(uri, 3)
    catalog._names, _ = open_wrapped(f"{uri}/{DIRECTORY}", ReadOnly)
    assert [entry.name for entry in catalog.tables("s")] == ["s.t00000", "s.t00001", "s.t00002"]
    Catalog(uri).rename("s.t00000", "s.new")
    assert catalog.exists("s.new")
    with pytest.raises(StorageError):
        catalog.rename("s.new", "s.newer")
