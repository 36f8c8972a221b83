"""A repush that is called again, or undone, beside others: nothing is replaced that they wrote."""

from __future__ import annotations

import itertools

import pytest

from plait import OptionError, RetryableConflictError, Table
from plait.errors import RepushOpenError, RepushRefusedError, UndoneError
from plait.repush.begin import RepushRequest, begin
from tests.support.repush_steps import FIRST, again, content, disturbed, killed, make, rows

NAMES = map(str, itertools.count())


def test_a_repush_from_a_source_is_swapped_in_once_under_its_commit_id() -> None:
    """INV-10: a call whose reply was lost is called again, and replaces nothing that came since."""
    table = make()
    good = table.version
    table.upsert(rows(1, v=9))
    report = table.layout.repush(source=good, commit_id="back")
    table.upsert(rows(70, v=7))
    repeated = again(table).layout.repush(source=good, commit_id="back")
    assert repeated.version == report.version
    assert (70, "x", 7) in content(table)
    assert table.inspect.find_commit("back").version == report.version
    with pytest.raises(UndoneError):
        _restored(table, good).layout.repush(source=good, commit_id="back")


def _restored(table: Table, version: int) -> Table:
    table.versions.restore(version=version)
    return again(table)


@pytest.mark.slow
def test_a_repush_that_is_killed_anywhere_and_called_again_is_swapped_in_once() -> None:
    """INV-02, INV-10: also if another client wrote between the kill and the repeated call."""
    for nth in range(1, 400, 5):
        table = make()
        good = table.version
        table.upsert(rows(1, v=9))
        reached = killed(
            table, nth, lambda one, v=good: one.layout.repush(source=v, commit_id="back")
        )
        late = again(table).upsert(rows(70, v=7)).version
        version = again(table).layout.repush(source=good, commit_id="back").version
        found = {h.operation: h.version for h in again(table).inspect.history()}
        carried = [(70, "x", 7)] if found["begin-repush"] < late else []
        assert content(again(table)) == sorted([*FIRST, *carried])
        swaps = [
            h.version for h in again(table).inspect.history() if h.operation == "repush-source"
        ]
        assert swaps == [version]
        if not reached:
            return
    pytest.fail("the repush has no end")


def test_a_commit_id_that_another_commit_took_ends_in_an_error_and_changes_nothing() -> None:
    table = make()
    begin(table._handle, RepushRequest(buckets=3, commit_id="taken"))
    with pytest.raises(RepushOpenError):
        table.layout.repush(buckets=3, commit_id="another")
    with table.writer("upsert", commit_id="taken") as writer:
        writer.write(rows(70, v=7))
    for call in ({}, {"commit_id": "taken"}):
        with pytest.raises(RepushRefusedError, match="taken"):
            table.layout.repush(buckets=3, **call)
    table.layout.cancel()
    assert content(table) == sorted([*FIRST, (70, "x", 7)])


@pytest.mark.parametrize("expire", [None, "written 1d row"])
def test_a_commit_id_of_another_operation_never_passes_for_a_repush(expire: str | None) -> None:
    """A caller would take for done what never happened."""
    table = make(properties={"rows.written": "on"})
    version = table.upsert(rows(70, v=7), commit_id="taken").version
    with pytest.raises(RepushRefusedError, match="taken") as caught:
        table.layout.repush(buckets=3, expire=expire, commit_id="taken")
    assert caught.value.version == version
    assert again(table).version == version


def test_an_undo_beside_a_repush_from_a_source_is_shown_by_change_reads_or_refused() -> None:
    """INV-04: rows that an undo brings back are no secret of change reads."""
    refused = 0

    def lay_out() -> Table:
        table = make()
        table.layout.repush(buckets=3)
        return table

    def replace_rows(other: Table, _: str) -> None:
        other.layout.repush(source=1)

    for table, client, _ in disturbed(lay_out, replace_rows):
        before, version = content(table), table.version
        try:
            client.layout.undo()
        except (RetryableConflictError, RepushOpenError):
            refused += 1
        after = content(again(table))
        shown = again(table).changes(since=version).count()
        assert (sum(shown.values()) > 0) == (after != before)
    assert refused


def test_an_undo_beside_a_sink_that_is_added_never_changes_rows_behind_its_back() -> None:
    """RFC 0022: a table with sinks changes rows only after they have them."""

    def replaced() -> Table:
        table = make(record_key="id")
        good = table.version
        table.upsert(rows(1, v=9))
        table.layout.repush(source=good)
        return table

    name = f"memory://repeated-sink-{next(NAMES)}"
    Table.create(name, make().schema, record_key="id", buckets=1)

    def add(other: Table, _: str) -> None:
        other.replicas.add(f"eu={name}")

    for table, client, _ in disturbed(replaced, add):
        before = content(table)
        try:
            client.layout.undo()
        except OptionError:
            assert content(again(table)) == before
        history = list(again(table).inspect.history())
        undone = max((h.version for h in history if h.operation == "repush-source"), default=0)
        added = max((h.version for h in history if h.operation == "property"), default=0)
        assert not added or undone < added


@pytest.mark.parametrize("source", [1, "kept"])
def test_options_for_a_version_of_the_table_are_refused(source: int | str) -> None:
    table = make()
    table.versions.savepoint("kept")
    before = table.version
    with pytest.raises(OptionError, match="source_options"):
        table.layout.repush(source=source, source_options={"key": "value"})
    with pytest.raises(OptionError, match="source_options"):
        table.layout.repush(buckets=3, source_options={"key": "value"})
    assert table.version == before
