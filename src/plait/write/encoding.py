"""Which columns are worth a dictionary: those that repeat their values.

A dictionary of values that are all different costs the encoder more than half of its time, and
memory, before it is given up.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from plait.files.stats import leaf_paths

_SAMPLE_ROWS_MIN: Final = 1024
_SAMPLE_ROWS: Final = 8192
_SAMPLE_SHARE: Final = 3
"""One row in so many is looked at: in a small file a dictionary matters less than the look."""
_DISTINCT_MAX: Final = 0.5
_T = pa.types


def repeating_columns(rows: pa.Table) -> list[str]:
    """Give the Parquet paths of the leaf columns in which values repeat, judged by first rows.

    >>> repeating_columns(pa.table({"a": [1, 1, 1, 1], "b": [1, 2, 3, 4]}))
    ['a']
    """
    most = max(_SAMPLE_ROWS_MIN, rows.num_rows // _SAMPLE_SHARE)
    sample = rows.slice(0, min(most, _SAMPLE_ROWS))
    return [
        path
        for field, column in zip(rows.schema, sample.columns, strict=True)
        if _T.is_nested(field.type) or _repeats(column)
        for path, _ in leaf_paths(field.name, field.type)
    ]


def _repeats(column: pa.ChunkedArray) -> bool:
    return bool(pc.count_distinct(column).as_py() <= len(column) * _DISTINCT_MAX)
