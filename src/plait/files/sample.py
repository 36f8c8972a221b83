"""The row that is wrong, found and shown as text, for errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from plait.model.value import shown_value

_Rows = TypeVar("_Rows", pa.Array, pa.RecordBatch)

_COLUMNS = 12
_CHARS = 40


def first_bad(rows: _Rows, bad: Callable[[_Rows], bool]) -> int:
    """Find the first bad row, of which there is one, by halving."""
    low, high = 0, len(rows)
    while high - low > 1:
        middle = (low + high) // 2
        if bad(rows.slice(low, middle - low)):
            high = middle
        else:
            low = middle
    return low


def first_failing(
    rows: _Rows, compute: Callable[[_Rows], object], error: type[Exception] = pa.ArrowInvalid
) -> int:
    """Find the first row, of which there is one, for which something cannot be computed."""

    def fails(part: _Rows) -> bool:
        try:
            compute(part)
        except error:
            return True
        return False

    return first_bad(rows, fails)


def sample_of(batch: pa.RecordBatch, at: int, name: str) -> dict[str, str]:
    """Return the row as text, shortened; the column that is wrong comes first."""
    names = batch.schema.names
    shown = [n for n in (name, *names) if n in names]
    kept = list(dict.fromkeys(shown))[:_COLUMNS]
    return {n: _short(batch.column(names.index(n))[at]) for n in kept}


def shown(sample: dict[str, str]) -> str:
    """Return such a row as it stands in a message."""
    return ", ".join(f"{name}={value}" for name, value in sample.items())


def _short(value: pa.Scalar) -> str:
    text = shown_value(value)
    return text if len(text) <= _CHARS else text[: _CHARS - 3] + "..."
