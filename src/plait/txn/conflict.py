"""Who stands in whose way: one pure function over operations and logical write sets (INV-07).

The matrix says what a meeting means; this says whether and where two commits meet. Scopes say
where: single buckets, whole partitions, the table, or rows appended without keys, which stand in
nobody's way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

import pyarrow as pa

from plait.definition.policy import (
    FILE_GROUP,
    KEY,
    MERGE,
    POLICIES,
    Verdict,
    judge_meeting,
    strictest,
)
from plait.expr import from_json, may_match
from plait.files.partition_values import decided_in, known_of
from plait.model.bucket import BucketId, Partition, partition_parse, partition_path
from plait.model.changes import Changes
from plait.model.contract import APART as APART_KEYS
from plait.model.contract import SAME as SAME_KEYS
from plait.model.contract import UNKNOWN as UNKNOWN_KEYS
from plait.model.contract import Meeting, Rule
from plait.model.decision import (
    SCOPE_APPEND,
    SCOPE_BUCKETS,
    SCOPE_PARTITIONS,
    SCOPE_TABLE,
    Decision,
    ReadSet,
    Scope,
)
from plait.model.instant import Operation
from plait.model.plan import COW, TableSpec
from plait.txn.keys import UNKNOWN, KeyOverlap
from plait.txn.matrix import ARRIVING, DATA, MATRIX, SERVICES, SWAPS, Cell, Kind, Meets, kind_of

Compare = Callable[[BucketId], KeyOverlap]
"""Compares the keys of ours and theirs in a bucket; asked only where the verdict hangs on it."""
WasRead = Callable[[BucketId], bool]
"""Tells whether they changed a row in a bucket that we read; asked where our reads may reach."""
_SAMPLE = 5
OTHER_LAYOUT = "it was committed under another layout, where its keys were in other buckets"
_OF_READS = {
    Operation.REPUSH_SOURCE: "it replaced the rows that were read",
    Operation.SCHEMA: "it changed the columns that were read",
}
_BUCKET_ONLY = "both wrote the same bucket, not the same keys"


class _Rules(TypedDict, total=False):
    policy: str
    serializable: bool
    read_set: ReadSet | None
    rule: Rule | None


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
    rule: Rule | None = None
    """The table's own policy, where it is none of Plait's."""
    looked: frozenset[tuple[Partition | None, int]] = frozenset()
    """Buckets in which keys were looked up that count as read; no partition: in every one."""
    arrives: bool = False
    """Whether keys that name one row in all partitions may have come in."""
    copies: bool = False
    """Whether files that we write may have rows of files that we replace."""
    earlier: bool = False
    """Whether what is judged lies between the version that was read and the one we rest on."""
    same_schema: bool = False
    """Whether every row that is judged has the values that generated columns have by now."""
    moved: bool = False
    """Whether what is judged lies under another layout, whose partitions have other names."""

    @classmethod
    def of(
        cls,
        operation: Operation,
        scope: Scope,
        changes: Changes,
        spec: TableSpec | None = None,
        **table: Unpack[_Rules],
    ) -> Intent:
        """Take the write set from staged changes; the rest is what the table asks for."""
        looked, buckets = looked_places(changes), touched_buckets(changes)
        replaces = spec is not None and spec.table_type == COW and changes.removed.num_rows > 0
        copies = replaces and operation in DATA
        arrives = spec is not None and spec.across and operation in ARRIVING
        return cls(
            operation, scope, buckets, spec, looked=looked, arrives=arrives, copies=copies, **table
        )

    @property
    def computed(self) -> bool:
        """Whether the caller said that the rows were computed from what was read."""
        return self.read_set is not None and self.read_set.explicit

    def cell(self, theirs: Decision) -> Cell:
        """Look up what it means that they were first.

        Rows that were computed from a read are no blind writes: ``merge`` would lose the update.
        """
        policy = self.policy if self.policy in POLICIES else KEY  # where no rule is asked
        if policy == MERGE and self.computed:
            policy = KEY
        kinds = kind_of(self.operation, self.scope), kind_of(theirs.operation, theirs.scope)
        return MATRIX[kinds][policy]

    def ask_rule(self, theirs: Decision, bucket: BucketId, met: KeyOverlap) -> Verdict:
        """Ask the table's own policy about a bucket that both wrote in."""
        if self.rule is None:
            return Verdict.RETRY
        keys = SAME_KEYS if met.known else UNKNOWN_KEYS
        if met.apart or met.looked:
            keys = APART_KEYS
        asked = Meeting(self.operation.value, theirs.operation.value, keys, self.computed, *bucket)
        return judge_meeting(self.policy, self.rule, asked)

    def reaches(self, partition: Partition) -> bool:
        """Tell whether rows of a partition could match the predicate of our operation."""
        return self.scope.predicate is not None and self._may(self.scope.predicate, partition)

    def replaces(self, partition: Partition) -> bool:
        """Tell whether we replace rows of a partition for which our predicate holds."""
        return self.scope.kind == SCOPE_PARTITIONS and self.reaches(partition)

    def has_read(self, partition: Partition) -> bool:
        """Tell whether rows of a partition could be among those that were read."""
        if not self.serializable or self.read_set is None:
            return False
        reads = self.read_set.reads
        return any(read is None or self._may(read, partition) for read in reads)

    def looked_into(self, buckets: frozenset[BucketId]) -> frozenset[BucketId]:
        """Return those of some buckets in which keys were looked up."""
        if not self.looked:
            return frozenset()
        return frozenset(b for b in buckets if b in self.looked or (None, b[1]) in self.looked)

    def elsewhere(self, theirs: Decision, buckets: frozenset[BucketId]) -> frozenset[BucketId]:
        """Return those of their buckets in which a key of ours may have come in too.

        It would be in two partitions then, though neither commit touched a bucket of the other.
        Who computed a row from a read also meets whoever took that row away before we looked.
        """
        if not self.arrives or not (theirs.operation in ARRIVING or self.takes_away):
            return frozenset()
        numbers = {number for _, number in self.buckets}
        return frozenset(bucket for bucket in buckets if bucket[1] in numbers)

    @property
    def takes_away(self) -> bool:
        """Whether a row that they took away counts, in whatever partition it was."""
        return self.earlier and self.computed

    def numbered(self, buckets: Iterable[BucketId]) -> frozenset[BucketId]:
        """Return ours under the numbers of some buckets, if keys are unique across partitions."""
        numbers = {number for _, number in buckets} if self.arrives else ()
        return frozenset(bucket for bucket in self.buckets if bucket[1] in numbers)

    def facing(self, theirs: Decision) -> Intent:
        """Return it as one decision is judged by it."""
        if (spec := self.spec) is None:
            return self
        moved = theirs.bucket_spec_id != spec.buckets.id
        same = bool(spec.schema.generated) and theirs.schema_id == spec.schema.id
        return replace(self, moved=moved, same_schema=same) if moved or same else self

    def _may(self, predicate: dict[str, object], partition: Partition) -> bool:
        if self.spec is None or self.moved:
            return self.moved
        schema = self.spec.schema.arrow
        known = known_of([partition], self.spec)
        if self.same_schema:
            known |= decided_in([partition], self.spec)
        return bool(may_match(from_json(predicate, schema), known, 1)[0])


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

    @property
    def counts(self) -> bool:
        """Whether a redo because of this is one of ``commit.retries``: no service's is."""
        return self.theirs.operation not in (*SERVICES, *SWAPS)

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values, for the timeline."""
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


def lays_out(conflicts: Sequence[Conflict]) -> bool:
    """Tell whether one of these gave the table another layout; it is the last then."""
    return bool(conflicts) and conflicts[-1].verdict is Verdict.RESTAGE


def touched_buckets(changes: Changes) -> frozenset[BucketId]:
    """Return the (partition, bucket) pairs of a write set."""
    pairs = _places_in(changes.touched)
    return frozenset((partition, bucket) for partition, bucket in pairs if partition is not None)


def looked_places(changes: Changes) -> frozenset[tuple[Partition | None, int]]:
    """Return where keys were looked up; no partition: in every one."""
    return frozenset(_places_in(changes.lookups))


def _places_in(table: pa.Table) -> Iterator[tuple[Partition | None, int]]:
    texts = table["partition"].to_pylist()
    known = {text: None if text is None else partition_parse(text) for text in set(texts)}
    for text, bucket in zip(texts, table["bucket"].to_pylist(), strict=True):
        yield known[text], bucket


def decide(
    ours: Intent,
    theirs: Decision,
    compare: Compare | None = None,
    was_read: WasRead = lambda _: True,
) -> Conflict | None:
    """Judge one decision of the window; None if it is compatible.

    Without ``compare`` nobody can tell keys apart, so any may be the same. Without ``was_read``
    every row counts that may be among those that were read, judged by its partition.
    """
    ours, cell = ours.facing(theirs), ours.cell(theirs)
    if cell.meets is Meets.NEVER:
        return None
    if cell.same is Verdict.CARRY:
        return _by_place(ours, theirs, cell)
    if cell.same is Verdict.RESTAGE:
        reason = _OF_READS.get(theirs.operation)
        if reason is not None and ours.computed:
            return Conflict(theirs, Verdict.RETRY, frozenset(), reason, whole=True)
        return Conflict(theirs, cell.same, frozenset(), "it changed the layout or the columns")
    if cell.meets is Meets.ALWAYS:
        reason = f"a {theirs.operation} changes the meaning of every write"
        return Conflict(theirs, cell.same, frozenset(), reason, whole=True)
    buckets = touched_buckets(theirs.changes)
    if cell.same is not Verdict.REBASE and _was_read(ours, theirs.scope, buckets, was_read):
        reason = "it wrote in the scope of our read"
        return Conflict(theirs, Verdict.RETRY, frozenset(), reason, whole=True)
    shared = meeting(ours, theirs.scope, buckets)
    own = ours.rule is not None and cell is MATRIX[Kind.ROWS, Kind.ROWS][KEY]
    looked = ours.looked_into(buckets) | ours.elsewhere(theirs, buckets)
    if shared is not None and not own and (cell.apart is cell.same or compare is None):
        redone = shared | looked | ours.numbered(looked)
        return Conflict(theirs, cell.same, redone, "both wrote the same place")
    if own and shared is not None:
        return _by_rule(ours, theirs, shared, looked, compare)
    return _by_keys(ours, theirs, cell, shared, looked, compare=compare)


def _by_place(ours: Intent, theirs: Decision, cell: Cell) -> Conflict | None:
    """Judge where one of the two is a service that moves rows, or takes away what has expired.

    What was read stays true, or counts as read before. Only copies of rows that have expired since
    are in the way: nothing tells where they are in our files.
    """
    if cell.meets is Meets.ALWAYS:
        return Conflict(theirs, cell.same, ours.buckets, "it may have changed any file", whole=True)
    shared = meeting(ours, theirs.scope, touched_buckets(theirs.changes))
    if shared is None:
        return None
    if theirs.operation is not Operation.EXPIRE:
        return Conflict(theirs, cell.same, shared, "rows of the same place were moved")
    verdict = Verdict.REBASE if ours.copies else cell.same
    return Conflict(theirs, verdict, shared, "rows of the same place expired")


def _by_rule(
    ours: Intent,
    theirs: Decision,
    shared: frozenset[BucketId],
    looked: frozenset[BucketId],
    compare: Compare | None,
) -> Conflict:
    """Judge by the table's own policy; it has no say in what we only looked up."""
    met = {b: UNKNOWN if compare is None else compare(b) for b in shared | looked}
    close = {bucket: each for bucket, each in met.items() if not each.apart}
    verdicts = [ours.ask_rule(theirs, bucket, met[bucket]) for bucket in sorted(shared, key=str)]
    if any(each.looked or bucket not in shared for bucket, each in close.items()):
        verdicts.append(Verdict.RETRY)
    hashes = [f"{int(number):016x}" for e in close.values() for number in e.hashes[:_SAMPLE]]
    reason = f"{_reason(close.values()) if close else _BUCKET_ONLY}, policy {ours.policy!r}"
    redone = shared | _redone(ours, close)
    return Conflict(theirs, strictest(verdicts), redone, reason, keys=tuple(hashes[:_SAMPLE]))


