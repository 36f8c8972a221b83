"""The page of a process of a sink: what it tells monitors."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from plait import OptionError
from plait.kafka.counts import Counts, PartitionCounts
from plait.kafka.page import SILENT_S, Page
from plait.kafka.sources import SourcePartition
from plait.testing.ports import SimClock

SOURCE = SourcePartition("events", 3)


def get(page: Page, path: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{page.port}{path}", timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_metrics_tell_what_was_counted() -> None:
    counts = Counts(records=12, commits=3, commit_s=1.5, leads=True)
    counts.partitions[SOURCE] = PartitionCounts(next=9, committed=7, end=20)
    with Page("0", "s", counts, SimClock()) as page:
        families = text_string_to_metric_families(get(page, "/metrics")[1].decode())
        found = {
            (sample.name, sample.labels.get("partition", "")): sample.value
            for family in families
            for sample in family.samples
        }
    assert found["plait_sink_records_total", ""] == 12
    assert found["plait_sink_coordinates", ""] == 1
    assert found["plait_sink_commit_seconds_count", ""] == 3
    assert found["plait_sink_commit_seconds_sum", ""] == 1.5
    assert found["plait_sink_offset_lag", "3"] == 13


def test_a_process_that_does_not_go_round_is_not_healthy() -> None:
    clock, counts = SimClock(), Counts()
    counts.step_s = clock.monotonic()
    counts.partitions[SOURCE] = PartitionCounts()
    with Page("0", "s", counts, clock) as page:
        status, body = get(page, "/health?x=1")
        assert (status, json.loads(body)["partitions"]) == (200, ["events/3"])
        clock.advance(SILENT_S + 1)
        status, body = get(page, "/health")
        assert (status, json.loads(body)["healthy"]) == (503, False)
        assert get(page, "/nothing")[0] == 404


@pytest.mark.parametrize("address", ["", "x", "1:2:x", "70000", "-1"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(OptionError):
        Page(address, "s", Counts(), SimClock())


def test_an_address_that_is_taken_is_refused() -> None:
    with (
        Page("0", "s", Counts(), SimClock()) as page,
        pytest.raises(OptionError, match="in use"),
    ):
        Page(str(page.port), "s", Counts(), SimClock())
