"""What is known of a table's lock: a frozen value for people and programs."""

from __future__ import annotations

from dataclasses import dataclass

from plait.model.history import iso


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Who holds a lock."""

    owner: str
    since_ms: int | None
    """When it was granted: by the service's clock if it has one, else by the holder's."""
    token: int | None
    lost: str | None
    """Why it may be its holder's no longer; None while nothing speaks against it."""

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "owner": self.owner,
            "since": None if self.since_ms is None else iso(self.since_ms),
            "token": self.token,
            "lost": self.lost,
        }


@dataclass(frozen=True, slots=True)
class LockState:
    """The lock of a table, as the contract names it, and who holds it at the moment."""

    lock: str
    provider: str
    slots: str
    """Who decides versions: ``store``, or ``lent`` by the lock's service."""
    holder: LockHolder | None

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "lock": self.lock,
            "provider": self.provider,
            "slots": self.slots,
            "holder": None if self.holder is None else self.holder.to_dict(),
        }
