"""A writer among those that share one instant: its name, and how it says where it writes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from plait.model.bucket import Partition
from plait.model.request import WritePlan
from plait.storage.port import Store
from plait.timeline.pending import write_inflight


@dataclass(frozen=True, slots=True)
class Task:
    """Where a writer runs, among those that share its instant."""

    label: str = "0"
    """Goes into file names: ``[A-Za-z0-9-]``, another one for each attempt of each task."""
    spill_directory: str | None = None
    """Where runs are spilled; None: where the system keeps temporary files."""
    partitions: Collection[Partition] = ()
    """Partitions to overwrite beside those that rows come for."""


@dataclass(slots=True)
class Announcer:
    """Names partitions on storage before a file of this attempt appears in them."""

    store: Store
    plan: WritePlan
    label: str
    _records: int = 0

    def __call__(self, partitions: Iterable[Partition]) -> None:
        """Write one record; where a table has one partition, recovery knows it anyway."""
        partitions = tuple(partitions)
        if not partitions or not self.plan.spec.layout.partition_by:
            return
        attempt = f"{self.plan.label(self.label)}-{self._records}"
        write_inflight(self.store, self.plan.instant, partitions, attempt=attempt)
        self._records += 1
