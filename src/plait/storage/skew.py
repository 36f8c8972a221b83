"""The store's clock: one for all clients of a table.

Whoever cannot learn it does not take another clock instead: it raises ClockUnavailableError.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from plait.ports import Clock
from plait.storage.port import sound_time

AGE_S_MAX = 900.0
JUMP_MS = 2_000


@dataclass(frozen=True, slots=True)
class _Reading:
    server_ms: int
    local_ms: int
    monotonic: float


class ServerClock:
    """Follows a server's clock from one reading, by this machine's monotonic clock.

    The server is asked again after 15 minutes, and when this machine's wall clock and its
    monotonic one disagree by two seconds: it slept, or somebody set it. The time lies behind the
    server's by at most the way of the reply and the server's rounding.

    Args:
        clock: this machine's.
        ask: asks the server; raises ClockUnavailableError.
        jump_ms: by how much this machine's two clocks may disagree.
    """

    def __init__(self, clock: Clock, ask: Callable[[], int], *, jump_ms: int = JUMP_MS) -> None:
        self._clock, self._ask, self._jump_ms = clock, ask, jump_ms
        self._reading: _Reading | None = None
        self._mutex = threading.Lock()

    def now_ms(self) -> int:
        """Return the server's time, ms since the epoch.

        Raises:
            ClockUnavailableError: the server does not tell it, or an absurd one.
        """
        with self._mutex:
            reading = self._reading
            if reading is None or self._stale(reading):
                asked = self._clock.monotonic()
                server_ms = sound_time(self._ask())
                reading = _Reading(server_ms, self._clock.now_ms(), self._clock.monotonic())
                late = (reading.monotonic - asked) * 1000 > self._jump_ms
                self._reading = None if late else reading  # what lies far behind is not followed
        return reading.server_ms + self._elapsed_ms(reading)

    def _elapsed_ms(self, reading: _Reading) -> int:
        return int((self._clock.monotonic() - reading.monotonic) * 1000)

    def _stale(self, reading: _Reading) -> bool:
        elapsed_ms = self._elapsed_ms(reading)
        drift_ms = abs(self._clock.now_ms() - reading.local_ms - elapsed_ms)
        return elapsed_ms > AGE_S_MAX * 1000 or drift_ms > self._jump_ms
