"""Heartbeats: an instant that lives long says so, and hears when it was rolled back.

The heartbeat belongs to the instant, not to a client. The first one is due after one interval,
so that a short commit writes none. A late one is no death sentence: only a rollback decision
ends an instant.
"""

from __future__ import annotations

import logging
import threading

from plait.model.decision import Decision
from plait.model.instant import Instant
from plait.timeline import paths
from plait.txn.site import Site

_log = logging.getLogger(__name__)
_READ_MAX = 1_000


class Heartbeat:
    """Beats for one instant until stopped."""

    def __init__(self, site: Site, instant: Instant, *, interval_s: float, since: int) -> None:
        self._site = site
        self._instant = instant
        self._seen = since
        self._beats = 0
        self._ended_by: Decision | None = None
        self._lock = threading.Lock()
        self._cancel = site.ports.background.every(interval_s, self._beat)

    @property
    def beaten(self) -> bool:
        """Whether a heartbeat was ever written."""
        return self._beats > 0

    @property
    def ended_by(self) -> Decision | None:
        """The rollback of this instant, if the heartbeat came upon one."""
        return self._ended_by

    def stop(self) -> None:
        """Stop beating; the file is removed by whoever finishes the instant."""
        self._cancel()

    def _beat(self) -> None:
        with self._lock:
            if self._ended_by is not None:
                return
            self._beats += 1
            self._site.store.put(paths.heartbeat(self._instant), str(self._beats).encode())
            for decision in self._news():
                ended = decision.rolled_back
                if ended is not None and ended.instant.nonce == self._instant.nonce:
                    self._ended_by = decision
                    self._site.store.delete([paths.heartbeat(self._instant)])
                    _log.warning("instant %s was rolled back: %s", self._instant, ended.reason)
                    return

    def _news(self) -> list[Decision]:
        """Give the decisions since the last look; all who share the client learn them by it."""
        cache = self._site.cache
        ahead = cache.refresh().version - self._seen
        found = list(cache.decisions(self._seen, limit=min(ahead, _READ_MAX)))
        if found:
            self._seen = found[-1].version
        return found
