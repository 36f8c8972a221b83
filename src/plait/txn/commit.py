"""The loop of a commit: validate, publish; after a conflict redo what met, and again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from plait.errors import CommitError, CommitOutcomeUnknownError, CommitRetriesExhaustedError
from plait.model.bucket import BucketId
from plait.model.changes import WriteStatus
from plait.model.decision import Decision, Draft, Scope, Token
from plait.model.instant import Action, Instant, Operation
from plait.model.plan import Snapshot
from plait.state.state import TableState
from plait.txn.commit_queue import CommitQueue
from plait.txn.conflict import Conflict, Intent, conflict_error
from plait.txn.conflict_checker import ConflictChecker
from plait.txn.manifests import Manifests
from plait.txn.matrix import Verdict
from plait.txn.publish import Lost, Won, free_time, publish
from plait.txn.refusal import Refused, retries_exhausted
from plait.txn.reservation import ReservationQueue, publish_reservation
from plait.txn.table_handle import TableHandle, client
from plait.txn.tokens import sealed

_log = logging.getLogger(__name__)
_TOLD_MAX = 5
"""So many of the conflicts that a commit met are told in its decision."""

Redo = Callable[[Snapshot, frozenset[BucketId]], WriteStatus]


@dataclass(frozen=True, slots=True)
class Subject:
    """What is to be decided, beside the files."""

    operation: Operation
    action: Action
    scope: Scope
    commit_id: str | None = None
    on_conflict: str = "raise"
    tokens: tuple[Token, ...] = ()


@dataclass(slots=True)
class Commit:
    """One commit on its way into a slot."""

    handle: TableHandle
    instant: Instant
    subject: Subject
    judge: ConflictChecker
    manifests: Manifests
    base: TableState
    check_alive: Callable[[], None]
    attempts: int = 0
    rounds: int = 0
    """How often buckets were redone."""
    rebased: int = 0
    """Buckets that were redone, each time counted."""
    met: list[Conflict] = field(default_factory=list)
    staged: WriteStatus | None = None
    """The last, which names every file that this commit staged."""
    _started: float = 0.0
    _reserved: bool = False
    _redone: bool = False
    """Whether what is staged comes from a redo that has not been judged."""

    def run(self, status: WriteStatus, redo: Redo | None) -> Decision:
        """Publish what was staged, redoing buckets where others were first.

        Raises:
            Refused: another commit was first, and redoing is not allowed, or no more.
            Ended, AlreadyCommitted, ContractChanged: see ``ConflictChecker.window``.
            CommitOutcomeUnknownError: the store does not say; nothing was deleted.
        """
        self._started, self.staged = self.handle.ports.clock.monotonic(), status
        patience = ReservationQueue(self.handle, self.instant)
        head = self.base
        while True:
            self.check_alive()
            self.attempts += 1
            with self._order(head) as ordered:
                conflicts, head = self._validate(status, head)
                while not conflicts and not self._blocked(patience, status, head):
                    outcome = self._publish(head, status)
                    if isinstance(outcome, Won):
                        return outcome.decision
                    scope = self.subject.scope
                    conflicts, head = self.judge.window(status, scope, head, outcome.theirs)
                    if not ordered or self._late():
                        break
                    # Whoever left the queue now would stand behind all who lost a slot since.
                    self.check_alive()
                    self.attempts += 1
            self._require_time(conflicts)
            if conflicts:
                self._allowed(redo, conflicts)
            more, head = self._take_turn(patience, status, head, lost=bool(conflicts))
            conflicts = [*conflicts, *more]
            if conflicts:
                self.check_alive()
                self._require_time(conflicts)
                status, head = self._redo(redo, head, conflicts)

    def facts(self) -> dict[str, object]:
        """Tell what it took, for the timeline."""
        if not self.met:
            return {"attempts": self.attempts}
        told = [conflict.to_dict() for conflict in self.met[-_TOLD_MAX:]]
        return {
            "attempts": self.attempts,
            "redone": self.rounds,
            "rebased": self.rebased,
            "conflicts": told,
        }

    def _validate(self, status: WriteStatus, head: TableState) -> tuple[list[Conflict], TableState]:
        """Judge what is new, and what lies between the read and the base if files are new."""
        if self.attempts == 1:
            return self.judge.earlier(status, self.subject.scope, head), head
        found: list[Conflict] = []
        if self._redone:
            self._redone = False
            found = self.judge.again(status, self.subject.scope, head)
        more, head = self.judge.window(status, self.subject.scope, head, None)
        return [*found, *more], head

    def _order(self, head: TableState) -> AbstractContextManager[bool]:
        """Queue on the lock after a loss: it gives order and fairness, never safety."""
        if self.attempts <= 1:
            return nullcontext(enter_result=False)
        return CommitQueue(self.handle, head.table.options.seconds("lock.wait"), str(self.instant))

    def _take_turn(
        self, patience: ReservationQueue, status: WriteStatus, head: TableState, *, lost: bool
    ) -> tuple[list[Conflict], TableState]:
        """Wait for those before us; after too many losses, keep a place first.

        They will be through first: what we did again before would be for nothing.
        """
        if not lost and not head.reservations:
            return [], head
        scope = self.subject.scope
        intent = self.judge.intent(status, scope, head)
        due = self.rounds + 1 >= head.table.options.count("commit.reserve.after")
        reserves = due and not self._reserved and (lost or bool(patience.before_us(head, intent)))
        if reserves:
            self._reserve(intent, head)
        state = self.handle.cache.known() if reserves else head
        waited = patience.wait(state, intent, until=self._until, check_alive=self.check_alive)
        if waited or reserves:
            return self.judge.window(status, scope, head, None)
        return [], head

    def _redo(
        self, redo: Redo | None, head: TableState, conflicts: list[Conflict]
    ) -> tuple[WriteStatus, TableState]:
        allowed = self._allowed(redo, conflicts)
        self.met += conflicts
        buckets = frozenset[BucketId]().union(*(c.buckets for c in conflicts))
        self.rounds += 1
        self.rebased += len(buckets)
        self.judge.redone(conflicts, head)
        self._redone = True
        self.handle.ports.observer.phase("redo", instant=str(self.instant), buckets=len(buckets))
        _log.info(
            "instant %s redoes %d buckets on version %d", self.instant, len(buckets), head.version
        )
        self.staged = None  # until it is done, nobody knows of all
        self.staged = allowed(head.snapshot(self.handle.store), buckets)
        return self.staged, head

    def _blocked(self, patience: ReservationQueue, status: WriteStatus, head: TableState) -> bool:
        if not head.reservations:
            return False
        return bool(patience.before_us(head, self.judge.intent(status, self.subject.scope, head)))

    def _allowed(self, redo: Redo | None, conflicts: list[Conflict]) -> Redo:
        """Return the function that does buckets again, if that is allowed; else give up."""
        verdicts = {conflict.verdict for conflict in conflicts}
        again = self.subject.on_conflict == "retry" and not self.judge.read_set.explicit
        possible = verdicts <= {Verdict.REBASE, Verdict.RETRY} and not any(
            conflict.whole for conflict in conflicts
        )
        if redo is None or not possible or (Verdict.RETRY in verdicts and not again):
            self.met += conflicts
            raise Refused(conflict_error(self.instant, conflicts, self.judge.read_set))
        return redo

    def _reserve(self, intent: Intent, head: TableState) -> None:
        """Keep our place; without it the commit goes on all the same."""
        self._reserved = True
        with CommitQueue(self.handle, head.table.options.seconds("lock.wait"), str(self.instant)):
            try:
                publish_reservation(self.handle, self.instant, intent, since=head.version)
            except (CommitRetriesExhaustedError, CommitOutcomeUnknownError) as error:
                _log.warning("instant %s goes on without a reservation: %s", self.instant, error)

    def _require_time(self, conflicts: list[Conflict]) -> None:
        """Give up when the table allows no more attempts: by count of redos, and by time."""
        refused = any(conflict.verdict is not Verdict.REBASE for conflict in conflicts)
        if refused and self.subject.on_conflict != "retry":
            return  # the conflict itself is raised
        elapsed = self.handle.ports.clock.monotonic() - self._started
        spent = bool(conflicts) and self.rounds >= self.base.table.options.count("commit.retries")
        if spent or self._late():
            read = self.judge.read_set
            last = conflict_error(self.instant, conflicts, read) if conflicts else None
            self.met += conflicts
            error: CommitError = retries_exhausted(last, attempts=self.attempts, elapsed_s=elapsed)
            raise Refused(error)

    def _late(self) -> bool:
        return self.handle.ports.clock.monotonic() > self._until

    @property
    def _until(self) -> float:
        return self._started + self.base.table.options.seconds("commit.deadline")

    def _publish(self, head: TableState, status: WriteStatus) -> Won | Lost:
        subject, judge = self.subject, self.judge
        time = free_time(self.instant.time, judge.taken)
        manifests = self.manifests.of(status)
        rests = judge.read_set.explicit or judge.read_set.version != judge.base
        draft = Draft(
            instant=Instant(time, self.instant.nonce),
            action=subject.action,
            operation=subject.operation,
            base=judge.base,
            changes=status.changes,
            scope=subject.scope,
            read_set=judge.read_set if rests else None,
            commit_id=subject.commit_id,
            tokens=sealed(subject.tokens, status.digest),
            stats=status.stats,
            client={**client(), "began": self.base.version, **self.facts()},
        )
        return publish(self.handle, head, draft, manifests)
