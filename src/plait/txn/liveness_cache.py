"""A cache of the last signs of life of instants and readers that this client saw.

It is kept from commit to commit. ``HeartbeatCache`` affects fairness, never correctness: a client
waits for a dead holder once, not in each of its commits. Which instants may be rolled
back is decided elsewhere (``txn/liveness.py``), by the store's clock. ``SleepGuard`` delays such a
decision when this machine itself was asleep.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from plait.errors import CorruptMetadataError, TableError
from plait.model.instant import AHEAD_MS_MAX, Instant
from plait.ports import Clock
from plait.storage.port import Store
from plait.timeline import paths

_BEAT_BYTES_MAX = 64
_SLEPT_MS_MIN = 1_000
_DOUBTS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class _Seen:
    sign: bytes | None
    """The heartbeat as read; None before the first."""
    since: float
    """Time at which this content was read first."""
    looked: float
    """When it was last read."""
    asked: float
    """Time of the last attempt to read it, successful or not."""


class HeartbeatCache:
    """The last change of heartbeats, by this machine's monotonic clock."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self.silence_seen = False
        """Whether a silent holder has delayed a commit since the last ``take_silence_seen``."""
        self._taken: float | None = None

    def note_silence(self) -> None:
        """Record that a silent holder delayed a commit."""
        self.silence_seen = True

    def take_silence_seen(self, clock: Clock, *, every_s: float) -> bool:
        """Tell whether a silent holder delayed a commit; True at most once in ``every_s``."""
        now = clock.monotonic()
        if not self.silence_seen or (self._taken is not None and now - self._taken < every_s):
            return False
        self.silence_seen, self._taken = False, now
        return True

    def silence_s(self, store: Store, clock: Clock, instant: Instant, *, every_s: float) -> float:
        """Return for how long the heartbeat had not changed when it was last read.

        It is read at most once in ``every_s``. A failed read changes nothing: it must not fail a
        commit that only waits for the sake of fairness.
        """
        now, seen = clock.monotonic(), self._seen.get(instant.nonce)
        if seen is None or now - seen.asked >= every_s:
            seen = self._seen[instant.nonce] = self._look(store, instant, now, seen)
        return seen.looked - seen.since

    def _look(self, store: Store, instant: Instant, now: float, before: _Seen | None) -> _Seen:
        try:
            sign = store.find(paths.heartbeat(instant), size_max=_BEAT_BYTES_MAX)
        except TableError:
            return _Seen(None, now, now, now) if before is None else replace(before, asked=now)
        if before is None or before.sign != sign:
            return _Seen(sign, now, now, now)
        return replace(before, looked=now, asked=now)

    def keep(self, instants: Iterable[Instant]) -> None:
        """Forget all others."""
        nonces = {instant.nonce for instant in instants}
        for nonce in self._seen.keys() - nonces:
            self._seen.pop(nonce, None)


class SleepGuard:
    """Silences that a sleep of this machine may explain, by its monotonic clock.

    A machine that sleeps for an hour, with the writers that run on it, finds them silent for an
    hour afterwards. They count as dead only if they stay silent for another interval in which the
    machine was awake.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}

    def is_inconclusive(self, clock: Clock, name: str, sign: Silence) -> bool:
        """Tell whether a silence does not prove a death yet.

        Args:
            clock: this machine's.
            name: who is silent.
            sign: the last sign, and for how long there was none.
        """
        asleep_ms = clock.asleep_s() * 1000
        if asleep_ms < _SLEPT_MS_MIN or sign.silent_ms > sign.limit_ms + asleep_ms:
            return False
        now = clock.monotonic()
        last, since = self._seen.get(name, (None, now))
        # A newer sign than the one in doubt: the doubt begins anew with it.
        if last != sign.at_ms:
            if len(self._seen) >= _DOUBTS_MAX:
                self._seen.clear()
            self._seen[name] = (sign.at_ms, now)
            return True
        return now - since <= sign.fresh_s


@dataclass(frozen=True, slots=True)
class Silence:
    """A silence: the time since the last sign of life, by the store's clock."""

    at_ms: int
    """Time of the last sign, by the store's clock."""
    silent_ms: int
    limit_ms: float
    """Silence in milliseconds after which somebody counts as dead."""
    fresh_s: float
    """Seconds within which a living instant or reader gives a sign."""


def renew_signs(store: Store, signs: Iterable[tuple[str, int | None]]) -> None:
    """Rewrite signs of life that are dated in the future, so that they age from now on.

    A clock that was ahead stamped them. A living writer gives its next sign soon anyway. The sign
    of a dead one would count until its date, and nothing would be cleaned until then.

    Args:
        store: where they are.
        signs: path, and when it was written by the store's clock.
    """
    now_ms = store.now_ms()
    for path, modified_ms in signs:
        if modified_ms is None or modified_ms <= now_ms + AHEAD_MS_MAX:
            continue
        with suppress(CorruptMetadataError):  # too large to be ours
            body = store.find(path)
            if body is not None:
                store.put(path, body)
