"""Instants that a state remembers beyond their decision: late files, open reservations."""

from __future__ import annotations

from dataclasses import dataclass

from plait.model.bucket import Partition
from plait.model.decision import Decision, Reserved

_LATE_MAX = 1_000
"""Rolled-back instants whose late files are looked for by the next cleans."""


@dataclass(frozen=True, slots=True)
class Late:
    """A rolled-back instant that may still write files; they are provably its own."""

    instant: str
    version: int
    partitions: tuple[Partition, ...]

    @property
    def nonce(self) -> str:
        """What the names of its files carry."""
        return self.instant.rsplit("-", 1)[-1]


@dataclass(frozen=True, slots=True)
class Reservation:
    """A place kept for an instant that is still open."""

    version: int
    """Of its decision: of two in one place the older goes first."""
    reserved: Reserved


def late_after(before: tuple[Late, ...], decision: Decision) -> tuple[Late, ...]:
    """Return those after a decision, which may roll instants back."""
    if not decision.rolled_back:
        return before
    ended = [
        Late(str(each.instant), decision.version, each.partitions) for each in decision.rolled_back
    ]
    return (*before, *ended)[-_LATE_MAX:]


def reservations_after(
    before: tuple[Reservation, ...], decision: Decision
) -> tuple[Reservation, ...]:
    """Return the open ones after a decision, which may open one and end its instant's."""
    if decision.reserved is not None:
        return (*before, Reservation(decision.version, decision.reserved))
    if not before:
        return before
    ended = {decision.instant.nonce, *(each.instant.nonce for each in decision.rolled_back)}
    return tuple(each for each in before if each.reserved.holder.nonce not in ended)
