"""A stream of several writers, stepped by hand."""

from __future__ import annotations

import pyarrow as pa

from plait.stream.coordinator import Coordinator
from plait.stream.participant import Participant


def ready(coordinator: Coordinator, participant: Participant, rows: pa.Table) -> None:
    """Bring an epoch of one writer so far that the coordinator may complete it."""
    for _ in range(3):
        participant.poll()
        coordinator.poll()
    participant.write(rows, start="", end="1")
    coordinator.checkpoint(wait_s=0)
    participant.poll()
    participant.settle()
