"""Which instants gave a sign of life, as this client saw it; kept from commit to commit.

For manners only: a dead holder of a place is waited for once by a client, not by each commit of it.
Who may be rolled back is judged by the store's clock, elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable

from plait.model.instant import Instant
from plait.ports import Clock
from plait.storage.port import Store
from plait.timeline import paths

_BEAT_BYTES_MAX = 64

Sign = bytes | None
"""The heartbeat as read; None before the first."""


class Sightings:
    """The last change of heartbeats, by this machine's monotonic clock."""

    def __init__(self) -> None:
        self._changed: dict[str, tuple[Sign, float]] = {}

    def silence_s(self, store: Store, clock: Clock, instant: Instant) -> float:
        """Look at a heartbeat; tell for how long none was heard, as far as is known."""
        sign = store.find(paths.heartbeat(instant), size_max=_BEAT_BYTES_MAX)
        now = clock.monotonic()
        seen = self._changed.get(instant.nonce)
        if seen is None or seen[0] != sign:
            seen = self._changed[instant.nonce] = sign, now
        return now - seen[1]

    def keep(self, instants: Iterable[Instant]) -> None:
        """Forget all others."""
        nonces = {instant.nonce for instant in instants}
        for nonce in self._changed.keys() - nonces:
            self._changed.pop(nonce, None)
