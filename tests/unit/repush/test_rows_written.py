"""A repush keeps which version wrote a row (RFC 0023)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from plait import StreamError, Table
from plait.repush.begin import RepushRequest, begin
from plait.repush.follow import FollowRound
from plait.repush.load import Load
from plait.repush.shadow import Shadow
from tests.support import build
from tests.support.protocol import beside
from tests.support.repush_steps import again

_rows = partial(build.rows, p=lambda n: f"p{n % 2}")


def _made(uri: str, *, buckets: int) -> Table:
    """Make a table that keeps which version wrote a row, of ten rows."""
    table = Table.create(
        uri,
        "id bigint, p string",
        record_key="id",
        table_type="mor",
        buckets=buckets,
        properties={"rows.written": "on"},
    )
    table.upsert(_rows(*range(10)))
    return table


def _written(table: Table) -> dict[int, int]:
    rows = table.scan(["id", "_written"]).to_arrow()
    return dict(zip(rows["id"].to_pylist(), rows["_written"].to_pylist(), strict=True))


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_repush_keeps_which_version_wrote_a_row(uri: str, kind: str) -> None:
    table = _made(uri, buckets=2)
    table.upsert(_rows(3, 4))
    table.delete(where="id = 9")
    before = _written(table)
    assert set(before.values()) == {1, 2}
    with table.writer("upsert") as late:
        late.write(_rows(7))
        build.again(table).layout.repush(
            buckets=3, partition_by="p", table_type=kind, rows_per_task=4
        )
    assert _written(table) == {**before, 7: late.result.version}
    table.upsert(_rows(5))
    table.maintenance.compact(full=True)
    assert _written(table) == {**before, 7: late.result.version, 5: late.result.version + 1}
    assert not table.check.verify().problems


def test_rows_that_follow_keep_which_of_many_commits_wrote_them(uri: str) -> None:
    """One round takes them together; a row that was written again as it was counts (INV-04)."""
    table = _made(uri, buckets=1)
    written: dict[int, int] = {}

    def write() -> None:
        for key in (3, 4, 3, 5, 11):
            again(table).upsert(_rows(key))
        written.update(_written(again(table)))

    beside(table, "repush-follow", write).layout.repush(buckets=2)
    assert len(set(written.values())) == 5
    assert _written(again(table)) == written


def test_an_undo_keeps_which_version_wrote_a_row(uri: str) -> None:
    """It adds the old files again, in one decision."""
    table = _made(uri, buckets=2)
    table.upsert(_rows(3, 4))
    before = _written(table)
    table.layout.repush(buckets=3)
    assert table.layout.undo().rounds == 0
    assert _written(again(table)) == before
    again(table).layout.repush(buckets=1)
    assert _written(again(table)) == before
    again(table).layout.undo()
    again(table).upsert(_rows(3))
    assert _written(again(table)) == {**before, 3: again(table).version}


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_restore_over_a_swap_keeps_which_version_wrote_a_row(uri: str, kind: str) -> None:
    """It meets an open repush: rows have the versions that the restored files tell (INV-04)."""
    table = _made(uri, buckets=1)
    table.layout.repush(table_type=kind)
    version = table.version
    before = _written(table)
    table.layout.repush(buckets=2)

    def write() -> None:
        again(table).upsert(_rows(3, 20))  # 3 as it was
        again(table).versions.restore(version=version)

    beside(table, "repush-follow", write).layout.repush(buckets=3)
    assert set(before.values()) == {1}
    assert _written(again(table)) == before


def _is_told_that_it_is_done(shadow: Shadow, work: Callable[[], object]) -> None:
    version = shadow.stream.position
    with pytest.raises(StreamError, match="another process did this meanwhile"):
        work()
    assert shadow.stream.position == version, "nothing was committed a second time"


def test_two_processes_share_the_work_of_rows_with_their_versions(uri: str) -> None:
    """INV-09: who comes late with a task or a round is told so, and its rows count once."""
    table = _made(uri, buckets=1)
    before = _written(table)
    opened = begin(table._handle, RepushRequest(buckets=2, rows_per_task=4))
    assert opened is not None
    one, other = (Shadow.open(again(table)._handle, opened) for _ in range(2))
    load = Load.of(table._handle, one)
    for _ in load.parts:
        progress = one.progress()
        assert load.run(one, progress) > 0
        _is_told_that_it_is_done(other, partial(load.run, other, progress))
    table.upsert(_rows(3))
    table.delete(where="id = 5")
    progress, until = one.progress(), table.version
    assert FollowRound(again(table)._handle, one).run(progress, until) == 2
    late = FollowRound(again(table)._handle, other)
    _is_told_that_it_is_done(other, partial(late.run, progress, until))
    again(table).layout.repush(buckets=2)
    del before[5]
    assert _written(again(table)) == {**before, 3: until - 1}


@pytest.mark.parametrize(
    ("phase", "key"),
    [("repush-load", "id"), ("repush-follow", ()), ("repush-follow", "id"), ("repush-swap", "id")],
)
def test_versions_that_are_kept_no_longer_do_not_stop_a_repush(
    uri: str, phase: str, key: str | tuple[()]
) -> None:
    """The property goes while a repush is open: it reads what the files tell."""
    table = Table.create(uri, "id bigint, p string", record_key=key)
    table.alter.set({"rows.written": "on"})
    table.append(_rows(*range(10)))

    def write() -> None:
        other = again(table)
        other.alter.set({"rows.written": "off"})
        other.append(_rows(10))
        other.delete(where="id = 4")

    beside(table, phase, write).layout.repush(partition_by="p", rows_per_task=3)
    table = again(table)
    assert table.properties["rows.written"] == "off"
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [*range(4), *range(5, 11)]
    assert not table.check.verify().problems
