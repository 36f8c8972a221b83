"""What a process of a sink has done, in numbers; plain ones, so that counting costs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from plait.kafka.sources import SourcePartition


@dataclass(slots=True)
class PartitionCounts:
    """One partition that a process holds. Offsets are those of the topic."""

    next: int = 0
    """What is read next."""
    committed: int = 0
    """What is in the table, up to here."""
    end: int = 0
    """The end of the partition, as the brokers told last."""

    @property
    def lag(self) -> int:
        """How many offsets are not in the table yet."""
        return max(0, self.end - self.committed)


@dataclass(slots=True)
class Counts:
    """What a process has done since it began; one thread writes, any may read."""

    records: int = 0
    """Records that were put; one that was read again counts again."""
    bytes: int = 0
    """Of their values."""
    rewinds: int = 0
    """How often a partition was read again from the table's offset."""
    dead_letters: int = 0
    commits: int = 0
    """Of the coordinator, while it was here."""
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
