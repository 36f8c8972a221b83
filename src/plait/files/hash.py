"""Hashes of record keys, as Spark SQL's ``xxhash64`` computes them, in numpy.

Source: ``XXH64`` and ``HashExpression`` of Spark's catalyst (seed 42, chained over the columns:
the hash of one column is the seed of the next; a null leaves it as it is). 32-bit integers and
64-bit integers hash differently, so the type that counts is the one of the table's schema.

A decision tells which keys it touched by such hashes: inline, or in a sidecar file, whose checksum
covers its name too (RFC 0036). So a sidecar that is whole, but was written for another decision, is
refused: a writer that took it for its own would miss a conflict.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from plait.errors import CorruptMetadataError, SchemaError
from plait.files.data_file import own_name
from plait.model.schema import type_name
from plait.storage.port import Store, check_path

Hashes: TypeAlias = npt.NDArray[np.uint64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Places: TypeAlias = npt.NDArray[np.int64]

SEED = 42
_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_BLOCK = 1 << 15  # rows at a time: temporaries stay in the processor's cache
_LONG_DIGITS_MAX = 18  # Spark keeps decimals up to this precision in a long
_MATRIX_LENGTH_MAX = 512  # longer values, and lengths that few rows have, go one by one
_MATRIX_ROWS_MIN = 24
_STRIPE = 32
_PAD = 8  # bytes that a word read may touch behind the last value
INLINE_KEYS_MAX: Final = 512
"""Up to so many keys stand in the decision itself: 4 KiB."""

_MAGIC = b"PLTK\x02\x00\x00\x00"
_HEAD = struct.Struct("<8sQQ")  # magic and format version, key count, XXH64 of name and hashes
_WIDTH = 8


def key_hashes(data: pa.Table | pa.RecordBatch, columns: Sequence[str]) -> Hashes:
    """Return ``xxhash64(columns...)`` of every row.

    The columns must have the table's types; floats and nested types are refused as keys.

    Raises:
        SchemaError: a column has a type that cannot be a record key.

    >>> key_hashes(pa.table({"id": pa.array([1, None])}), ["id"]).view("int64").tolist()
    [-7001672635703045582, 42]
    """
    out = np.full(data.num_rows, SEED, dtype=np.uint64)
    for name in columns:
        column = data.column(name)
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        start = 0
        for chunk in chunks:
            _hash_array(chunk, out[start : start + len(chunk)], name)
            start += len(chunk)
    return out


def sorted_once(numbers: Hashes) -> Hashes:
    """Return numbers in rising order, each once: many times as fast as ``np.unique`` is.

    >>> sorted_once(np.array([2, 1, 2], dtype=np.uint64)).tolist()
    [1, 2]
    """
    ordered = np.sort(numbers)
    first = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered if first.all() else ordered[first]


def in_both(one: Hashes, other: Hashes) -> Hashes:
    """Return what is in both of two arrays of rising numbers; cheap if one of them is short.

    >>> in_both(np.array([1, 3, 5], dtype=np.uint64), np.array([5, 7], dtype=np.uint64)).tolist()
    [5]
    """
    few, many = (one, other) if len(one) <= len(other) else (other, one)
    at = np.searchsorted(many, few)
    inside = at < len(many)
    inside[inside] = many[at[inside]] == few[inside]
    return few[inside]


def bucket_of(hashes: Hashes, count: int) -> npt.NDArray[np.int32]:
    """Return ``pmod(hash, count)``, the hash taken as signed.

    >>> bucket_of(np.array([2**64 - 1, 5], dtype=np.uint64), 3).tolist()
    [2, 2]
    """
    if count & (count - 1) == 0:  # a power of two: the low bits, whatever the sign
        return (hashes & np.uint64(count - 1)).astype(np.int32)
    return np.remainder(hashes.view(np.int64), np.int64(count)).astype(np.int32)


def require_key_type(kind: pa.DataType, column: str) -> None:
    """Refuse a column that cannot be part of a record key; raise SchemaError."""
    if not _hashable(kind):
        message = f"column {column!r} of type {type_name(kind)} cannot be a record key"
        hint = "use integers, strings, binary, dates, timestamps, booleans or decimals"
        raise SchemaError(message, hint=hint, column=column, found=str(kind))


def _hashable(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_boolean(kind)
        or t.is_signed_integer(kind)
        or t.is_date32(kind)
        or t.is_timestamp(kind)
        or t.is_decimal128(kind)
        or t.is_string(kind)
        or t.is_binary(kind)
    )


def _hash_array(array: pa.Array, out: Hashes, column: str) -> None:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    require_key_type(array.type, column)
    hash_into(array, out)


def hash_into(array: pa.Array, out: Hashes) -> None:
    """Mix values of a type that keys may have into hashes, which are their seeds."""
    if not len(array):
        return
    before = out.copy() if array.null_count else None
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        _hash_values(*_places(array), out)
    elif pa.types.is_decimal(kind):
        _hash_decimals(array, out)
    elif kind == pa.int64() or pa.types.is_timestamp(kind):
        _in_blocks(_hash_long, _fixed(array, "i8").view(np.uint64), out)
    elif pa.types.is_boolean(kind):
        _in_blocks(_hash_int, _fixed(array.cast(pa.uint8()), "u1"), out)
    else:
        _in_blocks(_hash_int, _fixed(array, f"i{kind.bit_width // 8}"), out)
    if before is not None:
        nulls = array.is_null().to_numpy(zero_copy_only=False)
        out[nulls] = before[nulls]


def _fixed(array: pa.Array, dtype: str) -> npt.NDArray[np.generic]:
    """View the values of a fixed-width array; what stands at nulls is arbitrary."""
    data = array.buffers()[1]
    return np.frombuffer(data, dtype=dtype, count=len(array) + array.offset)[array.offset :]


def _in_blocks(
    one: Callable[[npt.NDArray[np.generic], Hashes], None],
    values: npt.NDArray[np.generic],
    out: Hashes,
) -> None:
    for start in range(0, len(values), _BLOCK):
        one(values[start : start + _BLOCK], out[start : start + _BLOCK])


def _rotate(h: Hashes, bits: int) -> Hashes:
    high = h >> np.uint64(64 - bits)
    h <<= np.uint64(bits)
    h |= high
    return h


def mix(h: Hashes) -> None:
    """Mix the bits of each hash, in place."""
    h ^= h >> np.uint64(33)
    h *= _P2
    h ^= h >> np.uint64(29)
    h *= _P3
    h ^= h >> np.uint64(32)


def _add_word(h: Hashes, words: Hashes) -> None:
    """Mix one 64-bit word into each hash; ``words`` is used up."""
    words *= _P2
    _rotate(words, 31)
    words *= _P1
    h ^= words
    _rotate(h, 27)
    h *= _P1
    h += _P4


def _add_half(h: Hashes, halves: Hashes) -> None:
    """Mix one 32-bit word into each hash; ``halves`` is used up."""
    halves *= _P1
    h ^= halves
    _rotate(h, 23)
    h *= _P2
    h += _P3


def _hash_long(values: npt.NDArray[np.generic], out: Hashes) -> None:
    out += _P5 + np.uint64(8)
    _add_word(out, values.astype(np.uint64))
    mix(out)


def _hash_int(values: npt.NDArray[np.generic], out: Hashes) -> None:
    out += _P5 + np.uint64(4)
    _add_half(out, values.astype(np.int32).view(np.uint32).astype(np.uint64))
    mix(out)


def _hash_decimals(array: pa.Array, out: Hashes) -> None:
    data = array.buffers()[1]
    words = np.frombuffer(data, dtype="<i8", count=2 * (len(array) + array.offset))
    words = words[2 * array.offset :].reshape(-1, 2)
    low, high = words[:, 0], words[:, 1]
    if array.type.precision <= _LONG_DIGITS_MAX:
        _in_blocks(_hash_long, low.view(np.uint64), out)
        return
    # The bytes of Java's BigInteger.toByteArray: big-endian, two's complement, no byte too many.
    big = np.ascontiguousarray(words[:, ::-1]).astype(">i8").view(np.uint8)
    sign = (high >> 63).astype(np.int64)
    significant = big.reshape(-1, 16) != sign.astype(np.uint8)[:, None]
    first = np.where(significant.any(axis=1), significant.argmax(axis=1), 15)
    lead = big.reshape(-1, 16)[np.arange(len(first)), first]
    first -= ((lead >> 7) != (sign & 1)) & (first > 0)
    flat = np.concatenate([big.reshape(-1), np.zeros(_PAD, dtype=np.uint8)])
    starts = np.arange(len(first), dtype=np.int64) * 16 + first
    _hash_values(flat, starts, 16 - first.astype(np.int64), out)


def _places(array: pa.Array) -> tuple[Bytes, Places, Places]:
    """Return the bytes of a string or binary array, and where each value starts and how long it is.

    The bytes have ``_PAD`` readable ones behind the last value.
    """
    _, offset_buffer, data = array.buffers()
    raw = np.frombuffer(offset_buffer, dtype=np.int32, count=len(array) + array.offset + 1)
    offsets = raw[array.offset :].astype(np.int64)
    base, end = int(offsets[0]), int(offsets[-1])
    flat = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, np.uint8)
    if len(flat) < end + _PAD:
        flat = np.concatenate([flat[base:end], np.zeros(_PAD, dtype=np.uint8)])
        offsets -= base
    return flat, offsets[:-1], offsets[1:] - offsets[:-1]


def _hash_values(flat: Bytes, starts: Places, lengths: Places, out: Hashes) -> None:
    """Mix variable-length values in, those of equal length together."""
    if len(lengths) and (lengths == lengths[0]).all():
        groups = [np.arange(len(lengths))]
    else:
        order = np.argsort(lengths.astype(np.int32), kind="stable")
        cuts = np.flatnonzero(np.diff(lengths[order])) + 1
        groups = np.split(order, cuts)
    for group in groups:
        length = int(lengths[group[0]])
        if length > _MATRIX_LENGTH_MAX or len(group) < _MATRIX_ROWS_MIN:
            _hash_singly(flat, (starts, length), group, out)
            continue
        for at in range(0, len(group), _BLOCK):
            rows = group[at : at + _BLOCK]
            hashes = out[rows]
            _hash_equal(flat, starts[rows], length, hashes)
            out[rows] = hashes


def _hash_singly(
    flat: Bytes, places: tuple[Places, int], rows: npt.NDArray[np.intp], out: Hashes
) -> None:
    starts, length = places
    for row in rows.tolist():
        value = flat[starts[row] : starts[row] + length].tobytes()
        out[row] = xxhash.xxh64_intdigest(value, seed=int(out[row]))


def _hash_equal(flat: Bytes, starts: Places, length: int, h: Hashes) -> None:
    """Run XXH64 over values of one length, all rows in step; ``h`` holds the seeds."""
    # Words at any byte: a view that moves by one byte an element, so that gathering is one take.
    words = np.ndarray((len(flat) - 7,), dtype="<u8", buffer=flat, strides=(1,))
    halves = np.ndarray((len(flat) - 3,), dtype="<u4", buffer=flat, strides=(1,))
    at = 0
    if length >= _STRIPE:
        at = length - length % _STRIPE
        _hash_stripes(words, starts, at, h)
    else:
        h += _P5
    h += np.uint64(length)
    for place in range(at, length - 7, 8):
        _add_word(h, words[starts + place])
    at += (length - at) // 8 * 8
    if length - at >= 4:  # noqa: PLR2004 - half a word
        _add_half(h, halves[starts + at].astype(np.uint64))
        at += 4
    for place in range(at, length):
        h ^= flat[starts + place].astype(np.uint64) * _P5
        _rotate(h, 11)
        h *= _P1
    mix(h)


def _hash_stripes(words: Hashes, starts: Places, end: int, h: Hashes) -> None:
    seeds = h.copy()
    lanes = [seeds + _P1 + _P2, seeds + _P2, seeds.copy(), seeds - _P1]
    for place in range(0, end, _STRIPE):
        for index, lane in enumerate(lanes):
            np.add(lane, words[starts + (place + 8 * index)] * _P2, out=lane)
            np.multiply(_rotate(lane, 31), _P1, out=lane)
    h[:] = 0
    for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True):
        h += _rotate(lane.copy(), bits)
    for lane in lanes:
        h ^= _rotate(lane * _P2, 31) * _P1
        h *= _P1
        h += _P4


def encode_hashes(hashes: Hashes) -> bytes:
    """Sort hashes, drop repetitions, and write them as little-endian uint64.

    >>> encode_hashes(np.array([2, 1, 2], dtype=np.uint64)).hex()
    '01000000000000000200000000000000'
    """
    return sorted_once(hashes).astype("<u8", copy=False).tobytes()


def decode_hashes(body: bytes, *, path: str = "a decision") -> Hashes:
    """Read what ``encode_hashes`` wrote, without a copy.

    Raises:
        CorruptMetadataError: the hashes are cut off, out of order or repeated.
    """
    if len(body) % _WIDTH:
        raise _corrupt(path, f"a multiple of {_WIDTH} bytes", str(len(body)))
    hashes = np.frombuffer(body, dtype="<u8")
    if len(hashes) > 1 and not bool((hashes[1:] > hashes[:-1]).all()):
        raise _corrupt(path, "rising key hashes", "hashes out of order")
    return hashes


def write_sidecar(store: Store, path: str, hashes: Hashes) -> int:
    """Write a sidecar under a name of its own and return the number of keys in it.

    It is a data file: not durable before ``store.persist``.
    """
    body = encode_hashes(hashes)
    count = len(body) // _WIDTH
    with store.filesystem().open_output_stream(check_path(path)) as sink:
        sink.write(_HEAD.pack(_MAGIC, count, _digest(path, body)))
        sink.write(body)
    return count


def load_sidecar(store: Store, path: str, *, count: int) -> Hashes:
    """Read a sidecar that a decision names.

    Args:
        store: the table's.
        path: from the decision.
        count: the number of keys that the decision declares; no more is read.

    Raises:
        CorruptMetadataError: it is gone, damaged, or not of that size.
    """
    size = _HEAD.size + count * _WIDTH
    data = store.find(check_path(path), size_max=size)
    if data is None:
        raise _corrupt(path, f"{count} key hashes", "no file")
    if len(data) != size or count < 0:
        raise _corrupt(path, f"{size} bytes", f"{len(data)} bytes")
    magic, stored_count, digest = _HEAD.unpack_from(data)
    body = memoryview(data)[_HEAD.size :]
    if magic != _MAGIC or stored_count != count:
        raise _corrupt(path, f"the head of {count} key hashes", data[: _HEAD.size].hex())
    if _digest(path, body) != digest:
        raise _corrupt(path, f"checksum {digest:016x}", "another one")
    return decode_hashes(bytes(body), path=path)


def _digest(path: str, body: bytes | memoryview) -> int:
    digest = xxhash.xxh64(own_name(path).encode())
    digest.update(body)
    return digest.intdigest()


def _corrupt(path: str, expected: str, found: str) -> CorruptMetadataError:
    message = f"the key hashes of {path} are damaged: expected {expected}, found {found}"
    hint = "run tablectl verify"
    return CorruptMetadataError(message, hint=hint, path=path, expected=expected, found=found)
