"""Manifests: sections of a decision that are too large for its slot, in files of their own."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from plait.errors import StorageError
from plait.model.changes import WriteStatus
from plait.model.instant import Instant
from plait.txn.table_handle import TableHandle

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Manifests:
    """Writes the large sections of a status once, however many slots are lost."""

    handle: TableHandle
    instant: Instant
    _status: WriteStatus | None = None
    _references: dict[str, object] = field(default_factory=dict)
    _rounds: int = 0
    wrote: bool = False
    """Whether there ever was one."""

    def of(self, status: WriteStatus) -> Mapping[str, object]:
        """Return the references of a status; those of an older one are deleted.

        To be called only when no publish is under way: then nobody can name the older ones.
        """
        if status is not self._status:
            self.discard()
            self._rounds += 1
            self._references = self.handle.cache.timeline.write_manifests(
                self.instant,
                # a nonce, since another process may resume the same instant
                f"a{self._rounds}-{self.handle.ports.ids.nonce()}",
                status.changes.tables(),
            )
            self._status = status
            self.wrote = self.wrote or bool(self._references)
        return self._references

    def discard(self) -> None:
        """Delete what no decision will name any more."""
        references = self._references.values()
        doomed = [str(each["manifest"]) for each in references if isinstance(each, dict)]
        self._status, self._references = None, {}
        try:
            self.handle.store.delete(doomed)
        except StorageError:
            _log.warning("manifests of %s were not deleted", self.instant, exc_info=True)
