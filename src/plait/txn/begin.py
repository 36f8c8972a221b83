"""How every instant of a writer begins: its record is written, then a single writer is let in.

On a table for one writer (``concurrency="single_writer"``) the record goes first and the look at
the others' records after it. So of two that begin at once at least one sees the other, and nobody
is let in beside a living writer: the younger of the two gives way at once; the older one waits a
moment for that, and gives way too if it does not come about. What is dead is ended by a decision
before the new writer begins: it can never commit beside it, even if it was only asleep.
"""

from __future__ import annotations

from collections.abc import Callable

from plait.errors import SingleWriterError, StorageError, TableError
from plait.model.contract import Contract
from plait.model.history import iso
from plait.model.instant import State
from plait.model.request import WriteRequest
from plait.state.admission import require_usable, require_writable
from plait.state.state import TableState
from plait.storage.port import Store
from plait.timeline import paths
from plait.timeline.features import ROW_MAPS
from plait.timeline.pending import PendingInstant, load_pending, write_requested
from plait.txn.liveness import is_alive, process_mark, silence_ms
from plait.txn.matrix import NO_RIVALS, REWRITES
from plait.txn.policy import require_policy
from plait.txn.rollback import end_instants, find_outcomes, rollback_instants
from plait.txn.table_handle import TableHandle, client

_GRACE_S = 2.0
"""An older writer waits so long for a younger one to give way."""
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


def require_welcome(handle: TableHandle, base: TableState) -> None:
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
