"""The commit loop: validate what was staged, publish it, and stage again what others overtook.

A commit wins when it puts its decision into the slot after the head. Others may be first at any
time, so the loop goes round until it has a slot or has to give up. What it would publish is one
value, ``StagedChanges``. Each step that moves it to a newer head is a transition of this value: it
is carried over decisions of services, redone in some buckets, or restaged under another layout.
``docs/architecture.md`` draws the loop. Nothing but the put of a slot makes a change visible. So
if a process dies between two steps, it leaves files that no decision names, and the pending record
by which recovery finds them (INV-06).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from plait.definition.evolving import definition_with
from plait.definition.policy import Verdict
from plait.errors import (
    CommitError,
    CorruptMetadataError,
    InvariantError,
    RetryableConflictError,
    StorageError,
)
from plait.model.bucket import BucketId
from plait.model.changes import WriteStatus
from plait.model.decision import Decision, ReadSet, Scope, action_of
from plait.model.instant import Instant
from plait.model.plan import Snapshot
from plait.model.sink_ledger import SinkLedger
from plait.read.plan import FileFilter
from plait.state.state import TableState
from plait.txn.carry import Carrier
from plait.txn.conflict import Conflict, Judge, changes_layout, touched_buckets
from plait.txn.conflict_checker import ConflictChecker
from plait.txn.matrix import SERVICES
from plait.txn.publish import Lost, Won, free_time, publish
from plait.txn.refusal import Refused, conflict_error, retries_exhausted
from plait.txn.reservation import CommitQueue, ReservationQueue
from plait.txn.table_handle import TableHandle, client
from plait.txn.tokens import with_digest

_log = logging.getLogger(__name__)
_ALWAYS_ALLOWED = frozenset((Verdict.REBASE, Verdict.RESTAGE))
"""Verdicts after which a commit stages again even with ``on_conflict="raise"``."""
_RECORDED_MAX = 5
"""Maximum number of conflicts recorded in a decision."""

Redo = Callable[[Snapshot, frozenset[BucketId]], WriteStatus]
"""Stages some buckets again on a newer snapshot; returns the status of everything."""


class Restaged(NamedTuple):
    """What was staged again under another layout."""

    status: WriteStatus
    scope: Scope
    file_filter: FileFilter | None


Restage = Callable[[TableState], Restaged]
"""Stages everything again under the layout of a state, and on its version."""


@dataclass(frozen=True, slots=True)
class StagedChanges:
    """What an instant has staged, and what it rests on: the state of the commit loop.

    Its methods are the transitions. Each returns the value after one step and does nothing else.
    The engine or the carrier does the work of a step, and the loop then keeps the value after it.
    """

    status: WriteStatus
    """What would be published: as the engine gave it, or carried over services since."""
    from_engine: WriteStatus
    """The last status that the engine gave. Each carry-over starts from it, not from the last."""
    scope: Scope
    rests_on: int
    """The version that the files are right for: the base, or the head of the last step."""
    read_set: ReadSet
    """The read after which another commit to the same keys is a conflict."""
    file_filter: FileFilter | None = None
    """Filter of the files that a redo loads; None for all files."""
    services: tuple[Decision, ...] = ()
    """Decisions of services that a carry-over has to follow, oldest first.

    A redo keeps them: the buckets that it does not stage again still name files of before. A bucket
    that it does stage again names no file that they replaced: following them changes nothing there.
    """
    fresh: bool = True
    """Whether it was staged since the last comparison with the decisions up to ``rests_on``."""
    complete: bool = True
    """Whether ``status`` names every file of the instant. While the engine stages, it does not."""

    @property
    def files(self) -> WriteStatus | None:
        """The status that names every file of the instant; None while the engine stages again."""
        return self.status if self.complete else None

    def judged(self) -> StagedChanges:
        """Return it as compared with what was decided up to the version that it rests on."""
        return replace(self, fresh=False)

    def reread(self) -> StagedChanges:
        """Return it as if its rows had been read at the version that it rests on."""
        return replace(self, read_set=ReadSet(self.rests_on))

    def followed(self, conflicts: list[Conflict]) -> StagedChanges:
        """Return it with the services among these as the next ones that it has to follow."""
        services = tuple(
            c.theirs for c in conflicts if c.verdict is Verdict.CARRY or not c.counts_as_retry
        )
        return replace(self, services=self.services + services) if services else self

    def carried(self, status: WriteStatus, version: int) -> StagedChanges:
        """Return it as carried over its services to a version; they are followed each time."""
        return replace(self, status=status, rests_on=version)

    def rebased(self, version: int, conflicts: list[Conflict]) -> StagedChanges:
        """Return it as it is while the engine stages it again on a version, in part or whole.

        After a ``retry`` the operation runs again as if it had begun there, so nothing that is
        older counts as a conflict with what it read.
        """
        again = any(conflict.verdict is Verdict.RETRY for conflict in conflicts)
        read_set = ReadSet(version) if again else self.read_set
        return replace(self, rests_on=version, read_set=read_set, fresh=True, complete=False)

    def unfollowed(self) -> StagedChanges:
        """Return it with no service to follow: all that they touched is being staged again."""
        return replace(self, services=(), complete=False)

    def redone(self, status: WriteStatus) -> StagedChanges:
        """Return it with what the engine gave after it staged some buckets again."""
        return replace(self, status=status, from_engine=status, complete=True)

    def restaged(self, made: Restaged) -> StagedChanges:
        """Return it as staged under another layout, where no service has moved its rows yet."""
        status, scope, file_filter = made
        return replace(self.redone(status), scope=scope, file_filter=file_filter, services=())


@dataclass(slots=True)
class Effort:
    """What a commit took: its decision records it, and ``commit.retries`` limits the rounds."""

    attempts: int = 0
    rounds: int = 0
    """How often it was staged again because of commits that count; services do not."""
    rebased: int = 0
    """Buckets that were redone, counted each time."""
    carried: int = 0
    """How often it was carried over decisions of services since it was staged as a whole."""
    restaged: int = 0
    """How often everything was staged again because of a new layout."""
    conflicts_seen: list[Conflict] = field(default_factory=list)

    def facts(self) -> dict[str, object]:
        """Return it as plain values, for the timeline."""
        moved: dict[str, object] = {"carried": self.carried} if self.carried else {}
        if self.restaged:
            moved["restaged"] = self.restaged
        if not self.conflicts_seen:
            return {"attempts": self.attempts, **moved}
        return {
            "attempts": self.attempts,
            "redone": self.rounds,
            "rebased": self.rebased,
            "conflicts": [conflict.to_dict() for conflict in self.conflicts_seen[-_RECORDED_MAX:]],
            **moved,
        }


@dataclass(frozen=True, slots=True)
class Movers:
    """The three ways in which what was staged gets to a newer head."""

    carrier: Carrier
    """Carries it over decisions of services; the engine stages nothing again."""
    redo: Redo | None = None
    """Stages some buckets again; None where a conflict ends the commit."""
    restage: Restage | None = None
    """Stages everything again; None where a new layout of the table ends the commit."""


@dataclass(slots=True)
class Manifests:
    """Writes the sections of a status that are too large for a slot once, however many are lost."""

    handle: TableHandle
    instant: Instant
    _status: WriteStatus | None = None
    _references: dict[str, object] = field(default_factory=dict)
    _rounds: int = 0
    wrote: bool = False
    """Whether a manifest was ever written."""

    def of(self, status: WriteStatus) -> Mapping[str, object]:
        """Return the references of a status; those of an older one are deleted.

        To be called only when no publish is under way: then nobody can name the older ones.
        """
        if status is not self._status:
            self.discard()
            self._rounds += 1
            self._references = self.handle.cache.timeline.write_manifests(
                self.instant,
                # a nonce, since another process may resume the same instant
                f"a{self._rounds}-{self.handle.ports.ids.nonce()}",
                status.changes.tables(),
            )
            # Set last: if a put above fails, the next call writes every section under a new name.
            self._status = status
            self.wrote = self.wrote or bool(self._references)
        return self._references

    def discard(self) -> None:
        """Delete what no decision will name any more."""
        references = self._references.values()
        doomed = [str(each["manifest"]) for each in references if isinstance(each, dict)]
        self._status, self._references = None, {}
        try:
            self.handle.store.delete(doomed)
        except StorageError:
            _log.warning("manifests of %s were not deleted", self.instant, exc_info=True)


@dataclass(slots=True)
class Publisher:
    """Drafts the decision of one attempt, and tries to put it into the slot after a head."""

    checker: ConflictChecker
    manifests: Manifests
    base: TableState
    taken: frozenset[str]
    """Instant times that are decided. The loop adds those of each window that it reads."""
    ledger: Callable[[TableState, WriteStatus], SinkLedger | None] = lambda *_: None
    """Returns the ledger of the sinks that hold the rows; raises Refused if one lacks rows."""

    def publish(self, head: TableState, staged: StagedChanges, effort: Effort) -> Won | Lost:
        """Try the slot after a head; see ``plait.txn.publish.publish``.

        The decision records the read set only if it is not the version that the files rest on.
        """
        handle, instant, request = self.checker.handle, self.checker.instant, self.checker.request
        status, token, reads = staged.status, request.token, staged.read_set
        draft = Decision(
            instant=Instant(free_time(instant.time, self.taken), instant.nonce),
            action=action_of(request.operation, staged.scope, head.table.spec),
            operation=request.operation,
            # The version that was validated, not the one at which the commit began: INV-07 is about
            # the decisions between this base and the new version.
            base=staged.rests_on,
            changes=status.changes,
            scope=staged.scope,
            read_set=reads if reads.explicit or reads.version != staged.rests_on else None,
            commit_id=request.commit_id,
            tokens=() if token is None else (with_digest(token, status.digest),),
            replicas=self.ledger(head, status),
            table=definition_with(head.table, request) if request.added_columns else None,
            stats=status.stats,
            client={**client(), "began": self.base.version, **effort.facts()},
        )
        just_read = head is not self.base
        return publish(handle, head, draft, self.manifests.of(status), just_read=just_read)


@dataclass(slots=True)
class Commit:
    """One commit on its way into a slot.

    ``run`` is the loop. The methods that are named as the boxes of the drawing in
    ``docs/architecture.md`` are its steps. A step that meets conflicts returns those that are left
    to deal with.
    """

    checker: ConflictChecker
    movers: Movers
    publisher: Publisher
    queue: ReservationQueue
    check_alive: Callable[[], None]
    head: TableState
    """The newest state that was met; the base at first."""
    staged: StagedChanges
    effort: Effort = field(default_factory=Effort)
    started: float = 0.0

    def run(self) -> Decision:
        """Publish what was staged, redoing buckets where others were first.

        Raises:
            Refused: another commit was first, and redoing is not allowed, or no more.
            Ended, AlreadyCommitted, ContractChanged: see ``ConflictChecker.window``.
            Obsolete: it is a rewrite of which nothing is left.
            CommitOutcomeUnknownError: the store does not say; nothing was deleted.
        """
        self.started = self.checker.handle.ports.clock.monotonic()
        while True:
            outcome = self._compete()
            if isinstance(outcome, Decision):
                return outcome
            self._require_time(outcome)
            if outcome:
                self._allowed(outcome)
            # Ask `_allowed` before the wait, so that a commit that may not stage again fails at
            # once, and again after it, because conflicts of another kind may have come meanwhile.
            conflicts = self._wait(outcome)
            if conflicts:
                self.check_alive()
                self._require_time(conflicts)
                self._stage_again(self._allowed(conflicts), conflicts)

    # --- validate, carry and publish ---------------------------------------------------------

    def _compete(self) -> Decision | list[Conflict]:
        """Validate, then publish until a slot is won or something is in the way.

        A writer that holds the lock tries slot after slot. If it left the queue after a loss, it
        would stand behind everybody who has lost a slot since.
        """
        self._begin_attempt()
        with self._order() as ordered:
            conflicts = self._validate()
            # Each loss brings the winner's decision, and it is judged before the next slot is
            # tried. That order is what INV-07 rests on: no slot is tried over an unjudged decision.
            while not conflicts and not self._blocked():
                outcome = self.publisher.publish(self.head, self.staged, self.effort)
                if isinstance(outcome, Won):
                    return outcome.decision
                conflicts = self._take_in([], outcome.theirs)
                if not ordered or self._late():
                    break
                self._begin_attempt()
        return conflicts

    def _begin_attempt(self) -> None:
        self.check_alive()
        self.effort.attempts += 1

    def _order(self) -> AbstractContextManager[bool]:
        """Queue on the lock after a loss: it gives order and fairness, never safety."""
        if self.effort.attempts == 1:
            return nullcontext(enter_result=False)
        wait_s = self.head.table.options.seconds("lock.wait")
        return CommitQueue(self.checker.handle, wait_s, str(self.checker.instant))

    def _validate(self) -> list[Conflict]:
        """Judge what has not been judged yet; return what is in the way.

        The files of a redo may touch keys that they did not touch before, such as those of a row
        that was skipped because of one that is gone now. So a fresh status is compared with what
        was decided between its read and the version that it rests on. Rows that were computed from
        a named read would lose an update that is found there. Other operations ran again in the
        redo, so for them it is as if they had begun at the new version.

        The first attempt does not look for newer decisions: if there are any, it loses the slot.
        """
        first, staged = self.effort.attempts == 1, self.staged
        conflicts: list[Conflict] = []
        if staged.fresh:
            self.staged = staged = staged.judged()
            since, until = staged.read_set.version, staged.rests_on
            if since < until:  # most commits rest on what they read
                judge = self._judge(earlier=True)
                conflicts = self.checker.earlier(judge, self.head, since=since, until=until)
            if conflicts and not (first or staged.read_set.explicit):
                self.staged, conflicts = staged.reread(), []
        return conflicts if first else self._take_in(conflicts)

    def _take_in(self, conflicts: list[Conflict], first: Decision | None = None) -> list[Conflict]:
        """Take in what was decided after the head; return what is in the way, with what was.

        Args:
            conflicts: what was in the way before.
            first: the decision after the head, if it is known.
        """
        digest = self.staged.status.digest
        window = self.checker.window(self._judge(), self.head, first, digest=digest)
        # Keep these times: an instant time may be completed once, so the draft takes a free one.
        self.publisher.taken |= window.times
        self.head = window.head
        self.staged = self.staged.followed(window.conflicts)
        return self._carry([*conflicts, *window.conflicts])

    def _carry(self, conflicts: list[Conflict]) -> list[Conflict]:
        """Carry what was staged over services among these; return what has to be staged again.

        If some buckets have to be staged again anyway, the redo carries the others. If a service
        cannot be followed, because its row map is gone, its buckets are staged again like others.
        """
        left = [conflict for conflict in conflicts if conflict.verdict is not Verdict.CARRY]
        if left or not conflicts:
            return left
        try:
            self._carry_over()
        except CorruptMetadataError:
            if self.checker.request.operation in SERVICES:
                raise  # the damaged map is its own, and a service stages nothing again
            instant = self.checker.instant
            _log.warning("instant %s does again what it cannot follow", instant, exc_info=True)
            return [replace(conflict, verdict=Verdict.REBASE) for conflict in conflicts]
        return []

    def _carry_over(self) -> None:
        """Carry what the engine gave over all services since, to the head.

        Where no service is left to follow, but one was followed before, the carrier still has to
        say which of the vectors that it wrote then are garbage now.

        Raises:
            CorruptMetadataError: a service cannot be followed.
            Obsolete: nothing is left to publish.
        """
        staged, effort = self.staged, self.effort
        if not (staged.services or effort.carried):
            return  # most commits meet no service
        effort.carried += bool(staged.services)
        status = self.movers.carrier.carry(staged.from_engine, self.head, staged.services)
        self.staged = staged.carried(status, self.head.version)

    def _judge(self, *, earlier: bool = False) -> Judge:
        staged, table = self.staged, self.head.table
        changes, scope = staged.status.changes, staged.scope
        return self.checker.judge_of(changes, scope, table, staged.read_set, earlier=earlier)

    def _blocked(self) -> bool:
        """Tell whether somebody reserved our place before us."""
        head = self.head
        return bool(head.reservations) and bool(self.queue.older_reservations(head, self._judge()))

    # --- wait, and stage again ---------------------------------------------------------------

    def _wait(self, conflicts: list[Conflict]) -> list[Conflict]:
        """Let others go first that reserved our place; return what is in the way after that.

        They commit before us in any case. A redo before they are through would be in vain, since
        their commit would send us round again. A new layout is not waited for: everything is staged
        again first, and judged under that layout.
        """
        head, lost = self.head, bool(conflicts)
        if changes_layout(conflicts) or not (lost or head.reservations):
            return conflicts
        turn = self.queue.take_turn(
            head, self._judge(), self.effort.rounds, lost=lost, until=self._until
        )
        return self._take_in(conflicts) if turn else conflicts

    def _stage_again(self, redo: Redo, conflicts: list[Conflict]) -> None:
        """Redo the buckets of some conflicts on the head, or restage all under its layout."""
        self.effort.conflicts_seen += conflicts
        # Services do not count: a table that is compacted often must not make writers give up
        # (INV-15).
        self.effort.rounds += any(conflict.counts_as_retry for conflict in conflicts)
        # Mark it as incomplete before the engine starts. If the engine fails half way, the abort
        # then lists the partitions, because no status names all of the new files yet.
        self.staged = self.staged.rebased(self.head.version, conflicts)
        if changes_layout(conflicts):
            self._restage()
        else:
            self._redo(redo, conflicts)

    def _redo(self, redo: Redo, conflicts: list[Conflict]) -> None:
        """Stage the buckets of some conflicts again, and carry the others over services.

        If a service cannot be followed, every bucket that a service touched is staged again. No
        file of before is named then, so there is nothing left to follow.
        """
        handle, instant, head = self.checker.handle, self.checker.instant, self.head
        buckets = frozenset[BucketId]().union(*(conflict.buckets for conflict in conflicts))
        self.effort.rebased += len(buckets)
        handle.ports.observer.phase("redo", instant=str(instant), buckets=len(buckets))
        _log.info("instant %s redoes %d buckets on version %d", instant, len(buckets), head.version)
        snapshot = head.snapshot(handle.store, file_filter=self.staged.file_filter)
        try:
            status = redo(snapshot, buckets)
        except RetryableConflictError:
            if any(conflict.counts_as_retry for conflict in conflicts):
                raise
            # Only services were first, and the query of an executor gives other rows now. So keep
            # what it gave at first. Copies of rows that expired meanwhile come back with it, and
            # the next expiry takes them away again.
            status = self.staged.from_engine
            _log.warning("instant %s keeps rows that expired", instant, exc_info=True)
        self.staged = self.staged.redone(status)
        try:
            self._carry_over()
        except CorruptMetadataError:
            every = (touched_buckets(theirs.changes) for theirs in self.staged.services)
            self.staged = self.staged.unfollowed()
            self.staged = self.staged.redone(redo(snapshot, frozenset[BucketId]().union(*every)))
            self._carry_over()

    def _restage(self) -> None:
        """Stage everything again under the head's layout; what was staged before is garbage."""
        handle, instant, head = self.checker.handle, self.checker.instant, self.head
        if self.movers.restage is None:
            raise InvariantError("internal error: this commit cannot be staged under a new layout")
        self.effort.restaged += 1
        self.effort.carried = 0
        handle.ports.observer.phase("restage", instant=str(instant), version=head.version)
        _log.info("instant %s stages again: version %d", instant, head.version)
        self.staged = self.staged.restaged(self.movers.restage(head))

    # --- give up -----------------------------------------------------------------------------

    def _allowed(self, conflicts: list[Conflict]) -> Redo:
        """Return the function that redoes buckets, if that is allowed; raise Refused if not."""
        verdicts = {conflict.verdict for conflict in conflicts}
        redo, read_set = self.movers.redo, self.staged.read_set
        # Rows that the caller computed from a read cannot be retried here. Staged again as they
        # are, they would overwrite an update that they do not contain; only the caller can compute
        # them anew.
        again = self.checker.request.retries and not read_set.explicit
        possible = verdicts <= {Verdict.REBASE, Verdict.RESTAGE, Verdict.RETRY}
        possible = possible and not any(conflict.whole_operation for conflict in conflicts)
        possible = possible and (self.movers.restage is not None or Verdict.RESTAGE not in verdicts)
        if redo is None or not possible or (Verdict.RETRY in verdicts and not again):
            self.effort.conflicts_seen += conflicts
            raise Refused(conflict_error(self.checker.instant, conflicts, read_set))
        return redo

    def _require_time(self, conflicts: list[Conflict]) -> None:
        """Give up when the table allows no more attempts: by count of redos, and by time.

        A conflict that ends the commit anyway is not passed off as a lack of time: ``_allowed``
        raises it.
        """
        effort, attempts = self.effort, self.effort.attempts
        verdicts = {conflict.verdict for conflict in conflicts}
        if verdicts - _ALWAYS_ALLOWED and not self.checker.request.retries:
            return
        elapsed_s = self.checker.handle.ports.clock.monotonic() - self.started
        lost = any(conflict.counts_as_retry for conflict in conflicts)
        spent = lost and effort.rounds >= self.publisher.base.table.options.count("commit.retries")
        if spent or self._late():
            instant, read_set = self.checker.instant, self.staged.read_set
            last = conflict_error(instant, conflicts, read_set) if conflicts else None
            effort.conflicts_seen += conflicts
            error: CommitError = retries_exhausted(last, attempts=attempts, elapsed_s=elapsed_s)
            raise Refused(error)

    def _late(self) -> bool:
        return self.checker.handle.ports.clock.monotonic() > self._until

    @property
    def _until(self) -> float:
        options = self.publisher.base.table.options
        return self.started + options.seconds("commit.deadline")
