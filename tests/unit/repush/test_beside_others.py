"""What a repush promises to those who write, read, clean and restore beside it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pyarrow as pa
import pytest

from plait import (
    InstantExpiredError,
    OptionError,
    RepushRefusedError,
    RetryableConflictError,
    SchemaError,
    Table,
)
from plait.repush.begin import RepushRequest, begin
from plait.testing import CountingStore, Fault, FaultStore, SimulatedCrashError, open_wrapped
from tests.support.build import uri_of
from tests.support.protocol import Phases, beside, doing
from tests.support.repush_steps import (
    FIRST,
    SCHEMA,
    again,
    content,
    disturbed,
    is_laid_out,
    make,
    nothing_is_left,
    rows,
)


def without(*ids: int) -> list[tuple[int, str, int]]:
    return [row for row in FIRST if row[0] not in ids]


# --- layouts that are refused ----------------------------------------------------------------


UNKEYED: dict[str, object] = {"record_key": (), "buckets": None}


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ({}, {"partition_by": "nothing"}),
        ({}, {"partition_by": ("p", "p")}),
        ({}, {"ordering": "nothing"}),
        ({}, {"buckets": 0}),
        (UNKEYED, {"buckets": 4}),
        ({}, {"table_type": "other"}),
        ({}, {"properties": {"nothing": 1}}),
        ({}, {"rows_per_task": 0}),
        ({}, {"sort_by": "nothing"}),
        ({}, {"sort_by": ["p", "p"]}),
        ({}, {"sort_by": "p", "properties": {"cluster.by": "v"}}),
        ({}, {"sort_by": "p", "properties": {"cluster.kind": "zorder"}}),
    ],
)
def test_a_layout_that_the_table_cannot_have_is_refused_before_anything_is_written(
    how: dict[str, object], wanted: dict[str, object]
) -> None:
    table = make(**how)
    before = [info.path for info in table._handle.store.list("")]
    with pytest.raises((OptionError, SchemaError)):
        table.layout.repush(**wanted)  # type: ignore[arg-type]  # wrong on purpose
    assert [info.path for info in table._handle.store.list("")] == before


@pytest.mark.parametrize("met", ["load", "follow"])
def test_keys_that_a_wider_partitioning_does_not_tell_apart_are_refused(met: str) -> None:
    """INV-08: the table is as it was, also for its writers."""
    table = make(partition_by="p")
    expected = sorted([*FIRST, (1, "y", 5)])
    double = rows(1, p="y", v=5)
    if met == "load":
        table.upsert(double)
    client = beside(table, "repush-follow", lambda: table.upsert(double))
    with pytest.raises(RepushRefusedError):
        client.layout.repush(partition_by=())
    assert content(table) == expected
    table.upsert(rows(2, v=9))
    table.layout.cancel()
    assert content(table) == sorted([*(r for r in expected if r[0] != 2), (2, "x", 9)])
    assert table._handle.cache.refresh().table.spec.layout.partition_by == ("p",)
    nothing_is_left(table)


# --- versions that are kept ------------------------------------------------------------------


def test_a_clean_keeps_every_version_from_the_base_on_while_a_repush_is_open() -> None:
    """INV-05: however little the table retains."""
    table = make()
    opened = begin(table._handle, RepushRequest(buckets=3))
    expected = {table.version: content(table)}
    for number in range(4):
        table.upsert(rows(number, v=10 + number))
        expected[table.version] = content(table)
        table.maintenance.clean(table.maintenance.clean(now=True, dry_run=True))
    table.maintenance.compact(full=True)
    table.maintenance.clean()
    table.maintenance.archive()
    for version, found in expected.items():
        assert content(again(table), version) == found
    assert again(table).changes(opened.base).to_arrow().num_rows == 8
    table.layout.repush(buckets=3)
    assert content(table) == expected[max(expected)]
    table.upsert(rows(0, v=99))
    table.maintenance.clean()
    with pytest.raises(InstantExpiredError):
        content(table, opened.base)
    nothing_is_left(table)


def test_a_cancelled_repush_keeps_no_version() -> None:
    table = make()
    opened = begin(table._handle, RepushRequest(buckets=3))
    table.upsert(rows(0, v=1))
    table.layout.cancel()
    table.upsert(rows(1, v=1))
    table.maintenance.clean()
    with pytest.raises(InstantExpiredError):
        content(table, opened.base)


# --- services and changes in the middle ------------------------------------------------------


def options(other: Table) -> None:
    other.alter.set({"write.buffer.size": "32MiB", "commit.deadline": "7m"})


def deletes(other: Table) -> None:
    other.delete(where="id < 2")


def restores(other: Table) -> None:
    other.versions.restore(version=1)


def writes_and_restores(other: Table) -> None:
    other.upsert(rows(1, 50, v=5))
    other.versions.restore(version=other.version - 1)
    other.upsert(rows(51, v=5))


def overwrites(other: Table) -> None:
    other.overwrite(rows(1, 60))


def moves(other: Table) -> None:
    """A key whose partition column changes, and that goes and comes."""
    other.upsert(rows(1, p="y", v=5))
    other.delete(where="id = 2")
    other.upsert(rows(1, v=6))
    other.upsert(rows(2, p="y", v=6))


def archives(other: Table) -> None:
    other.upsert(rows(1, v=5))
    other.maintenance.compact(full=True)
    other.maintenance.clean()
    other.maintenance.archive()


def saves(other: Table) -> None:
    other.versions.savepoint("kept")
    other.upsert(rows(1, v=5))


ACTS: dict[str, tuple[Callable[[Table], object], list[tuple[int, str, int]] | None]] = {
    "options": (options, FIRST),
    "compaction": (lambda t: t.maintenance.compact(full=True), FIRST),
    "clustering": (lambda t: t.maintenance.cluster(order_by="v"), FIRST),
    "clean": (lambda t: t.maintenance.clean(), FIRST),
    "archive": (archives, sorted([*without(1), (1, "x", 5)])),
    "savepoint": (saves, sorted([*without(1), (1, "x", 5)])),
    "deletes": (deletes, without(0, 1)),
    "restore": (restores, None),
    "writes and restore": (writes_and_restores, None),
    "overwrite": (overwrites, sorted([(1, "x", 0), (60, "x", 0)])),
    "moves": (moves, sorted([*without(1, 2), (1, "x", 6), (2, "y", 6)])),
}


@pytest.mark.long(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", ACTS)
def test_a_repush_leads_to_what_others_made_of_the_table_at_any_of_its_phases(name: str) -> None:
    """INV-04, INV-07: whatever happens in the middle, the rows are those of the newest version."""
    act, expected = ACTS[name]
    found: list[list[tuple[int, str, int]]] = []
    swapped: list[bool] = []

    def kept() -> Table:
        return make(properties={"clean.retain.versions": 20})

    def meanwhile(other: Table, _: str) -> None:
        swapped.append(bool(other._handle.cache.refresh().table.former))
        act(other)
        found.append(content(again(other)))

    for table, client, nth in disturbed(kept, meanwhile, step=3):
        was = len(found)
        client.layout.repush(buckets=3) if nth % 2 else client.layout.repush(partition_by="p")
        now = content(again(table))
        met = len(found) > was
        assert now == (found[-1] if met else FIRST)
        if met and expected is not None and not swapped[-1]:  # then it means something else
            assert now == expected
        assert again(table)._handle.cache.refresh().table.repush is None
        assert not again(table).check.verify(data=True).problems


def test_options_that_change_in_the_middle_stay_beside_those_of_the_swap() -> None:
    table = make()
    beside(table, "repush-follow", lambda: options(table)).layout.repush(
        buckets=3, properties={"file.size.target": "64MiB"}
    )
    found = again(table)._handle.cache.refresh().table.options
    assert found.seconds("commit.deadline") == 420
    assert found.size("file.size.target") == 64 << 20


def test_a_savepoint_of_the_old_layout_is_read_and_restored_after_the_swap() -> None:
    """INV-05."""
    table = make(partition_by="p")
    table.versions.savepoint("old")
    table.layout.repush(buckets=3, partition_by=())
    table.upsert(rows(1, v=4))
    table.maintenance.clean()
    assert content(again(table), 4) == FIRST
    table.versions.restore(version=4)
    assert content(again(table)) == FIRST
    assert again(table)._handle.cache.refresh().table.spec.layout.partition_by == ("p",)
    table.upsert(rows(1, p="y", v=4))
    assert content(again(table)) == sorted([*FIRST, (1, "y", 4)])
    table.versions.drop_savepoint("old")
    nothing_is_left(table)


# --- what the timeline knows -----------------------------------------------------------------


def test_commit_ids_and_stream_tokens_count_across_the_swap() -> None:
    """INV-09, INV-16."""
    table = make()
    first = table.upsert(rows(1, v=3), commit_id="one").version
    stream = table.stream("s")
    with stream.writer("upsert", after=None, end="1") as epoch:
        epoch.write(rows(2, v=3))
    before = stream.position
    table.layout.repush(buckets=3)
    client = again(table)
    assert client.upsert(rows(1, v=9), commit_id="one").version == first
    position = client.stream("s").position
    assert position == before
    with client.stream("s").writer("upsert", after=None, end="1") as epoch:
        epoch.write(rows(2, v=3))
    with client.stream("s").writer("upsert", after=position, end="2") as epoch:
        epoch.write(rows(2, v=4))
    assert content(client) == sorted([*without(1, 2), (1, "x", 3), (2, "x", 4)])
    assert not client.stream("s").audit().problems


@pytest.mark.parametrize("written", ["before the swap", "after the swap", "never"])
def test_rows_that_were_computed_from_a_read_lose_no_update_across_the_swap(written: str) -> None:
    """INV-07."""
    table = make()
    client = again(table)
    read = client.version
    writer = client.writer("upsert", read_from=read).__enter__()
    writer.write(rows(1, v=10))
    if written == "before the swap":
        table.upsert(rows(1, v=1))
    table.layout.repush(buckets=3, partition_by="p")
    if written == "after the swap":
        table.upsert(rows(1, v=1))
    if written == "never":
        writer.__exit__(None, None, None)
        assert content(table) == sorted([*without(1), (1, "x", 10)])
        return
    with pytest.raises(RetryableConflictError):
        writer.__exit__(None, None, None)
    assert content(table) == sorted([*without(1), (1, "x", 1)])
    nothing_is_left(table)


@pytest.mark.parametrize(
    ("work", "table_type"), [("compact", "mor"), ("cluster", "cow"), ("cluster", "mor")]
)
def test_a_rewrite_that_meets_the_swap_ends_without_an_error(work: str, table_type: str) -> None:
    """INV-15."""
    table = make(table_type=table_type)
    client = beside(table, "publish", lambda: table.layout.repush(buckets=3))
    if work == "compact":
        client.maintenance.compact(full=True)
    else:
        client.maintenance.cluster(order_by="v")
    assert is_laid_out(table)
    assert content(again(table)) == FIRST
    nothing_is_left(table)


def test_writers_wait_for_the_last_round_and_commit_after_the_swap() -> None:
    """INV-15: the last round has the whole table to itself."""
    table = make()
    client = beside(table, "repush-swap", lambda: table.upsert(rows(70, v=7)))
    observer: Phases = client._handle.ports.observer  # type: ignore[assignment]  # that of beside
    seen: list[bool] = []

    def at_follow() -> None:
        observer.on["repush-follow"] = at_follow
        if "repush-swap" in observer.heard:
            seen.append(bool(again(table)._handle.cache.refresh().reservations))

    observer.on["repush-follow"] = at_follow
    client.layout.repush(buckets=3)
    assert seen == [True]
    assert content(again(table)) == sorted([*FIRST, (70, "x", 7)])
    assert not again(table)._handle.cache.refresh().reservations
    nothing_is_left(table)


# --- writers that die ------------------------------------------------------------------------


@pytest.mark.long(3)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize(
    ("before", "after"), [((), ("p",)), (("p",), ()), ((), ()), (("p",), ("p",))]
)
def test_the_files_of_a_writer_that_staged_before_and_after_the_swap_are_deleted(
    table_type: str, before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    """INV-06: in both layouts, whichever of them its records name."""
    table = make(table_type=table_type, partition_by=before)
    faults = [Fault("crash_before", "put_if_absent", nth=2)]
    dying, store = open_wrapped(uri_of(table), lambda s: FaultStore(s, []))
    writer = dying.writer("upsert", on_conflict="retry").__enter__()
    writer.write(rows(*range(20), v=8))
    writer.write(rows(*range(20, 40), p="z", v=8))
    store._script += faults
    table.layout.repush(partition_by=after, buckets=3)
    with pytest.raises(SimulatedCrashError):
        writer.__exit__(None, None, None)
    nonce = writer.instant.nonce

    def theirs() -> set[str]:
        listed = (info.path for info in table._handle.store.list(""))
        return {path for path in listed if nonce in path and not path.startswith(".meta/")}

    assert len({path.rpartition("/")[0] for path in theirs()}) > 1 or before == after
    again(table).maintenance.rollback(writer.instant)
    assert not theirs()
    assert content(again(table)) == FIRST
    nothing_is_left(table)


# --- tables without a key --------------------------------------------------------------------


def test_an_empty_table_is_laid_out_anew() -> None:
    table = Table.create("memory://repush-unit-empty", SCHEMA, record_key="id", buckets=2)
    table.layout.repush(buckets=3, table_type="mor", partition_by="p")
    table.upsert(pa.concat_tables([rows(1), rows(2, p="y")]))
    assert content(again(table)) == [(1, "x", 0), (2, "y", 0)]


def test_a_partial_upsert_gives_way_to_the_ordering_column_that_a_swap_set() -> None:
    """INV-08: it was staged when no column decided between two rows of a key."""
    table = make()
    with table.writer("upsert", missing_columns="keep", on_conflict="retry") as partial:
        partial.write(rows(1, v=0).select(["id", "v"]))
        partial.write(rows(2, v=7).select(["id", "v"]))
        again(table).layout.repush(ordering="v")
        again(table).upsert(rows(1, v=5))
    kept = sorted([*without(1, 2), (1, "x", 5), (2, "x", 7)])
    assert content(again(table)) == kept


@pytest.mark.parametrize(
    "lacked", [{"ordering": "p"}, {"partition_by": "p"}], ids=["ordering", "partition"]
)
@pytest.mark.parametrize("in_block", [False, True], ids=["writer", "transaction"])
def test_a_partial_upsert_that_lacks_a_column_of_the_new_layout_is_run_again(
    lacked: dict[str, object], *, in_block: bool
) -> None:
    table = make()
    given, work = rows(1, v=8).select(["id", "v"]), ExitStack()
    if in_block:
        work.enter_context(table.transaction()).upsert(given, missing_columns="keep")
    else:
        writer = table.writer("upsert", missing_columns="keep", on_conflict="retry")
        work.enter_context(writer).write(given)
    again(table).layout.repush(**lacked)  # type: ignore[arg-type]  # one option or the other
    with pytest.raises(RetryableConflictError, match="'p'"):
        work.close()
    assert content(again(table)) == FIRST


def test_an_update_of_a_column_that_became_a_partition_is_run_again() -> None:
    table, work = make(), ExitStack()
    work.enter_context(table.transaction()).update({"p": "'z'"}, where="id = 1")
    again(table).layout.repush(partition_by="p")
    with pytest.raises(RetryableConflictError, match="'p'"):
        work.close()
    assert content(again(table)) == FIRST


def test_many_small_commits_are_followed_by_one_look_at_each_bucket() -> None:
    """A round after them opens the files that are live at its ends, not those of each commit."""
    commits = 16
    table = make(table_type="mor", buckets=1, partition_by=(), properties={"compact": "off"})
    client, store = open_wrapped(uri_of(table), CountingStore)

    def write() -> None:
        for number in range(commits):
            again(table).upsert(rows(1, 2, v=100 + number))
        store.reset()

    report = doing(client, "repush-follow", write).layout.repush(buckets=2)
    opened = [call.path for call in store.calls if call.operation == "open_input"]
    assert report.rows_followed == 2
    assert len(opened) < commits, opened
    assert content(again(table)) == sorted([*without(1, 2), (1, "x", 115), (2, "x", 115)])
