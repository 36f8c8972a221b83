"""Rows compared with the checks of a table, before anything of them is written."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from plait.arrow.sample import sample_of
from plait.errors import ConstraintError
from plait.expr import TRUE
from plait.expr.checks import violation
from plait.model.schema import Check, Schema
from plait.read.condition import Condition


@dataclass(frozen=True, slots=True)
class Constraints:
    """The checks of a table, each with the condition of the rows that break it."""

    broken_by: tuple[tuple[Check, Condition], ...] = ()

    @classmethod
    def of(cls, schema: Schema) -> Self:
        """Take the checks of a schema.

        Raises:
            PredicateError: one is not understood: a newer Plait wrote it.
        """
        return cls(_conditions(schema.checks, schema.arrow)) if schema.checks else cls()

    def require(self, rows: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> None:
        """Refuse rows that break a check.

        Args:
            rows: in the columns of the table.
            rest: further rows, which are only counted.

        Raises:
            ConstraintError: names the check, how many rows break it, and one of them.
        """
        for check, condition in self.broken_by:
            broken = condition.matches(rows)
            if not broken.any():
                continue
            count = int(broken.sum()) + sum(int(condition.matches(more).sum()) for more in rest)
            columns = condition.columns
            sample = sample_of(rows, int(np.argmax(broken)), columns[0] if columns else "")
            raise constraint_error(check, count, ",".join(columns), sample)


def constraint_error(
    check: Check, rows: int, column: str, sample: dict[str, str], *, there: bool = False
) -> ConstraintError:
    """Say which constraint rows break, how many, and one of them."""
    what = f"{rows} row{'s' if rows != 1 else ''}"
    where = " of the table" if there else ""
    breaks = "break" if rows != 1 else "breaks"
    shown = ", ".join(f"{name}={value}" for name, value in sample.items())
    message = (
        f"{what}{where} {breaks} the constraint {check.name!r} ({check.predicate[:200]}), "
        f"for example {shown}"
    )
    hint = "correct or drop such rows before you write them"
    if there:
        hint = "correct such rows first, with update or delete"
    return ConstraintError(
        message,
        hint=hint,
        constraint=check.name,
        predicate=check.predicate,
        rows=rows,
        column=column,
        sample=sample,
    )


@functools.lru_cache(maxsize=64)
def _conditions(
    checks: tuple[Check, ...], schema: pa.Schema
) -> tuple[tuple[Check, Condition], ...]:
    every = Condition(TRUE, schema, ())  # a check that no row holds, such as `false`
    found = ((check, Condition.of(violation(check, schema), schema)) for check in checks)
    return tuple((check, condition or every) for check, condition in found)
