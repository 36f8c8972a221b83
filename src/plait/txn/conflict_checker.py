"""Validation: takes in what was decided since our base, and tells what stands in our way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from plait.definition.evolving import schemas_with
from plait.definition.policy import Verdict, require_policy
from plait.definition.table_def import TableDef
from plait.errors import (
    CorruptMetadataError,
    InstantExpiredError,
    RetryableConflictError,
    SchemaError,
    StreamError,
    UndoneError,
)
from plait.expr import from_json
from plait.model.bucket import BucketId
from plait.model.changes import Changes, Digest
from plait.model.contract import Contract
from plait.model.decision import Decision, ReadSet, Scope, Token
from plait.model.instant import Instant, Operation
from plait.model.request import WriteRequest
from plait.read.condition import Condition
from plait.state.state import TableState
from plait.timeline import paths
from plait.txn.conflict import OTHER_LAYOUT, Conflict, Judge, changes_layout
from plait.txn.keys import DISJOINT, UNKNOWN, Arrivals, KeyOverlap, Keys
from plait.txn.matrix import DATA, DATA_KINDS, HARMLESS, SERVICES, kind_of
from plait.txn.refusal import AlreadyCommitted, ContractChanged, Ended, Refused
from plait.txn.table_handle import TableHandle
from plait.txn.tokens import find_applied, with_digest

_WINDOW_MAX = 100_000
_ADDED = "it added columns to the table"


@dataclass(frozen=True, slots=True)
class Window:
    """What was decided after one state up to another."""

    head: TableState
    """The newest state that was met."""
    conflicts: list[Conflict]
    times: frozenset[str]
    """Instant times that were decided."""


@dataclass(frozen=True, slots=True)
class ConflictChecker:
    """Compares what one attempt would commit with what others decided. It decides nothing."""

    handle: TableHandle
    instant: Instant
    request: WriteRequest
    contract: Contract
    """The contract of the base."""
    _keys: list[Keys] = field(default_factory=list)
    """A cache: the keys that were loaded, for one layout of the table."""

    def look_back(self, state: TableState, v0: int) -> frozenset[str]:
        """Look for our own decision between v0 and the base; return the times decided there.

        Raises:
            Ended: a recoverer was there.
            AlreadyCommitted: another process that resumed this instant was there.
        """
        times: set[str] = set()
        if state.version == v0:
            return frozenset()
        for version, instant, ended in self._decided(state, v0):
            times.add(instant.split("-", 1)[0])
            if ended is not None and self.instant.nonce in ended:
                raise Ended(version, "found before its base")
            if instant.endswith(self.instant.nonce):
                raise AlreadyCommitted(version)
        return frozenset(times)

    def continue_stream(
        self, token: Token, state: TableState, digest: Digest | None = None
    ) -> None:
        """See whether our token is the next of its stream (INV-09).

        Args:
            token: ours.
            state: what it must continue.
            digest: of the rows, once they are staged.

        Raises:
            AlreadyCommitted: it was applied, by whomever.
            Refused: it does not continue its stream, or a restore undid it.
        """
        try:
            applied = find_applied(self.handle.store, state, with_digest(token, digest))
        except (StreamError, UndoneError) as error:
            raise Refused(error) from None
        if applied is not None:
            raise AlreadyCommitted(applied)

    def _decided(self, state: TableState, since: int) -> Iterator[tuple[int, str, str | None]]:
        """Return version, instant and ended instants of each decision after a version."""
        recent = state.recent(since)
        if recent is not None:
            for each in recent:
                ended = " ".join(str(back.instant) for back in each.rolled_back)
                yield each.version, str(each.instant), ended or None
            return
        rows = state.commits(self.handle.store, since=since)
        columns = (rows[name].to_pylist() for name in ("version", "instant", "ended"))
        yield from zip(*columns, strict=True)

    def judge_of(
        self,
        changes: Changes,
        scope: Scope,
        table: TableDef,
        read_set: ReadSet,
        *,
        earlier: bool = False,
    ) -> Judge:
        """Return who judges others by what we are about to decide, as the table asks for it."""
        return Judge(
            self.request.operation,
            scope,
            changes,
            read_set=read_set,
            spec=table.spec,
            policy=table.policy,
            rule=require_policy(table.policy),
            serializable=table.isolation == "serializable",
            earlier=earlier,
        )

    def earlier(self, judge: Judge, state: TableState, *, since: int, until: int) -> list[Conflict]:
        """Judge what lies between the version that was read and the base.

        The files rest on the base already, so what is rebased or carried over does not count.
        """
        conflicts: list[Conflict] = []
        layout = state.table.spec.layout.id
        for decision in self.handle.cache.decisions(since, limit=until - since):
            # Commits under another layout put their keys into other buckets. Nothing tells whether
            # they wrote ours, so each of them counts. Services changed no row that was read.
            if decision.bucket_spec_id != layout and decision.operation in (*DATA, *SERVICES):
                if decision.operation in DATA:
                    conflicts.append(
                        Conflict(
                            decision, Verdict.RETRY, frozenset(), OTHER_LAYOUT, whole_operation=True
                        )
                    )
                continue
            conflict = self._conflict_with(judge, decision, state)
            if conflict is not None and conflict.verdict not in HARMLESS:
                conflicts.append(conflict)
        return conflicts

    def window(
        self,
        judge: Judge,
        head: TableState,
        first: Decision | None = None,
        *,
        digest: Digest | None = None,
    ) -> Window:
        """Take in the decisions since a state, and judge each.

        A new layout ends the window: what comes after it is judged with what is staged under it.

        Args:
            judge: judges by what we are about to decide.
            head: the state.
            first: the decision after it, if it is known.
            digest: of our rows, if they belong to an epoch of a stream.

        Raises:
            Ended: we were rolled back.
            AlreadyCommitted: by another process that resumed us, or under our commit id or token.
            ContractChanged: the table has another contract now.
            Refused: our token does not continue its stream any more.
        """
        times: set[str] = set()
        conflicts: list[Conflict] = []
        for decision in self._newer(head.version, first):
            head = self._take_in(decision, head, digest)
            times.add(decision.instant.time)
            conflict = self._conflict_with(judge, decision, head)
            if conflict is not None:
                conflicts.append(conflict)
            if _evolved(judge, decision, conflict):
                conflicts.append(Conflict(decision, Verdict.RESTAGE, frozenset(), _ADDED))
            if changes_layout(conflicts):
                break
        # Share the head with the other users of this client: they need not read these decisions
        # again.
        self.handle.cache.offer(head)
        return Window(head, conflicts, frozenset(times))

    def _newer(self, version: int, first: Decision | None) -> Iterator[Decision]:
        if first is not None:
            yield first
            version = first.version
        yield from self.handle.cache.decisions(version, limit=_WINDOW_MAX)

    def _take_in(self, decision: Decision, head: TableState, digest: Digest | None) -> TableState:
        """Apply a decision to the head, unless it says that our attempt is over."""
        # The order is part of the protocol. A rollback of ours ends the attempt first, whatever
        # else the decision says. The contract comes before our commit id, so that a client of
        # another contract never goes on (INV-12).
        ended = decision.find_ended(self.instant)
        if ended is not None:
            raise Ended(decision.version, ended.reason)
        newer = head.apply(decision, where=paths.slot(decision.version))
        if decision.instant.nonce == self.instant.nonce:  # by another process that resumed it
            raise AlreadyCommitted(decision.version)
        if newer.table.contract != self.contract:
            raise ContractChanged(newer.table.contract)
        if decision.commit_id is not None and decision.commit_id == self.request.commit_id:
            raise AlreadyCommitted(decision.version)
        if decision.tokens and self.request.token is not None:
            self.continue_stream(self.request.token, newer, digest)
        return newer

    def _conflict_with(
        self, judge: Judge, decision: Decision, state: TableState
    ) -> Conflict | None:
        """Have one decision judged; what is on the store is read only if that is asked for."""
        spec = state.table.spec
        shape = decision.operation is Operation.SCHEMA and not self.request.added_columns
        if shape and state.table.only_comments(decision.schema_id):
            return None  # but what rows bring along has the ids after those of the newest schema
        # Keys are cached by bucket, and buckets of two layouts cannot be compared: a new spec drops
        # them.
        if not self._keys or self._keys[0].spec is not spec:
            try:
                known = state.table.schemas
                if self.request.added_columns:
                    known = schemas_with(state.table, self.request)
            except SchemaError as error:
                message = f"the columns changed while rows brought new ones along: {error.message}"
                hint = "run the write again; it may need other columns"
                raise Refused(RetryableConflictError(message, hint=hint)) from error
            self._keys[:] = [Keys(self.handle.store, spec, known)]
        (keys,) = self._keys

        def compare(bucket: BucketId) -> KeyOverlap:
            try:
                return compared(keys, judge, decision, bucket)
            except CorruptMetadataError:
                # Files of ours go when somebody rolls us back: that stands in the same window.
                return UNKNOWN

        def rows_read(bucket: BucketId) -> bool:
            try:
                return was_read(keys, judge, decision, bucket, state)
            except (CorruptMetadataError, InstantExpiredError):
                return True

        return judge.conflict_with(decision, compare, rows_read)


def was_read(
    keys: Keys, judge: Judge, theirs: Decision, bucket: BucketId, state: TableState
) -> bool:
    """Tell whether others changed a row of a bucket that was read: as it was, or as it is now.

    Args:
        keys: of the table.
        judge: knows what was read.
        theirs: what the others decided.
        bucket: theirs.
        state: the table at some version since, which knows the version that was read.

    Raises:
        CorruptMetadataError, StorageError: a file cannot be read.
        InstantExpiredError: the version that was read is gone.
    """
    read_set, schema = judge.read_set, keys.spec.schema.arrow
    if read_set is None or judge.is_moved(theirs):
        return True
    for read in read_set.reads:
        where = None if read is None else Condition.of(from_json(read, schema), schema)
        added = keys.keys_added(theirs.changes, bucket, where)
        if added is None or len(added):
            return True
        if not keys.spec.keyed:  # nobody can tell which rows they changed, if they did
            if _only_adds(theirs):
                continue
            return True
        before = state.snapshot(keys.store, version=read_set.version)
        removed = keys.keys_removed(theirs.changes, bucket, where, before.files)
        if removed is None or len(removed):
            return True
    return False


def compared(keys: Keys, judge: Judge, theirs: Decision, bucket: BucketId) -> KeyOverlap:
    """Compare our keys with those that others wrote in a bucket.

    Where a key names one row in all partitions, also with those that we wrote in other partitions.

    Raises:
        CorruptMetadataError, StorageError: a file cannot be read.
    """
    ours, here = judge.changes, frozenset([bucket])
    far, parts = bool(judge.in_other_partitions(theirs, here)), Operation.TRANSACTION
    asked = Arrivals(judge.counts_removals, judge.operation is parts, theirs.operation is parts)
    if far and not (here & judge.buckets or judge.looked_up_in(here)):
        return keys.overlap_elsewhere(ours, theirs.changes, bucket, asked)
    adds = not keys.spec.keyed and _only_adds(theirs)
    overlap = DISJOINT if adds else keys.overlap(ours, theirs.changes, bucket)
    if far and overlap.disjoint:
        overlap = keys.overlap_elsewhere(ours, theirs.changes, bucket, asked)
    if overlap.disjoint and judge.replaces(bucket[0], theirs):
        return _added_keys(keys, judge, theirs, bucket)
    return overlap


def _only_adds(theirs: Decision) -> bool:
    """Tell whether they only added rows; in a table without a key none of these is ours."""
    return not (theirs.changes.removed.num_rows or theirs.changes.masked.num_rows)


def _added_keys(keys: Keys, judge: Judge, theirs: Decision, bucket: BucketId) -> KeyOverlap:
    """Return the keys of rows that they wrote among those that our predicate replaces."""
    schema, predicate = keys.spec.schema.arrow, judge.scope.predicate
    if predicate is None or judge.is_moved(theirs):
        return UNKNOWN  # under another layout no partition of theirs can be read
    where = Condition.of(from_json(predicate, schema), schema)
    added = keys.keys_added(theirs.changes, bucket, where)
    if added is None:
        return replace(UNKNOWN, matches_predicate=True)
    return KeyOverlap(known=True, hashes=added, matches_predicate=True)


def _evolved(ours: Judge, theirs: Decision, conflict: Conflict | None) -> bool:
    """Tell whether they added columns beside their rows, so that ours are staged again.

    What was read stays as it was: every row of before is null there.
    """
    if theirs.table is None or theirs.operation not in DATA:
        return False
    stops = conflict is not None and (
        conflict.whole_operation or conflict.verdict in (Verdict.RESTAGE, Verdict.INCOMPATIBLE)
    )
    return kind_of(ours.operation, ours.scope) in DATA_KINDS and not stops
