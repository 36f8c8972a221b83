"""A predicate as files are read with it: evaluated for rows, and judged by bounds of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import pyarrow as pa

from plait.expr import TRUE, Predicate, Where, columns_read, parse_where
from plait.expr.evaluate import Sides, holds
from plait.expr.implied import implied, named_in
from plait.expr.prune import Bounds, Flags, may_match
from plait.expr.tree import TARGET, Arrow, leaves
from plait.files.footer import Range
from plait.files.hash import Hashes
from plait.files.reader import OpenFile
from plait.model.value import from_raws, is_plain


@dataclass(frozen=True)
class Condition:
    """Which rows are wanted."""

    predicate: Predicate
    schema: pa.Schema
    columns: tuple[str, ...]
    """What it looks at, in the schema's order."""
    keys: Hashes | None = field(default=None, compare=False)
    """The hashes of the record keys that a row must have, each once; None: of any."""
    implied: Predicate = field(default=TRUE, compare=False)
    """What follows from it in our terms, for pruning: itself, where no part is Arrow's."""

    @classmethod
    def of(cls, where: Where, schema: pa.Schema) -> Self | None:
        """Understand a predicate; None if it is true of every row.

        Raises:
            PredicateError: it cannot be understood, or does not fit the schema.
        """
        predicate = parse_where(where, schema)
        if predicate == TRUE:
            return None
        names, foreign = _looked_at(predicate, schema)
        columns = tuple(name for name in schema.names if name in names)
        follows = implied(predicate, schema) if foreign else predicate
        return cls(predicate, schema, columns, implied=follows)

    def matches(self, rows: pa.RecordBatch) -> Flags:
        """Tell for each row whether the predicate is true of it."""
        looked_at = rows.select(list(self.columns))
        flags = holds(self.predicate, Sides({TARGET: looked_at}, rows.num_rows))
        answer: Flags = flags.to_numpy(zero_copy_only=False)
        return answer

    def groups(self, source: OpenFile) -> Sequence[int]:
        """Return the row groups of a file in which a row may match."""
        kinds = {
            name: kind for name in self.columns if is_plain(kind := self.schema.field(name).type)
        }
        count = source.group_count
        ranges = [
            (source.group_rows(group), source.group_ranges(group, tuple(kinds)))
            for group in range(count)
        ]
        bounds = group_bounds(ranges, kinds)
        chosen: list[int] = np.flatnonzero(may_match(self.implied, bounds, count)).tolist()
        return chosen


def _looked_at(predicate: Predicate, schema: pa.Schema) -> tuple[frozenset[str], bool]:
    """Name the columns to read, and tell whether a part is a pyarrow expression."""
    names: set[str] = set()
    foreign = False
    for leaf in leaves(predicate):
        if isinstance(leaf, Arrow):
            foreign = True
            names.update(named_in(leaf.expression, schema))
        else:
            names.update(columns_read(leaf) or ())
    return frozenset(names), foreign


def group_bounds(
    groups: Sequence[tuple[int, Mapping[str, Range]]], kinds: Mapping[str, pa.DataType]
) -> dict[str, Bounds]:
    """Return the bounds of columns in row groups, each given as (rows, range by column)."""
    rows = pa.array([count for count, _ in groups], pa.int64())
    bounds = {}
    for name, kind in kinds.items():
        ranges = [known.get(name, Range()) for _, known in groups]
        bounds[name] = Bounds(
            from_raws((part.lower for part in ranges), kind),
            from_raws((part.upper for part in ranges), kind),
            pa.array([part.null_count for part in ranges], pa.int64()),
            rows,
        )
    return bounds
