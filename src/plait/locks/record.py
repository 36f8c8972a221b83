"""What stands in the object of a lease, and how it may change; no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from plait.model.document import Proof, open_record, seal_record

PATH = ".meta/locks/lease"
BYTES_MAX = 64 << 10
WAITERS_MAX = 64
TTL_S_MAX = 3600.0
_OWNER_MAX = 300


@dataclass(frozen=True, slots=True)
class Claimant:
    """One attempt to get the lease: the nonce tells it from every other."""

    nonce: str
    owner: str
    since_ms: int | None = None
    """When it got the lease, by its own clock: for people."""

    @classmethod
    def of(cls, nonce: str, owner: str) -> Claimant:
        """Name an attempt, within bounds."""
        return cls(nonce, owner[:_OWNER_MAX])


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The lease at one moment. Each change is written with a mark of its own."""

    token: int
    """Fencing token of the last grant; it only grows."""
    ttl_s: float
    """The lease time of the last grant."""
    holder: Claimant | None = None
    beat: int = 0
    """How often the holder renewed it."""
    waiters: tuple[Claimant, ...] = ()

    @property
    def sign(self) -> tuple[str, int, int]:
        """Return a value that changes with each grant, renewal and release, and otherwise stays."""
        return ("" if self.holder is None else self.holder.nonce, self.token, self.beat)

    def place_of(self, nonce: str) -> int:
        """Count the waiters before an attempt; all of them if it does not wait."""
        nonces = [waiter.nonce for waiter in self.waiters]
        return nonces.index(nonce) if nonce in nonces else len(nonces)

    def waits(self, nonce: str) -> bool:
        """Tell whether an attempt has a place in the queue."""
        return self.place_of(nonce) < len(self.waiters)

    def held_by(self, nonce: str) -> bool:
        """Tell whether an attempt has the lease."""
        return self.holder is not None and self.holder.nonce == nonce

    # --- changes -------------------------------------------------------------------------------

    def joined(self, claimant: Claimant) -> LeaseRecord:
        """Add a waiter at the end."""
        return replace(self, waiters=(*self.waiters, claimant))

    def taken(self, claimant: Claimant, *, ttl_s: float) -> LeaseRecord:
        """Grant it; whoever waited before the new holder did not come, and loses the place."""
        # Those before the new holder let their time pass, so they are probably dead. A living one
        # joins again at the end.
        rest = self.waiters[self.place_of(claimant.nonce) + 1 :]
        return LeaseRecord(self.token + 1, ttl_s, claimant, 0, rest)

    def renewed(self) -> LeaseRecord:
        """Write a sign of life."""
        return replace(self, beat=self.beat + 1)

    def left(self, nonce: str) -> LeaseRecord:
        """Free it if the attempt has it, and drop it from the queue."""
        holder = None if self.held_by(nonce) else self.holder
        rest = tuple(waiter for waiter in self.waiters if waiter.nonce != nonce)
        return replace(self, holder=holder, waiters=rest)

    # --- bytes ---------------------------------------------------------------------------------

    def encode(self, mark: str) -> bytes:
        """Write it; ``mark`` makes these bytes differ from all before (no ABA)."""
        document = {
            "mark": mark,
            "token": self.token,
            "ttl_s": self.ttl_s,
            "beat": self.beat,
            "holder": None if self.holder is None else _plain(self.holder),
            "waiters": [_plain(waiter) for waiter in self.waiters],
        }
        return seal_record(PATH, document)

    @classmethod
    def decode(cls, body: bytes, *, ttl_s: float, now_ms: int) -> LeaseRecord:
        """Read it. Damaged bytes are held by nobody known; the time makes a token beyond the last.

        >>> LeaseRecord.decode(b"?", ttl_s=15, now_ms=1_700_000_000_000).holder.owner
        'an unknown client (unreadable record)'
        """
        try:
            document = _proven(body)
            holder, written_s = document["holder"], float(document["ttl_s"])
            if not 0 < written_s <= TTL_S_MAX:
                raise ValueError(written_s)
            return cls(
                int(document["token"]),
                written_s,
                None if holder is None else _claimant(holder),
                int(document["beat"]),
                tuple(_claimant(waiter) for waiter in document["waiters"][:WAITERS_MAX]),
            )
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            unknown = Claimant("unknown", "an unknown client (unreadable record)")
            return cls(now_ms, ttl_s, unknown)


def _proven(body: bytes) -> dict[str, Any]:
    """Read what ``encode`` wrote; raise ValueError for anything else."""
    proof, document = open_record(PATH, body)
    if proof is not Proof.SEALED:
        raise ValueError(proof)
    return document


def _plain(claimant: Claimant) -> dict[str, object]:
    return {"nonce": claimant.nonce, "owner": claimant.owner, "since_ms": claimant.since_ms}


def _claimant(value: Mapping[str, object]) -> Claimant:
    since = value["since_ms"]
    return Claimant(
        str(value["nonce"]), str(value["owner"]), None if since is None else int(str(since))
    )
