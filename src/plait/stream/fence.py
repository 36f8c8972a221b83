"""Of several coordinators of a stream, the newest stays (RFC 0012).

Each has a session: an instant later than the sessions of all coordinators that it found. When a
coordinator starts, it ends the turns of the others by rollback decisions, so what they staged can
never commit. A coordinator looks for a successor if its turn was ended, if its writers are silent,
or if it finds an epoch that it did not decide. If there is one, it ends.

Safety does not depend on it: the table applies each epoch once, whoever decides it (INV-09).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection
from dataclasses import dataclass

from plait.errors import (
    CommitError,
    CoordinatorFencedError,
    FormatError,
    InstantError,
    StorageError,
)
from plait.model.instant import Instant
from plait.model.stream import Position
from plait.state.state import TableState
from plait.timeline.pending import PendingInstant, load_pending
from plait.txn.recovery import roll_back
from plait.txn.table_handle import TableHandle

_log = logging.getLogger(__name__)

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

        Call it once this coordinator's own turn is on storage: an ended one finds the turn there.
        A turn that cannot be ended now is left for recovery. Its coordinator still finds this
        one, so this one may begin.

        Raises:
            ContractError: this client was opened under another contract; no turn was ended.
        """
        for entry, session in _turns_of(self.handle, self.application):
            if session >= self.session:
                continue
            try:
                reason = f"coordinator {self.session} took over"
                roll_back(self.handle, entry.instant, reason=reason)
            except InstantError:
                continue  # it is decided already
            except (CommitError, StorageError):
                _log.warning("instant %s is left for recovery", entry.instant, exc_info=True)

    def find_successor(self) -> str | None:
        """Find the turns of a newer coordinator; return a message, or None if there are none."""
        for entry, session in _turns_of(self.handle, self.application):
            if session > self.session:
                return f"coordinator {session} has begun turn {entry.instant}"
        return None

    def find_epoch_of_another(
        self, state: TableState, known: Position | None, ours: Collection[str]
    ) -> str | None:
        """Find a new epoch of another coordinator; return a message, or None if there is none.

        Args:
            state: the state to search.
            known: the last epoch that this coordinator knows.
            ours: the nonces of its instants: a commit may have landed although its reply was lost.
        """
        at = state.streams.get(self.application)
        if at is None or at.version <= (-1 if known is None else known.version):
            return None
        decision = self.handle.cache.timeline.find(at.version)
        if decision is not None and decision.instant.nonce in ours:
            return None
        return f"version {at.version} is epoch {at.epoch}, and another one decided it"

    def error(self, why: str, position: Position | None) -> CoordinatorFencedError:
        """Return the error to end with."""
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
