"""Values for the second reader: canonical texts, key hashes and buckets, from format.md alone."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import xxhash

EPOCH = dt.datetime.fromisoformat("1970-01-01")


def text_of(value: object) -> str | None:
    """Return the canonical text of a value that a partition may have; None for a null."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case bytes():
            return value.hex()
        case Decimal():
            return f"{value or abs(value):f}"
        case dt.datetime():
            zone = "" if value.tzinfo is None else "Z"
            return value.replace(tzinfo=None).isoformat(timespec="microseconds") + zone
        case dt.date():
            return value.isoformat()
    return str(value)


def key_hashes(table: pa.Table, key: list[str]) -> list[int]:
    """Return the key hash of every row, without a sign."""
    hashes = [42] * table.num_rows
    for name in key:
        for row, value in enumerate(table[name].to_pylist()):
            if value is not None:
                body = hashed(value, table[name].type)
                hashes[row] = xxhash.xxh64_intdigest(body, seed=hashes[row])
    return hashes


def hashed(value: Any, kind: pa.DataType) -> bytes:
    """Return the bytes of a value that are hashed."""
    if isinstance(value, (str, bytes)):
        return value.encode() if isinstance(value, str) else value
    if isinstance(value, Decimal):
        sign, digits, _ = value.as_tuple()
        value = (-1 if sign else 1) * int("".join(map(str, digits)))
        if kind.precision > 18:
            size = (value if value >= 0 else ~value).bit_length() // 8 + 1
            return value.to_bytes(size, "big", signed=True)
    elif isinstance(value, dt.datetime):
        value = (value.replace(tzinfo=None) - EPOCH) // dt.timedelta(microseconds=1)
    elif isinstance(value, dt.date):
        value = value.toordinal() - EPOCH.toordinal()
    wide = pa.types.is_int64(kind) or pa.types.is_timestamp(kind) or pa.types.is_decimal(kind)
    return int(value).to_bytes(8 if wide else 4, "little", signed=True)


def bucket_of(number: int, count: int) -> int:
    """Return the bucket of a key hash, which is read with a sign."""
    return (number - 2**64 if number >> 63 else number) % count
