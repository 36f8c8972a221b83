"""The background thread that turns buckets into runs or files while buffering goes on."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Protocol

from plait.write.buffer import Ledger, Order


class Sink(Protocol):
    """Where flushed buckets go."""

    def flush(self, orders: Sequence[Order]) -> None:
        """Take the rows of these buckets; call ``done`` on each once it is read."""
        ...


class Flusher:
    """One thread that does orders in the order in which they were given."""

    def __init__(self, sink: Sink, ledger: Ledger) -> None:
        self._sink = sink
        self._ledger = ledger
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plait-flush")
        self._running: list[Future[None]] = []

    def submit(self, orders: Sequence[Order]) -> None:
        """Hand over buckets, and go on; raise what an earlier flush raised."""
        self._raise_failed()
        if not orders:
            return
        self._ledger.begin()
        self._running.append(self._thread.submit(self._run, list(orders)))

    def finish(self, orders: Sequence[Order]) -> None:
        """Do the last buckets, after all that was handed over; raise what a flush raised.

        In the caller's thread: it would only wait, and a small commit needs no other.
        """
        self.wait()
        if orders:
            self._ledger.begin()
            self._run(list(orders))

    def wait(self) -> None:
        """Wait for everything that was handed over; raise what a flush raised."""
        wait(self._running)
        self._raise_failed()

    def close(self) -> None:
        """End the thread; orders that it has not begun are dropped."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _raise_failed(self) -> None:
        # A flush that failed stays first for good: what it had is not in any file.
        while self._running and self._running[0].done():
            self._running[0].result()
            self._running.pop(0)

    def _run(self, orders: list[Order]) -> None:
        try:
            self._sink.flush(orders)
        finally:
            for order in orders:
                order.done()
            self._ledger.end()
