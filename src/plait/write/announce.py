"""Name partitions for a task that shares its instant with others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from plait.model.bucket import Partition
from plait.model.plan import WritePlan
from plait.storage.port import Store
from plait.timeline.pending import write_inflight


@dataclass(slots=True)
class Announcer:
    """Names partitions on storage before a file of this attempt appears in them."""

    store: Store
    plan: WritePlan
    label: str
    _records: int = 0

    def __call__(self, partitions: Iterable[Partition]) -> None:
        """Write one record; where a table has one partition, recovery knows it anyway."""
        if not self.plan.spec.partition_by:
            return
        attempt = f"{self.plan.label(self.label)}-{self._records}"
        write_inflight(self.store, self.plan.instant, partitions, attempt=attempt)
        self._records += 1
