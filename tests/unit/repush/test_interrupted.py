"""A repush that is killed, run twice, cancelled, or met by others, at any of its phases."""

from __future__ import annotations

import pytest

from plait import InstantNotFoundError, RepushCancelledError, RepushOpenError, Table
from plait.repush import RepushRequest, begin
from plait.repush.shadow import Shadow
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
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_repush_that_is_killed_anywhere_is_finished_by_the_same_call(table_type: str) -> None:
    """INV-04, INV-06: and nothing is lost or left."""
    for nth in range(8, 400, 7):
        table = make(table_type=table_type)
        came = killed(table, nth, repush)
        assert content(again(table)) == FIRST
        repush(again(table))
        assert is_laid_out(table)
        assert content(again(table)) == FIRST
        nothing_is_left(table)
        if not came:
            return
    pytest.fail("the repush has no end")


@pytest.mark.long(1)
@pytest.mark.slow
@pytest.mark.parametrize("source", [None, 2])
def test_an_undo_that_is_killed_anywhere_is_finished_by_the_same_call(source: int | None) -> None:
    """Somebody wrote since the swap, so that it is a repush, which may be open by then."""
    for nth in range(8, 400, 7):
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


@pytest.mark.slow
def test_two_repushes_at_once_make_one_swap() -> None:
    """INV-09: each round is one commit of the table that is built, whoever makes it."""
    for table, client, _ in disturbed(make, lambda other, phase: repush(other)):
        repush(client)
        swaps = [row for row in table.inspect.history() if row.operation == "repush"]
        assert 1 <= len(swaps) <= 2, "a call after the swap begins anew"
        assert is_laid_out(table)
        assert content(again(table)) == FIRST
        nothing_is_left(table)


@pytest.mark.slow
def test_two_repushes_beside_a_writer_follow_it() -> None:
    def both(other: Table, phase: str) -> None:
        other.upsert(rows(3, 20, v=7))
        repush(other)
        other.upsert(rows(4, 21, v=8))

    expected = sorted([r for r in FIRST if r[0] not in (3, 4)])
    expected = sorted([*expected, (3, "x", 7), (20, "x", 7), (4, "x", 8), (21, "x", 8)])
    for _table, client, _ in disturbed(make, both, step=2):
        repush(client)
        if content(again(client)) != FIRST:
            assert content(again(client)) == expected
        nothing_is_left(client)


@pytest.mark.slow
def test_another_layout_is_refused_while_a_repush_is_open() -> None:
    met = []

    def other_layout(other: Table, phase: str) -> None:
        opened = other._handle.cache.refresh().table.repush
        if opened is None:
            return
        with pytest.raises(RepushOpenError) as caught:
            other.layout.repush(buckets=5)
        assert caught.value.directory == opened.directory
        met.append(phase)

    for table, client, _ in disturbed(make, other_layout):
        repush(client)
        assert is_laid_out(table)
    assert {"repush-load", "repush-follow", "repush-swap"} <= set(met)


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


def test_a_cancel_that_is_killed_anywhere_is_finished_by_the_next() -> None:
    for nth in range(8, 80, 2):
        table = make()
        killed(table, 40, repush)
        assert again(table)._handle.cache.refresh().table.repush is not None
        came = killed(table, nth, lambda t: t.layout.cancel())
        again(table).layout.cancel()
        assert again(table)._handle.cache.refresh().table.repush is None
        assert content(again(table)) == FIRST
        nothing_is_left(table)
        if not came:
            return
    pytest.fail("the cancel has no end")


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
