"""Who stands in whose way: one pure function over operations and logical write sets (INV-07).

The matrix is data: what they did says when the two meet at all (never, where the scopes meet,
always) and what that means for us. Scopes say where: single buckets, whole partitions, the
table, or rows appended without keys, which stand in nobody's way.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
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
    Scope,
)
from plait.model.instant import Instant, Operation, Outcome
from plait.model.plan import TableSpec
from plait.model.value import raw_value


class Verdict(enum.StrEnum):
    """What a decision in the window means for us."""

    COMPATIBLE = "compatible"
    REBASE = "rebase"
    RETRY = "retry"
    INCOMPATIBLE = "incompatible"


class Meets(enum.StrEnum):
    """When two operations can be in each other's way."""

    NEVER = "never"
    SCOPES = "scopes"
    ALWAYS = "always"


DATA = (
    Operation.APPEND,
    Operation.INSERT,
    Operation.UPSERT,
    Operation.UPDATE,
    Operation.DELETE,
    Operation.OVERWRITE,
    Operation.MERGE,
)
SERVICES = (Operation.CLEAN, Operation.ARCHIVE, Operation.SAVEPOINT, Operation.ROLLBACK)
REWRITES = (Operation.COMPACT, Operation.CLUSTER)

MATRIX: Mapping[Operation, tuple[Meets, Verdict]] = {
    **dict.fromkeys((*DATA, *REWRITES), (Meets.SCOPES, Verdict.RETRY)),
    **dict.fromkeys(SERVICES, (Meets.NEVER, Verdict.COMPATIBLE)),
    Operation.PROPERTY: (Meets.NEVER, Verdict.COMPATIBLE),
    Operation.SCHEMA: (Meets.ALWAYS, Verdict.RETRY),
    Operation.RESTORE: (Meets.ALWAYS, Verdict.INCOMPATIBLE),
    Operation.CREATE: (Meets.ALWAYS, Verdict.INCOMPATIBLE),
}
"""What a data operation of ours does when it meets theirs, under ``file_group``.

The policies ``key`` and ``merge`` change the verdict of the first row only.
"""


@dataclass(frozen=True, slots=True)
class Intent:
    """What we are about to decide, as far as conflicts need it."""

    operation: Operation
    scope: Scope
    buckets: frozenset[BucketId]
    spec: TableSpec | None = None
    """Of the table, where a predicate reaches further than what was touched."""

    @classmethod
    def of(
        cls, operation: Operation, scope: Scope, changes: Changes, spec: TableSpec | None = None
    ) -> Intent:
        """Take the write set from staged changes."""
        return cls(operation, scope, touched_buckets(changes), spec)

    def reaches(self, partition: Partition) -> bool:
        """Tell whether rows of a partition could match the predicate of an overwrite."""
        if self.scope.predicate is None or self.spec is None:
            return False
        schema = self.spec.schema.arrow
        values = {
            name: None if text is None else raw_value(text, schema.field(name).type)
            for name, text in zip(self.spec.partition_by, partition, strict=True)
        }
        rest = on_partition(from_json(self.scope.predicate, schema), values)
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


def touched_buckets(changes: Changes) -> frozenset[BucketId]:
    """Give the (partition, bucket) pairs of a write set."""
    table = changes.touched
    texts = table["partition"].to_pylist()
    known = {text: partition_parse(text) for text in set(texts)}
    pairs = zip(texts, table["bucket"].to_pylist(), strict=True)
    return frozenset((known[text], bucket) for text, bucket in pairs)


def decide(ours: Intent, theirs: Decision) -> Conflict | None:
    """Judge one decision of the window under ``file_group``; None if it is compatible."""
    if theirs.outcome is not Outcome.COMMITTED:
        return None
    meets, verdict = MATRIX[theirs.operation]
    if meets is Meets.NEVER:
        return None
    if meets is Meets.ALWAYS:
        reason = f"a {theirs.operation} changes what every write means"
        return Conflict(theirs, verdict, frozenset(), reason, whole=True)
    buckets = touched_buckets(theirs.changes)
    shared = _meeting(ours, theirs.scope, buckets)
    if shared is None:
        return None
    return Conflict(theirs, verdict, shared, "both wrote the same place")


def _meeting(
    ours: Intent, scope: Scope, buckets: frozenset[BucketId]
) -> frozenset[BucketId] | None:
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
    if scope.kind == SCOPE_PARTITIONS:
        return _within(ours.buckets, _places(scope, buckets)) or None
    if scope.kind == SCOPE_APPEND:
        return None  # they appended rows that our snapshot need not have seen
    return (ours.buckets & buckets) or None


def _within(buckets: frozenset[BucketId], partitions: frozenset[Partition]) -> frozenset[BucketId]:
    return frozenset(bucket for bucket in buckets if bucket[0] in partitions)


def _places(scope: Scope, buckets: frozenset[BucketId]) -> frozenset[Partition]:
    return frozenset(scope.partitions) | frozenset(partition for partition, _ in buckets)


def conflict_error(ours: Instant, conflicts: list[Conflict]) -> ConflictError:
    """Say who was first, where, and what it means."""
    first = conflicts[0]
    theirs = first.theirs
    groups = sorted({b for c in conflicts for b in c.buckets}, key=str)
    shown = [f"{partition_path(p)}/{bucket}" for p, bucket in groups]
    retry = all(c.verdict is Verdict.RETRY for c in conflicts)
    message = (
        f"version {theirs.version} ({theirs.operation} by {theirs.instant}) was first"
        + (f" in {', '.join(shown[:5])}" if shown else "")
        + (f" and {len(shown) - 5} more" if len(shown) > 5 else "")  # noqa: PLR2004 - shown above
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
