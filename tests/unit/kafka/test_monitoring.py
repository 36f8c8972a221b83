"""The HTTP server of a process of a sink: what it tells monitors, and whom it waits for."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from plait import OptionError
from plait.kafka import monitoring
from plait.kafka.monitoring import SILENT_S, Counts, MonitoringServer, PartitionCounts
from plait.kafka.sources import SourcePartition
from plait.testing.ports import SimClock

SOURCE = SourcePartition("events", 3)


LIMIT_S = 120.0


def serve(counts: Counts, clock: SimClock, address: str = "0") -> MonitoringServer:
    return MonitoringServer(address, "s", counts, clock, LIMIT_S)


def get(server: MonitoringServer, path: str, host: str = "127.0.0.1") -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"http://{host}:{server.port}{path}", timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_metrics_tell_what_was_counted_at_an_address_of_their_own() -> None:
    counts = Counts(records=12, commits=3, commit_s=1.5, leads=True)
    counts.partitions[SOURCE] = PartitionCounts(next=9, committed=7, end=20)
    with serve(counts, SimClock()) as server:
        families = text_string_to_metric_families(get(server, "/metrics")[1].decode())
        found = {
            (sample.name, sample.labels.get("partition", "")): sample.value
            for family in families
            for sample in family.samples
        }
        with pytest.raises(OptionError, match="in use"):
            serve(Counts(), SimClock(), str(server.port))
    assert found["plait_sink_records_total", ""] == 12
    assert found["plait_sink_coordinates", ""] == 1
    assert found["plait_sink_commit_seconds_count", ""] == 3
    assert found["plait_sink_commit_seconds_sum", ""] == 1.5
    assert found["plait_sink_offset_lag", "3"] == 13


def test_a_process_whose_loop_does_not_run_is_not_healthy() -> None:
    clock, counts = SimClock(), Counts()
    counts.step_s = clock.monotonic()
    counts.partitions[SOURCE] = PartitionCounts()
    with serve(counts, clock) as server:
        status, body = get(server, "/health?x=1")
        assert (status, json.loads(body)["partitions"]) == (200, ["events/3"])
        clock.advance(SILENT_S + 1)
        status, body = get(server, "/health")
        assert (status, json.loads(body)["healthy"]) == (503, False)
        assert get(server, "/nothing")[0] == 404


def test_a_process_whose_records_wait_too_long_for_a_commit_is_not_healthy() -> None:
    """As where the coordinator, in another process, is dead or makes no progress."""
    clock, counts = SimClock(), Counts()
    found = counts.partitions[SOURCE] = PartitionCounts()
    found.note(20, 10, clock.monotonic())
    with serve(counts, clock) as server:
        clock.advance(LIMIT_S - 1)
        counts.step_s = clock.monotonic()
        assert get(server, "/health")[0] == 200
        clock.advance(2)
        counts.step_s = clock.monotonic()
        status, body = get(server, "/health")
        told = json.loads(body)
        assert (status, told["reason"]) == (503, "events/3 has waited for a commit for 121 s")
        found.note(20, 15, clock.monotonic())
        assert get(server, "/health")[0] == 200


@pytest.mark.parametrize(
    ("then", "stalled"),
    [
        pytest.param((20, 10), True, id="records-are-held"),
        pytest.param((10, 10), True, id="the-same-records-are-read-again"),
        pytest.param((None, None), True, id="no-turn-begins"),
        pytest.param((20, 12), False, id="some-are-committed"),
        pytest.param((20, 20), False, id="all-are-committed"),
    ],
)
def test_only_commits_are_progress(then: tuple[int | None, int | None], stalled: bool) -> None:
    counts = PartitionCounts()
    counts.note(20, 10, 0)
    counts.note(*then, 50)
    counts.note(*then, 60)
    assert (counts.stalled_since == 0) is stalled


def test_a_partition_without_new_records_does_not_wait() -> None:
    counts = PartitionCounts()
    counts.note(None, None, 0)
    counts.note(20, 20, 10)
    counts.end = 21  # the marker of a transaction, which is not a record
    assert counts.stalled_since is None
    counts.note(25, 20, 500)
    assert counts.stalled_since == 500


@pytest.mark.slow
def test_a_client_that_sends_nothing_delays_nobody_and_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(monitoring, "REQUEST_S", 0.5)
    with (
        serve(Counts(), SimClock()) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as slow,
    ):
        slow.sendall(b"GET /health")
        assert get(server, "/metrics")[0] == 200
        assert slow.recv(1) == b""


def test_an_ipv6_address_is_served() -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    with serve(Counts(), SimClock(), "[::1]:0") as server:
        assert get(server, "/metrics", "[::1]")[0] == 200


@pytest.mark.parametrize(
    "address", ["", "x", "1:2:x", "70000", "-1", ":1", "::1:80", "[]:80", "[::1]", "[a]:80"]
)
def test_an_invalid_address_is_refused(address: str) -> None:
    with pytest.raises(OptionError):
        serve(Counts(), SimClock(), address)
