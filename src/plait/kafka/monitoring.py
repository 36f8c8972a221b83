"""What a process of a sink has done, whether it is healthy, and the HTTP server that tells both.

It is healthy while its loop runs and what it has read is committed. The numbers are plain ones, so
that counting costs nothing; the server gives them to Prometheus.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final, Self

from plait.errors import MissingDependencyError, OptionError
from plait.kafka.sources import SourcePartition
from plait.ports import Clock

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_log = logging.getLogger(__name__)
SILENT_S: Final = 60.0
"""The loop of a healthy process has run within this time."""
_STALLED_MIN_S: Final = 120.0
"""Longer than it takes to find that a coordinator is dead and to begin another one."""
_ROUNDS: Final = 3


def stall_limit(interval_s: float, patience_s: float) -> float:
    """Return how long records may wait for a commit in a healthy sink, in seconds.

    A commit begins after the interval and waits for late processes as long as the patience.

    >>> stall_limit(60.0, 30.0), stall_limit(5.0, 30.0)
    (270.0, 120.0)
    """
    return max(_STALLED_MIN_S, _ROUNDS * (interval_s + patience_s))


@dataclass(frozen=True, slots=True)
class Health:
    """What monitors are told of a process."""

    silent_s: float
    """The time since the loop of the process last ran."""
    stalled_s: float
    """The longest time that one of its partitions has waited for a commit; 0 if none waits."""
    reason: str
    """Why the process is not healthy; empty if it is."""

    @classmethod
    def of(cls, counts: Counts, limit_s: float, now_s: float) -> Health:
        """Judge a process by its counts."""
        silent_s = now_s - counts.step_s
        since = {source: each.stalled_since for source, each in counts.held().items()}
        source, first = min(
            ((source, at) for source, at in since.items() if at is not None),
            key=lambda pair: pair[1],
            default=(None, now_s),
        )
        stalled_s, reason = now_s - first, ""
        if silent_s >= SILENT_S:
            reason = f"the loop of the process has not run for {silent_s:.0f} s"
        elif stalled_s >= limit_s:
            reason = f"{source} has waited for a commit for {stalled_s:.0f} s"
        return cls(round(silent_s, 3), round(stalled_s, 3), reason)


@dataclass(slots=True)
class PartitionCounts:
    """One partition that a process holds. Offsets are those of the topic."""

    next: int = 0
    """The offset of the record to read next."""
    committed: int = 0
    """The offset up to which all records are in the table."""
    end: int = 0
    """The end of the partition, as the brokers reported it last."""
    read: int = 0
    """The furthest offset that was read; after a failed epoch it is ahead of ``next``."""
    stalled_since: float | None = None
    """Since when it has waited for a commit, on a steady clock; None if it waits for none."""

    @property
    def lag(self) -> int:
        """How many offsets are not in the table yet."""
        return max(0, self.end - self.committed)

    def note(self, next_offset: int | None, committed: int | None, now_s: float) -> None:
        """Note how far the partition is.

        It waits for a commit while records that were read are not in the table, and while the
        coordinator has not said where to begin. Reading the same records again is no progress.

        Args:
            next_offset: of the record to read next; None while the coordinator has not said it.
            committed: up to where records are in the table; None while that is not known.
            now_s: the time on a steady clock.
        """
        known = self.committed if committed is None else committed
        progressed = known > self.committed
        self.next, self.committed = next_offset or 0, known
        self.read = max(self.read, self.next)
        if next_offset is not None and known >= self.read:
            self.stalled_since = None
        elif progressed or self.stalled_since is None:
            self.stalled_since = now_s


@dataclass(slots=True)
class Counts:
    """What a process has done since it began; one thread writes, any may read."""

    records: int = 0
    """Records that were put; one that was read again counts again."""
    bytes: int = 0
    """Size of the values of these records."""
    rewinds: int = 0
    """How often a partition was read again from the table's offset."""
    dead_letters: int = 0
    commits: int = 0
    """Commits of the coordinator while it ran in this process."""
    committed_rows: int = 0
    commit_s: float = 0.0
    """The seconds that they took, from the end of a turn to its decision."""
    failed: int = 0
    """Epochs that failed, and were read again."""
    leads: bool = False
    step_s: float = 0.0
    """When the process last went round, by its own steady clock."""
    partitions: dict[SourcePartition, PartitionCounts] = field(default_factory=dict)

    def held(self) -> Mapping[SourcePartition, PartitionCounts]:
        """Return the partitions as they are now; any thread may ask."""
        return dict(self.partitions)


REQUEST_S: Final = 10.0
"""A client that takes longer to send its request, or to read a part of the answer, is dropped."""
_PORT_MAX: Final = 65_535
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_TOTALS: Final = (
    ("records", "Records that were put; one that is read again counts again."),
    ("bytes", "Bytes of their values."),
    ("rewinds", "How often a partition was read again from the offset in the table."),
    ("dead_letters", "Records that could not be decoded."),
    ("commits", "Commits of the coordinator, while it was in this process."),
    ("committed_rows", "Rows of these commits."),
    ("failed", "Epochs that failed, and were read again."),
)
_GAUGES: Final = (
    ("next", "The offset of the record that is read next."),
    ("committed", "The offset up to which all records are in the table."),
    ("end", "The end of the partition."),
    ("lag", "Offsets that are not in the table yet."),
)


