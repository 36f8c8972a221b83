"""What a process of a sink has done, in numbers; plain ones, so that counting costs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from plait.kafka.sources import SourcePartition


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
