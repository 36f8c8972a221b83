"""Who sends rows to sinks, and leaves a record of it: a writer, or one attempt of a task."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from plait.model.instant import Instant
from plait.model.replicas import Attempt
from plait.ports import Ports
from plait.replicate.sink import Sink
from plait.storage.port import Store
from plait.timeline.replica_records import write_attempt


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

    def write_record(self, sinks: Sequence[Sink]) -> None:
        """Write the attempt record; one that was written before is replaced by a newer one."""
        now_ms, names = self.ports.clock.now_ms(), tuple(sink.name for sink in sinks)
        attempt = Attempt(self.instant, names, now_ms, platform.node(), os.getpid(), self.task)
        write_attempt(self.store, attempt)
