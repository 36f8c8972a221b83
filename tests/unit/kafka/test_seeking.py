"""A seek says what it cannot move, and a status why a sink cannot go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self, cast

import pytest

from plait import OptionError, Table, TableNotFoundError
from plait.kafka.client import Clients, Topic
from plait.kafka.seeking import SeekPlan, plan_seek
from plait.kafka.status import status_of


class Brokers:
    """Have some topics with 10 records in each partition."""

    def __init__(self, *topics: Topic) -> None:
        self._topics = {each.name: each for each in topics}

    def find_topics(self, names: Sequence[str]) -> dict[str, Topic]:
        return {name: self._topics[name] for name in names if name in self._topics}

    def bounds(self, _consumer: object, _topic: str, _partition: int) -> tuple[int, int]:
        return 0, 10

    def consumer(self) -> Self:
        return self

    def close(self) -> None:
        """Hold nothing."""


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table with a sink that has read two partitions."""
    made = Table.create(str(tmp_path / "t"), "id bigint")
    made.stream("e").seek({"e/0": "3@old", "e/1": "5@old"}, after=None)
    return made


def clients(*topics: Topic) -> Clients:
    return cast("Clients", Brokers(*topics))


def plan(table: Table, brokers: Clients, places: Mapping[str, str]) -> SeekPlan:
    return plan_seek(table, "e", brokers, places)


def test_a_topic_that_is_not_there_is_not_said_to_go_on(table: Table) -> None:
    with pytest.raises(TableNotFoundError, match="no topic 'e'"):
        plan(table, clients(), {"": "earliest"})


def test_an_offset_is_meant_for_one_partition(table: Table) -> None:
    brokers = clients(Topic("e", "old", 2))
    with pytest.raises(OptionError, match="several partitions"):
        plan(table, brokers, {"e": "7"})
    with pytest.raises(OptionError, match="several partitions"):
        plan(table, clients(Topic("e", "new", 2)), {"": "7"})
    assert [each.after.number for each in plan(table, brokers, {"e/1": "7"}).moves] == [7]


def test_a_sink_whose_position_a_restore_undid_cannot_go_on(table: Table) -> None:
    position = table.stream("e").position
    table.stream("e").seek({"e/0": "9@old"}, after=position)
    table.versions.restore(version=1)
    found = status_of(table, "e")
    assert {each.problem for each in found.partitions} == {"a restore undid its newest commit"}
    table.versions.replay(applications=["e"])
    assert {each.problem for each in status_of(table, "e").partitions} == {""}
