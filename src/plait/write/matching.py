"""The rows of a table that the predicate of a delete or an overwrite holds for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.expr import Predicate, columns_of, from_json, to_arrow
from plait.files.live import LiveFile, live_files
from plait.model.bucket import BucketId
from plait.model.plan import WritePlan
from plait.read.plan import plan_scan
from plait.write.existing import Existing
from plait.write.merge import Positions

_AT = "__position"


@dataclass(frozen=True, slots=True)
class Matching:
    """A predicate as a writer needs it."""

    predicate: Predicate
    expression: pc.Expression
    """True for the rows that match; also evaluated on rows that come in."""
    columns: tuple[str, ...]

    @classmethod
    def of(cls, plan: WritePlan) -> Self | None:
        """Take the predicate of a plan; None if it has none."""
        if plan.predicate is None:
            return None
        schema = plan.spec.schema.arrow
        predicate = from_json(plan.predicate, schema)
        names = columns_of(predicate)
        columns = tuple(name for name in schema.names if name in names)
        return cls(predicate, to_arrow(predicate), columns)

    def buckets(self, existing: Existing) -> set[BucketId]:
        """Give the buckets with files that may have matching rows, by partition and bounds."""
        plan = plan_scan(existing.snapshot, columns=self.columns, where=self.predicate)
        return {(file.partition, file.bucket) for file in live_files(plan.files)}

    def hidden(self, existing: Existing, files: Sequence[LiveFile]) -> dict[str, Positions]:
        """Find the live rows that match, by file."""
        found: dict[str, Positions] = {}
        for file in files:
            parts = [
                self._matches(block.rows, block.positions)
                for block in existing.blocks(file, self.columns)
                if block.positions is not None
            ]
            positions = np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint64)
            if len(positions):
                found[file.path] = positions
        return found

    def _matches(self, rows: pa.Table, positions: Positions) -> Positions:
        placed = rows.append_column(_AT, pa.array(positions))
        chosen = placed.filter(self.expression).column(_AT)
        found: Positions = chosen.to_numpy()
        return found
