"""The lock port. Locks order and speed up commits; safety never hangs on one (INV-11)."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from plait.errors import LockTimeoutError


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock, as far as the provider can tell."""

    owner: str
    since_ms: int | None
    token: int | None
    lost: str | None = None
    """Reason why the holder may have lost it, as seen from outside; None if it has not."""


class Held(Protocol):
    """A granted lock."""

    @property
    def token(self) -> int | None:
        """The fencing token: it grows with each grant; None if the provider has none."""
        ...

    @property
    def lost(self) -> str | None:
        """Why the lock is no longer ours (session lost, file removed); None while it is."""
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


def timed_out(lock: str, holder: str | None, wait_s: float, hint: str) -> LockTimeoutError:
    """Return the error for a lock that others held for the whole wait."""
    who = holder or "a client that has since released it"
    message = f"{who} held {lock} for {wait_s:g} s"
    return LockTimeoutError(message, hint=hint, holder=who, waited_ms=int(wait_s * 1000))


class SlotArbiter(Protocol):
    """Binds keys, each once: what a store without an atomic put-if-absent lacks.

    Every method raises LockUnavailableError if the service does not answer.
    """

    def claim(self, key: str, pointer: bytes) -> bytes:
        """Bind a key unless it is bound, and return what it is bound to. Atomic.

        After an error it may be bound all the same: ask again. Pointers are unique.
        """
        ...

    def find(self, key: str) -> bytes | None:
        """Return what a key is bound to; None if to nothing, as far as this client can see."""
        ...

    def remove(self, key: str) -> None:
        """Free a key that nobody needs any more; a failure is none."""
        ...


@runtime_checkable
class ServedLock(Protocol):
    """A lock provider that asks servers, which the contract in the table's metadata names."""

    def require_consent(self) -> None:
        """Raise ConsentError unless the caller allowed the servers; none is asked."""
        ...


@runtime_checkable
class ExternalCommitLock(Protocol):
    """A lock provider that can also decide slots."""

    @property
    def arbiter(self) -> SlotArbiter | None:
        """What decides the slots of this table; None if its store does."""
        ...
