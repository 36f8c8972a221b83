"""The rows of a table that the predicate of a delete or an overwrite holds for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from plait.expr import Predicate, from_json
from plait.files.deletion import load_mask
from plait.files.live import LiveFile, live_files
from plait.model.bucket import BucketId
from plait.model.plan import WritePlan
from plait.read.condition import Condition
from plait.read.plan import ScanPlan, plan_scan
from plait.read.slices import SliceReader
from plait.write.existing import Existing
from plait.write.merge import Positions


@dataclass(frozen=True, slots=True)
class Matching:
    """A predicate as a writer needs it."""

    predicate: Predicate
    condition: Condition | None
    """To be asked of rows that come in; None: every row is welcome."""

    @classmethod
    def of(cls, plan: WritePlan) -> Self | None:
        """Take the predicate of a plan; None if it has none."""
        if plan.predicate is None:
            return None
        schema = plan.spec.schema.arrow
        predicate = from_json(plan.predicate, schema)
        return cls(predicate, Condition.of(predicate, schema))

    def on(self, existing: Existing) -> Matches:
        """Choose the files of a snapshot in which rows may match."""
        return Matches(existing, plan_scan(existing.snapshot, columns=(), where=self.predicate))


@dataclass(slots=True)
class Matches:
    """Where a predicate may hold in one snapshot, and where it does."""

    existing: Existing
    plan: ScanPlan
    _paths: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        """Take the names of the files once."""
        self._paths = frozenset(self.plan.files["path"].to_pylist())

    def buckets(self) -> set[BucketId]:
        """Give the buckets with files that may have matching rows."""
        return {(file.partition, file.bucket) for file in live_files(self.plan.files)}

    def hidden(self, files: Sequence[LiveFile]) -> dict[str, Positions]:
        """Find the live rows that match, by file."""
        found = {file.path: self._matching(file) for file in files if file.path in self._paths}
        return {path: positions for path, positions in found.items() if len(positions)}

    def _matching(self, file: LiveFile) -> Positions:
        if self.plan.condition is None:
            # The partition alone decided: nothing has to be read.
            live = np.ones(file.rows, dtype=np.bool_)
            gone = load_mask(self.existing.store, file)
            if gone is not None:
                live[gone.astype(np.int64)] = False
            return np.flatnonzero(live).astype(np.uint64)
        reader = SliceReader.of(self.existing.store, self.existing.snapshot)
        parts = [
            part.positions.astype(np.uint64)
            for part in reader.slices(file, columns=(), where=self.plan.condition)
        ]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint64)
