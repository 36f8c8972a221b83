"""What stands in the place of a rule that is left out, made of the real function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from plait.definition.policy import Verdict
from plait.model.instant import Operation
from plait.txn.matrix import Cell, Meets

Make: TypeAlias = Callable[[Any], Any]


def instead(value: object) -> Make:
    """Return the same, whatever is asked."""
    return lambda _: lambda *_args, **_how: value


def overlooks(*operations: Operation) -> Make:
    """Take every decision of some operations for harmless."""
    harmless = Cell(Meets.NEVER, Verdict.COMPATIBLE, Verdict.COMPATIBLE)

    def make(real: Any) -> Any:
        def cell(self: Any, theirs: Any) -> Any:
            return harmless if theirs.operation in operations else real(self, theirs)

        return cell

    return make
