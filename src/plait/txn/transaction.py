"""A transaction: begin, stage, validate, publish, finish (design of the commit: RFC 0001)."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow.compute as pc

from plait.errors import (
    CommitOutcomeUnknownError,
    CorruptMetadataError,
    RolledBackError,
    StorageError,
    TableError,
)
from plait.model.bucket import Partition
from plait.model.changes import WriteStatus
from plait.model.decision import CommitResult, Decision, ReadSet, Scope, Token
from plait.model.instant import Action, Instant, Operation, Outcome
from plait.model.instant import State as InstantState
from plait.state.state import State
from plait.timeline import paths
from plait.timeline.pending import (
    PendingInstant,
    load_pending,
    write_inflight,
    write_requested,
)
from plait.txn.commit import Commit, Redo, Subject
from plait.txn.heartbeat import Heartbeat
from plait.txn.judge import Judge
from plait.txn.manifests import Manifests
from plait.txn.refusal import (
    AlreadyCommitted,
    ContractChanged,
    Ended,
    Refused,
    contract_changed,
    rolled_back,
)
from plait.txn.rollback import delete_files_of, delete_staged, publish_rollback
from plait.txn.site import Site, client, require_slots

__all__ = ["AlreadyCommitted", "Redo", "Request", "Transaction"]

_log = logging.getLogger(__name__)


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
    read_set: ReadSet | None = None
    """What the rows were computed from, if the caller says so."""


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
    judge: Judge
    open: bool = True
    distributed: bool = False
    """Whether tasks elsewhere wrote inflight records of their own."""
    pid: int = field(default_factory=os.getpid)

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
        options, read = known.table.options, request.read_set
        record = PendingInstant(
            instant,
            InstantState.REQUESTED,
            request.operation,
            known.version if read is None else min(read.version, known.version),
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
            Judge(
                site,
                record.instant,
                request.operation,
                request.commit_id,
                base.table.contract,
                base.version,
                request.read_set or ReadSet(base.version),
                request.tokens,
            ),
        )
        try:
            txn._look_back()
            txn._require_contract()
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
        try:
            self.judge.look_back(self.base, self.v0)
            self.judge.continue_streams(self.base)
        except Ended as end:
            raise self._ended(end.version, end.reason) from None
        except AlreadyCommitted:
            self.abort("committed already")
            raise
        except Refused as refused:
            self.abort(refused.error.message)
            raise refused.error from None

    def _require_contract(self) -> None:
        """Refuse a client that was opened under another contract (INV-12)."""
        ours, theirs = self.site.contract, self.base.table.contract
        if ours is not None and ours != theirs:
            self.abort("its client was opened under another contract")
            raise contract_changed(ours, theirs)

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
            raise self._ended(ended_by.version, ended_by.rolled_back.reason)

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Work on files of ours, which a recoverer may take away; raise RolledBackError if so."""
        try:
            yield
        except (CorruptMetadataError, StorageError):
            self._require_standing()
            raise  # the damage is real, or the store failed

    def _require_standing(self) -> None:
        if not self.open:
            return
        try:
            self.judge.look_back(self.site.cache.refresh(), self.v0)
        except Ended as end:
            raise self._ended(end.version, end.reason) from None
        except AlreadyCommitted:
            return  # by a process that resumed us: then the files are missing for another reason
        except StorageError:
            return  # nobody can tell

    # --- validate and publish --------------------------------------------------------------

    def commit(self, status: WriteStatus, scope: Scope, redo: Redo | None) -> CommitResult:
        """Validate and publish what was staged; redo buckets where others were first.

        Raises:
            ConflictError: another commit was first, and redoing is not allowed or possible.
            StreamError: another writer took the stream elsewhere.
            CommitRetriesExhaustedError: it was, again and again.
            RolledBackError: this instant was ended by a recoverer.
            CommitOutcomeUnknownError: the store does not say; nothing was deleted.
        """
        request = self.request
        subject = Subject(
            request.operation,
            request.action,
            scope,
            request.commit_id,
            request.on_conflict,
            request.tokens,
        )
        commit = Commit(
            self.site,
            self.instant,
            subject,
            self.judge,
            self.manifests,
            self.base,
            self.check_alive,
        )
        try:
            decision = commit.run(status, redo)
        except Ended as end:
            raise self._ended(end.version, end.reason) from None
        except ContractChanged as change:
            self.abort("the table's contract changed")
            raise contract_changed(self.base.table.contract, change.contract) from None
        except Refused as refused:
            staged = None if self.distributed else commit.staged
            self.abort(refused.error.message, facts=commit.facts(), staged=staged)
            raise refused.error from None
        except CommitOutcomeUnknownError:
            self.open = False  # the records stay: recovery finds out, and spares everything
            self.heartbeat.stop()
            raise
        return self._finish(decision, commit)

    # --- finish ----------------------------------------------------------------------------

    def _finish(self, decision: Decision, commit: Commit) -> CommitResult:
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
            decision.version, decision.instant, decision.stats, commit.attempts, commit.rebased
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

    def abort(
        self,
        reason: str,
        *,
        facts: Mapping[str, object] | None = None,
        staged: WriteStatus | None = None,
    ) -> None:
        """Publish our own rollback, then delete our files and records; idempotent.

        In this order, so that a file is never deleted before the decision that condemns it. What
        cannot be done now is left to recovery, which the records call: no error is raised.

        Args:
            reason: why, for the timeline.
            facts: what it took, for the timeline.
            staged: names every file there is; None: they are looked for.
        """
        if not self.open or self.pid != os.getpid():
            return  # a forked child leaves the work of its parent alone
        self.open = False
        self.heartbeat.stop()
        places = sorted(self.announced, key=str)
        try:
            outcome = publish_rollback(
                self.site, self.instant, reason, places, since=self.v0, facts=facts
            )
            self._clear(files=outcome is Outcome.ROLLED_BACK, staged=staged)
        except TableError:
            _log.warning("instant %s is left to recovery", self.instant, exc_info=True)

    def _clear(self, *, files: bool, staged: WriteStatus | None = None) -> None:
        """Remove what a decided instant leaves: records last, since they call recovery."""
        if files:
            self.manifests.discard()
            if staged is None or self.manifests.wrote:
                delete_files_of(self.site, self.instant, self.announced)
            else:
                delete_staged(self.site, self.instant, staged)
        self._remove_records()

    def _ended(self, version: int, reason: str) -> RolledBackError:
        """Clean up after a recoverer, and give the error to raise."""
        self.open = False
        self.heartbeat.stop()
        try:
            self._clear(files=True)
        except StorageError:
            _log.warning("instant %s is left to recovery", self.instant, exc_info=True)
        return rolled_back(self.instant, version, reason)
