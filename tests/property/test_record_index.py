"""A look-up by key gives the rows of a scan, however far the record index is behind (INV-11)."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from plait import Table
from plait.storage.port import Store
from plait.timeline import paths
from tests.support.effort import share
from tests.support.memory import forget

_NAMES = itertools.count()
_KEYS = range(8)
_PLACES = "xyz"
_EVERY = [*_KEYS, 99]

_rows = st.dictionaries(
    st.sampled_from(_KEYS), st.tuples(st.sampled_from(_PLACES), st.integers(0, 9)), min_size=1
)
_acts = st.one_of(
    st.tuples(st.just("upsert"), _rows),
    st.tuples(st.just("delete"), st.sets(st.sampled_from(_KEYS), min_size=1)),
    st.tuples(st.just("where"), st.sampled_from(_PLACES)),
    st.tuples(st.sampled_from(("overwrite", "replace")), st.sampled_from(_PLACES), _rows),
    st.tuples(st.just("build")),
    st.tuples(st.just("compact")),
    st.tuples(st.just("restore"), st.integers(0, 5)),
    st.tuples(st.just("repush"), st.sampled_from((1, 3))),
    st.tuples(st.just("lose"), st.integers(0, 9)),
    st.tuples(st.just("drop")),
)


def _table_of(rows: dict[int, tuple[str, int]], place: str | None = None) -> pa.Table:
    places = [place or at for at, _ in rows.values()]
    return pa.table({"id": list(rows), "p": places, "v": [v for _, v in rows.values()]})


def _do(table: Table, act: tuple[Any, ...]) -> None:
    kind, *given_with = act
    match kind, given_with:
        case "upsert", [rows]:
            table.upsert(_table_of(rows))
        case "delete", [keys]:
            table.delete(where=f"id in ({', '.join(map(str, sorted(keys)))})")
        case "where", [place]:
            table.delete(where=f"p = '{place}' AND v > 4")
        case "overwrite", [place, rows]:
            table.overwrite(_table_of(rows, place), where=f"p = '{place}'")
        case "replace", [place, rows]:  # its decision names no key
            with table.writer("overwrite", partitions="dynamic") as writer:
                writer.write(_table_of(rows, place))
        case "build", []:
            table.index.create()
        case "compact", []:
            table.maintenance.compact()
        case "restore", [back]:
            table.versions.restore(version=max(0, table.version - back))
        case "repush", [buckets]:
            table.layout.repush(buckets=buckets)
        case "lose", [number]:
            _lose(table._handle.store, number)
        case "drop", [] if table.index.status().name is not None:
            table.index.drop()


def _lose(store: Store, number: int) -> None:
    """Delete one file of the index, whatever it is: it costs time."""
    files = sorted(info.path for info in store.list(paths.INDEX))
    store.delete(files[number : number + 1])


def _shown(rows: pa.Table) -> list[tuple[int, str, int]]:
    return sorted((row["id"], row["p"], row["v"]) for row in rows.to_pylist())


@settings(max_examples=share(30))
@given(st.sampled_from(["cow", "mor"]), st.lists(_acts, min_size=1, max_size=12))
def test_a_look_up_gives_the_rows_of_a_scan_at_any_lag_of_the_index(
    table_type: str, acts: list[tuple[Any, ...]]
) -> None:
    uri = f"memory://indexed-at-random-{next(_NAMES)}"
    table = Table.create(
        uri, "id bigint, p string, v bigint", record_key="id", partition_by="p", buckets=2,
        table_type=table_type,
    )  # fmt: skip
    try:
        table.index.create()
        for act in acts:
            _do(table, act)
            expected = _shown(table.scan().to_arrow())
            assert _shown(table.get(_EVERY)) == expected
            assert _shown(Table.open(uri).get(_EVERY)) == expected, "a client that knows nothing"
    finally:
        forget(uri)
