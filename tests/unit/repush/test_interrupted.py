"""A repush that is killed, run twice, cancelled, or met by others, at any of its phases."""

from __future__ import annotations

import pytest

from plait import InstantNotFoundError, RepushCancelledError, RepushOpenError, Table
from plait.repush import RepushRequest, begin
from plait.repush.shadow import Shadow
from tests.support.effort import share
from tests.support.protocol import beside
from tests.support.repush_steps import (
    FIRST,
    again,
    content,
    disturbed,
    is_laid_out,
    killed,
    make,
    nothing_is_left,
    rows,
)


def repush(table: Table) -> object:
    return table.layout.repush(buckets=3, rows_per_task=4)


@pytest.mark.long(1)
@pytest.mark.slow
@pytest.mark.parametrize("source", [None, 2])
def test_an_undo_that_is_killed_anywhere_is_finished_by_the_same_call(source: int | None) -> None:
    """Somebody wrote since the swap, so that it is a repush, which may be open by then."""
    for nth in range(8, 400, 28 // share(4)):
        table = make()
        table.alter.set({"clean.retain.versions": 20})
        swap = table.layout.repush(buckets=3, source=source).version
        table.upsert(rows(3, 20, v=7))
        expected = sorted([*(row for row in FIRST if row[0] != 3), (3, "x", 7), (20, "x", 7)])
        came = killed(table, nth, lambda table, swap=swap: table.layout.undo(swap))
        if is_laid_out(table, buckets=2):
            with pytest.raises(InstantNotFoundError, match=f"version {swap} is not the newest"):
                again(table).layout.undo(swap)
        else:
            again(table).layout.undo(swap)
        assert is_laid_out(table, buckets=2)
        assert content(again(table)) == expected
        if not came:
            return
    pytest.fail("the undo has no end")


def test_an_undo_of_a_version_is_refused_where_another_repush_is_the_newest() -> None:
    table = make()
    with pytest.raises(InstantNotFoundError, match="version 1 is not the newest repush; there is"):
        table.layout.undo(1)
    old, new = (table.layout.repush(buckets=count).version for count in (3, 4))
    with pytest.raises(InstantNotFoundError, match=f"that is version {new}"):
        table.layout.undo(old)
    assert is_laid_out(table, buckets=4)
    table.layout.undo(new)
    assert is_laid_out(table, buckets=3)


def test_an_undo_is_refused_by_the_version_that_renamed_a_column_of_the_layout() -> None:
    table = make()
    swap = table.layout.repush(buckets=3).version
    renamed = table.alter.columns().rename("id", "key").commit().version
    for version in (swap, None):
        with pytest.raises(InstantNotFoundError, match=f"version {renamed} renamed columns"):
            table.layout.undo(version)
    assert table.version == renamed


def test_an_undo_goes_on_with_no_other_repush() -> None:
    table = make()
    table.layout.repush(buckets=3)
    table.upsert(rows(3, v=7))
    begin(table._handle, RepushRequest(buckets=4))
    with pytest.raises(RepushOpenError):
        table.layout.undo()
    table.layout.cancel()
    begin(table._handle, RepushRequest(buckets=2, properties={"file.compression": "zstd"}))
    with pytest.raises(RepushOpenError):
        table.layout.undo()


def test_the_same_call_goes_on_after_a_restore_to_an_older_layout() -> None:
    """What it does not name is as it was when it began."""
    table = make(properties={"clean.retain.versions": 20})
    version = table.version
    table.layout.repush(partition_by="p")

    def stop() -> None:
        again(table).versions.restore(version=version)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        beside(table, "repush-follow", stop).layout.repush(buckets=3)
    assert again(table)._handle.cache.refresh().table.spec.layout.partition_by == ()
    with pytest.raises(RepushOpenError):
        again(table).layout.repush(buckets=3, partition_by=())
    again(table).layout.repush(buckets=3)
    assert is_laid_out(table)
    assert again(table)._handle.cache.refresh().table.spec.layout.partition_by == ("p",)
    assert content(again(table)) == FIRST


def test_another_layout_is_refused_while_a_repush_is_open() -> None:
    table = make()
    opened = begin(table._handle, RepushRequest(buckets=3))
    with pytest.raises(RepushOpenError) as caught:
        again(table).layout.repush(buckets=5)
    assert caught.value.directory == opened.directory
    repush(table)
    assert is_laid_out(table)


@pytest.mark.slow
def test_a_repush_that_is_cancelled_at_any_phase_leaves_the_table_as_it_was() -> None:
    """INV-06: it tells so, and a later one with another layout is done."""
    cancelled: list[int] = []

    def cancel(other: Table, phase: str) -> None:
        cancelled[:] = [done.version for done in [other.layout.cancel()] if done is not None]

    for table, client, _ in disturbed(make, cancel):
        cancelled.clear()
        told = None
        try:
            assert client.layout.repush(buckets=3, rows_per_task=4).version is not None
        except RepushCancelledError as error:
            told = error
        assert cancelled == ([] if told is None else [told.version])
        if told is not None:
            assert told.directory in again(table)._handle.cache.refresh().table.repushed
        assert content(again(table)) == FIRST
        assert again(table).layout.cancel() is None
        assert again(table).layout.repush(buckets=4).version is not None
        assert content(again(table)) == FIRST
        nothing_is_left(table)


def test_a_late_process_deletes_no_file_of_a_repush_that_is_over() -> None:
    """INV-06: it may believe that its commit was lost, since the slots of the table are gone."""
    table = make()
    opened = begin(table._handle, RepushRequest(buckets=3))
    late = Shadow.open(again(table)._handle, opened)
    repush(table)
    live = table.inspect.files()["path"].to_pylist()
    assert all(path.startswith(f"{opened.directory}/") for path in live)
    late.handle.store.delete([path.removeprefix(f"{opened.directory}/") for path in live])
    assert content(again(table)) == FIRST
    assert not table.check.verify(data=True).problems
