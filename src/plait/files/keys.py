"""Record keys as one column whose order is the order of the key columns.

A key of one whole-number column stays numbers; several columns of fixed width that fit into
eight bytes become one number; everything else becomes bytes whose order is that of the values
(big-endian with the sign bit turned, texts with an escaped end). So sorting, comparing and
merging need one code path, and no Python object a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import SchemaError

Numbers: TypeAlias = npt.NDArray[np.int64] | npt.NDArray[np.uint64]
Indices: TypeAlias = npt.NDArray[np.int64]
Keys: TypeAlias = Numbers | pa.Array
Key: TypeAlias = tuple[int, bytes]
"""One key, comparable with others of the same table: a number or bytes."""

_NUMBER_BYTES = 8
_END = b"\x00\x01"
_T = pa.types


def encode(rows: pa.Table | pa.RecordBatch, columns: Sequence[str]) -> Keys:
    """Return the keys of rows without nulls, in the rows' order."""
    arrays = [_whole(rows.column(name)) for name in columns]
    if len(arrays) == 1 and _is_number(arrays[0].type):
        return _number(arrays[0])
    if len(arrays) == 1 and _is_text(arrays[0].type):
        return arrays[0].cast(pa.binary())
    widths = [None if _is_text(a.type) else _fixed(a).shape[1] for a in arrays]
    fixed = [width for width in widths if width is not None]
    if len(fixed) == len(arrays):
        matrix = np.hstack([_fixed(a) for a in arrays])
        return _packed(matrix) if sum(fixed) <= _NUMBER_BYTES else _bytes(matrix)
    last = len(arrays) - 1
    pieces = [
        _text(a, ends=at < last) if _is_text(a.type) else _bytes(_fixed(a))
        for at, a in enumerate(arrays)
    ]
    return pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.binary()))


def sort_order(keys: Keys) -> Indices:
    """Return the stable order of keys that come in no order."""
    if isinstance(keys, np.ndarray):
        order = np.argsort(keys)
        ordered = keys[order]
        if bool((ordered[1:] == ordered[:-1]).any()):
            # The faster sort above is not stable, which shows only where keys are equal.
            order = np.argsort(keys, kind="stable")
        return order
    return _numpy(pc.sort_indices(keys))


def merge_order(keys: Keys) -> Indices:
    """Return the stable order of keys that consist of a few sorted stretches."""
    if isinstance(keys, np.ndarray):
        return np.argsort(keys, kind="stable")
    return _numpy(pc.sort_indices(keys))


def take(keys: Keys, order: Indices) -> Keys:
    """Return the keys at these positions."""
    return keys[order] if isinstance(keys, np.ndarray) else keys.take(pa.array(order))


def part(keys: Keys, start: int, stop: int) -> Keys:
    """Return a stretch of keys, without a copy."""
    return keys[start:stop] if isinstance(keys, np.ndarray) else keys.slice(start, stop - start)


def concat(parts: Sequence[Keys]) -> Keys:
    """Put keys one after another."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return pa.concat_arrays(parts)


def grouped(keys: Keys) -> tuple[Indices, npt.NDArray[np.bool_]]:
    """Return the ``merge_order`` of keys, and where in it the rows of another key begin."""
    order = merge_order(keys)
    return order, starts(take(keys, order))


def starts(keys: Keys) -> npt.NDArray[np.bool_]:
    """Tell for each of some sorted keys whether it differs from the one before."""
    first = np.ones(len(keys), dtype=np.bool_)
    if len(keys) < 2:  # noqa: PLR2004 - one key has none before it
        return first
    if isinstance(keys, np.ndarray):
        np.not_equal(keys[1:], keys[:-1], out=first[1:])
    else:
        rest = pc.not_equal(keys.slice(1), keys.slice(0, len(keys) - 1))
        first[1:] = rest.to_numpy(zero_copy_only=False)
    return first


def at(keys: Keys, position: int) -> Key:
    """Return one key; positions from the end are negative."""
    if isinstance(keys, np.ndarray):
        return int(keys[position]), b""
    return 0, keys[position].as_py()


def count_until(keys: Keys, bound: Key) -> int:
    """Count the keys up to and including a bound; they are sorted."""
    if isinstance(keys, np.ndarray):
        return int(np.searchsorted(keys, keys.dtype.type(bound[0]), side="right"))
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        if at(keys, middle) <= bound:
            low = middle + 1
        else:
            high = middle
    return low


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _is_number(kind: pa.DataType) -> bool:
    return bool(_T.is_integer(kind) or _T.is_date32(kind) or _T.is_timestamp(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(_T.is_string(kind) or _T.is_binary(kind))


def _number(array: pa.Array) -> npt.NDArray[np.int64]:
    if _T.is_date32(array.type):
        array = array.view(pa.int32())
    elif _T.is_timestamp(array.type):
        array = array.view(pa.int64())
    numbers: npt.NDArray[np.int64] = array.to_numpy(zero_copy_only=False).astype(
        np.int64, copy=False
    )
    return numbers


def _fixed(array: pa.Array) -> npt.NDArray[np.uint8]:
    """Return one row of bytes per value; their order is that of the values."""
    kind = array.type
    if _T.is_boolean(kind):
        flags: npt.NDArray[np.bool_] = array.to_numpy(zero_copy_only=False)
        return flags.astype(np.uint8).reshape(-1, 1)
    if _is_number(kind):
        width = kind.bit_width // 8
        signed = _number(array).astype(f"i{width}")
        return _big_endian(signed.view(f"u{width}") ^ np.asarray(1 << (8 * width - 1), f"u{width}"))
    if _T.is_decimal(kind):
        end = array.offset + len(array)
        body = np.frombuffer(array.buffers()[1], dtype="<u8", count=2 * end)
        body = body.reshape(-1, 2)[array.offset :]
        high = body[:, 1] ^ np.uint64(1 << 63)
        return np.hstack([_big_endian(high), _big_endian(body[:, 0])])
    message = f"a column of type {kind} cannot be in a record key"
    raise SchemaError(message, hint="use integers, texts, dates, times, decimals or booleans")


def _big_endian(values: npt.NDArray[np.unsignedinteger]) -> npt.NDArray[np.uint8]:
    swapped = np.ascontiguousarray(values.astype(values.dtype.newbyteorder(">")))
    return swapped.view(np.uint8).reshape(len(values), values.dtype.itemsize)


def _packed(matrix: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    padded = np.zeros((len(matrix), _NUMBER_BYTES), dtype=np.uint8)
    padded[:, _NUMBER_BYTES - matrix.shape[1] :] = matrix
    return padded.view(">u8").reshape(-1).astype(np.uint64)


def _bytes(matrix: npt.NDArray[np.uint8]) -> pa.Array:
    rows, width = matrix.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(width)
    body = np.ascontiguousarray(matrix)
    return pa.Array.from_buffers(
        pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(body)]
    )


def _text(array: pa.Array, *, ends: bool) -> pa.Array:
    """Return texts as bytes; one that does not come last is marked where it ends."""
    values = array.cast(pa.binary())
    if not ends:
        return values
    if pc.any(pc.match_substring(values, "\x00")).as_py():
        values = pc.replace_substring(values, pattern="\x00", replacement="\x00\xff")
    return pc.binary_join_element_wise(values, pa.scalar(_END), pa.scalar(b"", pa.binary()))


def _numpy(indices: pa.Array) -> Indices:
    order: Indices = indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return order
