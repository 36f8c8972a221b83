"""Which of several coordinators of a stream stays: the newest (RFC 0012).

Each has a session, an instant later than those of all that it found. A coordinator that starts ends
the turns that others have begun, by rollback decisions; so what they staged can never commit. One
whose turn was ended, whose writers are silent, or that finds an epoch it did not decide, looks for
its successor, and ends when there is one.

Safety does not rest on it: the table takes each epoch once, whoever decides it (INV-09).
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import dataclass

from plait.errors import (
    CoordinatorFencedError,
    FormatError,
    IllegalTransitionError,
    InstantNotFoundError,
    StorageError,
)
from plait.model.instant import Instant
from plait.model.stream import Position
from plait.state.state import TableState
from plait.timeline.pending import PendingInstant, load_pending
from plait.txn.recovery import roll_back
from plait.txn.table_handle import TableHandle

_AHEAD_MS = 86_400_000
"""A session further ahead of the store's clock than this is not outbid."""


@dataclass(frozen=True, slots=True)
class Fence:
    """One coordinator's place among those of its application."""

    handle: TableHandle
    application: str
    session: Instant

    @classmethod
    def newest(cls, handle: TableHandle, application: str) -> Fence:
        """Choose a session after those of all others that have begun turns."""
        fresh = handle.new_instant(handle.cache.refresh())
        bound = handle.store.now_ms() + _AHEAD_MS
        sessions_ms = [session.time_ms for _, session in _turns_of(handle, application)]
        ms = max([fresh.time_ms, *(time + 1 for time in sessions_ms if time < bound)])
        return cls(handle, application, Instant.at(ms, fresh.nonce))

    def end_older(self) -> None:
        """End the turns that older coordinators have begun.

        Call it when a turn of one's own is on storage: who was ended finds it, and knows why.

        Raises:
            ContractError: this client was opened under another contract; nobody was ended.
        """
        for entry, session in _turns_of(self.handle, self.application):
            if session < self.session:
                with contextlib.suppress(
                    InstantNotFoundError, IllegalTransitionError, StorageError
                ):
                    reason = f"coordinator {self.session} took over"
                    roll_back(self.handle, entry.instant, reason=reason)

    def find_successor(self) -> str | None:
        """Find a newer coordinator by the turns that it has begun; tell of it."""
        for entry, session in _turns_of(self.handle, self.application):
            if session > self.session:
                return f"coordinator {session} has begun turn {entry.instant}"
        return None

    def find_epoch_of_another(
        self, state: TableState, known: Position | None, ours: Collection[str]
    ) -> str | None:
        """Find an epoch after the known one that is of none of our instants; tell of it.

        Args:
            state: where to look.
            known: the last epoch that this coordinator knows.
            ours: the nonces of its instants: a commit may have landed though its reply was lost.
        """
        at = state.streams.get(self.application)
        if at is None or at.version <= (-1 if known is None else known.version):
            return None
        decision = self.handle.cache.timeline.find(at.version)
        if decision is not None and decision.instant.nonce in ours:
            return None
        return f"version {at.version} is epoch {at.epoch}, and another one decided it"

    def error(self, why: str, position: Position | None) -> CoordinatorFencedError:
        """Make the error to end with."""
        message = f"stream {self.application!r} has another coordinator: {why}"
        hint = "stop this one; starting it again would take the stream back"
        known = None if position is None else position.to_dict()
        return CoordinatorFencedError(message, hint=hint, position=known)


def _turns_of(handle: TableHandle, application: str) -> list[tuple[PendingInstant, Instant]]:
    """Return the turns of an application that are begun, each with its coordinator's session."""
    mine = (entry for entry in load_pending(handle.store) if entry.stream == application)
    turns: list[tuple[PendingInstant, Instant]] = []
    for entry in mine:
        with contextlib.suppress(FormatError):  # a record that is damaged names no session
            turns.append((entry, Instant.parse(entry.writer)))
    return turns
