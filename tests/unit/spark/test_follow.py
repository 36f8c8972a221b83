"""What a batch of a stream takes in: whole commits, within limits, from where it begins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from plait import (
    InstantExpiredError,
    InstantNotFoundError,
    OptionError,
    SchemaMismatchError,
    StreamError,
    Table,
)
from plait.read.change_scan import ChangeScan
from plait.spark.follow import Follower, Offset, ReadLimits
from plait.txn.read_pin import load_read_pins
from tests.support import build
from tests.support.build import make
from tests.support.forge import forge_column

TWO = {"clean.retain.time": "0s", "clean.grace": "0s", "clean.retain.versions": 2}


@pytest.fixture
def table() -> Table:
    return make(buckets=3)


def put(table: Table, *ids: int, v: int = 0) -> int:
    return table.upsert(pa.table({"id": list(ids), "v": [v] * len(ids)})).version


def follower(table: Table, start: str | None = None, **limits: int) -> Follower:
    state = table._handle.cache.refresh()
    return Follower(table._handle, state.table.spec.schema, start, ReadLimits(**limits))


def batches(table: Table, stream: Follower, at: Offset) -> Iterator[tuple[Offset, list[int]]]:
    """Follow until there is nothing new; give the end of each batch, and its ids."""
    while (end := stream.next(at, limited=True)) != at:
        scan = ChangeScan(table._handle.store, stream.window(at, end))
        again = Offset.from_dict(end.to_dict())
        assert again == end, "what the checkpoint holds is all that is known"
        yield end, sorted(scan.to_arrow()["id"].to_pylist())
        at = end


def test_the_first_rows_come_before_the_commits(table: Table) -> None:
    put(table, 1, 2)
    put(table, 2, 3, v=1)
    stream = follower(table)
    ((end, ids),) = batches(table, stream, Offset())
    assert (end.version, end.began, end.files, ids) == (2, -1, None, [1, 2, 3])
    put(table, 9)
    assert list(batches(table, stream, end)) == [(replace(end, version=3), [9])]


def test_the_first_rows_are_divided_by_files_and_each_comes_once(table: Table) -> None:
    put(table, *range(50))
    found = list(batches(table, follower(table, files=1), Offset()))
    assert [end.files for end, _ in found] == [1, 2, None]
    assert Counter(i for _, ids in found for i in ids) == Counter(range(50))
    small = list(batches(table, follower(table, bytes=1), Offset()))
    assert len(small) == 3, "at least one file"


@pytest.mark.parametrize(
    ("start", "first"),
    [("0", [1, 2, 3, 4]), ("1", [1, 2, 3, 4]), ("3", [3, 4]), ("5", []), ("latest", [])],
)
def test_a_start_names_the_first_version_that_is_delivered(
    table: Table, start: str, first: list[int]
) -> None:
    for at in range(1, 5):
        put(table, at)
    found = [i for _, ids in batches(table, follower(table, start), Offset()) for i in ids]
    assert found == first
    stopped = follower(table, start)
    stopped.stop_at_head()
    put(table, 9)
    assert [i for _, ids in batches(table, stopped, Offset()) for i in ids] == first


def test_a_time_and_an_instant_are_starts_too(table: Table) -> None:
    for at in range(1, 5):
        put(table, at)
    second = table.inspect.timeline().decided[2]
    for start in (str(second.to_dict()["completed"]), str(second.instant)):
        found = [i for _, ids in batches(table, follower(table, start), Offset()) for i in ids]
        assert found == [2, 3, 4]
    assert len(list(batches(table, follower(table, "2020-01-01T00:00:00Z"), Offset()))) == 1
    with pytest.raises(OptionError) as refused:
        follower(table, "tomorrow").next(Offset(), limited=False)
    assert refused.value.key == "start"
    with pytest.raises(InstantNotFoundError):
        follower(table, "7").next(Offset(), limited=False)


def test_earliest_gives_the_oldest_rows_that_can_be_read_and_all_after(table: Table) -> None:
    table.alter.set(TWO)
    for at in range(1, 6):
        put(table, at)
    table.maintenance.clean()
    found = list(batches(table, follower(table, "earliest"), Offset()))
    assert [i for _, ids in found for i in ids] == [1, 2, 3, 4, 5]
    assert len(found) == 2


@pytest.mark.parametrize(("start", "ids"), [(None, [1, 2]), ("latest", []), ("2", [2])])
def test_the_end_of_the_first_batch_says_where_the_stream_began(
    table: Table, start: str | None, ids: list[int]
) -> None:
    """Spark asks for the first offset again to repeat that batch, after later commits."""
    put(table, 1)
    put(table, 2)
    end = follower(table, start).next(Offset(), limited=False)
    put(table, 3)
    window = follower(table, start).window(Offset(), end)
    found = ChangeScan(table._handle.store, window).to_arrow()
    assert sorted(found["id"].to_pylist()) == ids


def test_limits_count_commits_that_changed_something(table: Table) -> None:
    for at in range(1, 7):
        put(table, at)
        table.alter.set({"checkpoint.interval": at + 2})
    ends = [end.version for end, _ in batches(table, follower(table, "1", versions=2), Offset())]
    assert ends == [4, 8, 12]
    ends = [end.version for end, _ in batches(table, follower(table, "1", files=3), Offset())]
    assert ends[-1] == 12
    assert len(ends) >= 3
    assert len(list(batches(table, follower(table, "1", bytes=1), Offset()))) == 6
    unlimited = follower(table, "1", versions=1).next(Offset(), limited=False)
    assert (unlimited.version, unlimited.began) == (12, 0)


def test_the_lease_moves_with_the_stream(table: Table) -> None:
    """INV-05: what a batch reads stays until it is committed."""
    for at in range(1, 4):
        put(table, at)
    stream = follower(table, "1")
    end = stream.next(Offset(), limited=False)
    stream.window(Offset(), end)
    assert [lease.version for lease in load_read_pins(table._handle)] == [0]
    stream.hold(end.version)
    assert [lease.version for lease in load_read_pins(table._handle)] == [3]
    assert stream.next(end, limited=True) == end
    stream.close()
    assert load_read_pins(table._handle) == []


def test_a_version_that_is_gone_is_an_error_that_says_what_to_do(table: Table) -> None:
    table.alter.set(TWO)
    for at in range(1, 8):
        put(table, 1, v=at)
    table.maintenance.clean()
    stream = follower(table, "latest")
    here = stream.next(Offset(), limited=False)
    was = replace(here, version=2)
    for ask in (
        lambda: stream.window(was, here),
        lambda: follower(table, versions=1).next(was, limited=True),
        lambda: stream.window(Offset(), replace(was, began=-1)),
    ):
        with pytest.raises(InstantExpiredError) as gone:
            ask()
        assert gone.value.oldest == table._handle.cache.known().horizon
        assert "new checkpoint" in gone.value.hint


def test_a_stream_ends_before_the_first_commit_with_newer_columns(table: Table) -> None:
    """And goes on behind it, once it knows them; no row loses a value on the way."""
    put(table, 1)
    put(table, 2)
    known = table._handle.cache.refresh().table.spec.schema
    old = Follower(table._handle, known, "1", ReadLimits(versions=1))
    newer = forge_column(table._handle.store, "more")
    rows = pa.table({"id": [3], "v": [0], "more": [7]})
    build.again(table).upsert(rows)
    end = Offset()
    for ids in ([1], [2]):
        before, end = end, old.next(end, limited=True)
        window = old.window(before, end)
        assert ChangeScan(table._handle.store, window).to_arrow()["id"].to_pylist() == ids
    with pytest.raises(SchemaMismatchError) as changed:
        old.next(end, limited=True)
    assert changed.value.version == 3
    with pytest.raises(SchemaMismatchError):
        Follower(table._handle, known, None, ReadLimits()).next(Offset(), limited=False)
    fresh = Follower(table._handle, newer, None, ReadLimits())
    again = ChangeScan(table._handle.store, fresh.window(Offset(), end))
    assert again.to_arrow()["more"].to_pylist() == [None, None], "a batch from before, repeated"
    window = fresh.window(end, fresh.next(end, limited=False))
    assert ChangeScan(table._handle.store, window).to_arrow()["more"].to_pylist() == [7]


def test_a_stream_does_not_read_values_in_columns_that_were_wider() -> None:
    """INV-04: after a restore it says so; loading it again would give it the same columns."""
    table = make("id bigint, v int")
    table.alter.columns().widen("v", "bigint").commit()
    wide = follower(table, "1")
    put(table, 1, v=2**40)
    table.versions.restore(version=0)
    whole = wide.next(Offset(), limited=False)
    window = wide.window(Offset(), whole)
    rows = ChangeScan(table._handle.store, window).to_arrow().to_pylist()
    assert [row["v"] for row in rows] == [2**40, 2**40]
    narrow = follower(table, "1")
    with pytest.raises(SchemaMismatchError, match="restore") as refused:
        narrow.next(Offset(), limited=False)
    assert "new checkpoint" in refused.value.hint
    with pytest.raises(SchemaMismatchError, match="restore") as refused:
        narrow.window(Offset(), whole)
    assert "new checkpoint" in refused.value.hint
    put(table, 2)
    after = narrow.next(whole, limited=False)
    later = ChangeScan(table._handle.store, narrow.window(whole, after)).to_arrow()
    assert later["v"].type == pa.int32()
    assert later["id"].to_pylist() == [2]
    table.alter.columns().add("more", "int").commit()
    newer = follower(table, "1")
    with pytest.raises(SchemaMismatchError, match="restore"):
        newer.window(Offset(), newer.next(Offset(), limited=False))


def test_a_checkpoint_of_another_table_is_refused(table: Table) -> None:
    """Also one of a table that was here before, or of a later state of this one."""
    put(table, 1)
    end = follower(table).next(Offset(), limited=False)
    for other in (replace(end, table="id-0"), replace(end, version=9)):
        with pytest.raises(StreamError):
            follower(table).next(other, limited=False)
        with pytest.raises(StreamError):
            follower(table).window(end, other)


def test_offsets_that_are_none_are_refused() -> None:
    for wrong in ({"version": "3"}, {"instant": 3}, {"version": True}):
        with pytest.raises(OptionError):
            Offset.from_dict(wrong)
    assert Offset.from_dict(Offset().to_dict()).first
    whole = Offset(3, -1, 2, "id-0")
    assert Offset.from_dict(whole.to_dict()) == whole


def test_a_stream_gets_what_a_restore_changed_and_what_its_undo_changed(table: Table) -> None:
    """Applied one after the other, the batches give the rows of the table."""
    put(table, 1, 2)
    stream = follower(table, versions=1)
    at = stream.next(Offset(), limited=True)
    put(table, 2, 3, v=1)
    restored = table.versions.restore(version=1).version
    put(table, 4)
    table.versions.restore(version=restored - 1)
    rows: dict[int, int] = {1: 0, 2: 0}
    kinds: Counter[str] = Counter()
    while (end := stream.next(at, limited=True)) != at:
        scan = ChangeScan(table._handle.store, stream.window(at, end))
        for row in scan.to_arrow().to_pylist():
            kinds[row["_change_type"]] += 1
            if row["_change_type"] in ("delete", "update_preimage"):
                assert rows.pop(row["id"]) == row["v"]
            else:
                rows[row["id"]] = row["v"]
        at = end
    now = table.scan().to_arrow().to_pylist()
    assert rows == {row["id"]: row["v"] for row in now} == {1: 0, 2: 1, 3: 1}
    assert kinds["delete"] == 2
