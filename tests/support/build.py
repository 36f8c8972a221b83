"""The builders that tests share: rows to write, a table in memory, and what a table holds."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from plait import Table
from plait.storage.memory import MemoryStore
from plait.storage.port import Store

KEYED = "id bigint, v bigint"
LITTLE: dict[str, object] = {
    "clean.retain.time": "0s",
    "clean.grace": "0s",
    "clean.retain.versions": "1",
}
"""Properties under which a clean keeps nothing but the newest version."""
_NAMES = itertools.count()


def rows(*ids: int | Iterable[int], schema: pa.Schema | None = None, **columns: object) -> pa.Table:
    """Return rows with these keys in ``id``, and more columns by their names.

    A key may be a number, or many: ``rows(1, 2)``, ``rows(range(9))``. A column may be one value
    for every row, a list or an array of values, or a function of the key.
    """
    keys = [key for each in ids for key in (each if isinstance(each, Iterable) else (each,))]
    found = {"id": keys, **{name: _column(value, keys) for name, value in columns.items()}}
    if schema is None:
        return pa.table({**found, "id": pa.array(keys, pa.int64())})
    return pa.table(found, schema=schema)


def keys(*ids: int | Iterable[int]) -> pa.Table:
    """Return keys alone, as a delete takes them."""
    return rows(*ids)


def _column(value: object, keys: Sequence[int]) -> object:
    if callable(value):
        return [value(key) for key in keys]
    return value if isinstance(value, list | pa.Array) else [value] * len(keys)


def tuples(names: str, *values: Sequence[object], **columns: object) -> pa.Table:
    """Return rows that are written out, as ``tuples("id place", (1, "a"), (2, "b"))``.

    What every row has alike is given by its name, as for ``rows``.
    """
    found = dict(zip(names.split(), zip(*values, strict=True), strict=True))
    return pa.table({**found, **{name: [each] * len(values) for name, each in columns.items()}})


def make(
    schema: object = KEYED,
    *,
    uri: object = None,
    append: pa.Table | None = None,
    upsert: pa.Table | None = None,
    **definition: Any,
) -> Table:
    """Create a table whose key is ``id``, in memory under a new name, and write its first rows.

    ``definition`` is what ``Table.create`` takes; ``record_key=()`` gives a table without a key.
    """
    place = f"memory://made-{next(_NAMES)}" if uri is None else str(uri)
    table = Table.create(place, schema, **{"record_key": "id", **definition})
    if append is not None:
        table.append(append)
    if upsert is not None:
        table.upsert(upsert)
    return table


def uri_of(table: Table) -> str:
    """Return where a table is; the client learns nothing new."""
    return table._handle.store.address.uri


def again(table: Table) -> Table:
    """Return another client of a table: it knows only what is stored."""
    return Table.open(uri_of(table))


def content(table: Table, version: int | None = None) -> list[dict[str, Any]]:
    """Return the rows of a version as another client reads them, sorted by their first column."""
    found = again(table).scan(version=version).to_arrow().to_pylist()
    return sorted(found, key=lambda row: next(iter(row.values())))


def listed(table: Table, *columns: str, version: int | None = None) -> list[tuple[Any, ...]]:
    """Return the rows of a table, or some columns of them, sorted."""
    found = table.scan(list(columns) or None, version=version).to_arrow().to_pylist()
    return sorted(tuple(row.values()) for row in found)


def by_id(table: Table, *columns: str, version: int | None = None) -> dict[Any, Any]:
    """Return what a table holds by ``id``: the other column, or a tuple of the others.

    ``columns`` are those wanted beside ``id``. An id that is there twice fails the test (INV-08).
    """
    scan = table.scan(["id", *columns] if columns else None, version=version)
    found = scan.to_arrow().to_pylist()
    held = {row.pop("id"): tuple(row.values()) for row in found}
    assert len(held) == len(found), "INV-08"
    return {key: rest[0] if len(rest) == 1 else rest for key, rest in held.items()}


def ids(table: Table, **how: Any) -> list[int]:
    """Return the ids that a scan finds, sorted; ``how`` is what ``scan`` takes."""
    return sorted(table.scan(["id"], **how).to_arrow()["id"].to_pylist())


def copied(source: Store, into: Store | None = None) -> Store:
    """Copy all files of a store into another one, in memory by default.

    A table that takes long to make is made once, and each test works on a copy.
    """
    store = into or MemoryStore(f"memory://made-{next(_NAMES)}")
    for info in source.list(""):
        store.put(info.path, source.find(info.path, size_max=1 << 30) or b"")
    return store


def copy_of(table: Table) -> Table:
    """Return a table in memory with the same files."""
    return Table.open(copied(table._handle.store).address.uri)
