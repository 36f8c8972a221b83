"""A store in memory whose process dies at a call, whichever table of it that reaches."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar

from plait.storage.memory import MemoryStore
from plait.testing import StoreCall
from plait.testing.faults import SimulatedCrashError


class Mortal(MemoryStore):
    """A store of a process that dies at a call. All stores of it count into one script."""

    left: int | None = None
    """How many calls are made before it dies; None: it lives."""
    thread = 0
    counted = 0
    rival: Callable[[], object] | None = None
    """What somebody else does before a call."""
    rival_at = 0
    calls: ClassVar[list[StoreCall]] = []
    """What was called since somebody cleared it, by the whole URI."""

    def _call(self, operation: str, path: str) -> bool:
        """Count a call; tell whether it is made."""
        kind = type(self)
        if threading.get_ident() != kind.thread:
            return True
        kind.counted += 1
        kind.calls.append(StoreCall(operation, f"{self._uri}/{path}"))
        if kind.rival is not None and kind.counted >= kind.rival_at:
            rival, kind.rival = kind.rival, None
            rival()
        if kind.left is None:
            return True
        kind.left -= 1
        return kind.left >= 0

    def find(self, path: str, **named: Any) -> bytes | None:
        self._live("find", path)
        return super().find(path, **named)

    def put(self, path: str, body: bytes) -> None:
        self._live("put", path)
        super().put(path, body)

    def put_if_absent(self, path: str, body: bytes) -> bool:
        self._live("put_if_absent", path)
        return super().put_if_absent(path, body)

    def list(self, prefix: str) -> Any:
        self._live("list", prefix)
        return super().list(prefix)

    def delete(self, paths: Any) -> None:
        doomed = [*paths]
        if doomed and self._call("delete", doomed[0]):
            super().delete(doomed)  # one that is dead cleans nothing up, and says nothing

    def _live(self, operation: str, path: str) -> None:
        if not self._call(operation, path):
            raise SimulatedCrashError
