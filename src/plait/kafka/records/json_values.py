"""JSON values become rows, without a Python object a record."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from plait.errors import OptionError
from plait.kafka.records.decode import Decoded, Undecodable, isolated
from plait.kafka.records.json_maps import KEY, VALUE, shape_of, with_entries
from plait.model.schema import type_name

_T = pa.types
_SPACE: Final = b" \t\r\n"
_BODY_MAX: Final = 64 << 20
"""Maximum number of bytes that are parsed at once."""
_PIECE_MIN: Final = 1_000
"""Fewer values are not worth a thread."""
_THREADS_MAX: Final = 4


class JsonDecoder:
    """Decodes JSON objects by Arrow's reader, many at once and in several threads.

    Names are those of the columns; a column that an object does not have is null, and a member
    that is no column is left out. Dates and timestamps are ISO 8601 texts, bytes are base64,
    decimals are texts or numbers, maps are objects.

    >>> decoder = JsonDecoder(pa.schema([("a", pa.int64()), ("day", pa.date32())]))
    >>> found = decoder.decode([b'{"a": 1}', b"?", b'{"day": "2026-01-31", "b": 2}'])
    >>> found.rows["a"].to_pylist(), [each.at for each in found.bad]
    ([1, None], [1])
    """

    def __init__(self, schema: pa.Schema) -> None:
        """Decode into the columns of a schema, null where an object has no value.

        Raises:
            OptionError: a column has a type that Arrow does not read from JSON.
        """
        loose = [each.with_nullable(nullable=True).remove_metadata() for each in schema]
        self._schema = pa.schema(loose)
        staged = pa.schema([(each.name, _staged(each.type, each.name)) for each in schema])
        self._maps = shape_of(pa.struct(list(schema)))
        self._options = pj.ParseOptions(explicit_schema=staged, unexpected_field_behavior="ignore")
        self._cores = min(pa.cpu_count(), _THREADS_MAX)
        self._threads = ThreadPoolExecutor(self._cores)  # starts none before the first piece

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """Return a row for each value that is an object with fitting members."""
        if not values:
            return Decoded(self._schema.empty_table())
        places = self._pieces(values)
        pieces = [values[start:end] for start, end in itertools.pairwise(places)]
        alone = len(pieces) == 1
        parts = [self._piece(values)] if alone else list(self._threads.map(self._piece, pieces))
        bad = [
            Undecodable(start + each.at, each.reason)
            for start, part in zip(places, parts, strict=False)
            for each in part.bad
        ]
        return Decoded(pa.concat_tables([part.rows for part in parts]), tuple(bad))

    def _piece(self, values: Sequence[bytes]) -> Decoded:
        return isolated(values, self._all)

    def _pieces(self, values: Sequence[bytes]) -> list[int]:
        """Return where to divide values: for each core a piece, if they are many or large."""
        count = max(1, min(self._cores, len(values) // _PIECE_MIN))
        count = min(len(values), max(count, -(-sum(map(len, values)) // _BODY_MAX)))
        return [len(values) * number // count for number in range(count + 1)]

    def _all(self, values: Sequence[bytes]) -> pa.Table:
        """Decode values that are all good; raise ValueError if one is not.

        Each must begin and end as an object does. Then no object can go from one value into the
        next, so as many rows as values means that each value is one row.
        """
        if not values:
            return self._schema.empty_table()
        if self._maps is not None:
            values = [with_entries(value, self._maps) for value in values]
        body = _joined(values)
        # One block, since a line break inside a value would end one.
        read = pj.ReadOptions(block_size=len(body) + 1, use_threads=False)
        rows = pj.read_json(pa.BufferReader(body), read_options=read, parse_options=self._options)
        if rows.num_rows != len(values):
            raise ValueError("the value holds several JSON objects")
        columns = [_finished(rows[each.name].combine_chunks(), each.type) for each in self._schema]
        return pa.Table.from_arrays(columns, schema=self._schema)


def _joined(values: Sequence[bytes]) -> bytes:
    """Return values as lines; raise ValueError if one does not begin and end as an object."""
    body = b"\n".join(values)
    if b"\0" in body:  # a reader may take it for the end of the text
        raise ValueError("the value has a byte 0")
    _require_utf8(body)
    if _framed(values, body):
        return body
    values = [value.strip(_SPACE) for value in values]
    body = b"\n".join(values)
    if not _framed(values, body):
        raise ValueError("the value is not a JSON object")
    return body


def _require_utf8(body: bytes) -> None:
    """Raise ValueError if texts are not in UTF-8: Arrow's reader takes any bytes for a text."""
    if body.isascii():
        return
    bounds = pa.py_buffer(np.array([0, len(body)], np.int64))
    text = pa.Array.from_buffers(pa.large_string(), 1, [None, bounds, pa.py_buffer(body)])
    try:
        text.validate(full=True)
    except ValueError as error:
        raise ValueError("the value is not UTF-8 text") from error


def _framed(values: Sequence[bytes], body: bytes) -> bool:
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    if lengths.min() < len(b"{}"):
        return False
    ends = np.cumsum(lengths + 1) - 1
    text = np.frombuffer(body, np.uint8)
    begin, end = b"{}"
    return bool((text[ends - lengths] == begin).all() and (text[ends - 1] == end).all())


def _staged(kind: pa.DataType, column: str) -> pa.DataType:
    """Return the type as which Arrow's reader is to take a column.

    Some types it would read from other values than ISO 8601 and base64, or with a silent change.
    A map is read from an array of entries.
    """
    if _T.is_struct(kind):
        return pa.struct([(each.name, _staged(each.type, column)) for each in kind.fields])
    if _T.is_list(kind):
        return pa.list_(_staged(kind.value_type, column))
    if _T.is_map(kind):
        if not _T.is_string(kind.key_type):
            message = f"column {column!r} is a {type_name(kind)}, which JSON values cannot fill"
            hint = "the keys of a map must be of type string"
            raise OptionError(message, hint=hint, key="format", value="json")
        value = _staged(kind.item_type, column)
        return pa.list_(pa.struct([(KEY, pa.string()), (VALUE, value)]))
    if _T.is_date(kind) or _T.is_binary(kind) or (_T.is_timestamp(kind) and kind.tz is None):
        return pa.string()
    return pa.float64() if _T.is_float32(kind) else kind


def _finished(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Bring what was read to the type of its column; raise ValueError where a value is none."""
    if _T.is_decimal(kind):
        array.validate(full=True)  # the reader takes more digits than the column has
    if not _T.is_nested(kind) and array.type == kind:
        return array
    if _T.is_struct(kind):
        children = [_finished(array.field(at), each.type) for at, each in enumerate(kind.fields)]
        return pa.StructArray.from_arrays(children, fields=list(kind.fields), mask=array.is_null())
    if _T.is_list(kind):
        values = _finished(array.values, kind.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=array.is_null())
    if _T.is_map(kind):
        keys, values = array.values.field(KEY), array.values.field(VALUE)
        values = _finished(values, kind.item_type)
        return pa.MapArray.from_arrays(array.offsets, keys, values, type=kind, mask=array.is_null())
    if _T.is_binary(kind):
        return pa.array(map(_bytes, array.to_pylist()), kind)
    cast = array.cast(kind)
    if _T.is_floating(kind) and pc.any(pc.xor(pc.is_inf(cast), pc.is_inf(array))).as_py():
        raise ValueError("a number is too large for its column")
    return cast


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text.encode("ascii"), validate=True)
