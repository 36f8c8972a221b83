"""Streams of several writers that remove keys among their rows (RFC 0020)."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from plait import OptionError, RetryableConflictError, StreamError, Table
from plait.files.digest import digest_of
from plait.stream.messages import Report
from tests.support import build
from tests.support.build import again, keys, uri_of
from tests.support.stream_group import PROPERTIES, Group, rows
from tests.unit.stream.conftest import Make


def reports(group: Group) -> list[Report]:
    group.coordinator.poll()
    return group.coordinator._group.turns[0].ordered()


def step(group: Group, name: str, data: pa.Table | None, removals: pa.Table | None = None) -> None:
    """Have a writer take rows and removals, as one record of its source."""
    writer = group.writers[name]
    start = writer.offset(name)
    end = str(int(start or 0) + 1)
    if data is None:
        writer.remove(removals, source=name, start=start, end=end)
    else:
        writer.write(data, source=name, start=start, end=end, removals=removals)


def test_removals_keep_their_place_among_the_rows_of_their_writer(make: Make) -> None:
    """INV-09: in one turn, over many flushes, and from one turn to the next."""
    group = make("a", "b", keyed=True)
    wanted: dict[int, str] = {}
    for number in range(60):
        note, low = f"{number:03d}" * 40, 7 * number
        gone = range(low - 25, low + 5)
        step(group, "a", rows(low, low + 50, note), keys(*gone))
        wanted = {key: text for key, text in wanted.items() if key not in gone}
        wanted |= dict.fromkeys(range(low, low + 50), note)
        if number % 9 == 0:
            step(group, "a", None, keys(low + 49))
            del wanted[low + 49]
        step(group, "b", rows(1_000_000 + number, 1_000_001 + number, "b"))
        wanted[1_000_000 + number] = "b"
        if number == 30:
            assert group.epoch() is not None
    group.turn()
    runs = {each.writer: each.runs for each in reports(group)}
    assert [run.split(".")[-2] for run in runs["b"]] == ["run"]
    kinds = [run.split(".")[-2] for run in runs["a"]]
    assert kinds.count("removals") > 2, "of several flushes"
    assert group.coordinator.complete() is not None
    found = group.table.scan().to_arrow()
    pairs = zip(found["id"].to_pylist(), found["note"].to_pylist(), strict=True)
    assert dict(pairs) == wanted
    assert group.table.stream("app").audit().problems == ()


def test_removals_of_a_turn_that_was_carried_over_stay_in_order(make: Make) -> None:
    """INV-09: the runs of several turns are decided at once, oldest first."""
    group = make("a", "b", keyed=True)
    step(group, "a", rows(0, 10, "first"))
    group.coordinator.checkpoint(wait_s=0)
    group.pump("a")
    step(group, "a", rows(10, 12, "second"), keys(*range(5)))
    group.coordinator.checkpoint(wait_s=0)
    group.pump("a")
    step(group, "a", rows(4, 5, "third"), keys(11))
    group.turn()
    result = group.coordinator.complete()
    assert result is not None
    assert group.ids() == [4, 5, 6, 7, 8, 9, 10]
    assert result.stats.rows_deleted == 0
    step(group, "a", None, keys(4, 99))
    result = group.epoch()
    assert result is not None
    assert (result.stats.rows_deleted, result.stats.keys_unchanged) == (1, 1)
    assert group.ids() == [5, 6, 7, 8, 9, 10]


def test_an_epoch_has_one_digest_whoever_took_its_removals(make: Make) -> None:
    """INV-09: of several writers or of one; a removed key is no row."""
    group, alone = make("a", keyed=True), make(keyed=True).table
    step(group, "a", rows(0, 10), keys(3, 4, 50))
    result = group.epoch()
    with alone.stream("one").writer("upsert", after=None, end="1") as writer:
        writer.write(rows(0, 10))
        writer.remove(keys(3, 4, 50))
    position, other = group.table.stream("app").position, alone.stream("one").position
    assert result is not None
    assert position is not None
    assert other is not None
    assert result.stats.rows_in == writer.result.stats.rows_in == 13
    assert position.token.digest == other.token.digest
    taken = digest_of(rows(0, 10).to_batches()) + digest_of(keys(3, 4, 50).to_batches())
    assert position.token.digest != taken


@pytest.mark.parametrize(("keyed", "operation"), [(False, "append"), (True, "insert")])
def test_a_stream_that_does_not_upsert_refuses_removals(
    make: Make, *, keyed: bool, operation: str
) -> None:
    group = make("a", keyed=keyed, operation=operation)
    with pytest.raises(OptionError, match="does not take removals"):
        step(group, "a", rows(0, 1), keys(5))
    with pytest.raises(StreamError):
        group.coordinator.poll()
    group.pump()
    step(group, "a", rows(0, 1))
    assert group.epoch() is not None
    assert group.ids() == [0]


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_removals_of_a_stream_name_their_partition(table_type: str) -> None:
    """The partition is not in the record key: a file of removals has its column."""
    table = build.make(
        "id bigint, note string",
        partition_by=["note"],
        table_type=table_type,
        properties=PROPERTIES,
    )
    group = Group(table, "upsert")
    group.join("a")
    step(group, "a", pa.concat_tables([rows(0, 3, "x"), rows(0, 3, "y")]))
    step(group, "a", rows(1, 2, "x"), rows(0, 2, "x"))
    assert group.epoch() is not None
    step(group, "a", rows(9, 10, "y"), rows(2, 3, "y"))
    assert group.epoch() is not None
    found = table.scan().to_arrow().to_pylist()
    assert sorted((row["id"], row["note"]) for row in found) == [
        (0, "y"),
        (1, "x"),
        (1, "y"),
        (2, "x"),
        (9, "y"),
    ]
    group.close()


@pytest.mark.parametrize("moment", ["before", "publish"])
def test_an_epoch_that_meets_the_swap_of_a_repush_is_divided_anew(make: Make, moment: str) -> None:
    """INV-07, INV-09: its rows are still there, so nobody reads them again."""
    group = make("a", "b", keyed=True)
    step(group, "a", rows(0, 10, "old"))
    assert group.epoch() is not None
    step(group, "a", rows(5, 15, "new"), keys(1, 7))
    step(group, "b", rows(50, 60, "b"))
    group.turn()
    uri = uri_of(group.table)
    swaps = [lambda: Table.open(uri).layout.repush(buckets=5)]

    class Meets:
        def phase(self, name: str, **facts: object) -> None:
            if name == moment and swaps:
                swaps.pop()()

    if moment == "before":
        swaps.pop()()
    else:
        handle = group.coordinator._handle
        ports = replace(handle.ports, observer=Meets())
        group.coordinator._handle = replace(handle, ports=ports)
    assert group.coordinator.complete() is not None
    assert not swaps
    assert group.ids() == [0, *range(2, 15), *range(50, 60)]
    assert group.table.stream("app").audit().problems == ()
    assert group.table.check.verify().problems == ()
    assert not group.table.check.foreign()


def test_an_epoch_with_removals_that_meets_another_ordering_is_read_again(make: Make) -> None:
    """INV-09: the removals were merged with rows by the ordering of then."""
    group = make("a", keyed=True)
    step(group, "a", rows(0, 10, "old"), keys(1))
    group.turn()
    again(group.table).layout.repush(ordering="note")
    with pytest.raises(RetryableConflictError):
        group.coordinator.complete()
    assert group.ids() == []
