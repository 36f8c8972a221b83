"""Whoever makes the record index anew, or merges its runs, is not outrun by writers (INV-11)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import PurePosixPath

import pytest

from plait import Table
from plait.errors import PlanStaleError
from plait.index.manifest import list_manifests, load_manifest, load_newest, publish_manifest
from plait.queries.lookup import look_up
from plait.services.index.build import build_index, fold_index
from plait.services.index.publish import ROUNDS_MAX
from plait.storage.port import Store
from plait.testing import Fault, FaultStore, open_wrapped
from plait.timeline import paths
from tests.support import build
from tests.support.build import again, copy_of, make

KEYS = 40
_MANIFESTS = f"{paths.INDEX}/*.json"
rows = partial(build.rows, p=lambda i: "xy"[i % 2], v=0)


@cache
def _made() -> Table:
    table = make(
        "id bigint, p string, v bigint",
        partition_by="p",
        buckets=1,
        table_type="mor",
        properties={"compact": "off"},
        upsert=rows(list(range(KEYS))),
    )
    table.index.create()
    return table


def made() -> Table:
    """Give a table of its own, with an index."""
    return copy_of(_made())


def disturbed(table: Table, act: Callable[[], object], *, times: int = 1) -> Table:
    """Open it so that something happens before each of the first manifests that it publishes."""
    fault = Fault("step", "put_if_absent", _MANIFESTS, times=times, run=lambda: act() and None)
    opened, _ = open_wrapped(
        table._handle.store.address.uri, lambda store: FaultStore(store, [fault])
    )
    return opened


def hurried(table: Table) -> Callable[[], object]:
    """Return what commits a new key and brings the index up to date."""
    fast, numbers = again(table), itertools.count(KEYS)

    def act() -> object:
        fast.upsert(rows([next(numbers)]))
        return fold_index(fast._handle, most=KEYS // 2)

    return act


def as_a_scan(table: Table) -> None:
    found = look_up(again(table)._handle, list(range(3 * KEYS)))
    assert found.through == "index"
    assert found.rows.sort_by("id").equals(table.scan().to_arrow().sort_by("id"))
    assert table.index.verify().ok
    assert unnamed(table) == []


def unnamed(table: Table) -> list[str]:
    """List the run files that neither of the newest two manifests names."""
    store, name = table._handle.store, str(table.index.status().name)
    manifests = [load_manifest(store, name, number) for number in list_manifests(store, name)]
    named = {file.path for each in manifests if each is not None for file in each.files}
    listed = {info.path for info in store.list(paths.INDEX)}
    return sorted(path for path in listed - named if PurePosixPath(path).suffix == ".run")


def damage(table: Table) -> None:
    """Change a byte of the run that has the keys of the load."""
    store = table._handle.store
    manifest = load_newest(store, str(table.index.status().name))
    assert manifest is not None
    path = manifest.runs[0].files[0].path
    body = bytearray(store.find(path, size_max=1 << 20) or b"")
    body[20] ^= 1
    store.put(path, bytes(body))


@pytest.mark.parametrize("times", [1, 5])
def test_build_anew_beside_writers_that_publish_first_is_published(times: int) -> None:
    """INV-11: it takes in what they published, and its files are not deleted meanwhile."""
    table = made()
    damage(table)
    report = disturbed(table, hurried(table), times=times).index.build(anew=True)
    assert report is not None
    assert report.built
    assert report.version == table.version
    assert table.scan().count() == KEYS + times
    as_a_scan(table)


def test_files_of_a_build_at_work_are_not_deleted() -> None:
    """INV-06: its read pin keeps them, though the others go further than they do."""
    table = made()
    assert build_index(disturbed(table, hurried(table), times=3)._handle) is not None
    as_a_scan(table)


def test_build_takes_in_nothing_of_another_table() -> None:
    """INV-04: a manifest of a version that the table does not have is passed over.

    Nor do its runs stand for those that were there, if a merge meets it.
    """
    table, other = made(), make("id bigint, p string, v bigint", upsert=rows([1]))
    other.index.create()
    theirs = load_newest(other._handle.store, str(other.index.status().name))
    assert theirs is not None
    name = str(table.index.status().name)
    table.upsert(rows([3], v=7))

    def published() -> object:
        return publish_manifest(table._handle.store, replace(theirs, index=name, number=1))

    assert fold_index(disturbed(table, published)._handle) is None
    assert not again(table).index.status().usable
    assert table.get([3, 5]).num_rows == 2
    forged = replace(theirs, index=name, number=7, version=99)
    assert publish_manifest(table._handle.store, forged)
    assert table.index.build() is not None
    assert table.index.status().usable
    as_a_scan(table)


def test_build_that_is_always_outrun_says_so_and_leaves_nothing() -> None:
    """INV-11: the index of the others is used, and none if each build was made useless."""
    table = made()
    late = disturbed(table, hurried(table), times=10 * ROUNDS_MAX)
    with pytest.raises(PlanStaleError):
        late.index.build(anew=True)
    assert table.scan().count() == KEYS + ROUNDS_MAX
    as_a_scan(table)
    other = again(table)

    def restored() -> object:
        other.upsert(rows([3], v=7))
        return other.versions.restore(version=1)

    with pytest.raises(PlanStaleError):
        disturbed(table, restored, times=99).index.build(anew=True)
    assert look_up(again(table)._handle, [3]).through == "buckets"
    assert table.get([3]).to_pylist() == [{"id": 3, "p": "y", "v": 0}]
    assert table.index.build() is not None
    as_a_scan(table)


@pytest.mark.parametrize("change", ["restore", "repush"])
def test_build_that_a_restore_or_a_repush_made_useless_is_done_again(change: str) -> None:
    """INV-04: what it found is not there any more."""
    table = made()
    other, loaded = again(table), 1
    table.upsert(rows([3], v=7))
    acts: dict[str, Callable[[], object]] = {
        "restore": lambda: other.versions.restore(version=loaded),
        "repush": lambda: other.layout.repush(buckets=3),
    }
    report = disturbed(table, acts[change]).index.build(anew=True)
    assert report is not None
    assert table.index.status().usable
    as_a_scan(table)


def test_merge_of_large_runs_is_not_lost_to_a_small_one() -> None:
    """INV-11: each takes in what the other one published."""
    table = made()
    table.upsert(rows(list(range(KEYS // 2)), v=1))
    merged = fold_index(disturbed(table, hurried(table), times=3)._handle)
    assert merged is not None
    manifest = load_newest(table._handle.store, str(table.index.status().name))
    assert manifest is not None
    assert [run.first for run in manifest.runs if run.entries >= KEYS] == [0]
    assert table.index.status().lag == 0
    as_a_scan(table)


def test_build_knows_that_it_was_published_though_the_reply_says_it_was_not() -> None:
    """INV-10: as a store answers whose client sent the same call twice."""
    table = made()
    late = again(table)
    store: Store = late._handle.store
    put = store.put_if_absent

    def twice(path: str, data: bytes) -> bool:
        landed = put(path, data)
        return landed if not path.startswith(f"{paths.INDEX}/") else landed and put(path, data)

    object.__setattr__(store, "put_if_absent", twice)
    assert late.index.build(anew=True) is not None
    as_a_scan(table)


def test_run_of_a_time_before_a_restore_is_not_published_after_it() -> None:
    """INV-04: rows came back that it would hide, or that it does not have."""
    table = made()
    table.upsert(rows([3], v=7))

    def restored() -> object:
        again(table).versions.restore(version=1)
        again(table).index.build()
        return again(table).upsert(rows([KEYS]))

    assert fold_index(disturbed(table, restored)._handle) is None
    as_a_scan(table)
    assert build_index(disturbed(table, restored)._handle) is None
    as_a_scan(table)


def test_look_up_at_work_keeps_the_runs_of_the_manifest_before_the_newest() -> None:
    """INV-05: it may have looked just before the newest was published.

    INV-06: files of a build that died go when its read pin is gone, and not before.
    """
    table = made()
    store, name = table._handle.store, str(table.index.status().name)
    before = load_newest(store, name)
    table.upsert(rows(list(range(KEYS)), v=1))
    assert fold_index(table._handle) is not None
    after = load_newest(store, name)
    assert before is not None
    assert after is not None
    listed = {info.path for info in store.list(paths.INDEX)}
    assert not {file.path for file in before.files} & {file.path for file in after.files}
    assert {file.path for file in (*before.files, *after.files)} <= listed
    left = paths.index_run(name, table.version, "0" * 16, 0)
    pin = f"{paths.LEASES}/{table.version:020d}-{'0' * 16}"
    store.put(left, b"not whole")
    store.put(pin, b"{}")
    act = hurried(table)
    act()
    assert unnamed(table) == [left]
    store.delete([pin])
    act()
    as_a_scan(table)