def _by_keys(
    ours: Intent,
    theirs: Decision,
    cell: Cell,
    shared: frozenset[BucketId] | None,
    looked: frozenset[BucketId],
    *,
    compare: Compare | None,
) -> Conflict | None:
    """Judge where both wrote, and where they wrote what we looked up."""
    written = shared or frozenset[BucketId]()
    claimed = {b for b in written if ours.scope.claims(b[0]) or theirs.scope.claims(b[0])}
    met = {b: UNKNOWN if compare is None or b in claimed else compare(b) for b in written | looked}
    close = {bucket: each for bucket, each in met.items() if not each.apart}
    if claimed:
        redone = written | _redone(ours, close)
        return Conflict(theirs, cell.same, redone, "both wrote the same place")
    if close:
        redone = written | _redone(ours, close)
        hashes = [f"{int(number):016x}" for e in close.values() for number in e.hashes[:_SAMPLE]]
        reason = _reason(close.values())
        return Conflict(theirs, cell.same, redone, reason, keys=tuple(hashes[:_SAMPLE]))
    if shared is None:
        return None
    return Conflict(theirs, cell.apart, shared, _BUCKET_ONLY)


def _redone(ours: Intent, close: Mapping[BucketId, KeyOverlap]) -> frozenset[BucketId]:
    """Return where keys met; also where ours came in, if theirs did so in other partitions."""
    return frozenset(close) | ours.numbered(b for b, met in close.items() if met.elsewhere)


