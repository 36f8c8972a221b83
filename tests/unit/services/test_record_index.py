"""The record index: what it saves, and that to lose any part of it costs time only (INV-11)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pyarrow as pa
import pytest

from plait import Table
from plait.errors import BadRecordError, OptionError, SchemaMismatchError, StorageError
from plait.index.manifest import (
    IndexRun,
    list_manifests,
    load_manifest,
    load_newest,
    publish_manifest,
)
from plait.index.window import FOLD_LAG_MAX
from plait.queries.lookup import look_up
from plait.services.index.build import fold_index
from plait.storage import open_store
from plait.storage.port import Store
from plait.testing import CountingStore, Fault, FaultStore, SimulatedCrashError, open_wrapped
from plait.timeline import paths
from tests.support import build
from tests.support.build import copy_of, make, uri_of

SCHEMA = "id bigint, day string, v bigint"
DAYS, PER_DAY = 4, 50
rows = partial(build.rows, day=lambda i: f"d{i // PER_DAY}")


def made(kind: str = "cow", **properties: object) -> Table:
    """Give a table of its own, of four partitions."""
    return copy_of(_loaded(kind, tuple(properties.items())))


@cache
def _loaded(kind: str, more: tuple[tuple[str, object], ...]) -> Table:
    every = rows(list(range(DAYS * PER_DAY)), v=0)
    return make(
        SCHEMA, partition_by="day", table_type=kind, buckets=2, upsert=every, properties=dict(more)
    )


def same_as_a_scan(table: Table, *, through: str) -> None:
    """Look every key up, and some that are not there, as a client that knows nothing."""
    stranger = Table.open(uri_of(table))
    found = look_up(stranger._handle, list(range(-3, DAYS * PER_DAY + 30)))
    expected = table.scan().to_arrow().sort_by("id")
    assert found.rows.sort_by([("id", "ascending"), ("day", "ascending")]).equals(
        expected.sort_by([("id", "ascending"), ("day", "ascending")])
    )
    assert found.through == through


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_get_opens_at_most_two_data_files_a_key_after_many_upserts(kind: str) -> None:
    """Partitions, log files and commits that are in no run yet do not count."""
    table, rng = made(kind, compact="off"), np.random.default_rng(5)
    table.index.create()
    for number in range(FOLD_LAG_MAX + 20):
        table.upsert(rows(np.unique(rng.integers(0, DAYS * PER_DAY, 8)).tolist(), v=number))
    same_as_a_scan(table, through="index")
    stranger, store = open_wrapped(uri_of(table), CountingStore)
    for key in rng.integers(0, DAYS * PER_DAY, 12).tolist():
        store.reset()
        assert stranger.get([key], "v").num_rows == 1
        opened = {c.path for c in store.calls if c.operation == "open_input" and c.kind == "data"}
        assert len(opened) <= 2
    store.reset()
    assert stranger.get([-1, 10**12]).num_rows == 0
    assert store.count("open_input", "data") == 0


def test_get_takes_keys_in_many_forms_and_says_what_is_wrong() -> None:
    table = make("a int, b string, v int", record_key=["a", "b"], partition_by="b")
    table.upsert(pa.table({"a": [1, 2], "b": ["x", "y"], "v": [1, 2]}, schema=table.schema))
    forms: list[object] = [
        [(1, "x"), (1, "y"), (1, "x")],
        [{"a": 1, "b": "x"}],
        pa.table({"b": ["x"], "a": pa.array([1], pa.int32())}),
    ]
    for keys in forms:
        assert table.get(keys, ["v", "b"]).to_pylist() == [{"v": 1, "b": "x"}]
        assert look_up(table._handle, keys).through == "partition", "a key that says it"
    assert table.get([]).num_rows == 0
    with pytest.raises(OptionError):
        table.get([1])
    for bad in ((None, "x"), ("one", "x")):
        with pytest.raises(BadRecordError):
            table.get([bad])
    with pytest.raises(SchemaMismatchError):
        table.get(pa.table({"a": pa.array([1], pa.int32())}))
    with pytest.raises(SchemaMismatchError):
        table.get([(1, "x")], "nothing")
    plain = make("a int", record_key=())
    for call in (lambda: plain.get([1]), plain.index.create):
        with pytest.raises(OptionError):
            call()


def test_index_is_dropped_and_its_files_go_with_the_next_clean() -> None:
    """INV-06: nothing is deleted before the decision that lets it go."""
    table = made()
    same_as_a_scan(table, through="buckets")
    assert look_up(table._handle, [7]).files <= DAYS
    table.index.create()
    assert table.index.create() is None
    name = table.index.status().name
    assert name is not None
    store = table._handle.store
    before = [info.path for info in store.list(paths.index(name))]
    table.maintenance.clean()
    assert [info.path for info in store.list(paths.index(name))] == before
    assert table.index.verify().missing == 0
    manifest = load_newest(store, name)
    assert manifest is not None
    assert publish_manifest(store, replace(manifest, number=manifest.number + 1, runs=()))
    found = Table.open(uri_of(table)).index.verify()
    assert (found.missing, found.rows) == (DAYS * PER_DAY, DAYS * PER_DAY)
    table.index.drop()
    same_as_a_scan(table, through="buckets")
    table.maintenance.clean()
    assert list(store.list(paths.index(name))) == []
    for call in (table.index.drop, table.index.build, table.index.verify):
        with pytest.raises(OptionError):
            call()
    table.index.create()
    assert table.index.status().name != name
    same_as_a_scan(table, through="index")
    assert table.check.verify().problems == ()


Lose = Callable[[Table], object]


def on_files(end: str, act: Callable[[Store, str], object]) -> Lose:
    """Return what does something to each file of the index with this end."""

    def lose(table: Table) -> None:
        store = table._handle.store
        for path in [info.path for info in store.list(paths.INDEX) if info.path.endswith(end)]:
            act(store, path)

    return lose


def damaged(store: Store, path: str) -> None:
    body = store.find(path, size_max=1 << 20) or b""
    store.put(path, body[:20] + b"?" + body[21:])


LOSSES: dict[str, Lose] = {
    "all": on_files("", lambda store, path: store.delete([path])),
    "runs": on_files(".run", lambda store, path: store.delete([path])),
    "damaged runs": on_files(".run", damaged),
    "damaged manifests": on_files(".json", lambda store, path: store.put(path, b"{}")),
    "other buckets": lambda table: table.layout.repush(buckets=5),
}


@pytest.mark.parametrize("lost", LOSSES)
def test_index_that_was_lost_costs_time_only(lost: str) -> None:
    """INV-11: look-ups go by buckets, and the next build makes it anew."""
    table = made("mor")
    table.index.create()
    table.upsert(rows([1, 60], v=9))
    LOSSES[lost](table)
    same_as_a_scan(table, through="buckets")
    table.upsert(rows([2, 61], v=10))
    same_as_a_scan(table, through="buckets")
    table.index.build(anew=lost == "damaged runs")
    same_as_a_scan(table, through="index")
    assert table.index.verify().ok
    assert table.check.verify().problems == ()


def test_restore_makes_the_runs_useless_until_they_are_built_anew() -> None:
    """INV-04: rows come back that newer entries would hide."""
    table = made("mor", compact="off")
    before = table.version
    table.index.create()
    table.upsert(rows([1, 60], v=9))
    table.delete(keys=pa.table({"id": [2, 61]}))
    table.index.build()
    table.versions.restore(version=before)
    assert table.get([1, 2, 60, 61]).num_rows == 4
    status = table.index.status()
    assert not status.usable
    assert "restore" in status.reason
    same_as_a_scan(table, through="buckets")
    report = table.maintenance.optimize().index
    assert report is not None
    assert report.built
    same_as_a_scan(table, through="index")
    assert table.index.verify().ok


def test_services_and_overwrites_need_no_new_run() -> None:
    """INV-04: rows that moved to other files are found there."""
    table = made("mor", compact="off")
    table.index.create()
    for number in range(6):
        table.upsert(rows([number, 50 + number, 199], v=number))
    table.maintenance.compact(full=True)
    same_as_a_scan(table, through="index")
    table.overwrite(rows([55, 56, 77], v=70), partitions="dynamic")
    table.delete(where="id between 100 and 110")
    table.update({"v": "v + 1"}, where="id > 140")
    same_as_a_scan(table, through="index")
    assert table.index.verify().ok
    table.index.build()
    same_as_a_scan(table, through="index")
    assert table.index.verify().ok


def test_two_clients_that_add_at_once_lose_nothing() -> None:
    """INV-11: one publishes, the other one finds the number taken."""
    table = made("mor", compact="off")
    table.index.create()
    table.upsert(rows([1, 60], v=9))
    won = []

    def first() -> None:
        won.append(fold_index(Table.open(uri_of(table))._handle))

    late, _ = open_wrapped(
        uri_of(table),
        lambda store: FaultStore(
            store, [Fault("step", "put_if_absent", f"{paths.INDEX}/*", run=first)]
        ),
    )
    assert fold_index(late._handle) is None
    assert won[0] is not None
    assert table.index.status().lag == 0
    assert table.index.verify().ok
    same_as_a_scan(table, through="index")
    assert _unnamed(table) == []


@pytest.mark.long(1)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["crash_before", "lost_reply"])
def test_crash_at_any_call_of_a_fold_or_build_leaves_an_index_that_works(kind: str) -> None:
    """INV-11, INV-06: what was left is deleted by the next one."""
    for anew in (False, True):
        nth = 1
        while _dies(kind, nth, build=anew):
            nth += 1
        assert nth > 5


def _dies(kind: str, nth: int, *, build: bool) -> bool:
    """Let the n-th call about the index fail, then look; return False if there were fewer."""
    table = copy_of(_indexed())
    fault = Fault(kind, path=f"{paths.INDEX}/*", nth=nth)
    died, _ = open_wrapped(uri_of(table), lambda inner: FaultStore(inner, [fault]))
    with suppress(SimulatedCrashError, StorageError):
        died.index.build(anew=build)
    store = table._handle.store
    store.delete([info.path for info in store.list(paths.LEASES)])  # as a clean does, later
    same_as_a_scan(table, through="index")
    for number in (2, 3):
        table.upsert(rows([number, 60 + number], v=10))
        table.index.build()
    assert _unnamed(table) == []
    assert table.index.verify().ok
    return fault._seen >= nth


@cache
def _indexed() -> Table:
    """Make a table whose index is one commit behind."""
    table = made("mor", compact="off")
    table.index.create()
    table.upsert(rows([1, 60], v=9))
    return table


def test_index_of_another_history_is_of_no_use() -> None:
    """INV-04: a manifest that was copied from elsewhere hides no row."""
    table, other = made(), made()
    table.index.create()
    other.index.create()
    theirs = load_newest(other._handle.store, str(other.index.status().name))
    name = str(table.index.status().name)
    assert theirs is not None
    for file in theirs.files:
        table._handle.store.put(file.path, other._handle.store.find(file.path) or b"")
    forged = replace(theirs, index=name, number=7)
    assert publish_manifest(table._handle.store, forged)
    assert not Table.open(uri_of(table)).index.status().usable
    same_as_a_scan(table, through="buckets")


def test_runs_are_few_and_old_manifests_go() -> None:
    """Each entry is written again O(log n) times."""
    table = made("mor", compact="off")
    table.index.create()
    for number in range(24):
        table.upsert(rows([number % 200], v=number))
        table.index.build()
    status = table.index.status()
    assert status.runs <= 6
    assert len(list_manifests(table._handle.store, str(status.name))) <= 2
    assert _unnamed(table) == []
    same_as_a_scan(table, through="index")


def _unnamed(table: Table) -> list[str]:
    """List the run files that neither of the newest two manifests names."""
    store, name = open_store(uri_of(table)), str(table.index.status().name)
    named: set[str] = set()
    for number in list_manifests(store, name):
        manifest = load_manifest(store, name, number)
        runs: tuple[IndexRun, ...] = () if manifest is None else manifest.runs
        named |= {file.path for run in runs for file in run.files}
    listed = [info.path for info in store.list(paths.INDEX) if info.path.endswith(".run")]
    return sorted(set(listed) - named)
