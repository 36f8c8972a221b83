"""A store with scripted failures: crashes, errors, lost replies, delays, stale listings."""

from __future__ import annotations

import fnmatch
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

from plait.errors import StorageError
from plait.ports import Clock, SystemClock
from plait.storage.port import Store, no_clock
from plait.testing.wrapper import WrappedStore

T = TypeVar("T")
KINDS = ("crash_before", "crash_after", "error", "lost_reply", "delay", "stale", "step")


class SimulatedCrashError(BaseException):
    """The process died here. Not an Exception, so no handler treats it as a failure."""


@dataclass(slots=True)
class Fault:
    """A failure, and the calls at which it happens.

    Args:
        kind: ``crash_before`` or ``crash_after`` the call: from then on every call of this store
            crashes, as in a dead process. ``error``: StorageError without the call.
            ``lost_reply``: the call, then StorageError. ``delay``: the clock advances by
            ``delay_s`` first. ``stale``: the listing as it was when the store was created.
            ``step``: ``run`` is called first.
        operation: of ``find``, ``put``, ``put_if_absent``, ``replace``, ``list``, ``delete``,
            ``persist``, ``open_input``, ``open_output``; a shell pattern. ``now`` is the
            request for the store's time; only its own name matches it.
        path: a shell pattern; ``*`` also matches ``/``.
        nth: the first matching call that fails, from 1.
        times: how many matching calls fail from there.
    """

    kind: str
    operation: str = "*"
    path: str = "*"
    nth: int = 1
    times: int = 1
    delay_s: float = 0.0
    run: Callable[[], None] | None = None
    _seen: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"a fault is one of {', '.join(KINDS)}, not {self.kind!r}")

    def hits(self, operation: str, path: str) -> bool:
        """Count the call if it matches, and return whether it fails."""
        matches = fnmatch.fnmatchcase(operation, self.operation)
        if not (matches and fnmatch.fnmatchcase(path, self.path)):
            return False
        self._seen += 1
        return self.nth <= self._seen < self.nth + self.times


class FaultStore(WrappedStore):
    """Runs a script of faults.

    >>> from plait.storage import open_store
    >>> store = FaultStore(open_store("memory://fault-doc"), [Fault("lost_reply", "put")])
    >>> store.put("a", b"1")
    Traceback (most recent call last):
    plait.errors.StorageError: put of a failed (as the test ordered)
    >>> store.find("a")
    b'1'
    """

    def __init__(
        self, inner: Store, script: Sequence[Fault] = (), *, clock: Clock | None = None
    ) -> None:
        super().__init__(inner)
        self._script = list(script)
        self._clock = clock or SystemClock()
        self._mutex = threading.Lock()
        self._stale = {
            fault.path: list(inner.list(fault.path)) for fault in script if fault.kind == "stale"
        }
        self.dead = False
        self.calls = 0
        """How many calls were made. Crash at each of them in turn to cover an operation."""

    def call(self, operation: str, path: str, run: Callable[[], T]) -> T:
        """Make a call, or the failure that the script has for it."""
        with self._mutex:
            if self.dead:
                raise SimulatedCrashError
            self.calls += 1
            fault = next((f for f in self._script if f.hits(operation, path)), None)
        if fault is None:
            return run()
        return self._fail(fault, operation, path, run)

    def now_ms(self) -> int:
        """Return the store's time, unless the script makes it fail."""
        with self._mutex:
            asked = [fault for fault in self._script if fault.operation == "now"]
            if sum(fault.hits("now", "") for fault in asked):
                raise no_clock(self.address.uri, "as the test ordered")
        return super().now_ms()

    def _fail(self, fault: Fault, operation: str, path: str, run: Callable[[], T]) -> T:
        if fault.kind == "crash_before":
            self.die()
        if fault.kind == "error":
            raise _ordered(operation, path)
        if fault.kind == "delay":
            self._clock.sleep(fault.delay_s)
        if fault.run is not None:
            fault.run()
        if fault.kind == "stale":
            return cast("T", self._stale[fault.path])
        result = run()
        if fault.kind == "crash_after":
            self.die()
        if fault.kind == "lost_reply":
            raise _ordered(operation, path)
        return result

    def die(self) -> None:
        """Crash; every later call crashes too."""
        self.dead = True
        raise SimulatedCrashError


def _ordered(operation: str, path: str) -> StorageError:
    return StorageError(f"{operation} of {path} failed", hint="as the test ordered", path=path)
