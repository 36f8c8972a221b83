"""A transaction: begin, stage, validate, publish, finish (RFC 0001).

A transaction is one instant, from its pending record to its decision. The record comes before
anything else: by it recovery finds what was staged, and a clean spares what the writer needs. The
engine stages under it, and the commit loop (``txn/commit.py``) publishes it. This module ends it:
it removes the record last, or, if the commit cannot go through, it publishes a rollback before it
deletes a file. On a table for one writer (``concurrency="single_writer"``) the record is also how
writers see each other. Each writes its own first and then looks for others, so of two that begin at
once at least one sees the other, and no writer is let in beside a living one: the younger gives way
at once, and the older waits a moment for that, then gives way too. A dead writer is ended by a
decision before the new one begins, so it can never commit beside it, even if it was only asleep.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Self

from plait.definition.features import ROW_MAPS
from plait.definition.policy import POLICIES, require_policy
from plait.definition.table_def import TableDef, dropped_error
from plait.errors import (
    CommitOutcomeUnknownError,
    ContractError,
    CorruptMetadataError,
    RetryableConflictError,
    RolledBackError,
    SingleWriterError,
    StorageError,
    TableError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from plait.model.bucket import Partition
from plait.model.changes import WriteStatus
from plait.model.contract import Contract
from plait.model.decision import CommitResult, Decision, ReadSet, Scope
from plait.model.instant import Instant, Outcome, State
from plait.model.plain import iso
from plait.model.request import WriteRequest
from plait.model.sink_ledger import SinkLedger
from plait.read.plan import FileFilter
from plait.state.state import TableState, require_usable, require_writable
from plait.storage.port import Store
from plait.timeline import paths
from plait.timeline.pending import PendingInstant, load_pending, write_inflight, write_requested
from plait.txn.carry import Carrier, FollowRows, MaskFiles
from plait.txn.commit import (
    Commit,
    Effort,
    Manifests,
    Movers,
    Publisher,
    Redo,
    Restage,
    StagedChanges,
)
from plait.txn.conflict_checker import ConflictChecker
from plait.txn.heartbeat import Heartbeat
from plait.txn.liveness import is_alive, process_mark, silence_ms
from plait.txn.matrix import DATA, NO_RIVALS, REWRITES
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
from plait.txn.reservation import ReservationQueue
from plait.txn.rollback import (
    delete_files_of,
    delete_staged,
    end_instants,
    find_outcomes,
    publish_rollback,
    rollback_instants,
)
from plait.txn.table_handle import TableHandle, client, require_slots
from plait.txn.tokens import first_result

_GRACE_S = 2.0
"""Seconds that an older writer waits for a younger one to give way."""
_POLL_S = 0.05


def pending_record(handle: TableHandle, request: WriteRequest, known: TableState) -> PendingInstant:
    """Return the record of a new instant of this process; nothing is written yet.

    Raises:
        UnsupportedFeatureError: the table's conflict policy is not installed here, or writers
            must know a feature that this one does not.
        FeatureError: it is a rewrite, and the table may not use row maps.
        ClockUnavailableError: the store does not tell its time.
    """
    require_writable(known)
    if request.operation in REWRITES:
        require_usable(known, (ROW_MAPS,))
    if known.table.policy not in POLICIES:
        require_policy(known.table.policy)
    read, us = request.read_set, client()
    return PendingInstant(
        handle.new_instant(known),
        State.REQUESTED,
        request.operation,
        known.version if read is None else min(read.version, known.version),
        request.partitions,
        host=str(us["host"]),
        pid=int(str(us["pid"])),
        started_ms=handle.store.now_ms(),
        timeout_s=known.table.options.seconds("heartbeat.timeout"),
        process=process_mark(),
    )


def request_instant(
    store: Store, record: PendingInstant, contract: Contract, handle: Callable[[], TableHandle]
) -> str:
    """Write the record that begins an instant, or that one more process of it begins.

    Args:
        store: where the table is.
        record: the instant; the same again is harmless.
        contract: what the writer was opened under.
        handle: opens the table, where others have to be looked for.

    Raises:
        SingleWriterError: the contract allows one writer, and another is live.
        ContractError: it is not the contract any more, and a dead writer was to be ended.
        TableError: nobody can tell. After each of them a record that names its process is gone
            again; one that several processes share is left to the roll-back of them all.
    """
    path = paths.requested(record.instant)
    if not contract.single_writer or record.operation in NO_RIVALS:  # in nobody's way
        return write_requested(store, record)
    began = not record.process and store.find(path) is not None
    write_requested(store, record)
    try:
        _admit(handle(), record, began=began)
    except TableError:
        if record.process:
            _withdraw(store, path)
        raise
    return path


def require_write_access(handle: TableHandle, base: TableState) -> None:
    """Refuse a client of another contract, or that lacks a feature of writers.

    Raises:
        ContractError, UnsupportedFeatureError: it may not write from this base.
        ConsentError: the contract names servers of a lock that the caller did not allow.
    """
    handle.require_contract(base.table.contract)
    handle.require_lock_consent()
    require_writable(base)


def _withdraw(store: Store, path: str) -> None:
    """Remove our record: no file was staged under it, so there is nothing to decide."""
    try:
        store.delete([path])
    except StorageError:
        return  # it is taken for dead in time, and ended then


def _admit(handle: TableHandle, record: PendingInstant, *, began: bool) -> None:
    """Go on only if no other writer is live; end the dead first.

    Args:
        handle: the table.
        record: who asks.
        began: it was let in before, in another process: whoever came since gives way.
    """
    clock = handle.ports.clock
    until = clock.monotonic() + _GRACE_S * (2 if began else 1)
    backoff = handle.ports.backoff(_POLL_S, _GRACE_S)
    while True:
        # Our own record was written before this list is read. So of two writers that begin at once,
        # at least one sees the other.
        rivals = _rivals(handle, record)
        now_ms, default_s = handle.store.now_ms(), _timeout_s(handle)
        living = [each for each in rivals if is_alive(handle, each, now_ms, default_s)]
        if not living:
            break
        oldest = min(living, key=lambda each: each.instant)
        if (not began and oldest.instant < record.instant) or clock.monotonic() >= until:
            raise _refused(oldest, now_ms, default_s)
        backoff.pause()
    if rivals:
        _end_dead(handle, rivals)


def _rivals(handle: TableHandle, record: PendingInstant) -> list[PendingInstant]:
    """Load the undecided instants of other writers; the records come first, then the head."""
    others = [
        each
        for each in load_pending(handle.store)
        if each.instant != record.instant
        and each.operation not in NO_RIVALS  # which make no writer fail
        and not (each.writer and each.writer == record.writer)
    ]
    if not others:
        return []
    state = handle.cache.refresh()
    since = min(each.v0 for each in others)
    decided = find_outcomes(handle, state, [each.instant for each in others], since)
    return [each for each in others if each.instant not in decided]


def _end_dead(handle: TableHandle, dead: list[PendingInstant]) -> None:
    """End dead instants; ``eager`` deletes their files too, ``lazy`` leaves them for recovery."""
    reason = "found dead by the next writer"
    if handle.cache.known().table.contract.failed_writes == "eager":
        end_instants(handle, dead, reason)
    else:
        rollback_instants(handle, dead, reason)


def _timeout_s(handle: TableHandle) -> float:
    return handle.cache.known().table.options.seconds("heartbeat.timeout")


def _refused(living: PendingInstant, now_ms: int, default_s: float) -> SingleWriterError:
    """Say who is live, and when it would be taken for dead."""
    since = iso(living.started_ms or living.instant.time_ms)
    what = "write" if living.operation is None else living.operation.value
    timeout_s = living.timeout_s or default_s
    message = (
        f"another writer is alive and the table allows only one: {what} {living.instant} "
        f"of process {living.pid} on {living.host or 'an unknown host'} since {since}"
    )
    hint = (
        f"wait for it, or end it with `tablectl rollback`; it counts as dead after {timeout_s:g} s "
        "without a sign of life"
    )
    return SingleWriterError(
        message,
        hint=hint,
        instant=str(living.instant),
        host=living.host,
        pid=living.pid,
        since=since,
        silent_ms=silence_ms(living, now_ms),
        timeout_s=timeout_s,
    )


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
    """Whether tasks in other processes wrote inflight records of their own."""
    ledger: SinkLedger | None = None
    """Which sinks hold the rows, once all of them do (RFC 0022)."""
    result: CommitResult | None = None
    """Result that ``commit_or_abort`` returns. It is set as soon as the decision is published, so
    an interrupt during the cleanup does not lose it."""
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
        # The record is on the store before this look at the head. A clean lists records after its
        # decision, so either it sees ours, or we see its decision and use none of its files
        # (INV-05).
        base = handle.cache.refresh(checked=False)  # publish looks whether it is the same table
        interval_s = base.table.options.seconds("heartbeat.interval")
        heartbeat = Heartbeat(handle, record.instant, interval_s=interval_s, since=record.v0)
        announced = set(record.partitions)
        if not base.table.spec.layout.partition_by:
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
            txn._require_write_access()
        except BaseException:
            heartbeat.stop()  # nobody will: the instant must not seem alive
            raise
        return txn

    def _look_back(self) -> None:
        try:
            if self.base.version != self.v0:
                self.taken |= self.checker.look_back(self.base, self.v0)
            if self.request.token is not None:
                self.checker.continue_stream(self.request.token, self.base)
        except Ended as end:
            raise self._ended(end.version, end.reason) from None
        except AlreadyCommitted:
            self.abort("committed already", wrote=self.distributed)
            raise
        except Refused as refused:
            self.abort(refused.error.message, wrote=self.distributed)
            raise refused.error from None

    def _require_write_access(self) -> None:
        """Refuse a client of another contract (INV-12), or that lacks a feature of writers."""
        try:
            require_write_access(self.handle, self.base)
        except (ContractError, UnsupportedFeatureError) as error:
            self.abort(error.message, wrote=self.distributed)
            raise

    # --- stage -----------------------------------------------------------------------------

    def replace_request(self, request: WriteRequest) -> None:
        """Replace the request by one that has the columns that its rows add."""
        self.request, self.checker = request, replace(self.checker, request=request)

    def announce(self, partitions: Iterable[Partition]) -> None:
        """Name partitions on storage before a file appears in them; raise RolledBackError.

        Called before each bucket and batch: an instant that was rolled back does no more work.
        """
        self.check_alive()
        fresh = list(itertools.filterfalse(self.announced.__contains__, dict.fromkeys(partitions)))
        if not fresh:
            return
        number = len(self.records)
        path = write_inflight(self.handle.store, self.instant, fresh, attempt=f"d{number}")
        self.records.append(path)
        self.announced.update(fresh)

    def check_alive(self) -> None:
        """Stop early if a heartbeat found our rollback; raise RolledBackError."""
        self.handle.ports.background.tend()
        ended_by = self.heartbeat.watch.ended_by
        ended = None if ended_by is None else ended_by.find_ended(self.instant)
        if ended_by is not None and ended is not None:
            raise self._ended(ended_by.version, ended.reason)

    @contextmanager
    def guard_rollback(self) -> Iterator[None]:
        """Raise RolledBackError if the block fails because a recoverer deleted our files."""
        try:
            yield
        except (CorruptMetadataError, StorageError):
            self._require_not_rolled_back()
            raise  # the damage is real, or the store failed

    def _require_not_rolled_back(self) -> None:
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

    def commit(  # noqa: PLR0913 - what was staged, and how it is staged again, by name
        self,
        status: WriteStatus,
        scope: Scope,
        redo: Redo | None,
        read_set: ReadSet | None = None,
        *,
        carrier: Carrier | None = None,
        restage: Restage | None = None,
        file_filter: FileFilter | None = None,
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
            file_filter: which files a redo loads; None for all.

        Raises:
            ConflictError: another commit was first, and redoing is not allowed or possible.
            StreamError: another writer took the stream elsewhere.
            CommitRetriesExhaustedError: it was, again and again.
            RolledBackError: this instant was ended by a recoverer.
            Obsolete: it is a rewrite of which nothing is left.
            CommitOutcomeUnknownError: the store does not say; nothing was deleted.
        """
        # From here on a decision may be published. So an abort has to publish a rollback, even if
        # it seems that nothing was written.
        self.tried = True
        rests_on, reads = self.base.version, read_set or self.read_set
        commit = Commit(
            self.checker,
            Movers(carrier or FollowRows(self.mask_files()), redo, restage),
            Publisher(
                self.checker,
                self.manifests,
                self.base,
                self.taken,
                lambda head, new: require_held(head.table, self.request, new, self.ledger),
            ),
            ReservationQueue(self.handle, self.instant, self.check_alive),
            self.check_alive,
            self.base,
            StagedChanges(status, status, scope, rests_on, reads, file_filter),
        )
        try:
            decision = commit.run()
        except Ended as end:
            raise self._ended(end.version, end.reason) from None
        except ContractChanged as change:
            self.abort("the table's contract changed")
            if change.contract.dropped:
                uri = self.handle.store.address.uri
                raise dropped_error(uri, change.contract.dropped) from None
            raise contract_changed(self.base.table.contract, change.contract) from None
        except Refused as refused:
            staged = None if self.distributed else commit.staged.files
            self.abort(refused.error.message, facts=commit.effort.facts(), staged=staged)
            raise refused.error from None
        except Obsolete as end:
            self.abort(end.reason, facts=commit.effort.facts(), staged=commit.staged.files)
            raise
        except CorruptMetadataError:  # also what a table that is gone lacks
            self.handle.require_same_table()
            raise
        except CommitOutcomeUnknownError:
            self.open = False  # the records stay: recovery finds out, and spares everything
            self.heartbeat.stop()
            raise
        return self._finish(decision, commit.effort)

    def mask_files(self) -> MaskFiles:
        """Return where deletion vectors go that are written while the commit is under way."""
        return MaskFiles(self.handle, self.instant, self.announce)

    @property
    def read_set(self) -> ReadSet:
        """What the rows rest on, as far as the caller said: the base, if not something older."""
        return self.request.read_set or ReadSet(self.base.version)

    def end_unchanged(
        self, status: WriteStatus, read_set: ReadSet | None = None
    ) -> CommitResult | None:
        """End a transaction that changed nothing (RFC 0016); None if it needs a version."""
        older = (read_set or self.read_set).version < self.base.version
        known = self.request.commit_id or self.request.token or self.distributed or self.ledger
        if known or older or not status.changes.nothing:  # tasks elsewhere may still write
            return None
        self.abort("it changes nothing", wrote=False)
        self.handle.require_same_table()
        return CommitResult(self.base.version, self.instant, status.stats, 0, 0)

    # --- finish ----------------------------------------------------------------------------

    def _finish(self, decision: Decision, effort: Effort) -> CommitResult:
        self.open = False
        self.result = CommitResult(
            decision.version, decision.instant, decision.stats, effort.attempts, effort.rebased
        )
        try:
            self.heartbeat.stop()
            self.handle.cache.advance(decision)
            self.handle.ports.observer.phase("finish", instant=str(self.instant))
            self._remove_records()
        except Exception:  # noqa: BLE001 - the commit stands; recovery finds the records decided
            _log.warning("records of %s were not deleted", self.instant, exc_info=True)
        # Before a checkpoint: a publication then finds what the decision changed in memory.
        self.handle.keep_up(decision)
        maintain(self.handle)
        return self.result

    def _remove_records(self) -> None:
        # Tasks of a distributed write put records of their own. This process does not know their
        # names, so only then the pending folder is listed.
        doomed = list(self.records)
        if self.heartbeat.beaten or self.distributed:
            doomed.append(paths.heartbeat(self.instant))
        if self.distributed:
            mine, listed = f"{paths.PENDING}/{self.instant}.", self.handle.store.list(paths.PENDING)
            doomed += [i.path for i in listed if i.path.startswith(mine) and i.path not in doomed]
        self.handle.store.delete(doomed)

    def commit_or_abort(
        self, commit: Callable[[], CommitResult], wrote: Callable[[], bool]
    ) -> CommitResult:
        """Commit. Return the first result if it was applied before; roll back after an error.

        A commit whose outcome is unknown is left to recovery, because it may have landed (INV-10).

        Args:
            commit: stages, and calls ``commit`` of this transaction.
            wrote: stops all writing, then returns whether a file may be on the store.
        """
        try:
            with self.guard_rollback():
                self.result = commit()
        except AlreadyCommitted as applied:
            self.abort("its commit id or token was applied meanwhile", wrote=wrote())
            self.result = first_result(self.handle, self.request, applied.version)
        except CommitOutcomeUnknownError:
            raise
        except CorruptMetadataError:
            self.abort("a file was damaged or missing", wrote=wrote())
            raise
        except BaseException as error:
            self.abort(f"{type(error).__name__} while committing", wrote=wrote())
            raise
        return self.result

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
        # Under any contract: taking back our own attempt changes no row. If it turns out that the
        # instant was committed after all, `outcome` says so, and no file is deleted.
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


def require_held(
    table: TableDef, request: WriteRequest, status: WriteStatus, ledger: SinkLedger | None
) -> SinkLedger | None:
    """Return the ledger, unless a sink of the table lacks rows that a commit writes.

    Its writer began before the sink was added, or cannot send rows.

    Raises:
        Refused: write the same rows again.
    """
    if not table.replicas or request.operation not in DATA or status.changes.nothing:
        return ledger
    held = () if ledger is None else ledger.sinks
    lacking = ", ".join(sorted(set(table.replicas).difference(held)))
    if lacking:
        message = f"sinks were added to the table that did not get these rows first: {lacking}"
        hint = "write the same rows again: the next writer sends them there"
        raise Refused(RetryableConflictError(message, hint=hint, sinks=lacking))
    return ledger
