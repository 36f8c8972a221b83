"""The status of a sink, as far as the table alone tells it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from plait import EpochUnknownError, StreamError, Table
from plait.kafka.status import sinks_of, status_of
from plait.stream.transport import Hub


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table with a sink, and with a stream of another kind."""
    made = Table.create(str(tmp_path / "t"), "id bigint")
    made.stream("events").seek({"events/0": "0@idA", "events/1": "5@idA"}, after=None)
    other = made.stream("other")
    with other.writer(after=None, end="7") as writer:
        writer.write(pa.table({"id": [1]}))
    return made


def test_a_status_tells_offsets_epoch_and_version(table: Table) -> None:
    found = status_of(table, "events")
    assert (found.epoch, found.version, found.lag, found.coordinator) == (0, 1, None, None)
    assert [(str(p.source), p.offset.number) for p in found.partitions] == [
        ("events/0", 0),
        ("events/1", 5),
    ]
    assert found.committed_ms is not None
    assert found.rows_per_s is None, "one commit has no rate"


def test_the_coordinator_is_the_process_of_the_newest_turn(table: Table) -> None:
    from plait.stream.transport import Hub

    with table.stream("events").coordinator(Hub().coordinator(), "append") as coordinator:
        found = status_of(table, "events").coordinator
        assert found is not None
        assert (found.instant, found.alive) == (coordinator.instant, True)


def test_only_streams_of_sinks_are_sinks(table: Table) -> None:
    assert sinks_of(table) == ["events"]
    with pytest.raises(EpochUnknownError, match="events"):
        status_of(table, "other")
    with pytest.raises(StreamError, match="no sink 'none'"):
        status_of(table, "none")


def test_a_rate_is_that_of_the_newest_commits(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), "id bigint")
    stream, hub = table.stream("e"), Hub()
    stream.seek({"e/0": "0@idA"}, after=None)
    with (
        stream.coordinator(hub.coordinator(), "append") as coordinator,
        stream.participant(hub.writer(), "e/0") as writer,
    ):
        while not writer.ready:
            coordinator.poll()
            writer.poll()
        for number in range(3):
            start, end = f"{number}@idA", f"{number + 1}@idA"
            writer.write(pa.table({"id": range(10)}), source="e/0", start=start, end=end)
            coordinator.checkpoint(wait_s=0)
            writer.poll()
            writer.settle()
            assert coordinator.complete() is not None
    found = status_of(table, "e")
    assert found.epoch == 3
    assert found.rows_per_s is not None
    assert found.rows_per_s > 0
