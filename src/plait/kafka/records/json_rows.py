"""Rows become JSON values, in the forms that the decoder of JSON values reads back."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import BadRecordError, SchemaMismatchError
from plait.model.schema import type_name

_T = pa.types


def require_plain(schema: pa.Schema) -> None:
    """Raise SchemaMismatchError for a column that cannot be written."""
    for field in schema:
        if _T.is_nested(field.type):
            message = f"column {field.name!r} is a {type_name(field.type)}, which is not written"
            hint = "a topic as a sink takes columns of plain types"
            found = type_name(field.type)
            raise SchemaMismatchError(message, hint=hint, column=field.name, found=found)


def json_objects(rows: pa.RecordBatch, columns: Sequence[str]) -> Iterator[bytes]:
    """Return an object for each row, with some of its columns in this order.

    Equal rows have equal bytes. Dates and timestamps are ISO 8601 texts, bytes are base64, and
    decimals are texts.

    Raises:
        BadRecordError: a number is NaN or infinite, which JSON cannot express.

    >>> import datetime as dt
    >>> rows = pa.record_batch({"id": [1], "day": [dt.date(2026, 1, 31)], "raw": [b"x"]})
    >>> list(json_objects(rows, ["day", "id"]))
    [b'{"day":"2026-01-31","id":1}']
    """
    values = (_plain(rows.column(name), name) for name in columns)
    for row in zip(*values, strict=True):
        members = dict(zip(columns, row, strict=True))
        yield json.dumps(members, separators=(",", ":"), ensure_ascii=False).encode()


def _plain(array: pa.Array, name: str) -> list[object]:
    kind = array.type
    if _T.is_floating(kind) and pc.all(pc.is_finite(array)).as_py() not in (True, None):
        message = f"column {name!r} has NaN or an infinity, which JSON cannot express"
        raise BadRecordError(message, column=name, sample={})
    if _T.is_binary(kind):
        return [None if v is None else base64.b64encode(v).decode() for v in array.to_pylist()]
    if _T.is_timestamp(kind):
        return [None if v is None else v.replace(" ", "T") for v in _texts(array)]
    if _T.is_date(kind) or _T.is_decimal(kind):
        return list(_texts(array))
    return list(array.to_pylist())


def _texts(array: pa.Array) -> list[str | None]:
    texts: list[str | None] = array.cast(pa.string()).to_pylist()
    return texts
