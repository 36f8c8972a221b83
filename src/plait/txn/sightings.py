"""Which instants gave a sign of life, as this client saw it; kept from commit to commit.

For manners only: a dead holder of a place is waited for once by a client, not by each commit of it.
Who may be rolled back is judged by the store's clock, elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from plait.errors import TableError
from plait.model.instant import Instant
from plait.ports import Clock
from plait.storage.port import Store
from plait.timeline import paths

_BEAT_BYTES_MAX = 64


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