def _reason(close: Collection[KeyOverlap]) -> str:
    if not all(each.known for each in close):
        return "it may have written any key of the bucket"
    if any(each.chosen for each in close):
        return "it wrote rows that ours replaces"
    if any(each.elsewhere for each in close):
        return "both wrote the same keys, in different partitions"
    if all(each.looked for each in close):
        return "it wrote keys that ours looked up"
    return "both wrote the same keys"


def _was_read(ours: Intent, scope: Scope, buckets: frozenset[BucketId], was_read: WasRead) -> bool:
    if scope.kind == SCOPE_TABLE:
        return ours.serializable and ours.computed
    if any(ours.has_read(partition) for partition in scope.partitions):
        return True
    reached = {place: ours.has_read(place) for place in {partition for partition, _ in buckets}}
    return any(reached[bucket[0]] and was_read(bucket) for bucket in buckets)


def meeting(ours: Intent, scope: Scope, buckets: frozenset[BucketId]) -> frozenset[BucketId] | None:
    """Return the buckets to be done again where the two meet; None if they do not meet at all."""
    if ours.scope.kind == SCOPE_APPEND:
        return None  # rows without keys, added after whatever came before, are a serial order
    if not buckets and scope.kind in (SCOPE_BUCKETS, SCOPE_APPEND):
        return None  # they changed nothing
    if ours.scope.kind == SCOPE_TABLE:
        return ours.buckets | buckets
    if ours.scope.kind == SCOPE_PARTITIONS:
        mine = frozenset(ours.scope.partitions)
        mine |= {partition for partition, _ in buckets if ours.reaches(partition)}
        if scope.kind == SCOPE_TABLE:
            return ours.buckets | _within(buckets, mine)
        shared = mine & _places(scope, buckets)
        met = _within(ours.buckets | buckets, shared) | (ours.buckets & buckets)
        met |= _within(ours.buckets, frozenset(scope.partitions))
        return met if met or shared else None
    brought = frozenset[BucketId]()
    if ours.serializable:  # they may have brought rows that our predicate holds for
        brought = frozenset(bucket for bucket in buckets if ours.reaches(bucket[0]))
    if scope.kind == SCOPE_TABLE:
        return ours.buckets | brought or None
    if scope.kind == SCOPE_PARTITIONS:
        met = _within(ours.buckets, frozenset(scope.partitions)) | (ours.buckets & buckets)
        return met | brought or None
    if scope.kind == SCOPE_APPEND:
        return brought or None  # else: rows that our snapshot need not have seen
    return (ours.buckets & buckets) | brought or None


def _within(buckets: frozenset[BucketId], partitions: frozenset[Partition]) -> frozenset[BucketId]:
    return frozenset(bucket for bucket in buckets if bucket[0] in partitions)


def _places(scope: Scope, buckets: frozenset[BucketId]) -> frozenset[Partition]:
    return frozenset(scope.partitions) | frozenset(partition for partition, _ in buckets)
