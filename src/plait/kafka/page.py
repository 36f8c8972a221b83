"""A page about a process of a sink: metrics for Prometheus, and whether it is healthy."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final, Self

from plait.errors import MissingDependencyError, OptionError
from plait.kafka.counts import Counts
from plait.ports import Clock

if TYPE_CHECKING:
    from prometheus_client.core import Metric

SILENT_S: Final = 60.0
"""A process that has not gone round for so long is not healthy."""
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
    """Read ``[HOST:]PORT``; the host is this machine alone if none is given.

    Raises:
        OptionError: it is not that.

    >>> address_of("9400"), address_of("0.0.0.0:9400")
    (('127.0.0.1', 9400), ('0.0.0.0', 9400))
    """
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) <= _PORT_MAX):
        message = f"{text!r} is no address for the page of a sink"
        raise OptionError(message, hint="pass [HOST:]PORT", key="page", value=text)
    return host or "127.0.0.1", int(port)


class Page:
    """Serves ``/metrics`` and ``/health`` from a thread, for as long as the block lasts."""

    def __init__(self, address: str, sink: str, counts: Counts, clock: Clock) -> None:
        """Prepare.

        Raises:
            OptionError: the address is no ``[HOST:]PORT``, or it is taken.
            MissingDependencyError: prometheus-client is not installed.
        """
        self._sink, self._counts, self._clock = sink, counts, clock
        write = self._metrics()
        try:
            self._server = ThreadingHTTPServer(address_of(address), _handler(write, self._health))
        except OSError as error:
            message = f"cannot serve the page of a sink at {address!r}: {error}"
            raise OptionError(message, hint="choose another", key="page", value=address) from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="plait-page", daemon=True
        )

    @property
    def port(self) -> int:
        """The port; the one that was free if 0 was asked for."""
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
        silent_s = self._clock.monotonic() - self._counts.step_s
        held = self._counts.held()
        told = {
            "sink": self._sink,
            "healthy": silent_s < SILENT_S,
            "silent_s": round(silent_s, 3),
            "coordinates": self._counts.leads,
            "lag": sum(each.lag for each in held.values()),
            "partitions": sorted(map(str, held)),
        }
        return silent_s < SILENT_S, told

    def _metrics(self) -> Callable[[], bytes]:
        """Return what writes the metrics."""
        try:
            import prometheus_client  # noqa: PLC0415 - an extra
            from prometheus_client import core  # noqa: PLC0415
        except ImportError as error:
            message = "the page of a sink needs the library prometheus-client"
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
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(HTTPStatus.OK, _TEXT, metrics())
            elif path == "/health":
                healthy, told = health()
                status = HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE
                self._answer(status, "application/json", json.dumps(told).encode() + b"\n")
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
