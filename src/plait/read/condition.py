"""A predicate as slices are read with it: evaluated by Arrow, and looked into for pruning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.expr import Always, Predicate, Where, columns_of, parse_where, to_arrow
from plait.expr.tree import Opaque, leaves
from plait.files.opened import OpenFile
from plait.model.value import is_plain
from plait.read.prune import Flags, group_bounds, may_match


@dataclass(frozen=True)
class Condition:
    """Which rows are wanted."""

    predicate: Predicate
    schema: pa.Schema
    columns: tuple[str, ...]
    """What it looks at, in the schema's order."""
    expression: pc.Expression

    @classmethod
    def of(cls, where: Where, schema: pa.Schema) -> Self | None:
        """Understand a predicate; None if it is true of every row.

        Raises:
            PredicateError: it cannot be understood, or does not fit the schema.
        """
        predicate = parse_where(where, schema)
        if predicate == Always(value=True):
            return None
        names = _looked_at(predicate, schema)
        columns = tuple(name for name in schema.names if name in names)
        return cls(predicate, schema, columns, to_arrow(predicate))

    def matches(self, rows: pa.RecordBatch) -> Flags:
        """Tell for each row whether the predicate is true of it."""
        from pyarrow import acero  # noqa: PLC0415 - it brings pandas along, a second to import

        # A constant looks at no column, and a table without columns has no rows for Acero.
        chosen = rows.select(list(self.columns)) if self.columns else _unnamed(rows.num_rows)
        table = pa.Table.from_batches([chosen])
        steps = [
            acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
            acero.Declaration("project", acero.ProjectNodeOptions([self.expression], ["found"])),
        ]
        # Without threads: the rows stay in their order.
        found = acero.Declaration.from_sequence(steps).to_table(use_threads=False)
        flags = found.column(0).combine_chunks().fill_null(fill_value=False)
        answer: Flags = flags.to_numpy(zero_copy_only=False)
        return answer

    def groups(self, source: OpenFile) -> Sequence[int]:
        """Give the row groups of a file in which a row may match."""
        kinds = {
            name: kind for name in self.columns if is_plain(kind := self.schema.field(name).type)
        }
        count = source.group_count
        ranges = [
            (source.group_rows(group), source.group_ranges(group, tuple(kinds)))
            for group in range(count)
        ]
        bounds = group_bounds(ranges, kinds)
        found: list[int] = np.flatnonzero(may_match(self.predicate, bounds, count)).tolist()
        return found


def _unnamed(count: int) -> pa.RecordBatch:
    return pa.record_batch([pa.nulls(count)], names=[""])


def _looked_at(predicate: Predicate, schema: pa.Schema) -> frozenset[str]:
    """Name the columns to read; of an Arrow expression those that it cannot do without."""
    names: set[str] = set()
    for leaf in leaves(predicate):
        if isinstance(leaf, Opaque):
            names.update(_named_in(leaf.expression, schema))
        else:
            names.update(columns_of(leaf))
    return frozenset(names)


def _named_in(expression: pc.Expression, schema: pa.Schema) -> Sequence[str]:
    text = str(expression)
    fewer = pa.schema([field for field in schema if field.name in text])
    try:
        fewer.empty_table().filter(expression)
    except (pa.ArrowException, NotImplementedError):
        return list(schema.names)
    return list(fewer.names)
