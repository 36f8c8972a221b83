"""Decisions that are built anew on each head: rollbacks, cleans, table-level changes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from plait.errors import CommitRetriesExhaustedError, StorageError
from plait.model.decision import Decision, Draft
from plait.model.instant import Instant, Operation, State
from plait.state.state import TableState
from plait.timeline.log import INLINE_ROWS_MAX
from plait.timeline.pending import PendingInstant, write_requested
from plait.txn.liveness import process_mark
from plait.txn.publish import Lost, Won, publish
from plait.txn.table_handle import TableHandle, client

_PAUSE_S, _PAUSE_S_MAX = 0.001, 0.1


def publish_service(
    handle: TableHandle, make: Callable[[TableState], Draft | None]
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
        state = handle.cache.refresh()
        draft = make(state)
        if draft is None:
            return None
        outcome = _publish(handle, state, draft)
        if not isinstance(outcome, Lost):
            handle.cache.advance(outcome.decision)
            return outcome.decision
        rounds += 1
        elapsed = clock.monotonic() - started
        if elapsed > state.table.options.seconds("commit.deadline"):
            message = f"lost {rounds} slots to other writers"
            raise CommitRetriesExhaustedError(
                message,
                hint="run it again when fewer writers are active",
                conflict=None,
                attempts=rounds,
                elapsed_ms=int(elapsed * 1000),
            )
        backoff.pause()


def _publish(handle: TableHandle, state: TableState, draft: Draft) -> Won | Lost:
    """Publish a draft; write its large sections before, under a record that recovery finds."""
    sections = draft.changes.tables()
    if all(table.num_rows <= INLINE_ROWS_MAX for table in sections.values()):
        return publish(handle, state, draft)
    doomed = [write_record(handle, state, draft.instant, draft.operation)]
    references = handle.cache.timeline.write_manifests(draft.instant, "a1", sections)
    outcome = publish(handle, state, draft, references)
    if isinstance(outcome, Lost):  # the next draft is another instant
        written = [str(e["manifest"]) for e in references.values() if isinstance(e, dict)]
        doomed = [*written, *doomed]  # the record last: it calls recovery
    with contextlib.suppress(StorageError):  # recovery finds the record
        handle.store.delete(doomed)
    return outcome


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
