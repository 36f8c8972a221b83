"""Conflict detection: a judge compares operations and logical write sets, without I/O (INV-07).

The matrix (``txn/matrix.py``) says what the meeting of two operations means. The judge says whether
and where two commits meet. A scope covers single buckets, whole partitions, the table, or rows that
were appended without keys. Appended rows conflict with nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

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
    Reserved,
    Scope,
)
from plait.model.instant import Instant, Operation
from plait.model.plan import COW, TableSpec
from plait.txn.keys import UNKNOWN, KeyOverlap
from plait.txn.matrix import ARRIVING, DATA, MATRIX, SERVICES, SWAPS, Cell, Kind, Meets, kind_of

Compare = Callable[[BucketId], KeyOverlap]
"""Compares the keys of ours and theirs in a bucket; asked only where the verdict hangs on it."""
WasRead = Callable[[BucketId], bool]
"""Tells whether they changed a row in a bucket that we read; asked where our reads may reach."""
_SAMPLE = 5
OTHER_LAYOUT = "it was committed under another layout, where its keys were in other buckets"
_READ_REASONS = {
    Operation.REPUSH_SOURCE: "it replaced the rows that were read",
    Operation.SCHEMA: "it changed the columns that were read",
}
_BUCKET_ONLY = "both wrote the same bucket, not the same keys"


@dataclass(frozen=True, slots=True)
class Conflict:
    """One decision that stands in our way."""

    theirs: Decision
    verdict: Verdict
    buckets: frozenset[BucketId]
    """The buckets to stage again: ours, and those where they added rows that we overwrite."""
    reason: str
    whole_operation: bool = False
    """Whether no single bucket can be redone: only the whole operation can run again."""
    keys: tuple[str, ...] = ()
    """Hashes of some keys that both wrote, as hex."""

    @property
    def counts_as_retry(self) -> bool:
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


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges what others decided by what one commit is about to decide.

    It is made of the parts of that decision that conflicts depend on, because the whole decision is
    drafted after it was judged; and of what the table asks for. ``ConflictChecker`` makes one for
    each look at the timeline, and ``verify`` one for each decision that it judges again.
    """

    operation: Operation
    scope: Scope
    changes: Changes
    _: KW_ONLY
    read_set: ReadSet | None = None
    spec: TableSpec | None = None
    """The table's spec; needed if a predicate reaches beyond the touched buckets."""
    policy: str = FILE_GROUP
    rule: Rule | None = None
    """The function of the table's own conflict policy; None for a built-in policy."""
    serializable: bool = False
    """Whether reads count too, not only writes (isolation ``serializable``)."""
    earlier: bool = False
    """Whether it judges decisions between the version that was read and the one we rest on."""
    buckets: frozenset[BucketId] = field(init=False)
    """The buckets that our changes touched."""
    _lookups: frozenset[tuple[Partition | None, int]] = field(init=False)
    """Buckets in which keys were looked up that count as read; no partition: in every one."""

    def __post_init__(self) -> None:
        """Gather the places of ours once: they are compared with those of each decision."""
        object.__setattr__(self, "buckets", touched_buckets(self.changes))
        object.__setattr__(self, "_lookups", frozenset(_places_in(self.changes.lookups)))

    def conflict_with(
        self,
        theirs: Decision,
        compare: Compare | None = None,
        was_read: WasRead = lambda _: True,
    ) -> Conflict | None:
        """Judge one decision of the window; None if it is compatible.

        Without ``compare`` nobody can tell keys apart, so any may be the same. Without ``was_read``
        every row counts that may be among those that were read, judged by its partition.
        """
        cell = self._cell(theirs)
        if cell.meets is Meets.NEVER:
            return None
        # The order of these tests matters. A service is followed by places of rows, so its keys are
        # never compared. After a new layout no bucket can be compared, so that is answered before
        # any is.
        if cell.same_key is Verdict.CARRY:
            return self._by_place(theirs, cell)
        if cell.same_key is Verdict.RESTAGE:
            reason = _READ_REASONS.get(theirs.operation)
            if reason is not None and self._computed:
                return Conflict(theirs, Verdict.RETRY, frozenset(), reason, whole_operation=True)
            return Conflict(
                theirs, cell.same_key, frozenset(), "it changed the layout or the columns"
            )
        if cell.meets is Meets.ALWAYS:
            reason = f"a {theirs.operation} changes the meaning of every write"
            return Conflict(theirs, cell.same_key, frozenset(), reason, whole_operation=True)
        buckets = touched_buckets(theirs.changes)
        # Reads come before writes: if what was read has changed, the whole operation has to run
        # again, and it does not help to know which buckets could be redone.
        if cell.same_key is not Verdict.REBASE and self._read_there(theirs, buckets, was_read):
            reason = "it wrote in the scope of our read"
            return Conflict(theirs, Verdict.RETRY, frozenset(), reason, whole_operation=True)
        shared = self.meeting(theirs.scope, buckets, theirs)
        own = self.rule is not None and cell is MATRIX[Kind.ROWS, Kind.ROWS][KEY]
        looked = self.looked_up_in(buckets) | self.in_other_partitions(theirs, buckets)
        if shared is not None and not own and (cell.other_keys is cell.same_key or compare is None):
            redone = shared | looked | self.own_with_numbers_of(looked)
            return Conflict(theirs, cell.same_key, redone, "both wrote the same place")
        if own and shared is not None:
            return self._by_rule(theirs, shared, looked, compare)
        return self._by_keys(theirs, cell, shared, looked, compare=compare)

    # --- where the two meet ------------------------------------------------------------------

    def meeting(
        self, scope: Scope, buckets: frozenset[BucketId], theirs: Decision | None = None
    ) -> frozenset[BucketId] | None:
        """Return the buckets to be done again where the two meet; None if they do not meet at all.

        Args:
            scope: theirs.
            buckets: theirs.
            theirs: their decision; None if there is none yet, but a reservation.
        """
        ours = self.scope
        if ours.kind == SCOPE_APPEND:
            return None  # rows without keys, added after whatever came before, are a serial order
        if not buckets and scope.kind in (SCOPE_BUCKETS, SCOPE_APPEND):
            return None  # they changed nothing
        if ours.kind == SCOPE_TABLE:
            return self.buckets | buckets
        if ours.kind == SCOPE_PARTITIONS:
            # Partitions that our predicate may reach count as ours even if no row there was
            # replaced: rows that they added there are rows that we should have replaced.
            mine = frozenset(ours.partitions)
            mine |= {partition for partition, _ in buckets if self._reaches(partition, theirs)}
            if scope.kind == SCOPE_TABLE:
                return self.buckets | _within(buckets, mine)
            shared = mine & _places(scope, buckets)
            shared_buckets = _within(self.buckets | buckets, shared) | (self.buckets & buckets)
            shared_buckets |= _within(self.buckets, frozenset(scope.partitions))
            return shared_buckets if shared_buckets or shared else None
        added = frozenset[BucketId]()
        if self.serializable:  # they may have brought rows that our predicate holds for
            added = frozenset(bucket for bucket in buckets if self._reaches(bucket[0], theirs))
        if scope.kind == SCOPE_TABLE:
            return self.buckets | added or None
        if scope.kind == SCOPE_PARTITIONS:
            shared_buckets = _within(self.buckets, frozenset(scope.partitions)) | (
                self.buckets & buckets
            )
            return shared_buckets | added or None
        if scope.kind == SCOPE_APPEND:
            return added or None  # else: rows that our snapshot need not have seen
        return (self.buckets & buckets) | added or None

    def looked_up_in(self, buckets: frozenset[BucketId]) -> frozenset[BucketId]:
        """Return those of some buckets in which keys were looked up."""
        looked = self._lookups
        if not looked:
            return frozenset()
        return frozenset(b for b in buckets if b in looked or (None, b[1]) in looked)

    def in_other_partitions(
        self, theirs: Decision, buckets: frozenset[BucketId]
    ) -> frozenset[BucketId]:
        """Return those of their buckets in which a key of ours may have come in too.

        Such a key would be in two partitions, though neither commit touched a bucket of the other.
        Rows that were computed from a read also conflict with a commit that removed the row.
        """
        if not self._may_add_keys or not (theirs.operation in ARRIVING or self.counts_removals):
            return frozenset()
        numbers = {number for _, number in self.buckets}
        return frozenset(bucket for bucket in buckets if bucket[1] in numbers)

    @property
    def counts_removals(self) -> bool:
        """Whether a row that they took away counts, in whatever partition it was."""
        return self.earlier and self._computed

    def own_with_numbers_of(self, buckets: Iterable[BucketId]) -> frozenset[BucketId]:
        """Return ours under the numbers of some buckets, if keys are unique across partitions."""
        if not self._may_add_keys:
            return frozenset()
        numbers = {number for _, number in buckets}
        return frozenset(bucket for bucket in self.buckets if bucket[1] in numbers)

    def place_of(self, holder: Instant) -> Reserved:
        """Return what an instant reserves for what it is about to decide."""
        return Reserved(holder, self.scope, tuple(sorted(self.buckets, key=str)))

    def replaces(self, partition: Partition, theirs: Decision) -> bool:
        """Tell whether we replace rows of theirs in a partition: our predicate may hold there."""
        return self.scope.kind == SCOPE_PARTITIONS and self._reaches(partition, theirs)

    def is_moved(self, theirs: Decision) -> bool:
        """Tell whether theirs lies under another layout, whose partitions have other names."""
        spec = self.spec
        return spec is not None and theirs.bucket_spec_id != spec.layout.buckets.id

    # --- what they mean for us ---------------------------------------------------------------

    def _cell(self, theirs: Decision) -> Cell:
        """Look up the cell of the matrix for their decision.

        Rows that were computed from a read are judged as under ``key``, never as under ``merge``: a
        blind write over their commit would lose its update.
        """
        # A table's own policy decides only about buckets that both wrote. All else is judged as
        # under the policy `key`.
        policy = self.policy if self.policy in POLICIES else KEY  # where no rule is asked
        if policy == MERGE and self._computed:
            policy = KEY
        kinds = kind_of(self.operation, self.scope), kind_of(theirs.operation, theirs.scope)
        return MATRIX[kinds][policy]

    def _by_place(self, theirs: Decision, cell: Cell) -> Conflict | None:
        """Judge a pair of which one is a rewrite or an expiry: by places of rows, not by keys.

        Neither makes a read invalid. Only a writer that copied rows which have expired since has to
        stage them again, because nothing tells where these rows are in its files.
        """
        if cell.meets is Meets.ALWAYS:
            reason = "it may have changed any file"
            return Conflict(theirs, cell.same_key, self.buckets, reason, whole_operation=True)
        shared = self.meeting(theirs.scope, touched_buckets(theirs.changes), theirs)
        if shared is None:
            return None
        if theirs.operation is not Operation.EXPIRE:
            return Conflict(theirs, cell.same_key, shared, "rows of the same place were moved")
        verdict = Verdict.REBASE if self._copies_rows else cell.same_key
        return Conflict(theirs, verdict, shared, "rows of the same place expired")

    def _by_rule(
        self,
        theirs: Decision,
        shared: frozenset[BucketId],
        looked: frozenset[BucketId],
        compare: Compare | None,
    ) -> Conflict:
        """Judge by the table's own policy; it has no say in what we only looked up."""
        overlaps = {b: UNKNOWN if compare is None else compare(b) for b in shared | looked}
        close = {bucket: each for bucket, each in overlaps.items() if not each.disjoint}
        verdicts = [
            self._ask_rule(theirs, bucket, overlaps[bucket]) for bucket in sorted(shared, key=str)
        ]
        if any(each.only_looked_up or bucket not in shared for bucket, each in close.items()):
            verdicts.append(Verdict.RETRY)
        reason = f"{_reason(close.values()) if close else _BUCKET_ONLY}, policy {self.policy!r}"
        redone = shared | self._redone(close)
        return Conflict(theirs, strictest(verdicts), redone, reason, keys=_sample(close.values()))

    def _ask_rule(self, theirs: Decision, bucket: BucketId, overlap: KeyOverlap) -> Verdict:
        """Ask the table's own policy about a bucket that both wrote in."""
        if self.rule is None:
            return Verdict.RETRY
        keys = SAME_KEYS if overlap.known else UNKNOWN_KEYS
        if overlap.disjoint or overlap.only_looked_up:
            keys = APART_KEYS
        ours = self.operation.value
        asked = Meeting(ours, theirs.operation.value, keys, self._computed, *bucket)
        return judge_meeting(self.policy, self.rule, asked)

    def _by_keys(
        self,
        theirs: Decision,
        cell: Cell,
        shared: frozenset[BucketId] | None,
        looked: frozenset[BucketId],
        *,
        compare: Compare | None,
    ) -> Conflict | None:
        """Judge where both wrote, and where they wrote what we looked up."""
        written = shared or frozenset[BucketId]()
        claimed = {b for b in written if self.scope.claims(b[0]) or theirs.scope.claims(b[0])}
        overlaps = {
            b: UNKNOWN if compare is None or b in claimed else compare(b) for b in written | looked
        }
        close = {bucket: each for bucket, each in overlaps.items() if not each.disjoint}
        if claimed:
            redone = written | self._redone(close)
            return Conflict(theirs, cell.same_key, redone, "both wrote the same place")
        if close:
            redone, reason = written | self._redone(close), _reason(close.values())
            return Conflict(theirs, cell.same_key, redone, reason, keys=_sample(close.values()))
        if shared is None:
            return None
        return Conflict(theirs, cell.other_keys, shared, _BUCKET_ONLY)

    def _redone(self, close: Mapping[BucketId, KeyOverlap]) -> frozenset[BucketId]:
        """Return where keys met; also where ours came in, if theirs did in other partitions."""
        return frozenset(close) | self.own_with_numbers_of(
            b for b, overlap in close.items() if overlap.in_other_partition
        )

    # --- what is known of ours ---------------------------------------------------------------

    @property
    def _computed(self) -> bool:
        """Whether the caller said that the rows were computed from what was read."""
        return self.read_set is not None and self.read_set.explicit

    @property
    def _may_add_keys(self) -> bool:
        """Whether keys that name one row in all partitions may have come in."""
        return self.spec is not None and self.spec.unique_in_table and self.operation in ARRIVING

    @property
    def _copies_rows(self) -> bool:
        """Whether files that we write may have rows of files that we replace."""
        replaces = self.spec is not None and self.spec.layout.table_type == COW
        return replaces and self.operation in DATA and self.changes.removed.num_rows > 0

    def _reaches(self, partition: Partition, theirs: Decision | None) -> bool:
        """Tell whether rows of theirs in a partition could match the predicate of our operation."""
        predicate = self.scope.predicate
        return predicate is not None and self._may(predicate, partition, theirs)

    def _read_there(
        self, theirs: Decision, buckets: frozenset[BucketId], was_read: WasRead
    ) -> bool:
        """Tell whether they wrote what was read."""
        if theirs.scope.kind == SCOPE_TABLE:
            return self.serializable and self._computed
        if any(self._has_read(partition, theirs) for partition in theirs.scope.partitions):
            return True
        places = {partition for partition, _ in buckets}
        reached = {place: self._has_read(place, theirs) for place in places}
        return any(reached[bucket[0]] and was_read(bucket) for bucket in buckets)

    def _has_read(self, partition: Partition, theirs: Decision) -> bool:
        """Tell whether rows of theirs in a partition could be among those that were read."""
        if not self.serializable or self.read_set is None:
            return False
        reads = self.read_set.reads
        return any(read is None or self._may(read, partition, theirs) for read in reads)

    def _may(
        self, predicate: dict[str, object], partition: Partition, theirs: Decision | None
    ) -> bool:
        """Tell whether a predicate may hold for a row of theirs in a partition."""
        spec = self.spec
        if spec is None:
            return False
        if theirs is not None and self.is_moved(theirs):
            return True
        known = known_of([partition], spec)
        if theirs is not None and spec.schema.generated and theirs.schema_id == spec.schema.id:
            known |= decided_in([partition], spec)  # every row of theirs has these values
        return bool(may_match(from_json(predicate, spec.schema.arrow), known, 1)[0])


