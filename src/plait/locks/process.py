"""The lock ``process``: between the threads of this process, and nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from plait.errors import LockTimeoutError
from plait.locks.fifo import fifo_lock
from plait.locks.port import Holder
from plait.ports import Ports


@dataclass(frozen=True, slots=True)
class _Held:
    token: int | None = None
    lost: str | None = None


class ProcessLock:
    """First come, first served, by table. It cannot be lost while the process lives."""

    name = "process"

    def __init__(self, uri: str, ports: Ports) -> None:
        self._lock = fifo_lock(f"process:{uri}")
        self._uri, self._clock = uri, ports.clock

    @contextmanager
    def acquire(self, *, wait_s: float, owner: str) -> Iterator[_Held]:
        """Wait for the lock; raise LockTimeoutError naming the holder."""
        if not self._lock.acquire(owner, wait_s=wait_s):
            holder = self._lock.holder or "somebody who left meanwhile"
            message = f"{holder} held the lock of {self._uri} for {wait_s:g} s"
            hint = "raise lock.wait, or commit less often"
            raise LockTimeoutError(message, hint=hint, holder=holder, waited_ms=int(wait_s * 1000))
        self._lock.since_ms = self._clock.now_ms()
        try:
            yield _Held()
        finally:
            self._lock.release()

    def holder(self) -> Holder | None:
        """Tell who holds it now."""
        owner = self._lock.holder
        return None if owner is None else Holder(owner, self._lock.since_ms, None)
