"""Heartbeats: a long-running instant shows that it is alive, and learns of its rollback.

The heartbeat belongs to the instant, not to a client. The first one is due after one interval, so
a short commit writes none. A late heartbeat ends nothing: only a rollback decision ends an instant.
If a writer object is dropped before its end, its heartbeat stops, and other clients roll the
instant back after its time-out.
"""

from __future__ import annotations

import logging
import threading
import weakref

from plait.errors import RolledBackError
from plait.model.decision import Decision
from plait.model.instant import Instant
from plait.timeline import paths
from plait.txn.refusal import rolled_back
from plait.txn.table_handle import TableHandle

_log = logging.getLogger(__name__)
_READ_MAX = 1_000


class Watch:
    """Looks whether an instant was rolled back, and reads each decision once for that."""

    def __init__(self, handle: TableHandle, instant: Instant, *, since: int) -> None:
        self._handle = handle
        self._instant = instant
        self._seen = since
        self.ended_by: Decision | None = None
        """The rollback of this instant, if a look found one."""
        self._lock = threading.Lock()

    def find_error(self) -> RolledBackError | None:
        """Return the error for work under the instant, if a look found its rollback."""
        by = self.ended_by
        ended = None if by is None else by.find_ended(self._instant)
        if by is None or ended is None:
            return None
        return rolled_back(self._instant, by.version, ended.reason)

    def look(self) -> None:
        """Read what was decided since the last look."""
        with self._lock:
            for decision in [] if self.ended_by else self._news():
                ended = decision.find_ended(self._instant)
                if ended is not None:
                    self.ended_by = decision
                    _log.warning("instant %s was rolled back: %s", self._instant, ended.reason)
                    return

    def _news(self) -> list[Decision]:
        """Return the decisions since the last look; it also updates the client's cache."""
        cache = self._handle.cache
        ahead = cache.refresh().version - self._seen
        # From the last version that was looked at, not from the head of the cache: other threads of
        # this client may have moved the cache past our rollback.
        decisions = list(cache.decisions(self._seen, limit=min(ahead, _READ_MAX)))
        if decisions:
            self._seen = decisions[-1].version
        return decisions


class Heartbeat:
    """Beats for one instant until it is stopped, or nobody holds it."""

    def __init__(
        self, handle: TableHandle, instant: Instant, *, interval_s: float, since: int
    ) -> None:
        self._handle = handle
        self._instant = instant
        self._beats = 0
        self.watch = Watch(handle, instant, since=since)
        """Looks with each beat, or when it is asked to, whether the instant was rolled back."""
        self._lock = threading.Lock()
        # The timer must not keep the writer alive: one that its caller forgot has to fall silent,
        # so that recovery can end its instant.
        held = weakref.WeakMethod(self._beat)

        def step() -> None:
            beat = held()
            if beat is None:
                cancel()
            else:
                beat()

        cancel = self._cancel = handle.ports.background.every(interval_s, step)

    @property
    def beaten(self) -> bool:
        """Whether a heartbeat was ever written."""
        return self._beats > 0

    def stop(self) -> None:
        """Stop beating; the file is removed by whoever finishes the instant."""
        self._cancel()

    def _beat(self) -> None:
        with self._lock:
            if self.watch.ended_by is not None:
                return
            self._beats += 1
            path = paths.heartbeat(self._instant)
            self._handle.store.put(path, str(self._beats).encode())
            self.watch.look()
            # The recoverer may have removed our records before this put. It does not come back for
            # a heartbeat that was written after it.
            if self.watch.ended_by is not None:
                self._handle.store.delete([path])
