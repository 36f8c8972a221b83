"""Counts the calls of a store, such as those of a commit."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from plait.storage.port import Store
from plait.testing.wrapper import WrappedStore, is_metadata

T = TypeVar("T")
METADATA, DATA = "metadata", "data"


@dataclass(frozen=True, slots=True)
class StoreCall:
    """One call: ``find``, ``put``, ``put_if_absent``, ``replace``, ``list``, ``delete``.

    Or ``persist``, or ``open_input`` or ``open_output`` of a file through Arrow.
    """

    operation: str
    path: str

    @property
    def kind(self) -> str:
        """``metadata`` below ``.meta/``, else ``data``."""
        return METADATA if is_metadata(self.path) else DATA


class CountingStore(WrappedStore):
    """Records every call in order, whether or not it succeeds.

    >>> from plait.storage import open_store
    >>> store = CountingStore(open_store("memory://counting-doc"))
    >>> store.put(".meta/a", b"1")
    >>> store.count("put", METADATA)
    1
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._calls: list[StoreCall] = []
        self._fsyncs = self._fsyncs_now()
        self._mutex = threading.Lock()

    def call(self, operation: str, path: str, run: Callable[[], T]) -> T:
        """Record the call, then make it."""
        with self._mutex:
            self._calls.append(StoreCall(operation, path))
        return run()

    @property
    def calls(self) -> tuple[StoreCall, ...]:
        """The calls since the start or the last ``reset``, in order."""
        return tuple(self._calls)

    @property
    def fsyncs(self) -> int:
        """The syncs since then; 0 for a store that never syncs."""
        return self._fsyncs_now() - self._fsyncs

    def count(self, operation: str, kind: str | None = None) -> int:
        """Count calls of one operation, of metadata or data or both."""
        return sum(
            call.operation == operation and kind in (None, call.kind) for call in self._calls
        )

    def counts(self, kind: str | None = None) -> dict[str, int]:
        """Count calls by operation, of metadata or data or both."""
        return dict(Counter(c.operation for c in self._calls if kind in (None, c.kind)))

    def reset(self) -> None:
        """Set all counts to zero."""
        with self._mutex:
            self._calls.clear()
            self._fsyncs = self._fsyncs_now()

    def _fsyncs_now(self) -> int:
        fsyncs = getattr(self.inner, "fsyncs", 0)
        return fsyncs if isinstance(fsyncs, int) else 0
