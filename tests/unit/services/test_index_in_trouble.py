"""A record index in trouble costs time; no look-up gives other rows than a scan (INV-11)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import pyarrow as pa
import pytest

from plait import Table
from plait.index.manifest import list_manifests
from plait.queries.lookup import look_up
from plait.timeline import paths
from plait.txn import key_window
from tests.support import build
from tests.support.build import again, copy_of

_IDS = list(range(20))
rows = partial(build.rows, p=lambda key: "xy"[key % 2])


@cache
def _made(table_type: str, how: tuple[tuple[str, object], ...]) -> Table:
    table = build.make(
        "id bigint, p string",
        upsert=rows(_IDS),
        partition_by="p",
        buckets=1,
        table_type=table_type,
        properties=dict(how),
    )
    table.index.create()
    return table


def make(table_type: str = "cow", **properties: object) -> Table:
    """Give a table of 20 keys in two partitions, with an index."""
    return copy_of(_made(table_type, tuple(properties.items())))


def shown(rows: pa.Table) -> list[tuple[int, str]]:
    return sorted((row["id"], row["p"]) for row in rows.to_pylist())


def as_a_scan(*tables: Table, ids: list[int] = _IDS) -> None:
    for table in tables:
        assert shown(table.get(ids)) == shown(table.scan().to_arrow())


_Change = Callable[[Table], object]


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.layout.repush(buckets=8),
        lambda t: t.alter.columns().rename("id", "key").commit(),
    ],
    ids=["repush", "rename"],
)
def test_a_table_that_is_changed_while_a_look_up_begins_gives_every_row(change: _Change) -> None:
    """INV-04: keys are hashed under the layout of the version that is read."""
    table = make()
    other, reader = again(table), again(table)
    reader.scan().count()
    taken = iter([lambda: change(other)])
    store = reader._handle.store
    put = store.put

    def disturbed(path: str, data: bytes) -> None:
        put(path, data)
        if path.startswith(paths.LEASES):
            next(taken, lambda: None)()

    object.__setattr__(store, "put", disturbed)
    assert reader.get(_IDS).num_rows == len(_IDS)


@pytest.mark.parametrize("damage", ["lost behind a checkpoint", "rubbish"])
def test_decisions_that_are_lost_lose_no_row_of_a_look_up(damage: str) -> None:
    """Nor does the index ever claim to know them."""
    table = make(**{"checkpoint.interval": 5})
    for i in range(20, 33):
        table.upsert(rows(i))
    store, ids = table._handle.store, list(range(40))
    if damage == "rubbish":
        store.put(paths.slot(4), b"junk")
    else:
        store.delete([paths.slot(v) for v in range(6, table.version + 1)])
    stranger = again(table)
    as_a_scan(stranger, ids=ids)
    built = stranger.index.build(anew=damage == "rubbish")
    as_a_scan(stranger, again(table), ids=ids)
    assert built is not None or not stranger.index.verify().missing


@pytest.mark.parametrize("merged", [True, False])
def test_a_damaged_run_is_mended_by_a_build(merged: bool) -> None:
    """By itself if the next run takes it in, and else if the index is built anew."""
    table = make()
    store = table._handle.store
    run = next(i.path for i in store.list(paths.INDEX) if i.path.endswith(".run"))
    body = bytearray(store.find(run, size_max=1 << 20) or b"")
    body[20] ^= 1
    store.put(run, bytes(body))
    other = again(table)
    other.upsert(rows(*range(10)) if merged else rows(1))
    as_a_scan(other)
    assert other.index.build(anew=not merged) is not None
    as_a_scan(other, again(table))
    assert not other.index.verify().missing


def test_overwrites_leave_no_run_each() -> None:
    """Each of them may have touched any key of its buckets, and is folded with others."""
    table = make("mor")
    for _ in range(40):
        table.overwrite(rows(*range(0, 20, 2)), where="p = 'x'")
    assert table.index.status().runs <= 3
    as_a_scan(table, again(table))
    table.index.build()
    assert table.index.status().lag == 0
    as_a_scan(table, again(table))


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_commit_of_more_keys_than_are_held_costs_time_and_no_row(
    table_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded: buckets of it are read whole until they are in a run."""
    table = make(table_type)
    monkeypatch.setattr(key_window, "ENTRIES_MAX", 6)
    reader = again(table)
    for first in (0, 4, 8):
        table.upsert(pa.table({"id": range(first, first + 4), "p": ["z"] * 4}))
        known = key_window.load_known_keys(
            reader._handle, reader._handle.cache.refresh(), newest=True
        )
        assert known is not None
        assert len(known.window.entries) <= 6
        as_a_scan(reader, again(table))
    table.index.build()
    assert table.index.status().lag == 0
    as_a_scan(reader, again(table))
    assert not table.index.verify().missing


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_two_keys_with_one_hash_are_both_found(table_type: str) -> None:
    """INV-08: keys are equal if their values are."""
    table = build.make(
        "a bigint, b bigint, p string",
        record_key=["a", "b"],
        partition_by="p",
        buckets=1,
        table_type=table_type,
    )
    table.index.create()
    keys = [(1, 1), (2, 196073448242816449)]
    for a, b in keys:
        table.upsert(pa.table({"a": [a], "b": [b], "p": ["x"]}))
    assert table.get(keys).num_rows == 2
    table.index.build(anew=True)
    assert again(table).get(keys[:1]).num_rows == 1
    assert again(table).get(keys).num_rows == 2


def test_a_client_that_slept_before_it_published_points_no_hint_at_an_old_manifest() -> None:
    table = make()
    store, name = table._handle.store, table.index.status().name
    assert name is not None
    old = list_manifests(store, name)[-1]
    body = store.find(paths.index_manifest(name, old), size_max=1 << 20)
    assert body is not None
    for i in (1, 2, 3):
        table.upsert(rows(i))
        table.index.build()
    store.put(paths.index_manifest(name, old), body)
    store.put(paths.INDEX_HINT, f"{name} {old}".encode())
    assert look_up(again(table)._handle, _IDS).through == "index"
    as_a_scan(again(table))


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_an_overwrite_after_an_index_was_built_hides_no_key(table_type: str) -> None:
    """INV-04: neither what the index has nor what it lacks; the decision names no key."""
    table = make(table_type)
    with table.writer("overwrite", partitions="dynamic") as writer:
        writer.write(rows(*range(0, 20, 2), 98))
    touched = table.index.status()
    assert (touched.usable, touched.lag) == (True, 1)
    as_a_scan(table, again(table), ids=[*_IDS, 98])


def test_an_update_of_more_keys_than_are_held_hides_none_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """INV-04: entries name the versions before, and the rows are in the log file of the update."""
    table = make("mor")
    table.alter.columns().add("v", "bigint").commit()
    monkeypatch.setattr("plait.arrow.output._KEYS_MIN", 0)
    monkeypatch.setattr("plait.arrow.output._BUFFER_A_HASH", 1 << 60)
    table.update({"v": "1"}, where="p = 'x'")
    as_a_scan(table, again(table))
