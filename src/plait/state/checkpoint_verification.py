"""Whether the parts of a checkpoint show what the decision of its version sums up (INV-11)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from plait.errors import CorruptMetadataError, FormatError, StorageError
from plait.model.decision import TableStatistics
from plait.state.events import Events, events_of
from plait.state.parts import Part
from plait.storage.port import Store
from plait.timeline import paths
from plait.timeline.log import Timeline

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class CheckpointVerification:
    """What a client found out about parts; states that rest on the same parts share it."""

    base: TableStatistics | None = None
    """Statistics in the decision of the parts' newest version; None if not read yet."""
    finished: bool = False
    """Whether no more comparison is needed: all parts were compared, or none can be."""
    wrong: bool = False
    """Whether the parts differ from the statistics, so that they are not used any more."""
    compared: set[int] = field(default_factory=set)
    """Older versions at which all live files were compared."""

    def recorded_at(self, store: Store, version: int) -> TableStatistics | None:
        """Read what an older decision sums up; None if it does not tell, or was compared."""
        if self.wrong or version in self.compared:
            return None
        self.compared.add(version)
        return _recorded_statistics(store, version)

    def base_of(self, store: Store, parts: Sequence[Part]) -> TableStatistics | None:
        """Read what the decision of the parts' newest version sums up; None if it does not tell."""
        if self.base is None and parts and not self.finished:
            self.base = _recorded_statistics(store, parts[-1].last)
            # No statistics to compare with: they were not recorded, or the slot cannot be read. The
            # parts are used as they are, since their checksums matched.
            self.finished = self.base is None
        return self.base

    def agrees(
        self, found: TableStatistics, recorded: TableStatistics, parts: Sequence[Part]
    ) -> bool:
        """Compare what parts show with what a decision sums up; log it if they differ."""
        if found == recorded:
            return True
        self.wrong = self.finished = True
        name = paths.checkpoint(parts[-1].last)
        message = "%s is wrong: it shows %s, and its decision has %s; reading the decisions instead"
        _log.warning(message, name, found, recorded)
        return False


def _recorded_statistics(store: Store, version: int) -> TableStatistics | None:
    """Return what a decision sums up; None if it does not tell, or cannot be read."""
    try:
        decision = Timeline(store).find(version)
    except (FormatError, StorageError) as error:
        _log.warning("cannot compare the checkpoint with version %d: %s", version, error)
        return None
    return None if decision is None else decision.live


def read_decided(store: Store, parts: Sequence[Part]) -> Events:
    """Load the events of parts from their decisions, by way of the archive.

    Raises:
        CorruptMetadataError: one of the decisions cannot be read.
    """
    # All decisions from version 0 on: which part is wrong is not known, only that their sum is.
    count = parts[-1].last + 1
    decisions = list(Timeline(store).load_after(-1, limit=count))
    if len(decisions) != count:
        path = paths.slot(len(decisions))
        message = f"{path} is missing, and the checkpoint that contains its version is wrong"
        hint = "restore the slot from a backup; `tablectl verify` lists all damage"
        raise CorruptMetadataError(message, hint=hint, path=path)
    return events_of(decisions)
