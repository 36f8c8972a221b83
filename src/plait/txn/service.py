"""Decisions that are built anew on each head: rollbacks, cleans, table-level changes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from plait.errors import (
    CommitRetriesExhaustedError,
    CorruptMetadataError,
    StorageError,
    TableNotFoundError,
)
from plait.model.decision import Decision
from plait.model.instant import Instant, Operation, State
from plait.state.state import TableState
from plait.timeline.log import INLINE_ROWS_MAX
from plait.timeline.pending import PendingInstant, write_requested
from plait.txn.liveness import process_mark
from plait.txn.publish import Lost, Won, publish
from plait.txn.table_handle import TableHandle, client

_PAUSE_S, _PAUSE_S_MAX = 0.001, 0.1


def publish_service(
    handle: TableHandle, make: Callable[[TableState], Decision | None]
) -> Decision | None:
    """Publish what ``make`` drafts for the head, anew on each new head; None if it drafts nothing.

    Raises:
        ContractError: this client was opened under another contract.
        CommitRetriesExhaustedError: others were first for longer than ``commit.deadline``.
        CommitOutcomeUnknownError: the store does not say.
    """
    clock, backoff = handle.ports.clock, handle.ports.backoff(_PAUSE_S, _PAUSE_S_MAX)
    started = clock.monotonic()
    rounds = 0
    while True:
        state = handle.cache.refresh(checked=False)  # publish looks whether it is the same table
        try:
            draft = make(state)
            outcome = None if draft is None else _publish(handle, state, draft)
        except CorruptMetadataError:  # also what a table that is gone lacks
            handle.cache.require_same_table(state)
            raise
        if outcome is None:
            handle.cache.require_same_table(state)
            return None
        if not isinstance(outcome, Lost):
            handle.cache.advance(outcome.decision)
            handle.keep_up(outcome.decision)
            return outcome.decision
        rounds += 1
        elapsed = clock.monotonic() - started
        if elapsed > state.table.options.seconds("commit.deadline"):
            raise CommitRetriesExhaustedError(
                f"lost {rounds} slots to other writers",
                hint="run it again when fewer writers are active",
                conflict=None,
                attempts=rounds,
                elapsed_ms=int(elapsed * 1000),
            )
        backoff.pause()


def _publish(handle: TableHandle, state: TableState, draft: Decision) -> Won | Lost:
    """Publish a draft; write its large sections before, under a record that recovery finds."""
    sections = draft.changes.tables()
    if all(table.num_rows <= INLINE_ROWS_MAX for table in sections.values()):
        return publish(handle, state, draft)
    record = write_record(handle, state, draft.instant, draft.operation)
    written: list[str] = []
    try:
        # The pending record is on the store by now. If we die with manifests written, recovery
        # finds this instant undecided, rolls it back, and deletes them.
        references = handle.cache.timeline.write_manifests(draft.instant, "a1", sections)
        written = [str(e["manifest"]) for e in references.values() if isinstance(e, dict)]
        outcome = publish(handle, state, draft, references)
    except TableNotFoundError:  # nobody recovers a table that is gone
        _delete(handle, [*written, record])
        raise
    # After a loss, the next draft is another instant. The record last: it calls recovery.
    _delete(handle, [*(written if isinstance(outcome, Lost) else ()), record])
    return outcome


def _delete(handle: TableHandle, doomed: list[str]) -> None:
    with contextlib.suppress(StorageError):  # recovery finds the record
        handle.store.delete(doomed)


def write_record(
    handle: TableHandle, state: TableState, instant: Instant, operation: Operation
) -> str:
    """Write the pending record of a service that writes files before its decision; return its path.

    No writer has to give way to it.
    """
    us = client()
    record = PendingInstant(
        instant,
        State.REQUESTED,
        operation,
        state.version,
        (),
        host=str(us["host"]),
        pid=int(str(us["pid"])),
        started_ms=instant.time_ms,
        timeout_s=state.table.options.seconds("heartbeat.timeout"),
        process=process_mark(),
    )
    return write_requested(handle.store, record)
