"""A row as text, for errors."""

from __future__ import annotations

import pyarrow as pa

_COLUMNS = 12
_CHARS = 40


def sample_of(batch: pa.RecordBatch, at: int, name: str) -> dict[str, str]:
    """Return the row as text, shortened; the column that is wrong comes first."""
    names = batch.schema.names
    shown = [n for n in (name, *names) if n in names]
    kept = list(dict.fromkeys(shown))[:_COLUMNS]
    return {n: _short(batch.column(names.index(n))[at]) for n in kept}


def _short(value: pa.Scalar) -> str:
    text = str(value)
    return text if len(text) <= _CHARS else text[: _CHARS - 3] + "..."
