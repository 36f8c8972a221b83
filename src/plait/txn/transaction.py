"""A transaction: begin, stage, validate, publish, finish (design of the commit: RFC 0001)."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Self

from plait.errors import (
    CommitOutcomeUnknownError,
    ContractError,
    CorruptMetadataError,
    RolledBackError,
    StorageError,
    TableError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from plait.model.bucket import Partition
from plait.model.changes import WriteStatus
from plait.model.decision import CommitResult, Decision, ReadSet, Scope
from plait.model.instant import Instant, Outcome
from plait.model.replicas import SinkLedger
from plait.model.request import WriteRequest
from plait.read.wanted import Wants
from plait.state.state import TableState
from plait.timeline import paths
from plait.timeline.pending import PendingInstant, load_pending, write_inflight
from plait.txn.begin import pending_record, request_instant, require_welcome
from plait.txn.carry import Carrier, MaskFiles
from plait.txn.commit import Commit, Redo, Restage
from plait.txn.conflict_checker import ConflictChecker
from plait.txn.follow import FollowRows
from plait.txn.heartbeat import Heartbeat
from plait.txn.manifests import Manifests
from plait.txn.recovery import maintain
from plait.txn.refusal import (
    AlreadyCommitted,
    ContractChanged,
    Ended,
    Obsolete,
    Refused,
    contract_changed,
    rolled_back,
)
from plait.txn.replicated import require_held
from plait.txn.rollback import delete_files_of, delete_staged, publish_rollback
from plait.txn.table_handle import TableHandle, require_slots

__all__ = ["AlreadyCommitted", "OptimisticTransaction", "Redo"]

_log = logging.getLogger(__name__)


@dataclass
class OptimisticTransaction:
    """One attempted change of a table, from its pending record to its decision."""

    handle: TableHandle
    request: WriteRequest
    instant: Instant
    v0: int
    base: TableState
    records: list[str]
    heartbeat: Heartbeat
    announced: set[Partition]
    manifests: Manifests
    checker: ConflictChecker
    taken: frozenset[str] = frozenset()
    """Instant times that were decided since it began."""
    open: bool = True
    tried: bool = False
    """Whether its commit may have been published."""
    distributed: bool = False
    """Whether tasks elsewhere wrote inflight records of their own."""
    wants: Wants | None = None
    """Which files the operation looks at; None: any."""
    ledger: SinkLedger | None = None
    """Which sinks hold the rows, once all of them do (RFC 0022)."""
    result: CommitResult | None = None
    """Of its decision, from the moment it stands: an interrupt of the end does not undo it."""
    pid: int = field(default_factory=os.getpid)

    @classmethod
    def begin(cls, handle: TableHandle, request: WriteRequest) -> Self:
        """Write the pending record, then look at the head once: that version is the base.

        In this order: all that is live at the base is protected before anyone works from it.

        Raises:
            CapabilityMissingError: store and lock cannot together give an atomic slot.
            SingleWriterError: the table is for one writer, and another is live.
            UnsupportedFeatureError: a conflict policy or a feature of writers is unknown here.
        """
        require_slots(handle)
        known = handle.cache.known()
        record = pending_record(handle, request, known)
        handle.ports.observer.phase("begin", instant=str(record.instant))
        contract = handle.contract or known.table.contract
        try:
            path = request_instant(handle.store, record, contract, lambda: handle)
        except StorageError:  # a disk makes nothing where a table was deleted
            with suppress(StorageError):
                handle.require_same_table()
            raise
        try:
            return cls._at_base(handle, request, record, [path])
        except TableNotFoundError:  # nobody recovers a table that is gone
            with suppress(StorageError):
                handle.store.delete([path])
            raise

    @classmethod
    def resume(cls, handle: TableHandle, request: WriteRequest, instant: Instant) -> Self:
        """Go on with an instant that another process of the same writer began, on the head of now.

        Raises:
            RolledBackError: it was rolled back meanwhile.
        """
        pending = [entry for entry in load_pending(handle.store) if entry.instant == instant]
        if not pending:
            version = handle.cache.refresh().find_instant(handle.store, instant)
            if version is not None:
                raise AlreadyCommitted(version)
            raise rolled_back(instant, None, "its records are gone")
        return cls._at_base(handle, request, pending[0], list(pending[0].records), resumed=True)

    @classmethod
    def _at_base(
        cls,
        handle: TableHandle,
        request: WriteRequest,
        record: PendingInstant,
        records: list[str],
        *,
        resumed: bool = False,
    ) -> Self:
        base = handle.cache.refresh(checked=False)  # publish looks whether it is the same table
        interval_s = base.table.options.seconds("heartbeat.interval")
        heartbeat = Heartbeat(handle, record.instant, interval_s=interval_s, since=record.v0)
        announced = set(record.partitions)
        if not base.table.spec.partition_by:
            announced.add(())
        txn = cls(
            handle,
            request,
            record.instant,
            record.v0,
            base,
            records,
            heartbeat,
            announced,
            Manifests(handle, record.instant),
            ConflictChecker(handle, record.instant, request, base.table.contract),
            distributed=resumed,
        )
        try:
            txn._look_back()
            txn._require_welcome()
        except BaseException:
            heartbeat.stop()  # nobody will: the instant must not seem alive
            raise
        return txn

    def _look_back(self) -> None:
        try:
            self.taken |= self.checker.look_back(self.base, self.v0)
            self.checker.continue_stream(self.base)
        except Ended as end:
            raise self._ended(end.version, end.reason) from None
        except AlreadyCommitted:
            self.abort("committed already", wrote=self.distributed)
            raise
        except Refused as refused:
            self.abort(refused.error.message, wrote=self.distributed)
            raise refused.error from None

    def _require_welcome(self) -> None:
        """Refuse a client of another contract (INV-12), or that lacks a feature of writers."""
        try:
            require_welcome(self.handle, self.base)
        except (ContractError, UnsupportedFeatureError) as error:
            self.abort(error.message, wrote=self.distributed)
            raise

    # --- stage -----------------------------------------------------------------------------

    def ask(self, request: WriteRequest) -> None:
        """Take the request anew, with the columns that its rows bring along."""
        self.request, self.checker = request, replace(self.checker, request=request)

    def announce(self, partitions: Iterable[Partition]) -> None:
        """Name partitions on storage before a file appears in them; raise RolledBackError.

        Asked before each bucket and each batch: whoever was rolled back works on no further.
        """
        self.check_alive()
        fresh = [p for p in dict.fromkeys(partitions) if p not in self.announced]
        if not fresh:
            return
        number = len(self.records)
        path = write_inflight(self.handle.store, self.instant, fresh, attempt=f"d{number}")
        self.records.append(path)
        self.announced.update(fresh)

    def check_alive(self) -> None:
        """Stop early if a heartbeat came upon our rollback; raise RolledBackError."""
        self.handle.ports.background.tend()
        ended_by = self.heartbeat.ended_by
        ended = None if ended_by is None else ended_by.find_ended(self.instant)
        if ended_by is not None and ended is not None:
            raise self._ended(ended_by.version, ended.reason)

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
            self.checker.look_back(self.handle.cache.refresh(), self.v0)
        except Ended as end:
            raise self._ended(end.version, end.reason) from None
        except AlreadyCommitted:
            return  # by a process that resumed us: then the files are missing for another reason
        except StorageError:
            return  # nobody can tell

    # --- validate and publish --------------------------------------------------------------

    def commit(
        self,
        status: WriteStatus,
        scope: Scope,
        redo: Redo | None,
        read_set: ReadSet | None = None,
        *,
        carrier: Carrier | None = None,
        restage: Restage | None = None,
    ) -> CommitResult:
        """Validate and publish what was staged; redo buckets where others were first.

        Args:
            status: names every file that was staged.
            scope: how far the operation reaches beyond its files.
            redo: stages buckets again on a newer snapshot; None where that is impossible.
            read_set: what the rows rest on, where it was found only now.
            carrier: carries what was staged over rewrites; by default as rows of a writer.
            restage: stages everything again under a new layout, with the scope that it has there;
                None where that is impossible.

        Raises:
            ConflictError: another commit was first, and redoing is not allowed or possible.
            StreamError: another writer took the stream elsewhere.
            CommitRetriesExhaustedError: it was, again and again.
            RolledBackError: this instant was ended by a recoverer.
            Obsolete: it is a rewrite of which nothing is left.
            CommitOutcomeUnknownError: the store does not say; nothing was deleted.
        """
        self.tried = True
        commit = Commit(
            self.checker,
            carrier or FollowRows(self.mask_files()),
            self.manifests,
            self.base,
            scope,
            read_set=read_set or self.read_set,
            taken=self.taken,
            check_alive=self.check_alive,
            rests_on=self.base.version,
            wants=self.wants,
            ledger=lambda head, new: require_held(head.table, self.request, new, self.ledger),
            restage=restage,
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
        except Obsolete as end:
            self.abort(end.reason, facts=commit.facts(), staged=commit.staged)
            raise
        except CorruptMetadataError:  # also what a table that is gone lacks
            self.handle.require_same_table()
            raise
        except CommitOutcomeUnknownError:
            self.open = False  # the records stay: recovery finds out, and spares everything
            self.heartbeat.stop()
            raise
        return self._finish(decision, commit)

    def mask_files(self) -> MaskFiles:
        """Return where deletion vectors go that are written while the commit is under way."""
        return MaskFiles(self.handle, self.instant, self.announce)

    @property
    def read_set(self) -> ReadSet:
        """What the rows rest on, as far as the caller said: the base, if not something older."""
        return self.request.read_set or ReadSet(self.base.version)

    def stand_at_base(
        self, status: WriteStatus, read_set: ReadSet | None = None
    ) -> CommitResult | None:
        """End what changes nothing without a version (RFC 0016); None if it must be decided."""
        older = (read_set or self.read_set).version < self.base.version
        known = self.request.commit_id or self.request.token or self.distributed or self.ledger
        if known or older or not status.changes.nothing:  # tasks elsewhere may still write
            return None
        self.abort("it changes nothing", wrote=False)
        self.handle.require_same_table()
        return CommitResult(self.base.version, self.instant, status.stats, 0, 0)

    # --- finish ----------------------------------------------------------------------------

    def _finish(self, decision: Decision, commit: Commit) -> CommitResult:
        self.open = False
        self.result = CommitResult(
            decision.version, decision.instant, decision.stats, commit.attempts, commit.rebased
        )
        try:
            self.heartbeat.stop()
            self.handle.cache.advance(decision)
            self.handle.ports.observer.phase("finish", instant=str(self.instant))
            self._remove_records()
        except Exception:  # noqa: BLE001 - the commit stands; recovery finds the records decided
            _log.warning("records of %s were not deleted", self.instant, exc_info=True)
        maintain(self.handle)
        if self.handle.upkeep is not None:
            self.handle.upkeep(self.handle, decision)
        return self.result

    def _remove_records(self) -> None:
        doomed = list(self.records)
        if self.heartbeat.beaten or self.distributed:
            doomed.append(paths.heartbeat(self.instant))
        if self.distributed:
            mine, listed = f"{paths.PENDING}/{self.instant}.", self.handle.store.list(paths.PENDING)
            doomed += [i.path for i in listed if i.path.startswith(mine) and i.path not in doomed]
        self.handle.store.delete(doomed)

    # --- giving up -------------------------------------------------------------------------

    def abort(
        self,
        reason: str,
        *,
        facts: Mapping[str, object] | None = None,
        staged: WriteStatus | None = None,
        wrote: bool = True,
    ) -> None:
        """Publish our own rollback, then delete our files and records; idempotent.

        In this order: no file is deleted before the decision that condemns it. Where there is
        none, and no commit was tried, only the records go (RFC 0016). Recovery does what fails.

        Args:
            reason: why, for the timeline.
            facts: what it took, for the timeline.
            staged: names every file there is; None: they are looked for.
            wrote: whether a file of this instant may be on the store, or may yet come there.
        """
        if not self.open or self.pid != os.getpid():
            return  # a forked child leaves the work of its parent alone
        self.open = False
        self.heartbeat.stop()
        rolled_back = False
        try:
            if wrote or self.tried:
                outcome = publish_rollback(
                    self.handle.under_any_contract(),
                    self.instant,
                    reason,
                    sorted(self.announced, key=str),
                    since=self.v0,
                    facts=facts,
                )
                rolled_back = outcome is Outcome.ROLLED_BACK
            self._clear(files=rolled_back, staged=staged)
        except TableNotFoundError:
            self._leave_nothing()
        except TableError:
            _log.warning("instant %s is left for recovery", self.instant, exc_info=True)

    def _leave_nothing(self) -> None:
        """Remove what is ours where the table is gone: nobody recovers it, and nobody decides."""
        try:
            self._clear(files=True)
        except TableError:
            _log.warning("files of %s are left at a deleted table", self.instant, exc_info=True)

    def _clear(self, *, files: bool, staged: WriteStatus | None = None) -> None:
        """Remove what a decided instant leaves: records last, since they call recovery."""
        if files:
            self.manifests.discard()
            if staged is None or self.manifests.wrote:
                delete_files_of(self.handle, self.instant, self.announced)
            else:
                delete_staged(self.handle, self.instant, staged)
        self._remove_records()

    def _ended(self, version: int, reason: str) -> RolledBackError:
        """Clean up after a recoverer, and return the error to raise."""
        self.open = False
        self.heartbeat.stop()
        try:
            self._clear(files=True)
        except StorageError:
            _log.warning("instant %s is left for recovery", self.instant, exc_info=True)
        return rolled_back(self.instant, version, reason)
