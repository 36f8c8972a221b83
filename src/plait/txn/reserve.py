"""Reservations: a commit that lost too often keeps its place until it is through (RFC 0004).

Manners, not safety: every commit validates all the same, and losing a reservation costs time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from plait.model.decision import Decision, Reserved
from plait.model.instant import Action, Instant, Operation, Outcome
from plait.state.state import Reservation, State
from plait.timeline import paths
from plait.txn.conflict import Intent, meeting
from plait.txn.service import publish_service
from plait.txn.site import Site, client

_POLL_S, _POLL_S_MAX = 0.005, 0.25
_BEAT_BYTES_MAX = 64


def publish_reservation(site: Site, holder: Instant, intent: Intent, *, since: int) -> None:
    """Decide that a place is kept for an instant, unless it has one, or is over.

    Args:
        site: the table.
        holder: the instant that keeps the place.
        intent: what it is about to decide.
        since: a version up to which the holder is known to be undecided. What the client knows
            of the table may be newer: others share it.

    Raises:
        CommitRetriesExhaustedError: others were first for longer than ``commit.deadline``.
        CommitOutcomeUnknownError: the store does not say.
    """
    reserved = Reserved(holder, intent.scope, tuple(sorted(intent.buckets, key=str)))

    def draft(state: State) -> Decision | None:
        mine = [r for r in state.reservations if r.reserved.holder.nonce == holder.nonce]
        if mine or _ended(site, state, holder, since):
            return None
        return Decision(
            version=0,
            instant=site.new_instant(state),
            outcome=Outcome.COMMITTED,
            action=Action.RESERVATION,
            operation=Operation.RESERVE,
            base=state.version,
            completed_ms=0,
            attempt="",
            previous="",
            reserved=reserved,
            client=client(),
        )

    publish_service(site, draft)


def _ended(site: Site, state: State, holder: Instant, since: int) -> bool:
    """Tell whether the holder was decided meanwhile: nobody would end its reservation then."""
    rows = state.commits(site.store, since=since)
    ended = [text for text in rows["ended"].to_pylist() if text is not None]
    return any(text.endswith(holder.nonce) for text in [*ended, *rows["instant"].to_pylist()])


@dataclass(slots=True)
class Patience:
    """Waits for those that reserved our place before us."""

    site: Site
    instant: Instant
    _given_up: set[str] = field(default_factory=set)
    """Holders that seem dead, by nonce."""

    def before_us(self, head: State, intent: Intent) -> Reservation | None:
        """Give a reservation that we respect: an older one, of a living holder, in our place."""
        for each in head.reservations:
            holder = each.reserved.holder.nonce
            if holder == self.instant.nonce:
                return None  # ours is older than those that follow
            if holder not in self._given_up and _meets(intent, each.reserved):
                return each
        return None

    def wait(self, reservation: Reservation, *, until: float) -> None:
        """Wait for its end, but no longer than its holder gives signs of life.

        Args:
            reservation: somebody else's.
            until: by the monotonic clock: not longer in any case.
        """
        site, holder = self.site, reservation.reserved.holder
        clock = site.ports.clock
        site.ports.observer.phase("wait", instant=str(self.instant), holder=str(holder))
        timeout_s = site.cache.known().table.options.seconds("heartbeat.timeout")
        beat, since, pause_s = self._beat(holder), clock.monotonic(), _POLL_S
        while clock.monotonic() < until:
            clock.sleep(pause_s * (0.5 + site.ports.ids.jitter()))
            pause_s = min(2 * pause_s, _POLL_S_MAX)
            state = site.cache.refresh()
            if all(r.reserved.holder.nonce != holder.nonce for r in state.reservations):
                return
            now = self._beat(holder)
            if now != beat:
                beat, since = now, clock.monotonic()
            elif clock.monotonic() - since > timeout_s:
                self._given_up.add(holder.nonce)
                return

    def _beat(self, holder: Instant) -> bytes | None:
        return self.site.store.find(paths.heartbeat(holder), size_max=_BEAT_BYTES_MAX)


def _meets(intent: Intent, reserved: Reserved) -> bool:
    return meeting(intent, reserved.scope, frozenset(reserved.buckets)) is not None
