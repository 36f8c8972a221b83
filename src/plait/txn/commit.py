"""The loop of a commit: validate and publish; after a conflict redo buckets and try again.

Manifests: sections of a decision that are too large for its slot, in files of their own.
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
    CommitOutcomeUnknownError,
    CommitRetriesExhaustedError,
    CorruptMetadataError,
    InvariantError,
    RetryableConflictError,
    StorageError,
)
from plait.model.bucket import BucketId
from plait.model.changes import WriteStatus
from plait.model.decision import Decision, Draft, ReadSet, Scope
from plait.model.instant import Instant
from plait.model.plan import Snapshot
from plait.model.replicas import SinkLedger
from plait.model.request import WriteRequest
from plait.read.plan import Wants
from plait.state.state import TableState
from plait.txn.carry import Carrier
from plait.txn.conflict import Conflict, Intent, lays_out, touched_buckets
from plait.txn.conflict_checker import ConflictChecker
from plait.txn.matrix import SERVICES, action_of
from plait.txn.publish import Lost, Won, free_time, publish
from plait.txn.refusal import Refused, conflict_error, retries_exhausted
from plait.txn.reservation import CommitQueue, ReservationQueue, publish_reservation
from plait.txn.table_handle import TableHandle, client
from plait.txn.tokens import sealed

_log = logging.getLogger(__name__)
_UNASKED = (Verdict.REBASE, Verdict.RESTAGE)
"""What is done again without asking the caller."""
_TOLD_MAX = 5
"""So many of the conflicts that a commit met are told in its decision."""

Redo = Callable[[Snapshot, frozenset[BucketId]], WriteStatus]


class Restaged(NamedTuple):
    """What was staged again under another layout."""

    status: WriteStatus
    scope: Scope
    wants: Wants | None


Restage = Callable[[TableState], Restaged]
"""Stages everything again under the layout of a state, and on its version."""


@dataclass(slots=True)
class Manifests:
    """Writes the large sections of a status once, however many slots are lost."""

    handle: TableHandle
    instant: Instant
    _status: WriteStatus | None = None
    _references: dict[str, object] = field(default_factory=dict)
    _rounds: int = 0
    wrote: bool = False
    """Whether there ever was one."""

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
class Commit:
    """One commit on its way into a slot."""

    checker: ConflictChecker
    carrier: Carrier
    manifests: Manifests
    base: TableState
    scope: Scope
    read_set: ReadSet
    """Since when the same keys conflict."""
    taken: frozenset[str]
    """Instant times that are decided."""
    check_alive: Callable[[], None]
    rests_on: int
    """The version that the staged files rest on: the base, or that of the last redo."""
    wants: Wants | None = None
    """Which files a redo looks at; None: any."""
    ledger: Callable[[TableState, WriteStatus], SinkLedger | None] = lambda *_: None
    """Which sinks hold the rows, those of a redo included; raises Refused if too few do."""
    restage: Restage | None = None
    """None: a new layout of the table ends the commit."""
    restaged: int = 0
    """How often everything was staged again because of a new layout."""
    attempts: int = 0
    rounds: int = 0
    """How often buckets were redone because of other commits."""
    rebased: int = 0
    """Buckets that were redone, each time counted."""
    carried: int = 0
    """How often what was staged was carried over decisions of services."""
    met: list[Conflict] = field(default_factory=list)
    staged: WriteStatus | None = None
    """The last, which names every file that this commit staged."""
    _from_engine: WriteStatus = field(default_factory=WriteStatus)
    """The last as the engine staged it."""
    _followed: list[Decision] = field(default_factory=list)
    """Those of services since the first was staged; what was staged later knows no older file."""
    _started: float = 0.0
    _reserved: bool = False
    _redone: bool = False
    """Whether what is staged comes from a redo that has not been judged."""

    def run(self, status: WriteStatus, redo: Redo | None) -> Decision:
        """Publish what was staged, redoing buckets where others were first.

        Raises:
            Refused: another commit was first, and redoing is not allowed, or no more.
            Ended, AlreadyCommitted, ContractChanged: see ``ConflictChecker.window``.
            Obsolete: it is a rewrite of which nothing is left.
            CommitOutcomeUnknownError: the store does not say; nothing was deleted.
        """
        self._started, self.staged = self.handle.ports.clock.monotonic(), status
        self._from_engine = status
        queue = ReservationQueue(self.handle, self.instant)
        head = self.base
        while True:
            self.check_alive()
            self.attempts += 1
            with self._order(head) as ordered:
                conflicts, head = self._validate(status, head)
                status, conflicts = self._carry(status, head, conflicts)
                while not conflicts and not self._blocked(queue, status, head):
                    outcome = self._publish(head, status)
                    if isinstance(outcome, Won):
                        return outcome.decision
                    conflicts, head = self._window(status, head, outcome.theirs)
                    status, conflicts = self._carry(status, head, conflicts)
                    if not ordered or self._late():
                        break
                    # Whoever left the queue now would stand behind all who lost a slot since.
                    self.check_alive()
                    self.attempts += 1
            self._require_time(conflicts)
            if conflicts:
                self._allowed(redo, conflicts)
            if not lays_out(conflicts):
                more, head = self._take_turn(queue, status, head, lost=bool(conflicts))
                status, conflicts = self._carry(status, head, [*conflicts, *more])
            if conflicts:
                self.check_alive()
                self._require_time(conflicts)
                status, head = self._redo(redo, head, conflicts)

    def facts(self) -> dict[str, object]:
        """Tell what it took, for the timeline."""
        carried: dict[str, object] = {"carried": self.carried} if self.carried else {}
        if self.restaged:
            carried["restaged"] = self.restaged
        if not self.met:
            return {"attempts": self.attempts, **carried}
        told = [conflict.to_dict() for conflict in self.met[-_TOLD_MAX:]]
        return {
            "attempts": self.attempts,
            "redone": self.rounds,
            "rebased": self.rebased,
            "conflicts": told,
            **carried,
        }

    def _carry(
        self, status: WriteStatus, head: TableState, conflicts: list[Conflict]
    ) -> tuple[WriteStatus, list[Conflict]]:
        """Carry what was staged over services among these; return what is to be done again.

        Where buckets are to be done again anyway, the redo carries the others along. What cannot
        be followed, because a row map is gone, is done again like the rest.
        """
        met = [conflict for conflict in conflicts if conflict.verdict is Verdict.CARRY]
        rest = [conflict for conflict in conflicts if conflict.verdict is not Verdict.CARRY]
        followed = (c for c in conflicts if c.verdict is Verdict.CARRY or not c.counts)
        self._followed += [conflict.theirs for conflict in followed]
        if not met:
            return status, rest
        if rest:
            return status, rest
        try:
            self.staged = self._carried(head)
        except CorruptMetadataError:
            if self.request.operation in SERVICES:
                raise  # of its own files: a service does nothing again
            _log.warning("instant %s does again what it cannot follow", self.instant, exc_info=True)
            return status, [replace(conflict, verdict=Verdict.REBASE) for conflict in met]
        self.rests_on = head.version
        return self.staged, []

    def _carried(self, head: TableState) -> WriteStatus:
        if not (self._followed or self.carried):
            return self._from_engine  # most commits meet no service
        self.carried += bool(self._followed)
        return self.carrier.carry(self._from_engine, head, self._followed)

    def _validate(self, status: WriteStatus, head: TableState) -> tuple[list[Conflict], TableState]:
        """Judge what is new, and what lies between the read and the base if files are new."""
        if self.attempts == 1:
            return self._earlier(status, head), head
        conflicts: list[Conflict] = []
        if self._redone:
            self._redone = False
            conflicts = self._after_redo(status, head)
        newer, head = self._window(status, head)
        return [*conflicts, *newer], head

    def _window(
        self, status: WriteStatus, head: TableState, first: Decision | None = None
    ) -> tuple[list[Conflict], TableState]:
        window = self.checker.window(self._intent(status, head), status, head, first)
        self.taken |= window.times
        return window.conflicts, window.head

    def _earlier(self, status: WriteStatus, state: TableState) -> list[Conflict]:
        since, until = self.read_set.version, self.rests_on
        if since >= until:
            return []  # most commits: they rest on what they read, and need no intent
        intent = self._intent(status, state)
        return self.checker.earlier(intent, status, state, since=since, until=until)

    def _after_redo(self, status: WriteStatus, state: TableState) -> list[Conflict]:
        """Judge the files of a redo: on the newer base they may touch keys that they did not.

        Such as a row that was skipped because of one that is gone now. Who computed rows from a
        read loses an update by that. For others it is as if all had begun at the new base.
        """
        conflicts = self._earlier(status, state)
        if conflicts and not self.read_set.explicit:
            self.read_set = ReadSet(self.rests_on)
            return []
        return conflicts

    def _intent(self, status: WriteStatus, state: TableState) -> Intent:
        return self.checker.intent(status, self.scope, state.table, self.read_set)

    def _order(self, head: TableState) -> AbstractContextManager[bool]:
        """Queue on the lock after a loss: it gives order and fairness, never safety."""
        if self.attempts <= 1:
            return nullcontext(enter_result=False)
        return CommitQueue(self.handle, head.table.options.seconds("lock.wait"), str(self.instant))

    def _take_turn(
        self, queue: ReservationQueue, status: WriteStatus, head: TableState, *, lost: bool
    ) -> tuple[list[Conflict], TableState]:
        """Wait for those before us; after too many losses, keep a place first.

        They will be through first: what we did again before would be for nothing.
        """
        if not lost and not head.reservations:
            return [], head
        intent = self._intent(status, head)
        due = self.rounds + 1 >= head.table.options.count("commit.reserve.after")
        due = due and self.request.operation not in SERVICES  # nobody waits for a service
        reserves = due and not self._reserved and (lost or bool(queue.before_us(head, intent)))
        if reserves:
            self._reserve(intent, head)
        state = self.handle.cache.known() if reserves else head
        waited = queue.wait(state, intent, until=self._until, check_alive=self.check_alive)
        if waited or reserves:
            return self._window(status, head)
        return [], head

    def _redo(
        self, redo: Redo | None, head: TableState, conflicts: list[Conflict]
    ) -> tuple[WriteStatus, TableState]:
        allowed = self._allowed(redo, conflicts)
        self.met += conflicts
        if lays_out(conflicts):
            return self._restage(head, conflicts), head
        buckets = frozenset[BucketId]().union(*(c.buckets for c in conflicts))
        self.rounds += any(each.counts for each in conflicts)
        self.rebased += len(buckets)
        self._rest_on(head, conflicts)
        self.handle.ports.observer.phase("redo", instant=str(self.instant), buckets=len(buckets))
        _log.info(
            "instant %s redoes %d buckets on version %d", self.instant, len(buckets), head.version
        )
        self.staged = None  # until it is done, nobody knows of all
        snapshot = head.snapshot(self.handle.store, wants=self.wants)
        try:
            self._from_engine = allowed(snapshot, buckets)
        except RetryableConflictError:
            if any(each.counts for each in conflicts):
                raise
            # A query gives other rows now: what expired comes back in our files, and goes later.
            _log.warning("instant %s keeps rows that expired", self.instant, exc_info=True)
        self.staged = self._from_engine
        try:
            self.staged = self._carried(head)
        except CorruptMetadataError:
            every = (touched_buckets(theirs.changes) for theirs in self._followed)
            self._followed = []
            self.staged = None
            self._from_engine = allowed(snapshot, frozenset[BucketId]().union(*every))
            self.staged = self._carried(head)
        return self.staged, head

    def _restage(self, head: TableState, conflicts: list[Conflict]) -> WriteStatus:
        """Stage everything again under the head's layout; what was staged before is garbage."""
        if self.restage is None:
            message = "a commit goes on under a layout that it cannot stage again"
            raise InvariantError(message)
        self.restaged += 1
        self.rounds += any(each.counts for each in conflicts)
        self._rest_on(head, conflicts)
        phase = self.handle.ports.observer.phase
        phase("restage", instant=str(self.instant), version=head.version)
        _log.info("instant %s stages again: version %d", self.instant, head.version)
        self.staged = None
        self._followed, self.carried = [], 0
        self._from_engine, self.scope, self.wants = self.restage(head)
        self.staged = self._from_engine
        return self.staged

    def _rest_on(self, head: TableState, conflicts: list[Conflict]) -> None:
        """Remember that the files rest on a newer head now."""
        self.rests_on, self._redone = head.version, True
        if any(conflict.verdict is Verdict.RETRY for conflict in conflicts):
            self.read_set = ReadSet(head.version)  # the operation ran again: nothing older counts

    def _blocked(self, queue: ReservationQueue, status: WriteStatus, head: TableState) -> bool:
        if not head.reservations:
            return False
        return bool(queue.before_us(head, self._intent(status, head)))

    def _allowed(self, redo: Redo | None, conflicts: list[Conflict]) -> Redo:
        """Return the function that does buckets again, if that is allowed; else give up."""
        verdicts = {conflict.verdict for conflict in conflicts}
        again = self.request.retries and not self.read_set.explicit
        possible = verdicts <= {Verdict.REBASE, Verdict.RESTAGE, Verdict.RETRY}
        possible = possible and not any(conflict.whole for conflict in conflicts)
        possible = possible and (self.restage is not None or Verdict.RESTAGE not in verdicts)
        if redo is None or not possible or (Verdict.RETRY in verdicts and not again):
            self.met += conflicts
            raise Refused(conflict_error(self.instant, conflicts, self.read_set))
        return redo

    def _reserve(self, intent: Intent, head: TableState) -> None:
        """Keep our place; without it the commit goes on all the same."""
        self._reserved = True
        with CommitQueue(self.handle, head.table.options.seconds("lock.wait"), str(self.instant)):
            try:
                publish_reservation(self.handle, self.instant, intent, since=head.version)
            except (CommitRetriesExhaustedError, CommitOutcomeUnknownError) as error:
                _log.warning("instant %s continues without a reservation: %s", self.instant, error)

    def _require_time(self, conflicts: list[Conflict]) -> None:
        """Give up when the table allows no more attempts: by count of redos, and by time."""
        refused = any(conflict.verdict not in _UNASKED for conflict in conflicts)
        if refused and not self.request.retries:
            return  # the conflict itself is raised
        elapsed = self.handle.ports.clock.monotonic() - self._started
        lost = any(each.counts for each in conflicts)
        spent = lost and self.rounds >= self.base.table.options.count("commit.retries")
        if spent or self._late():
            last = conflict_error(self.instant, conflicts, self.read_set) if conflicts else None
            self.met += conflicts
            error: CommitError = retries_exhausted(last, attempts=self.attempts, elapsed_s=elapsed)
            raise Refused(error)

    def _late(self) -> bool:
        return self.handle.ports.clock.monotonic() > self._until

    @property
    def _until(self) -> float:
        return self._started + self.base.table.options.seconds("commit.deadline")

    def _publish(self, head: TableState, status: WriteStatus) -> Won | Lost:
        request, token = self.request, self.request.token
        time = free_time(self.instant.time, self.taken)
        rests = self.read_set.explicit or self.read_set.version != self.rests_on
        draft = Draft(
            instant=Instant(time, self.instant.nonce),
            action=action_of(request.operation, self.scope, head.table.spec),
            operation=request.operation,
            base=self.rests_on,
            changes=status.changes,
            scope=self.scope,
            read_set=self.read_set if rests else None,
            commit_id=request.commit_id,
            tokens=() if token is None else (sealed(token, status.digest),),
            replicas=self.ledger(head, status),
            table=definition_with(head.table, request),
            stats=status.stats,
            client={**client(), "began": self.base.version, **self.facts()},
        )
        met = head is not self.base and not self._redone
        return publish(self.handle, head, draft, self.manifests.of(status), met=met)

    @property
    def handle(self) -> TableHandle:
        """The table."""
        return self.checker.handle

    @property
    def instant(self) -> Instant:
        """The attempt."""
        return self.checker.instant

    @property
    def request(self) -> WriteRequest:
        """What was asked."""
        return self.checker.request
