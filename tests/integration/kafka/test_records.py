"""What the parts of records become, on a real broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from plait import Table
from tests.integration.kafka.conftest import WAIT_S, Events
from tests.integration.kafka.test_sink import wait_for

pytestmark = pytest.mark.kafka


def test_keys_places_and_headers_of_raw_records_are_in_the_table(
    make_events: Callable[..., Events], tmp_path: Path
) -> None:
    events = make_events(1)
    ddl = "value binary, id bigint, sent timestamp, o bigint, h map<string,binary>"
    table = Table.create(str(tmp_path / "t"), ddl, record_key=["id"])
    producer = events.clients.producer()
    for number in range(5):
        producer.produce(events.name, bytes([255, number]), str(number), headers=[("n", b"\xff")])
    producer.produce(events.name, None, "2")
    assert producer.flush(WAIT_S) == 0
    include = {"key": "id", "timestamp": "sent", "offset": "o", "headers": "h"}
    with events.running(table, format="raw", include=include):
        wait_for(table, 4)
    rows = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    assert [row["id"] for row in rows] == [0, 1, 3, 4]
    assert [row["o"] for row in rows] == [0, 1, 3, 4]
    assert [row["value"] for row in rows] == [bytes([255, number]) for number in (0, 1, 3, 4)]
    assert all(row["sent"] and row["h"] == [("n", b"\xff")] for row in rows)


@pytest.mark.long(1)
@pytest.mark.parametrize("key", [(), ("id",)], ids=["append", "upsert"])
def test_a_column_that_is_added_while_a_sink_runs_gets_the_values_of_its_records(
    make_events: Callable[..., Events], tmp_path: Path, key: tuple[str, ...]
) -> None:
    """INV-04: no value is lost between the alter and the next start of the sink."""
    events = make_events(1)
    table = Table.create(str(tmp_path / "t"), "id bigint, note string", record_key=key)
    with events.running(table):
        events.produce({"id": number, "note": "a"} for number in range(20))
        wait_for(table, 20)
        Table.open(str(tmp_path / "t")).alter.columns().add("later", "string").commit()
        events.produce({"id": number, "later": f"b{number}"} for number in range(20, 40))
        wait_for(table, 40)
    later = dict(zip(*table.scan(["id", "later"]).to_arrow().to_pydict().values(), strict=True))
    assert later == {n: f"b{n}" if n >= 20 else None for n in range(40)}
