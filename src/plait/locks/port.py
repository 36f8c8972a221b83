"""The lock port. Locks order and speed up commits; safety never hangs on one (INV-11)."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock, as far as the provider can tell."""

    owner: str
    since_ms: int | None
    token: int | None


class Held(Protocol):
    """A granted lock."""

    @property
    def token(self) -> int | None:
        """The fencing token: it grows with each grant; None if the provider has none."""
        ...

    @property
    def lost(self) -> str | None:
        """Why the lock is no longer ours (session lost, lease expired); None while it is."""
        ...


class LockProvider(Protocol):
    """Grants one named lock of a table at a time."""

    @property
    def name(self) -> str:
        """The word in the contract: file, process, none, ..."""
        ...

    def acquire(self, *, wait_s: float, owner: str) -> AbstractContextManager[Held]:
        """Wait for the lock, at most ``wait_s``; raise LockTimeoutError naming the holder.

        Waiters are served about in order. Raise LockUnavailableError if the service is away.
        """
        ...

    def holder(self) -> Holder | None:
        """Tell who holds it now, for people; None if nobody does."""
        ...
