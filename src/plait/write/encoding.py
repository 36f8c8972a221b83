"""Which columns are worth a dictionary: those that repeat their values.

A dictionary of values that are all different costs the encoder more than half of its time, and
memory, before it is given up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_SAMPLE_ROWS: Final = 8192
_DISTINCT_MAX: Final = 0.5
_T = pa.types


def repeating_columns(rows: pa.Table) -> list[str]:
    """Give the Parquet paths of the leaf columns in which values repeat, judged by first rows.

    >>> repeating_columns(pa.table({"a": [1, 1, 1, 1], "b": [1, 2, 3, 4]}))
    ['a']
    """
    sample = rows.slice(0, _SAMPLE_ROWS)
    return [
        path
        for field, column in zip(rows.schema, sample.columns, strict=True)
        if _T.is_nested(field.type) or _repeats(column)
        for path in _leaf_paths(field.name, field.type)
    ]


def _repeats(column: pa.ChunkedArray) -> bool:
    return bool(pc.count_distinct(column).as_py() <= len(column) * _DISTINCT_MAX)


def _leaf_paths(path: str, kind: pa.DataType) -> Iterator[str]:
    if _T.is_struct(kind):
        for child in kind.fields:
            yield from _leaf_paths(f"{path}.{child.name}", child.type)
    elif _T.is_list(kind):
        yield from _leaf_paths(f"{path}.list.element", kind.value_type)
    elif _T.is_map(kind):
        yield from _leaf_paths(f"{path}.key_value.key", kind.key_type)
        yield from _leaf_paths(f"{path}.key_value.value", kind.item_type)
    else:
        yield path
