"""The range of the first key column of what came in: what tells row groups that can be skipped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from plait.files.stats import Range
from plait.model.value import Raw, to_raw


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Bounds of a column, both inclusive."""

    column: str
    lower: Raw
    upper: Raw

    @classmethod
    def of(cls, column: str, first: pa.Scalar, last: pa.Scalar) -> Self | None:
        """Take the bounds from scalars; None where there is nothing to compare."""
        lower, upper = to_raw(first), to_raw(last)
        return None if lower is None or upper is None else cls(column, lower, upper)

    def meets(self, ranges: Mapping[str, Range]) -> bool:
        """Tell whether rows with such ranges can have a key in this one."""
        known = ranges.get(self.column, Range())
        below = known.upper is not None and known.upper < self.lower  # type: ignore[operator]  # one column, one type
        above = known.lower is not None and known.lower > self.upper  # type: ignore[operator]  # as above
        return not (below or above)


def hull(ranges: Iterable[KeyRange | None]) -> KeyRange | None:
    """Give the smallest range that holds all of these; None if one is not known."""
    found: KeyRange | None = None
    for each in ranges:
        if each is None:
            return None
        if found is None:
            found = each
            continue
        lower = min(found.lower, each.lower)
        upper = max(found.upper, each.upper)
        found = KeyRange(each.column, lower, upper)
    return found