def changes_layout(conflicts: Sequence[Conflict]) -> bool:
    """Tell whether one of these gave the table another layout; it is the last then."""
    return bool(conflicts) and conflicts[-1].verdict is Verdict.RESTAGE


def touched_buckets(changes: Changes) -> frozenset[BucketId]:
    """Return the (partition, bucket) pairs of a write set."""
    return frozenset(_places_in(changes.touched))


def _places_in(table: pa.Table) -> Iterator[tuple[Any, int]]:
    """Return the place of each row; no partition: the keys were looked up in every one."""
    texts = table["partition"].to_pylist()
    known = {text: partition_parse(text) for text in set(texts) if text is not None}
    return zip(map(known.get, texts), table["bucket"].to_pylist(), strict=True)


def _reason(close: Collection[KeyOverlap]) -> str:
    if not all(each.known for each in close):
        return "it may have written any key of the bucket"
    if any(each.matches_predicate for each in close):
        return "it wrote rows that ours replaces"
    if any(each.in_other_partition for each in close):
        return "both wrote the same keys, in different partitions"
    if all(each.only_looked_up for each in close):
        return "it wrote keys that ours looked up"
    return "both wrote the same keys"


def _sample(close: Iterable[KeyOverlap]) -> tuple[str, ...]:
    """Return some of the hashes that both wrote, as hex."""
    hashes = [f"{int(number):016x}" for each in close for number in each.hashes[:_SAMPLE]]
    return tuple(hashes[:_SAMPLE])


def _within(buckets: frozenset[BucketId], partitions: frozenset[Partition]) -> frozenset[BucketId]:
    return frozenset(bucket for bucket in buckets if bucket[0] in partitions)


def _places(scope: Scope, buckets: frozenset[BucketId]) -> frozenset[Partition]:
    return frozenset(scope.partitions) | frozenset(partition for partition, _ in buckets)
