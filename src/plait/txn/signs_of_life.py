"""Signs of life of instants and readers, as this client saw them; kept from commit to commit.

``Sightings`` is for manners only: a dead holder of a place is waited for once by a client, not by
each commit of it. Who may be rolled back is judged by the store's clock, elsewhere; ``Doubts`` says
when such a judgement must wait, since the machine itself slept.
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
    """When it was first read like this."""
    looked: float
    """When it was last read."""
    asked: float
    """When it was last asked for, with or without an answer."""


class Sightings:
    """The last change of heartbeats, by this machine's monotonic clock."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self.met_silence = False
        """Whether a commit was held up by somebody silent since it was last taken."""
        self._taken: float | None = None

    def meet_silence(self) -> None:
        """Hear that a commit was held up by somebody who gives no sign."""
        self.met_silence = True

    def take_met_silence(self, clock: Clock, *, every_s: float) -> bool:
        """Tell, at most so often, whether a commit was held up since by somebody silent."""
        now = clock.monotonic()
        if not self.met_silence or (self._taken is not None and now - self._taken < every_s):
            return False
        self.met_silence, self._taken = False, now
        return True

    def silence_s(self, store: Store, clock: Clock, instant: Instant, *, every_s: float) -> float:
        """Tell for how long none was heard when it was last looked for, which is at most so often.

        What cannot be read is no news: whoever waits out of manners does not fail for it.
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


class Doubts:
    """Silences that a sleep of this machine may explain, by its monotonic clock.

    Who slept through an hour with its writers finds them silent for an hour. They are condemned
    only if they stay silent for a fresh interval in which the machine was awake.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}

    def spares(self, clock: Clock, name: str, sign: Silence) -> bool:
        """Tell whether nobody may be condemned for a silence yet.

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
        if last != sign.at_ms:
            if len(self._seen) >= _DOUBTS_MAX:
                self._seen.clear()
            self._seen[name] = (sign.at_ms, now)
            return True
        return now - since <= sign.fresh_s


@dataclass(frozen=True, slots=True)
class Silence:
    """For how long somebody gave no sign, by the store's clock."""

    at_ms: int
    """When the last sign was given."""
    silent_ms: int
    limit_ms: float
    """What is too long."""
    fresh_s: float
    """In so much time the living give a sign."""


def renew_signs(store: Store, signs: Iterable[tuple[str, int | None]]) -> None:
    """Write signs of life anew whose times have not come, so that they age from now on.

    A clock that was ahead stamped them. Who lives gives the next sign soon all the same; a sign of
    the dead would last until its time has come, and nothing would be cleaned meanwhile.

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
