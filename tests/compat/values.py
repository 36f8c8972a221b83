"""Values for the second reader: canonical texts, key hashes and buckets, from format.md alone."""

from __future__ import annotations

import base64
import datetime as dt
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import xxhash

PLAIN = {
    "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(),
    "bigint": pa.int64(), "float": pa.float32(), "double": pa.float64(), "string": pa.string(),
    "binary": pa.binary(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
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


WORD = 2**64 - 1
SHORT = ("bucket", "order", "schema_id")
"""Columns of four bytes; other numbers have eight."""
OF_FILE = ("path", "partition", "bucket", "kind", "rows", "bytes", "order", "schema_id", "footer")
OF_MASK = ("inline", "dv_path", "dv_offset", "dv_bytes")


def live_sums(files: list[tuple[dict[str, Any], dict[str, Any] | None]]) -> list[object]:
    """Return `live`: the sums over files, each with its deletion vector."""
    hidden = [mask["rows"] if mask else 0 for _, mask in files]
    rows = sum(file["rows"] for file, _ in files) - sum(hidden)
    hashes = (file_hash(file, mask or {}) for file, mask in files)
    return [len(files), rows, f"{sum(hashes) & WORD:016x}"]


def file_hash(file: dict[str, Any], mask: dict[str, Any]) -> int:
    """Return the hash of a live file."""
    told = {name: file[name] for name in (*OF_FILE, "version")}
    told |= {"masked": mask.get("rows") or None, **{name: mask.get(name) for name in OF_MASK}}
    total = 0
    for name, value in told.items():
        if value is not None:
            body = value.encode() if isinstance(value, str) else value
            if isinstance(value, int):
                body = (value & WORD).to_bytes(8, "little")[: 4 if name in SHORT else 8]
            seed = xxhash.xxh64_intdigest(name.encode())
            total += xxhash.xxh64_intdigest(body, seed=seed)
    return mixed(total & WORD)


def mixed(x: int) -> int:
    """Return the final step of XXH64."""
    x ^= x >> 33
    x = x * 0xC2B2AE3D27D4EB4F & WORD
    x ^= x >> 29
    x = x * 0x165667B19E3779F9 & WORD
    return x ^ x >> 32


def bucket_of(number: int, count: int) -> int:
    """Return the bucket of a key hash, which is read with a sign."""
    return (number - 2**64 if number >> 63 else number) % count


def key_index(body: bytes, directory: bytes | None, rows: int) -> dict[int, set[int]]:
    """Return the positions of rows by the upper halves of their key hashes, from a key index."""
    if directory is None:
        return {}
    offset, *pairs = (n for (n,) in struct.iter_unpack("<Q", base64.b64decode(directory)))
    found: dict[int, set[int]] = {}
    last = -1
    for number, (first, digest) in enumerate(zip(pairs[::2], pairs[1::2], strict=True)):
        start = offset + number * 8 * 4_096
        block = body[start : min(start + 8 * 4_096, offset + 8 * rows)]
        entries = [n for (n,) in struct.iter_unpack("<Q", block)]
        if xxhash.xxh64_intdigest(block) != digest or entries[0] != first:
            message = f"block {number} of the key index is damaged"
            raise ValueError(message)
        for entry in entries:
            if entry <= last:
                message = f"block {number} of the key index is out of order"
                raise ValueError(message)
            found.setdefault(entry >> 32, set()).add(entry & 0xFFFFFFFF)
            last = entry
    return found


def arrow_field(field: dict[str, Any]) -> pa.Field:
    """Return a field of a schema as an Arrow field."""
    meta = {"PARQUET:field_id": str(field["id"])}
    return pa.field(field["name"], arrow_type(field["type"]), field["nullable"], meta)


def arrow_type(kind: Any) -> pa.DataType:
    """Return a type as an Arrow type."""
    if isinstance(kind, str):
        match = re.fullmatch(r"decimal\((\d+),(\d+)\)", kind)
        return pa.decimal128(int(match[1]), int(match[2])) if match else PLAIN[kind]
    if "struct" in kind:
        return pa.struct([arrow_field(child) for child in kind["struct"]])
    if "list" in kind:
        return pa.list_(arrow_field(kind["list"]))
    return pa.map_(*(arrow_field(child) for child in kind["map"]))


def field_id(field: pa.Field) -> int | None:
    """Return the id of a field in a Parquet file."""
    text = (field.metadata or {}).get(b"PARQUET:field_id")
    return None if text is None else int(text)


def fitting(found: pa.Field, wanted: pa.Field) -> Callable[[Any], Any]:
    """Return what turns a value of a field in a file into one of the schema."""
    old, new = found.type, wanted.type
    if pa.types.is_struct(new):
        there = {field_id(child): child for child in old.fields}
        pairs = [(there[field_id(c)], c) for c in new.fields if field_id(c) in there]
        fits = [(before.name, after.name, fitting(before, after)) for before, after in pairs]
        return lambda value: value and {name: fit(value[before]) for before, name, fit in fits}
    if pa.types.is_map(new):
        key, item = fitting(old.key_field, new.key_field), fitting(old.item_field, new.item_field)
        return lambda value: value and [(key(k), item(v)) for k, v in value]
    if pa.types.is_list(new):
        each = fitting(old.value_field, new.value_field)
        return lambda value: value and [each(item) for item in value]
    return lambda value: value


def field_value(field: str, row: dict[str, Any], table: pa.Table) -> object:
    """Return the value of a partition field for a row."""
    call = re.fullmatch(r"([A-Za-z_]\w*)\((?:(\d+), )?(\w+)\)", field)
    if call is None:
        return row[field]
    transform, size, name = call.groups()
    value = row[name]
    if value is None:
        return None
    if transform == "bucket":
        column = pa.table({name: pa.array([value], table.schema.field(name).type)})
        (each,) = key_hashes(column, [name])
        return bucket_of(each, int(size))
    if transform == "truncate":
        return value - value % int(size) if isinstance(value, int) else value[: int(size)]
    if transform == "hour":
        return value.replace(minute=0, second=0, microsecond=0)
    day = value.date() if isinstance(value, dt.datetime) else value
    months = {"year": 1, "month": day.month, "day": day.month}
    return dt.date(day.year, months[transform], day.day if transform == "day" else 1)
