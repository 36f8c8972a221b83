"""The lock as a queue: it gives the commits of a busy table order and fairness, never safety."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager

from plait.errors import LockError, MissingDependencyError, TableError
from plait.txn.table_handle import TableHandle

_log = logging.getLogger(__name__)


class CommitQueue:
    """The lock, held if it can be had in time; without it the commit goes on all the same."""

    def __init__(self, handle: TableHandle, wait_s: float, owner: str) -> None:
        self._handle, self._wait_s, self._owner = handle, wait_s, owner
        self._held: AbstractContextManager[object] | None = None

    def __enter__(self) -> bool:
        """Tell whether it is held."""
        manager = self._handle.lock.acquire(wait_s=self._wait_s, owner=self._owner)
        try:
            manager.__enter__()
            self._held = manager
        except (LockError, MissingDependencyError) as error:
            _log.warning("committing without the lock: %s", error)
        return self._held is not None

    def __exit__(self, *exc: object) -> None:
        if self._held is None:
            return
        try:
            self._held.__exit__(None, None, None)
        except (TableError, OSError):  # what was published stands: it must not seem to have failed
            _log.warning("the lock could not be released", exc_info=True)
