"""Decisions that are built anew on each head: rollbacks, cleans, table-level changes."""

from __future__ import annotations

from collections.abc import Callable

from plait.errors import CommitRetriesExhaustedError
from plait.model.decision import Decision, Draft
from plait.state.state import TableState
from plait.txn.publish import Lost, publish
from plait.txn.table_handle import TableHandle

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
        outcome = publish(handle, state, draft)
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
