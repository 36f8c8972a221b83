"""A transaction: begin, stage, validate, publish, finish (design of the commit: RFC 0001)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import pyarrow.compute as pc

from plait.errors import CommitError, CommitOutcomeUnknownError, StorageError, TableError
from plait.model.bucket import BucketId, Partition
from plait.model.changes import WriteStatus
from plait.model.decision import CommitResult, Decision, Scope, Token
from plait.model.instant import Action, Instant, Operation, Outcome
from plait.model.instant import State as InstantState
from plait.model.plan import Snapshot
from plait.state.state import State
from plait.timeline import paths
from plait.timeline.pending import (
    PendingInstant,
    load_pending,
    write_inflight,
    write_requested,
)
from plait.txn.conflict import Conflict, Intent, Verdict, conflict_error, decide
from plait.txn.heartbeat import Heartbeat
from plait.txn.manifests import Manifests
from plait.txn.order import Ordered
from plait.txn.publish import Lost, Won, free_time, publish
from plait.txn.refusal import (
    AlreadyCommitted,
    contract_changed,
    retries_exhausted,
    rolled_back,
)
from plait.txn.rollback import delete_files_of, publish_rollback
from plait.txn.site import Site, client, require_slots

__all__ = ["AlreadyCommitted", "Redo", "Request", "Transaction"]

_log = logging.getLogger(__name__)
_WINDOW_MAX = 100_000

Redo = Callable[[Snapshot, frozenset[BucketId]], WriteStatus]


@dataclass(frozen=True, slots=True)
class Request:
    """What a caller wants to do, before any of it is done."""

    operation: Operation
    action: Action
    partitions: tuple[Partition, ...] = ()
    """Known from the start; more are announced as they come."""
    commit_id: str | None = None
    on_conflict: str = "raise"
    tokens: tuple[Token, ...] = ()


@dataclass
class Transaction:
    """One attempted change of a table, from its pending record to its decision."""

    site: Site
    request: Request
    instant: Instant
    v0: int
    base: State
    records: list[str]
    heartbeat: Heartbeat
    announced: set[Partition]
    manifests: Manifests
    open: bool = True
    distributed: bool = False
    """Whether tasks elsewhere wrote inflight records of their own."""
    attempts: int = 0
    rebased: int = 0
    pid: int = field(default_factory=os.getpid)
    rounds: int = 0
    """How often buckets were redone."""
    validated_from: int = -1
    """What the staged files rest on: the base, or the head of the last redo."""
    taken: set[str] = field(default_factory=set)
    """Instant times decided since v0."""

    # --- begin -----------------------------------------------------------------------------

    @classmethod
    def begin(cls, site: Site, request: Request) -> Transaction:
        """Write the pending record, then look at the head once: that version is the base.

        In this order, so that everything live at the base is protected from cleaning before
        anyone works from it.

        Raises:
            CapabilityMissingError: store and lock cannot together give an atomic slot.
        """
        require_slots(site)
        known = site.cache.known()
        instant = site.new_instant(known)
        options = known.table.options
        record = PendingInstant(
            instant,
            InstantState.REQUESTED,
            request.operation,
            known.version,
            request.partitions,
            host=str(client()["host"]),
            pid=int(str(client()["pid"])),
            started_ms=site.store.now_ms(),
            timeout_s=options.seconds("heartbeat.timeout"),
        )
        site.ports.observer.phase("begin", instant=str(instant))
        path = write_requested(site.store, record)
        return cls._at_base(site, request, record, [path])

    @classmethod
    def resume(cls, site: Site, request: Request, instant: Instant) -> Transaction:
        """Go on with an instant that another process of the same writer began.

        The head of now is the base. Partitions are those that its records name.

        Raises:
            RolledBackError: it was rolled back meanwhile.
        """
        found = [entry for entry in load_pending(site.store) if entry.instant == instant]
        if not found:
            rows = site.cache.refresh().commits(site.store)
            mine = rows.filter(pc.ends_with(rows["instant"], instant.nonce))
            if mine.num_rows:
                raise AlreadyCommitted(int(mine["version"][0].as_py()))
            raise rolled_back(instant, None, "its records are gone")
        txn = cls._at_base(site, request, found[0], list(found[0].records))
        txn.distributed = True
        return txn

    @classmethod
    def _at_base(
        cls, site: Site, request: Request, record: PendingInstant, records: list[str]
    ) -> Transaction:
        base = site.cache.refresh()
        interval_s = base.table.options.seconds("heartbeat.interval")
        heartbeat = Heartbeat(site, record.instant, interval_s=interval_s, since=record.v0)
        announced = set(record.partitions)
        if not base.table.spec.partition_by:
            announced.add(())
        txn = cls(
            site,
            request,
            record.instant,
            record.v0,
            base,
            records,
            heartbeat,
            announced,
            Manifests(site, record.instant),
        )
        try:
            txn._look_back()
        except BaseException:
            heartbeat.stop()  # nobody will: the instant must not seem alive
            raise
        return txn

    def detach(self) -> Instant:
        """Leave the instant to another process, which resumes it; its records stay."""
        self.open = False
        self.heartbeat.stop()
        return self.instant

    def _look_back(self) -> None:
        """Look for our own decision and time between v0 and the base."""
        if self.base.version == self.v0:
            return
        rows = self.base.commits(self.site.store, since=self.v0)
        self.taken |= {text.split("-", 1)[0] for text in rows["instant"].to_pylist()}
        ended = rows.filter(pc.equal(rows["ended"], str(self.instant)))
        if ended.num_rows:
            self._raise_rolled_back(int(ended["version"][0].as_py()), "found before its base")
        decided = rows.filter(pc.ends_with(rows["instant"], self.instant.nonce))
        if decided.num_rows:  # by another process that resumed it
            self.abort("committed already")
            raise AlreadyCommitted(int(decided["version"][0].as_py()))

    # --- stage -----------------------------------------------------------------------------

    def announce(self, partitions: Iterable[Partition]) -> None:
        """Name partitions on storage before a file appears in them."""
        fresh = [p for p in dict.fromkeys(partitions) if p not in self.announced]
        if not fresh:
            return
        self.check_alive()
        number = len(self.records)
        path = write_inflight(self.site.store, self.instant, fresh, attempt=f"d{number}")
        self.records.append(path)
        self.announced.update(fresh)

    def check_alive(self) -> None:
        """Stop early if a heartbeat came upon our rollback; raise RolledBackError."""
        ended_by = self.heartbeat.ended_by
        if ended_by is not None and ended_by.rolled_back is not None:
            self._raise_rolled_back(ended_by.version, ended_by.rolled_back.reason)

    # --- validate and publish --------------------------------------------------------------

    def commit(self, status: WriteStatus, scope: Scope, redo: Redo | None) -> CommitResult:
        """Validate and publish what was staged; redo buckets where others were first.

        Raises:
            ConflictError: another commit was first, and redoing is not allowed or possible.
            CommitRetriesExhaustedError: it was, again and again.
            RolledBackError: this instant was ended by a recoverer.
            CommitOutcomeUnknownError: the store does not say; nothing was deleted.
        """
        started = self.site.ports.clock.monotonic()
        head = self.base
        while True:
            self.check_alive()
            self.attempts += 1
            with self._order(head):
                conflicts: list[Conflict] = []
                if self.attempts > 1:
                    conflicts, head = self._judge(status, scope, head, None)
                if not conflicts:
                    outcome = self._publish(head, status, scope)
                    if isinstance(outcome, Won):
                        return self._finish(outcome.decision)
                    conflicts, head = self._judge(status, scope, head, outcome.theirs)
            self._require_time(conflicts, started)
            if conflicts:
                status = self._redo(self._redoer(redo, conflicts), head, conflicts)

    def _order(self, head: State) -> AbstractContextManager[object]:
        """Queue on the lock after a loss: it gives order and fairness, never safety."""
        if self.attempts <= 1:
            return nullcontext()
        return Ordered(self.site, head.table.options.seconds("lock.wait"), str(self.instant))

    def _redoer(self, redo: Redo | None, conflicts: list[Conflict]) -> Redo:
        """Give the function that does buckets again, if that is allowed; else give up."""
        possible = all(c.verdict is Verdict.RETRY and not c.whole for c in conflicts)
        if redo is None or not possible or self.request.on_conflict != "retry":
            raise self._give_up(conflict_error(self.instant, conflicts))
        return redo

    def _require_time(self, conflicts: list[Conflict], started: float) -> None:
        """Give up when the table allows no more attempts: by count of redos, and by time."""
        if conflicts and self.request.on_conflict != "retry":
            return  # the conflict itself is raised
        options = self.base.table.options
        elapsed = self.site.ports.clock.monotonic() - started
        spent = bool(conflicts) and self.rounds >= options.count("commit.retries")
        if spent or elapsed > options.seconds("commit.deadline"):
            last = conflict_error(self.instant, conflicts) if conflicts else None
            error = retries_exhausted(last, attempts=self.attempts, elapsed_s=elapsed)
            raise self._give_up(error)

    def _judge(
        self, status: WriteStatus, scope: Scope, head: State, first: Decision | None
    ) -> tuple[list[Conflict], State]:
        """Take in the decisions since ``head``; give those in our way and the new head."""
        intent = Intent.of(self.request.operation, scope, status.changes, head.table.spec)
        conflicts: list[Conflict] = []
        if first is not None:
            head = self._take_in(first, head, intent, conflicts)
        timeline = self.site.cache.timeline
        for decision in timeline.load_after(head.version, limit=_WINDOW_MAX):
            head = self._take_in(decision, head, intent, conflicts)
        self.site.cache.offer(head)
        return conflicts, head

    def _take_in(
        self, decision: Decision, head: State, intent: Intent, conflicts: list[Conflict]
    ) -> State:
        ended = decision.rolled_back
        if ended is not None and ended.instant.nonce == self.instant.nonce:
            self._raise_rolled_back(decision.version, ended.reason)
        self.taken.add(decision.instant.time)
        newer = head.apply(decision, where=paths.slot(decision.version))
        if decision.instant.nonce == self.instant.nonce:  # by another process that resumed it
            raise AlreadyCommitted(decision.version)
        if newer.table.contract != self.base.table.contract:
            self.abort("the table's contract changed")
            raise contract_changed(self.base.table.contract, newer.table.contract)
        if decision.commit_id is not None and decision.commit_id == self.request.commit_id:
            raise AlreadyCommitted(decision.version)
        conflict = decide(intent, decision)
        if conflict is not None:
            conflicts.append(conflict)
        return newer

    def _publish(self, head: State, status: WriteStatus, scope: Scope) -> Won | Lost:
        time = free_time(self.instant.time, self.taken)
        manifests = self.manifests.of(status)
        draft = Decision(
            version=0,
            instant=Instant(time, self.instant.nonce),
            outcome=Outcome.COMMITTED,
            action=self.request.action,
            operation=self.request.operation,
            base=max(self.validated_from, self.base.version),
            completed_ms=0,
            attempt="",
            previous="",
            changes=status.changes,
            scope=scope,
            schema_id=head.table.spec.schema.id,
            bucket_spec_id=head.table.spec.buckets.id,
            commit_id=self.request.commit_id,
            tokens=self.request.tokens,
            stats=status.stats,
            client={**client(), "began": self.base.version, **self._took()},
        )
        try:
            return publish(self.site, head, draft, manifests)
        except CommitOutcomeUnknownError:
            self.open = False  # the records stay: recovery finds out, and spares everything
            self.heartbeat.stop()
            raise

    def _took(self) -> dict[str, object]:
        return {"attempts": self.attempts, "redone": self.rounds}

    def _redo(self, redo: Redo, head: State, conflicts: list[Conflict]) -> WriteStatus:
        buckets = frozenset[BucketId]().union(*(c.buckets for c in conflicts))
        self.rounds += 1
        self.validated_from = head.version
        self.rebased += len(buckets)
        self.site.ports.observer.phase("redo", instant=str(self.instant), buckets=len(buckets))
        _log.info(
            "instant %s redoes %d buckets on version %d", self.instant, len(buckets), head.version
        )
        return redo(head.snapshot(self.site.store), buckets)

    # --- finish ----------------------------------------------------------------------------

    def _finish(self, decision: Decision) -> CommitResult:
        self.open = False
        try:
            self.site.cache.advance(decision)
            self.site.ports.observer.phase("finish", instant=str(self.instant))
            self._remove_records()
        except Exception:  # noqa: BLE001 - the commit stands; recovery finds the records decided
            _log.warning("records of %s are left behind", self.instant, exc_info=True)
        finally:
            self.heartbeat.stop()
        return CommitResult(
            decision.version, decision.instant, decision.stats, self.attempts, self.rebased
        )

    def _remove_records(self) -> None:
        self.heartbeat.stop()
        doomed = list(self.records)
        if self.heartbeat.beaten or self.distributed:
            doomed.append(paths.heartbeat(self.instant))
        if self.distributed:
            mine = f"{paths.PENDING}/{self.instant}."
            listed = [i.path for i in self.site.store.list(paths.PENDING)]
            doomed += [p for p in listed if p.startswith(mine) and p not in doomed]
        self.site.store.delete(doomed)

    # --- giving up -------------------------------------------------------------------------

    def abort(self, reason: str) -> None:
        """Publish our own rollback, then delete our files and records; idempotent.

        In this order, so that a file is never deleted before the decision that condemns it. What
        cannot be done now is left to recovery, which the records call: no error is raised.
        """
        if not self.open or self.pid != os.getpid():
            return  # a forked child leaves the work of its parent alone
        self.open = False
        self.heartbeat.stop()
        places = sorted(self.announced, key=str)
        try:
            outcome = publish_rollback(self.site, self.instant, reason, places, since=self.v0)
            self._clear(files=outcome is Outcome.ROLLED_BACK)
        except TableError:
            _log.warning("instant %s is left to recovery", self.instant, exc_info=True)

    def _clear(self, *, files: bool) -> None:
        """Remove what a decided instant leaves: records last, since they call recovery."""
        if files:
            self.manifests.discard()
            delete_files_of(self.site, self.instant, self.announced)
        self._remove_records()

    def _raise_rolled_back(self, version: int, reason: str) -> None:
        self.open = False
        self.heartbeat.stop()
        try:
            self._clear(files=True)
        except StorageError:
            _log.warning("instant %s is left to recovery", self.instant, exc_info=True)
        raise rolled_back(self.instant, version, reason)

    def _give_up(self, error: CommitError) -> CommitError:
        """Roll back, and give the error to raise."""
        self.abort(error.message)
        return error
