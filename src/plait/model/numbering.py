"""Ids of fields: given once, kept in the metadata of each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

FIELD_ID: Final = b"PARQUET:field_id"


def numbered(field: pa.Field, last_id: int) -> tuple[pa.Field, int]:
    """Return a field with new ids, its parts too, and the last of them."""
    ids = itertools.count(last_id + 1)
    made = numbered_by(ids, field)
    return made, next(ids) - 1


def numbered_by(ids: Iterator[int], field: pa.Field) -> pa.Field:
    """Return a field with the next ids, its parts too."""
    number = next(ids)
    return _with(field, _number_type(field.type, ids), number)


def _number_type(kind: pa.DataType, ids: Iterator[int]) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([numbered_by(ids, child) for child in kind.fields])
    if pa.types.is_list(kind):
        return pa.list_(numbered_by(ids, kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(numbered_by(ids, kind.key_field), numbered_by(ids, kind.item_field))
    return kind


def _with(field: pa.Field, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(field.name, kind, field.nullable, {FIELD_ID: str(number).encode()})