def address_of(text: str) -> tuple[str, int]:
    """Read ``[HOST:]PORT``; the default host is 127.0.0.1, and IPv6 addresses have brackets.

    Raises:
        OptionError: the text is not an address.

    >>> address_of("9400"), address_of("0.0.0.0:9400"), address_of("[::1]:9400")
    (('127.0.0.1', 9400), ('0.0.0.0', 9400), ('::1', 9400))
    """
    host, colon, port = text.rpartition(":")
    bracketed = len(host) > len("[]") and host[0] == "[" and host[-1] == "]"
    name = host[1:-1] if bracketed else host
    valid = port.isascii() and port.isdigit() and int(port) <= _PORT_MAX
    if not valid or (colon and not name) or (":" in name) != bracketed:
        message = f"invalid address {text!r} for metrics"
        hint = "pass [HOST:]PORT, with an IPv6 address in brackets: [::1]:9400"
        raise OptionError(message, hint=hint, key="metrics", value=text)
    return name or "127.0.0.1", int(port)


class _Server(ThreadingHTTPServer):
    """Answers each request in a thread of its own, so that a slow client delays nobody."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - as in the base class
        """Log that a client went away."""
        _log.debug("a request of %s failed", client_address, exc_info=True)


class _ServerV6(_Server):
    address_family = socket.AF_INET6


class MonitoringServer:
    """Serves ``/metrics`` and ``/health`` from a thread, for as long as the block lasts."""

    def __init__(
        self, address: str, sink: str, counts: Counts, clock: Clock, stall_limit_s: float
    ) -> None:
        """Open the port.

        Raises:
            OptionError: the address is not ``[HOST:]PORT``, or it is in use.
            MissingDependencyError: prometheus-client is not installed.
        """
        self._sink, self._counts, self._clock = sink, counts, clock
        self._limit_s = stall_limit_s
        write, place = self._metrics(), address_of(address)
        server = _ServerV6 if ":" in place[0] else _Server
        try:
            self._server = server(place, _handler(write, self._health))
        except OSError as error:
            message = f"cannot serve metrics at {address!r}: {error}"
            hint = "choose another address"
            raise OptionError(message, hint=hint, key="metrics", value=address) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="plait-monitoring", daemon=True
        )

    @property
    def port(self) -> int:
        """The port; if 0 was asked for, the free one that was chosen."""
        return self._server.server_port

    def __enter__(self) -> Self:
        """Begin to serve."""
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """End."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _health(self) -> tuple[bool, dict[str, object]]:
        found = Health.of(self._counts, self._limit_s, self._clock.monotonic())
        held = self._counts.held()
        return not found.reason, {
            "sink": self._sink,
            "healthy": not found.reason,
            "reason": found.reason,
            "silent_s": found.silent_s,
            "stalled_s": found.stalled_s,
            "coordinates": self._counts.leads,
            "lag": sum(each.lag for each in held.values()),
            "partitions": sorted(map(str, held)),
        }

    def _metrics(self) -> Callable[[], bytes]:
        """Return what writes the metrics."""
        try:
            import prometheus_client  # noqa: PLC0415 - an extra
            from prometheus_client import core  # noqa: PLC0415
        except ImportError as error:
            message = "metrics of a sink need the library prometheus-client"
            raise MissingDependencyError(message, hint="pip install 'plait[kafka]'") from error
        sink, counts = self._sink, self._counts

        class Collector:
            """Reads the counts whenever it is asked."""

            def collect(self) -> Iterator[Metric]:
                for name, text in _TOTALS:
                    total = core.CounterMetricFamily(f"plait_sink_{name}", text, labels=["sink"])
                    total.add_metric([sink], getattr(counts, name))
                    yield total
                took = core.SummaryMetricFamily(
                    "plait_sink_commit_seconds", "Time of the commits.", labels=["sink"]
                )
                took.add_metric([sink], counts.commits, counts.commit_s)
                yield took
                leads = core.GaugeMetricFamily(
                    "plait_sink_coordinates", "1 if this process coordinates.", labels=["sink"]
                )
                leads.add_metric([sink], int(counts.leads))
                yield leads
                held = counts.held()
                for name, text in _GAUGES:
                    gauge = core.GaugeMetricFamily(
                        f"plait_sink_offset_{name}", text, labels=["sink", "topic", "partition"]
                    )
                    for source, each in held.items():
                        labels = [sink, source.topic, str(source.partition)]
                        gauge.add_metric(labels, getattr(each, name))
                    yield gauge

        registry = prometheus_client.CollectorRegistry()
        registry.register(Collector())
        return lambda: prometheus_client.generate_latest(registry)


def _handler(
    metrics: Callable[[], bytes], health: Callable[[], tuple[bool, dict[str, object]]]
) -> type[BaseHTTPRequestHandler]:
    """Return what answers a request."""

    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_S

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(HTTPStatus.OK, _TEXT, metrics())
            elif path == "/health":
                healthy, facts = health()
                status = HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE
                self._answer(status, "application/json", json.dumps(facts).encode() + b"\n")
            else:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"see /metrics and /health\n")

        def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *values: object) -> None:  # noqa: A002 - its name there
            """Log nothing: a scrape every few seconds is no news."""

    return Handler
