"""Bounds of columns: told or not, made again from the files, and worth only time (INV-11)."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import json
from collections.abc import Callable
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from plait import Table
from plait.errors import OptionError
from plait.model.instant import Operation
from plait.state.checkpoint import list_checkpoints, load_checkpoint, rewrite_checkpoint
from plait.state.part_file import part_schema, read_whole
from plait.testing import open_wrapped
from plait.testing.wrapper import WrappedStore
from plait.timeline import paths
from tests.support import build
from tests.support.build import LITTLE, again, copy_of, uri_of
from tests.support.forge import decision_at

SCHEMA = (
    "id bigint, day string, x double, y float, text string, raw binary, flag boolean, "
    "price decimal(10,2), born date, seen timestamp, many array<int>"
)
WHERE = ("id < 3", "x > 100", "text = 'nothing'", "born is null", "id = 7", "y <= 0", "price > 5")
DAY = dt.date(2026, 1, 1)


def rows(start: int, stop: int, day: str = "a") -> pa.Table:
    """Make rows whose bounds are hard: NaN, zeros, nulls, long texts, nothing at all."""
    ids = list(range(start, stop))
    return pa.table(
        {
            "id": ids,
            "day": [day] * len(ids),
            "x": [float("nan") if i == 11 else (None if i % 7 == 3 else i - 4.0) for i in ids],
            "y": pa.array([-0.0 if i % 2 else 0.0 for i in ids], pa.float32()),
            "text": [None if i % 5 == 0 else "t" * (i * 9) + "é" for i in ids],
            "raw": [b"\xff" * (i * 9) for i in ids],
            "flag": [i > 4 for i in ids],
            "price": [decimal.Decimal(i).quantize(decimal.Decimal("0.01")) for i in ids],
            "born": pa.array(
                [None if day == "b" else DAY + dt.timedelta(i) for i in ids], pa.date32()
            ),
            "seen": [dt.datetime(2026, 1, 1, i % 24, tzinfo=dt.UTC) for i in ids],
            "many": pa.array([[i] for i in ids], pa.list_(pa.int32())),
        }
    )


def write(table: Table, *, keyed: bool) -> None:
    """Change it in every way that adds files."""
    table.append(rows(0, 6))
    table.append(rows(6, 12, "b"))
    if keyed:
        table.upsert(rows(3, 9))
        table.update({"x": "x * 2"}, where="id < 2")
        table.maintenance.compact(full=True)
        table.upsert(rows(4, 5))
    else:
        table.append(rows(3, 9))
        table.maintenance.cluster(order_by="id", kind="sort")
    with table.transaction() as change:
        change.append(rows(20, 22))
    with table.stream("app").writer(after=None, end="1") as epoch:
        epoch.write(rows(30, 33))


@cache
def written(statistics: str, keyed: bool, kind: str, interval: int) -> Table:
    table = build.make(
        SCHEMA,
        record_key=["id"] if keyed else [],
        partition_by=["day"],
        table_type=kind,
        properties={"metadata.statistics": statistics, "checkpoint.interval": interval},
    )
    write(table, keyed=keyed)
    return table


def make(statistics: str, *, keyed: bool = True, kind: str = "mor", interval: int = 100) -> Table:
    """Give a table of its own that was written with or without statistics."""
    return copy_of(written(statistics, keyed, kind, interval))


def turned_on(interval: int = 100) -> Table:
    """Give a table that was written without statistics, and has them from now on."""
    table = make("off", interval=interval)
    table.alter.set({"metadata.statistics": "on"})
    return table


def without_checkpoints(table: Table) -> Table:
    """Let another client open it for which no checkpoint is there."""
    store = table._handle.store
    store.delete([info.path for info in store.list(paths.CHECKPOINTS)])
    return again(table)


def told(table: Table, version: int | None = None) -> list[tuple[object, ...]]:
    """Return what the metadata tells of files, whose names differ from table to table."""
    files = table._handle.cache.snapshot(version=version).files
    names = ("partition", "bucket", "kind", "rows", "masked", "stats")
    columns = [files[name].to_pylist() for name in names]
    return sorted(zip(*columns, strict=True), key=str)


def plans(table: Table) -> list[dict[str, object]]:
    """Return how many files each predicate leaves, by reason; sizes differ by names."""
    found = []
    for where in WHERE:
        plan = table.scan(where=where).plan.to_dict()
        found.append({name: plan[name] for name in plan if name not in ("size_bytes", "version")})
    return found


def content(table: Table, where: str | None = None) -> list[str]:
    return sorted(map(str, table.scan(where=where).to_arrow().to_pylist()))


def untold(table: Table) -> int:
    return again(table).inspect.files()["stats"].null_count


SHAPES = [(True, "cow"), (True, "mor"), (False, "cow")]


@pytest.mark.parametrize(("keyed", "kind"), SHAPES)
def test_without_statistics_nothing_tells_bounds_and_scans_are_right(
    keyed: bool, kind: str
) -> None:
    """They still use partition and bucket."""
    on, off = make("on", keyed=keyed, kind=kind), make("off", keyed=keyed, kind=kind, interval=1)
    store = off._handle.store
    for version in range(off.version + 1):
        added = decision_at(store, version).changes.added
        assert added["stats"].null_count == added.num_rows
    for version in list_checkpoints(store):
        state = load_checkpoint(store, version)
        assert state is not None
        for part in state.parts:
            file = part.file("added")
            assert file is None or read_whole(store, file)["stats"].null_count == file.rows
    assert off.check.verify().clean
    for where in (*WHERE, "day = 'b'", None):
        assert content(off, where) == content(on, where)
        plan, other = off.scan(where=where).plan, on.scan(where=where).plan
        assert plan.pruned_by_bounds == 0
        assert plan.pruned_by_partition == other.pruned_by_partition
        assert plan.pruned_by_bucket == other.pruned_by_bucket
    assert off.scan(where="day = 'b'").plan.pruned_by_partition


@pytest.mark.parametrize(("keyed", "kind"), SHAPES)
def test_rebuilt_bounds_are_those_that_the_writers_would_have_told(keyed: bool, kind: str) -> None:
    on = make("on", keyed=keyed, kind=kind)
    table = make("off", keyed=keyed, kind=kind)
    table.alter.set({"metadata.statistics": "on"})
    assert plans(table) != plans(on)
    planned = table.maintenance.rebuild_metadata(dry_run=True)
    done = table.maintenance.rebuild_metadata()
    assert done.plan == planned
    assert (done.rebuilt, done.unread) == (planned.missing, ())
    assert done.version == table.version == planned.version + 1
    for opened in (table, again(table)):
        assert told(opened) == told(on)
        assert plans(opened) == plans(on)
        assert content(opened) == content(on)
        for version in range(on.version + 1):
            assert told(opened, version) == told(on, version)
    table.upsert(rows(50, 52)) if keyed else table.append(rows(50, 52))
    assert untold(table) == 0
    assert table.maintenance.rebuild_metadata(dry_run=True).missing == 0
    assert table.check.verify().clean


def test_typed_bounds_of_a_rebuilt_checkpoint_are_those_of_one_from_decisions() -> None:
    found = []
    for statistics in ("on", "off"):
        table = make(statistics)
        if statistics == "off":
            table.alter.set({"metadata.statistics": "on"})
            table.maintenance.rebuild_metadata()
        else:
            table.alter.set({"checkpoint.interval": 1})
            table.upsert(rows(4, 5))
        state = load_checkpoint(table._handle.store, list_checkpoints(table._handle.store)[-1])
        assert state is not None
        kinds = {number: pa.int64() for number in (1,)} | {3: pa.float64(), 8: pa.decimal128(10, 2)}
        file = state.parts[0].file("added")
        assert file is not None
        added = read_whole(table._handle.store, file, kinds).slice(0)
        names = [name for name in part_schema("added", kinds).names if "." in name]
        first = added.filter(pc.less(added["version"], 7))
        found.append(sorted(map(str, first.select(names).to_pylist())))
    assert found[0] == found[1]
    assert any("Decimal" in row for row in found[0])


def test_a_rebuild_that_is_not_wanted_is_refused_and_one_of_what_is_known_writes_nothing() -> None:
    table = make("off")
    before = table.version
    rebuild = table.maintenance.rebuild_metadata
    for call in (rebuild, lambda: rebuild(dry_run=True)):
        with pytest.raises(OptionError) as caught:
            call()
        assert caught.value.key == "metadata.statistics"
    assert table.version == before
    table = make("on")
    before = table.version
    assert table.maintenance.rebuild_metadata().version is None
    assert table.version == before


def rebuilt() -> Table:
    table = turned_on()
    table.maintenance.rebuild_metadata()
    return table


def test_bounds_of_a_lost_checkpoint_cost_time_and_are_made_again() -> None:
    """INV-11."""
    table = rebuilt()
    known, before, fast = told(table), content(table), plans(table)
    opened = without_checkpoints(table)
    assert untold(table) == opened.inspect.files().num_rows
    assert content(opened) == before
    assert plans(opened) != fast
    assert opened.check.verify().clean
    opened.maintenance.rebuild_metadata()
    assert (told(opened), plans(opened)) == (known, fast)


@pytest.mark.parametrize("how", ["", "squeezed", "archived"])
def test_bounds_outlive_the_checkpoint_of_a_client_that_rests_on_older_parts(how: str) -> None:
    """INV-11: what one client has made again, another does not write away."""
    table = turned_on(2)
    other = again(table)
    assert other.inspect.files()["stats"].null_count
    table.maintenance.rebuild_metadata()
    if how == "archived":  # the decisions that lack them
        table.alter.set({"archive.keep": 1})
        for number in range(6):
            table.upsert(rows(50 + number, 51 + number))
        assert table.maintenance.archive().version is not None
    other.upsert(rows(60, 61))
    if how == "squeezed":  # as in a client that lives long
        known = other._handle.cache.known()
        other._handle.cache.offer(known.squeezed(), same_version=True)
    other.upsert(rows(61, 62))
    assert how == "archived" or list_checkpoints(table._handle.store)[-1] == other.version
    assert untold(table) == 0
    assert other.inspect.files()["stats"].null_count == 0, "it rests on the rebuilt one itself"
    assert table.check.verify().clean


def test_a_mark_without_a_checkpoint_means_nothing() -> None:
    """INV-11: the rebuild died between its decision and its checkpoint."""
    table = turned_on(2)
    other = again(table)
    before = content(other)
    version = table.maintenance.rebuild_metadata().version
    assert version is not None
    store = table._handle.store
    store.delete([i.path for i in store.list(paths.CHECKPOINTS) if f"{version:020d}" in i.path])
    other.upsert(rows(60, 61))
    other.upsert(rows(61, 62))
    assert untold(table)
    assert content(other, "id < 60") == before
    assert other.check.verify().clean


def test_bounds_that_lie_in_a_rebuilt_checkpoint_are_found_and_mended() -> None:
    """INV-04: a checkpoint must not know better than the files."""
    table = rebuilt()
    path = lie(table)
    problems = again(table).check.verify().problems
    assert [(each.invariant, each.path) for each in problems] == [("INV-04", path)]
    assert "not those of the file" in problems[0].message
    opened = again(table)
    plan = opened.check.repair(dry_run=True)
    assert [each.answer for each in plan.findings] == ["mend"]
    assert opened.check.repair(plan).left == ()
    assert content(again(table), "id = 4")


def lie(table: Table) -> str:
    """Move the bounds of the first column in the newest checkpoint; return its path."""
    store, version = table._handle.store, table.version
    state = again(table)._handle.cache.refresh()
    files = state.folded(store, bounds=True).files
    texts = [json.loads(text) for text in files["stats"].to_pylist()]
    wrong = [json.dumps({**text, "1": ["900", "901", 0]}, separators=(",", ":")) for text in texts]
    fresh = without_checkpoints(table)._handle.cache.refresh()
    stats = pa.table({"path": files["path"], "stats": wrong})
    written = rewrite_checkpoint(store, fresh, stats, table._handle.ports)
    assert written is not None
    assert fresh.version == version
    return paths.checkpoint(version)


def test_a_file_that_cannot_be_read_keeps_no_bounds() -> None:
    table = turned_on()
    path = table.inspect.files()["path"][0].as_py()
    table._handle.store.delete([path])
    done = table.maintenance.rebuild_metadata()
    assert done.unread == (path,)
    assert done.rebuilt == done.plan.missing - 1
    assert untold(table) == 1


def test_a_rebuild_conflicts_with_nobody() -> None:
    """INV-15: a writer, a reader and another rebuild at work do not notice."""
    table = turned_on()
    other, second = again(table), again(table)
    before, planned = content(table, "id > 5"), second.maintenance.rebuild_metadata(dry_run=True)
    with other.writer("upsert") as writer:
        writer.write(rows(4, 5))
        report = table.maintenance.rebuild_metadata()
        second.maintenance.rebuild_metadata()
    assert writer.result.rebased == 0
    assert planned.missing == report.rebuilt
    assert table.inspect.history(limit=3)[2].operation == Operation.REBUILD.value
    assert [entry.operation for entry in table.inspect.history(limit=1)] == ["upsert"]
    assert (untold(table), content(table, "id > 5")) == (0, before)
    assert table.check.verify().clean


def test_a_restore_brings_files_back_with_the_bounds_that_are_known() -> None:
    table = rebuilt()
    before = told(table)
    at = table.version
    table.delete(where="id < 100")
    table.versions.restore(version=at)
    assert told(table) == before
    assert without_checkpoints(table).check.verify().clean


def test_statistics_that_are_turned_off_leave_what_is_known() -> None:
    table = make("on")
    table.alter.set({"metadata.statistics": "off"})
    known = table.inspect.files().num_rows
    table.append(rows(70, 71, "c"))
    assert table.inspect.files()["stats"].null_count == table.inspect.files().num_rows - known
    assert list(itertools.chain(content(table, "id = 70")))


class Beside(WrappedStore):
    """Lets others work when the first part of a checkpoint is written."""

    act: Callable[[], object] | None = None

    def put_if_absent(self, path: str, body: bytes) -> bool:
        answer = super().put_if_absent(path, body)
        act = self.act
        if act is not None and path.startswith(paths.CHECKPOINTS):
            self.act = None
            act()
        return answer


def test_a_checkpoint_that_is_collected_while_it_is_written_is_no_damage() -> None:
    """INV-11: others wrote newer ones, and a clean takes what no kept checkpoint names."""
    table = turned_on(1)
    table.alter.set(LITTLE)
    slow, store = open_wrapped(uri_of(table), Beside)

    def meanwhile() -> None:
        for number in range(3):
            table.upsert(rows(60 + number, 61 + number))
        table.maintenance.clean()

    store.act = meanwhile
    report = slow.maintenance.rebuild_metadata()
    assert (report.rebuilt, store.act) == (0, None)
    assert table.check.verify().clean
    assert table.maintenance.rebuild_metadata().rebuilt
    assert untold(table) == 0
