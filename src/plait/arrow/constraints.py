"""Rows compared with the checks of a table, before anything of them is written."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from plait.errors import BadRecordError, ConstraintError
from plait.expr import TRUE
from plait.expr.checks import violation
from plait.expr.prune import Flags
from plait.files.sample import first_failing, sample_of, shown
from plait.model.schema import Check, Schema
from plait.read.condition import Condition


@dataclass(frozen=True, slots=True)
class Constraint:
    """A check of a table, bound to its columns."""

    check: Check
    violation: Condition
    """Holds for the rows that break the check."""

    def broken_by(self, rows: pa.RecordBatch) -> Flags:
        """Tell which rows break the check.

        Raises:
            BadRecordError: it has no value for a row: a number overflows, or a divisor is zero.
        """
        try:
            return self.violation.matches(rows)
        except pa.ArrowInvalid as error:
            sample = self.sample(rows, first_failing(rows, self.violation.matches))
            raise not_computed(self.check, error, self.columns, sample) from error

    @property
    def columns(self) -> str:
        """The columns that it looks at, for errors."""
        return ",".join(self.violation.columns)

    def sample(self, rows: pa.RecordBatch, at: int) -> dict[str, str]:
        """Return a row as text; a column that it looks at comes first."""
        return sample_of(rows, at, next(iter(self.violation.columns), ""))


@dataclass(frozen=True, slots=True)
class Constraints:
    """The checks of a table."""

    every: tuple[Constraint, ...] = ()

    @classmethod
    def of(cls, schema: Schema) -> Self:
        """Take the checks of a schema.

        Raises:
            PredicateError: one is not understood: a newer Plait wrote it.
        """
        return cls(_bound(schema.checks, schema.arrow)) if schema.checks else cls()

    def require(self, rows: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> None:
        """Refuse rows that break a check.

        Args:
            rows: in the columns of the table.
            rest: further rows, which are only counted.

        Raises:
            ConstraintError: names the check, how many rows break it, and one of them.
            BadRecordError: a check has no value for a row.
        """
        for each in self.every:
            broken = each.broken_by(rows)
            if not broken.any():
                continue
            count = int(broken.sum()) + sum(int(each.broken_by(more).sum()) for more in rest)
            sample = each.sample(rows, int(np.argmax(broken)))
            raise constraint_error(each.check, count, each.columns, sample)


def constraint_error(
    check: Check, rows: int, column: str, sample: dict[str, str], *, there: bool = False
) -> ConstraintError:
    """Say which constraint rows break, how many, and one of them."""
    what = f"{rows} row{'s' if rows != 1 else ''}"
    where = " of the table" if there else ""
    breaks = "break" if rows != 1 else "breaks"
    message = (
        f"{what}{where} {breaks} the constraint {check.name!r} ({check.predicate[:200]}), "
        f"for example {shown(sample)}"
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


def not_computed(
    check: Check, error: Exception, column: str, sample: dict[str, str]
) -> BadRecordError:
    """Say that a check has no value for a row."""
    example = f"; the first is {shown(sample)}" if sample else ""
    message = (
        f"the constraint {check.name!r} ({check.predicate[:200]}) cannot be computed for a row: "
        f"{str(error)[:200]}{example}"
    )
    hint = "correct or drop such rows, or use CASE WHEN ... THEN ... END in the constraint"
    return BadRecordError(message, hint=hint, column=column, sample=sample)


@functools.lru_cache(maxsize=64)
def _bound(checks: tuple[Check, ...], schema: pa.Schema) -> tuple[Constraint, ...]:
    every = Condition(TRUE, schema, ())  # a check that no row holds, such as `false`
    found = ((check, Condition.of(violation(check, schema), schema)) for check in checks)
    return tuple(Constraint(check, condition or every) for check, condition in found)
