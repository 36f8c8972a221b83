"""A sender of rows to sinks, with its record: a writer, or one attempt of a task."""

from __future__ import annotations

import logging
import os
import platform
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from plait.errors import StorageError
from plait.model.instant import Instant
from plait.model.sink_ledger import Attempt
from plait.ports import Ports
from plait.replicate.fan_out import FanOut
from plait.replicate.sink import Sink
from plait.storage.port import Store
from plait.timeline.replica_records import find_attempt, write_attempt
from plait.txn.liveness import process_mark

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sender:
    """Sends rows under an instant."""

    store: Store
    instant: Instant
    ports: Ports
    check_alive: Callable[[], None]
    """Raises RolledBackError once the instant was ended by somebody else."""
    task: str = ""
    """Names this attempt of a task; empty: the writer itself."""

    def write_record(self, sinks: Sequence[Sink], under_way: tuple[str, ...] = ()) -> None:
        """Write the attempt record; one that was written before is replaced by a newer one.

        Args:
            sinks: those that rows are sent to.
            under_way: those that had not answered when the write failed.
        """
        self._write([sink.name for sink in sinks], under_way)

    def _write(self, names: Iterable[str], under_way: tuple[str, ...]) -> None:
        now_ms, mark = self.ports.clock.now_ms(), process_mark() if under_way else ""
        node, pid = platform.node(), os.getpid()
        attempt = Attempt(self.instant, tuple(names), now_ms, node, pid, self.task, under_way, mark)
        write_attempt(self.store, attempt)

    def leave_record(self, sinks: Sequence[Sink], fan_out: FanOut) -> None:
        """Write the record of a write that failed, and again when a silent sink has answered.

        As long as one is under way, no repair settles the record: it may be undone by what comes.
        A repair may have settled other sinks meanwhile, so a later record names those that are
        left, and those that have answered since: after an hour a repair does not wait for them.

        Raises:
            StorageError: the record is as it was before.
        """
        mutex, silent = threading.Lock(), fan_out.under_way
        self._write([sink.name for sink in sinks], silent)

        def write_later() -> None:
            with mutex:
                try:
                    known = find_attempt(self.store, self.instant, self.task)
                    now, names = fan_out.under_way, silent
                    if known is not None:
                        names = (*known.sinks, *(n for n in known.under_way if n not in now))
                    names = names or tuple(sink.name for sink in sinks)
                    self._write(dict.fromkeys(names), now)
                except StorageError:
                    _log.warning("the attempt record of %s stays", self.instant, exc_info=True)

        fan_out.when_quiet(write_later)
