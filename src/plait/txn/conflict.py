"""Who stands in whose way: one pure function over operations and logical write sets (INV-07).

The matrix says what a meeting means; this says whether and where two commits meet. Scopes say
where: single buckets, whole partitions, the table, or rows appended without keys, which stand in
nobody's way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from plait.errors import ConflictError, IncompatibleConflictError, RetryableConflictError
from plait.expr import Always, from_json, on_partition
from plait.model.bucket import BucketId, Partition, partition_parse, partition_path
from plait.model.changes import Changes
from plait.model.decision import (
    SCOPE_APPEND,
    SCOPE_BUCKETS,
    SCOPE_PARTITIONS,
    SCOPE_TABLE,
    Decision,
    ReadSet,
    Scope,
)
from plait.model.instant import Instant, Operation, Outcome
from plait.model.plan import TableSpec
from plait.model.value import raw_value
from plait.txn.keys import Met
from plait.txn.matrix import FILE_GROUP, KEY, MATRIX, MERGE, Cell, Meets, Verdict, kind_of

Compare = Callable[[BucketId], Met]
"""Compares the keys of ours and theirs in a bucket; asked only where the verdict hangs on it."""
_SAMPLE = 5


@dataclass(frozen=True, slots=True)
class Intent:
    """What we are about to decide, as far as conflicts need it."""

    operation: Operation
    scope: Scope
    buckets: frozenset[BucketId]
    spec: TableSpec | None = None
    """Of the table, where a predicate reaches further than what was touched."""
    policy: str = FILE_GROUP
    serializable: bool = False
    """Whether what was read counts too, not only what was written."""
    read_set: ReadSet | None = None

    @classmethod
    def of(
        cls, operation: Operation, scope: Scope, changes: Changes, spec: TableSpec | None = None
    ) -> Intent:
        """Take the write set from staged changes."""
        return cls(operation, scope, touched_buckets(changes), spec)

    def cell(self, theirs: Decision) -> Cell:
        """Look up what it means that they were first.

        Rows that were computed from a read are no blind writes: ``merge`` would lose the update.
        """
        policy = self.policy
        if policy == MERGE and self.read_set is not None and self.read_set.explicit:
            policy = KEY
        kinds = kind_of(self.operation, self.scope), kind_of(theirs.operation, theirs.scope)
        return MATRIX[kinds][policy]

    def reaches(self, partition: Partition) -> bool:
        """Tell whether rows of a partition could match the predicate of our operation."""
        return self.scope.predicate is not None and self._may(self.scope.predicate, partition)

    def has_read(self, partition: Partition) -> bool:
        """Tell whether rows of a partition could be among those that were read."""
        if not self.serializable or self.read_set is None:
            return False
        reads = self.read_set.reads
        return any(read is None or self._may(read, partition) for read in reads)

    def _may(self, predicate: dict[str, object], partition: Partition) -> bool:
        if self.spec is None:
            return False
        schema = self.spec.schema.arrow
        values = {
            name: None if text is None else raw_value(text, schema.field(name).type)
            for name, text in zip(self.spec.partition_by, partition, strict=True)
        }
        rest = on_partition(from_json(predicate, schema), values)
        return not (isinstance(rest, Always) and rest.value is not True)


@dataclass(frozen=True, slots=True)
class Conflict:
    """One decision that stands in our way."""

    theirs: Decision
    verdict: Verdict
    buckets: frozenset[BucketId]
    """What must be done again: ours, and what they brought into the place that we overwrite."""
    reason: str
    whole: bool = False
    """It is not about buckets: only the whole operation can be run again."""
    keys: tuple[str, ...] = ()
    """Hashes of some keys that both wrote, as hex."""

    def to_dict(self) -> dict[str, object]:
        """Give it as plain values, for the timeline."""
        places = sorted(f"{partition_path(p)}/{number}" for p, number in self.buckets)
        return {
            "version": self.theirs.version,
            "instant": str(self.theirs.instant),
            "operation": self.theirs.operation.value,
            "verdict": self.verdict.value,
            "reason": self.reason,
            "buckets": places[:_SAMPLE],
            "bucket_count": len(places),
            "keys": list(self.keys),
        }


def touched_buckets(changes: Changes) -> frozenset[BucketId]:
    """Give the (partition, bucket) pairs of a write set."""
    table = changes.touched
    texts = table["partition"].to_pylist()
    known = {text: partition_parse(text) for text in set(texts)}
    pairs = zip(texts, table["bucket"].to_pylist(), strict=True)
    return frozenset((known[text], bucket) for text, bucket in pairs)


def decide(ours: Intent, theirs: Decision, compare: Compare | None = None) -> Conflict | None:
    """Judge one decision of the window; None if it is compatible.

    Without ``compare`` nobody can tell keys apart, so any may be the same.
    """
    if theirs.outcome is not Outcome.COMMITTED:
        return None
    cell = ours.cell(theirs)
    if cell.meets is Meets.NEVER:
        return None
    if cell.meets is Meets.ALWAYS:
        reason = f"a {theirs.operation} changes what every write means"
        return Conflict(theirs, cell.same, frozenset(), reason, whole=True)
    buckets = touched_buckets(theirs.changes)
    if cell.same is not Verdict.REBASE and _was_read(ours, theirs.scope, buckets):
        reason = "it wrote where our rows were read"
        return Conflict(theirs, Verdict.RETRY, frozenset(), reason, whole=True)
    shared = meeting(ours, theirs.scope, buckets)
    if shared is None:
        return None
    if cell.apart is cell.same or compare is None:
        return Conflict(theirs, cell.same, shared, "both wrote the same place")
    met = {bucket: compare(bucket) for bucket in shared}
    close = {bucket: each for bucket, each in met.items() if not each.apart}
    if not close:
        return Conflict(theirs, cell.apart, shared, "both wrote the same bucket, not the same keys")
    hashes = [f"{int(number):016x}" for each in close.values() for number in each.hashes[:_SAMPLE]]
    known = all(each.known for each in close.values())
    reason = "both wrote the same keys" if known else "it may have written any key of the bucket"
    return Conflict(theirs, cell.same, shared, reason, keys=tuple(hashes[:_SAMPLE]))


def _was_read(ours: Intent, scope: Scope, buckets: frozenset[BucketId]) -> bool:
    if scope.kind == SCOPE_TABLE:
        return ours.serializable and ours.read_set is not None and ours.read_set.explicit
    return any(ours.has_read(partition) for partition in _places(scope, buckets))


def meeting(ours: Intent, scope: Scope, buckets: frozenset[BucketId]) -> frozenset[BucketId] | None:
    """Give the buckets to be done again where the two meet; None if they do not meet at all."""
    if ours.scope.kind == SCOPE_APPEND:
        return None  # rows without keys, added after whatever came before, are a serial order
    if not buckets and scope.kind in (SCOPE_BUCKETS, SCOPE_APPEND):
        return None  # they changed nothing
    if ours.scope.kind == SCOPE_TABLE:
        return ours.buckets | buckets
    if ours.scope.kind == SCOPE_PARTITIONS:
        mine = _places(ours.scope, ours.buckets)
        mine |= {partition for partition, _ in buckets if ours.reaches(partition)}
        shared = mine if scope.kind == SCOPE_TABLE else mine & _places(scope, buckets)
        return _within(ours.buckets | buckets, shared) if shared else None
    if scope.kind == SCOPE_TABLE:
        return ours.buckets or None
    brought = frozenset[BucketId]()
    if ours.serializable:  # they may have brought rows that our predicate holds for
        brought = frozenset(bucket for bucket in buckets if ours.reaches(bucket[0]))
    if scope.kind == SCOPE_PARTITIONS:
        return _within(ours.buckets, _places(scope, buckets)) | brought or None
    if scope.kind == SCOPE_APPEND:
        return brought or None  # else: rows that our snapshot need not have seen
    return (ours.buckets & buckets) | brought or None


def _within(buckets: frozenset[BucketId], partitions: frozenset[Partition]) -> frozenset[BucketId]:
    return frozenset(bucket for bucket in buckets if bucket[0] in partitions)


def _places(scope: Scope, buckets: frozenset[BucketId]) -> frozenset[Partition]:
    return frozenset(scope.partitions) | frozenset(partition for partition, _ in buckets)


def conflict_error(ours: Instant, conflicts: list[Conflict]) -> ConflictError:
    """Say who was first, where, and what it means: the worst of them first."""
    order = list(Verdict)
    conflicts = sorted(conflicts, key=lambda each: -order.index(each.verdict))
    first = conflicts[0]
    theirs = first.theirs
    groups = sorted({b for c in conflicts for b in c.buckets}, key=str)
    shown = [f"{partition_path(p)}/{bucket}" for p, bucket in groups]
    retry = first.verdict is not Verdict.INCOMPATIBLE
    message = (
        f"version {theirs.version} ({theirs.operation} by {theirs.instant}) was first"
        + (f" in {', '.join(shown[:_SAMPLE])}" if shown else "")
        + (f" and {len(shown) - _SAMPLE} more" if len(shown) > _SAMPLE else "")
    )
    kind = RetryableConflictError if retry else IncompatibleConflictError
    hint = "run it again, or write with on_conflict='retry'" if retry else "look at the table first"
    return kind(
        f"{message}: {first.reason}",
        hint=hint,
        ours=str(ours),
        theirs=str(theirs.instant),
        version=theirs.version,
        versions=[c.theirs.version for c in conflicts],
        file_groups=shown,
        verdict=first.verdict.value,
        operation=theirs.operation.value,
    )
