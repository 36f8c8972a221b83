"""When buckets are flushed: decided from sizes alone, so that it can be told beforehand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from plait.model.plan import TableSpec
from plait.write.intake import Intake
from plait.write.limits import Limits
from plait.write.split import Group, split


@dataclass(slots=True)
class FlushPolicy:
    """Counts the bytes of each bucket in the buffer and says which buckets go.

    A bucket goes when it exceeds ``write.bucket.size``; all go when their sum exceeds
    ``write.buffer.size``. Time, threads and the speed of storage play no part.
    """

    limits: Limits
    sizes: dict[Group, int] = field(default_factory=dict)
    total: int = 0
    flushes: int = 0

    def add(self, arrived: Mapping[Group, int]) -> list[Group]:
        """Count rows that arrived; give the buckets to flush now, in the order to do it."""
        for group, size in arrived.items():
            self.sizes[group] = self.sizes.get(group, 0) + size
            self.total += size
        due = [group for group in arrived if self.sizes[group] > self.limits.bucket]
        self._flush(due)
        return due + self.rest() if self.total > self.limits.buffer else due

    def rest(self) -> list[Group]:
        """Give all buckets that have rows, to be flushed."""
        due = list(self.sizes)
        self._flush(due)
        return due

    def _flush(self, groups: Iterable[Group]) -> None:
        for group in groups:
            self.total -= self.sizes.pop(group)
            self.flushes += 1


def predict_flushes(arrivals: Iterable[Mapping[Group, int]], limits: Limits) -> int:
    """Count the flushes of a writer from the sizes of what it divides by bucket, in order.

    The same number is in ``WriteStats.flushes`` of the finished writer.

    >>> one = {((), 0): 60, ((), 1): 10}
    >>> predict_flushes([one, one, one, one], Limits(bucket=100, buffer=150))
    3
    """
    policy = FlushPolicy(limits)
    for arrived in arrivals:
        policy.add(arrived)
    policy.rest()
    return policy.flushes


def plan_arrivals(
    batches: Iterable[pa.RecordBatch], spec: TableSpec, limits: Limits
) -> Iterator[dict[Group, int]]:
    """Give the sizes that a writer of these checked batches counts, without writing them."""
    intake = Intake(limits)
    for batch in batches:
        for rows in intake.add(batch):
            yield split(rows, spec).sizes
    for rows in intake.rest():
        yield split(rows, spec).sizes
