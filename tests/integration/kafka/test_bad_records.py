"""A record that cannot be decoded stops a sink without dead letters: after those before it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from plait import Table, UndecodableError
from tests.integration.kafka.conftest import Events, wait_for

pytestmark = pytest.mark.kafka


def record(number: int) -> bytes:
    return json.dumps({"id": number, "note": "a"}).encode()


@pytest.mark.long(1)
@pytest.mark.parametrize("keyed", [False, True])
def test_good_records_before_a_bad_one_are_in_the_table_when_the_sink_stops(
    make_events: Callable[..., Events], tmp_path: Path, *, keyed: bool
) -> None:
    """And at each start again: then the bad one is the next, and nothing is written."""
    events = make_events(1)
    key = ["id"] if keyed else []
    table = Table.create(str(tmp_path / "t"), "id bigint, note string", record_key=key)
    good = [record(number) for number in range(500)]
    events.produce([*good, b"poison", *(record(number) for number in range(500, 600))])
    for _ in range(2):
        with (
            pytest.raises(UndecodableError) as stopped,
            events.running(table, interval_s=3600) as ended,
        ):
            assert ended.wait(120)
        assert stopped.value.place == f"{events.name}/0 offset 500"
        assert sorted(table.scan(["id"]).to_arrow()["id"].to_pylist()) == list(range(500))
    known = table.stream(events.name).position
    assert known is not None
    assert '"500@' in known.end
    assert table.stream(events.name).audit().problems == ()


def test_a_key_without_its_partition_removes_its_row_where_keys_are_unique_in_the_table(
    make_events: Callable[..., Events], tmp_path: Path
) -> None:
    events = make_events(2)
    table = Table.create(
        str(tmp_path / "t"),
        "id bigint, note string",
        record_key=["id"],
        partition_by=["note"],
        unique="table",
    )
    events.produce({"id": number, "note": f"p{number % 3}"} for number in range(30))
    with events.running(table):
        wait_for(table, 30)
        events.produce([{"id": 3}, {"id": 4}, {"id": 99}], tombstones=True)
        wait_for(table, 28)
        events.produce([{"id": 5, "note": "moved"}])
        events.produce([{"id": 5}], tombstones=True)
        events.produce([{"id": 3, "note": "again"}])
        wait_for(table, 28)
        while 3 not in table.scan(["id"]).to_arrow()["id"].to_pylist():
            wait_for(table, 28)
    ids = table.scan(["id"]).to_arrow()["id"].to_pylist()
    assert sorted(ids) == [n for n in range(30) if n not in (4, 5)]
    assert table.check.verify().problems == ()
