"""What a version of a table is in the language of Iceberg: schemas, manifests and files of deletes.

Facts come from the specification of Iceberg's table format, versions 2 and 3, and from that of
Puffin; what engines make of them was tried, and is told in RFC 0046.
"""

from __future__ import annotations

import importlib
import io
import json
import math
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact
from functools import cache
from types import ModuleType
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from plait.errors import MissingDependencyError
from plait.files.roaring import Positions
from plait.interop.delta_actions import told_bounds
from plait.model.schema import NO_NOTE, Schema, id_of, parts_of
from plait.model.texts import is_text
from plait.model.value import from_text

Json: TypeAlias = dict[str, object]

EXTRA: Final = "iceberg"
DATA, DELETES = 0, 1
"""The contents of a manifest."""
EXISTING, ADDED, DELETED = 0, 1, 2
"""The states of an entry of a manifest."""
POSITIONS, VECTORS = 2, 3
"""The format versions: with hidden rows as files of positions, or as deletion vectors."""
_PATH_ID, _POSITION_ID, _ROW_ID = 2_147_483_546, 2_147_483_545, 2_147_483_645
"""Field ids that the specification reserves: columns of deletes, and that of the row's number."""
_PLAIN: Final[Mapping[str, str]] = {
    "bool": "boolean",
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date32[day]": "date",
    "timestamp[us, tz=UTC]": "timestamptz",
    "timestamp[us]": "timestamp",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EXACT: Final = Context(prec=100, traps=[Inexact])
"""Python's own context rounds to 28 digits; decimals have up to 38."""
_PUFFIN: Final = b"PFA1"
_T = pa.types


def load_avro() -> ModuleType:
    """Import fastavro.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        return importlib.import_module("fastavro")
    except ImportError as error:
        message = "to publish a table as Iceberg needs fastavro"
        hint = f"pip install 'plait[{EXTRA}]'"
        raise MissingDependencyError(message, hint=hint, library="fastavro", extra=EXTRA) from error


# --- schema -------------------------------------------------------------------------------------


def schema_json(schema: Schema) -> Json:
    """Write a schema. A column has its default from format version 3 on."""
    fields = [_field(each, schema) for each in schema.arrow]
    return {"type": "struct", "schema-id": schema.id, "fields": fields}


def has_initials(schema: Schema) -> bool:
    """Tell whether rows of files that lack a column have a value in it."""
    return any(note.initial is not None for note in schema.notes.values())


def _field(field: pa.Field, schema: Schema) -> Json:
    note = schema.notes.get(id_of(field), NO_NOTE)
    said: Json = {
        "id": id_of(field),
        "name": field.name,
        "required": not field.nullable,
        "type": _type(field.type, schema),
    }
    if note.comment:
        said["doc"] = note.comment
    if note.initial is not None:
        value = _json_value(from_text(note.initial, field.type).as_py(), field.type)
        said |= {"initial-default": value, "write-default": value}
    return said


def _type(kind: pa.DataType, schema: Schema) -> object:
    if _T.is_struct(kind):
        return {"type": "struct", "fields": [_field(each, schema) for each in kind.fields]}
    if _T.is_list(kind):
        item = kind.value_field
        return {
            "type": "list",
            "element-id": id_of(item),
            "element": _type(item.type, schema),
            "element-required": not item.nullable,
        }
    if _T.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return {
            "type": "map",
            "key-id": id_of(key),
            "key": _type(key.type, schema),
            "value-id": id_of(item),
            "value": _type(item.type, schema),
            "value-required": not item.nullable,
        }
    if _T.is_decimal128(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    return _PLAIN[str(kind)]


def _json_value(value: object, kind: pa.DataType) -> object:
    """Write a value as the specification's "JSON single-value serialization" has it."""
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return text if kind.tz is None else f"{text}+00:00"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return f"{value:f}"
    return value


# --- bounds -------------------------------------------------------------------------------------


def _bound(text: object, kind: pa.DataType, *, up: bool) -> bytes | None:
    """Return a bound in the "binary single-value serialization"; None where there is none."""
    if not isinstance(text, str):
        return None
    if _T.is_signed_integer(kind):
        return struct.pack("<q" if kind.bit_width == 64 else "<i", int(text))  # noqa: PLR2004 - bits
    if _T.is_string(kind):
        return text.encode() if is_text(text) else None
    if _T.is_floating(kind):
        number = float(np.float32(text)) if _T.is_float32(kind) else float(text)
        if not math.isfinite(number):
            return None
        if not number:  # an engine may take -0.0 for less than 0.0
            number = 0.0 if up else -0.0
        return struct.pack("<f" if _T.is_float32(kind) else "<d", number)
    if _T.is_decimal128(kind):
        unscaled = int(Decimal(text).scaleb(kind.scale, _EXACT))
        size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
        return unscaled.to_bytes(size, "big", signed=True)
    try:
        if _T.is_date32(kind):
            return struct.pack("<i", (date.fromisoformat(text) - _EPOCH.date()).days)
        if _T.is_timestamp(kind):
            moment = datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=UTC)
            return struct.pack("<q", (moment - _EPOCH) // timedelta(microseconds=1))
    except ValueError:  # a year that Python does not have
        return None
    return None


def _statistics(
    file: Mapping[str, object], schemas: Mapping[int, Schema], schema: Schema
) -> Mapping[str, list[Json]]:
    """Return counts and bounds of a file's columns as a schema has them now."""
    told = told_bounds(file)
    kinds = {id_of(each): each.type for each in schema.arrow}
    lower: list[Json] = []
    upper: list[Json] = []
    nulls: list[Json] = []
    values: list[Json] = []
    was = schemas[int(str(file["schema_id"]))]
    for field in was.arrow:
        number = id_of(field)
        entry, kind = told.get(str(number)), kinds.get(number)
        if entry is None or kind is None:
            continue
        low, high, count = entry
        # A text of a float has its fewest digits: as a double it would be another number.
        if _T.is_float32(field.type) and _T.is_float64(kind):
            low, high = (
                repr(float(np.float32(t))) if isinstance(t, str) else t for t in (low, high)
            )
        least, most = _bound(low, kind, up=False), _bound(high, kind, up=True)
        lower += [] if least is None else [{"key": number, "value": least}]
        upper += [] if most is None else [{"key": number, "value": most}]
        if count is not None:
            nulls.append({"key": number, "value": int(str(count))})
            values.append({"key": number, "value": int(str(file["rows"]))})
    return {
        "value_counts": values,
        "null_value_counts": nulls,
        "lower_bounds": lower,
        "upper_bounds": upper,
    }


# --- entries of manifests -----------------------------------------------------------------------


def data_entry(
    file: Mapping[str, object], location: str, schemas: Mapping[int, Schema], schema: Schema
) -> Json:
    """Return what a manifest says of a data file, with the version that added it.

    Args:
        file: a row of LIVE.
        location: of the table.
        schemas: of the table, by id.
        schema: as it is now.
    """
    said = {
        **_FILE,
        "content": DATA,
        "file_path": f"{location}/{file['path']}",
        "file_format": "PARQUET",
        "record_count": file["rows"],
        "file_size_in_bytes": file["bytes"],
        **_statistics(file, schemas, schema),
    }
    return _entry(said, int(str(file["version"])))


def deletes_entry(kind: int, named: str, path: str, size: int, body: DeletesBody) -> Json:
    """Return what a manifest says of the hidden rows of a data file, without a version.

    Args:
        kind: POSITIONS or VECTORS.
        named: the data file, as manifests name it.
        path: the file of deletes, the same way.
        size: of that file, in bytes.
        body: what is in it.
    """
    bound = [{"key": _PATH_ID, "value": named.encode()}]
    said = {
        **_FILE,
        "content": 1,
        "file_path": path,
        "file_format": "PARQUET" if kind == POSITIONS else "PUFFIN",
        "record_count": body.count,
        "file_size_in_bytes": size,
        # pyiceberg and Polars apply deletes to all files, unless these bounds name one
        "lower_bounds": bound,
        "upper_bounds": bound,
        "referenced_data_file": named,
    }
    if kind == VECTORS:
        said |= {"content_offset": body.offset, "content_size_in_bytes": body.length}
    return _entry(said, 0)


def _entry(file: Mapping[str, object], version: int) -> Json:
    return {
        "status": ADDED,
        "snapshot_id": version,
        "sequence_number": version,
        "file_sequence_number": version,
        "data_file": file,
    }


_FILE: Final[Mapping[str, object]] = {
    "partition": {},
    "value_counts": None,
    "null_value_counts": None,
    "lower_bounds": None,
    "upper_bounds": None,
    "first_row_id": None,
    "referenced_data_file": None,
    "content_offset": None,
    "content_size_in_bytes": None,
}


# --- files of deletes ---------------------------------------------------------------------------


class DeletesBody:
    """A file that hides rows of one data file."""

    __slots__ = ("body", "count", "length", "offset")

    def __init__(self, body: bytes, count: int, offset: int = 0, length: int = 0) -> None:
        """Take its bytes, the number of hidden rows, and where the vector is in it."""
        self.body, self.count, self.offset, self.length = body, count, offset, length


_DELETES = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": str(_PATH_ID)}),  # noqa: FBT003 - arrow's
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(_POSITION_ID)}),  # noqa: FBT003 - arrow's
    ]
)


def positions_body(named: str, positions: Positions) -> DeletesBody:
    """Write the hidden rows of a data file as Parquet: a file of positions."""
    path = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(positions), np.int32)), [named])
    columns = [path.cast(pa.string()), pa.array(positions.astype(np.int64))]
    sink = io.BytesIO()
    table = pa.Table.from_arrays(columns, schema=_DELETES)
    pq.write_table(
        table,
        sink,
        compression="zstd",
        column_encoding={"pos": "DELTA_BINARY_PACKED"},
        use_dictionary=["file_path"],
    )
    return DeletesBody(sink.getvalue(), len(positions))


def vector_body(named: str, vector: bytes, count: int) -> DeletesBody:
    """Write the hidden rows of a data file as Puffin: one vector, since DuckDB mixes several up.

    Args:
        named: the data file, as manifests name it.
        vector: with its magic, as ``files/deletion.py`` has it.
        count: of the rows it hides.
    """
    crc = struct.pack(">I", zlib.crc32(vector))
    blob = struct.pack(">i", len(vector)) + vector + crc
    said = {
        "type": "deletion-vector-v1",
        "fields": [_ROW_ID],
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": len(_PUFFIN),
        "length": len(blob),
        "properties": {"referenced-data-file": named, "cardinality": str(count)},
    }
    footer = json.dumps({"blobs": [said], "properties": {}}).encode()
    end = struct.pack("<i", len(footer)) + bytes(4) + _PUFFIN
    body = _PUFFIN + blob + _PUFFIN + footer + end
    return DeletesBody(body, count, len(_PUFFIN), len(blob))


# --- Avro ---------------------------------------------------------------------------------------


def write_manifest(
    entries: Sequence[Json], kind: int, content: int, schema: Mapping[str, object]
) -> bytes:
    """Write a manifest; ``kind``: POSITIONS or VECTORS."""
    metadata = {
        "schema": json.dumps(schema),
        "schema-id": str(schema["schema-id"]),
        "partition-spec": "[]",
        "partition-spec-id": "0",
        "format-version": str(kind),
        "content": "data" if content == DATA else "deletes",
    }
    return _write(_entry_schema(kind), entries, metadata)


def read_manifest(body: bytes, kind: int) -> list[Json]:
    """Read a manifest that ``write_manifest`` wrote.

    Raises:
        ValueError: it is anything else.
    """
    return _read(_entry_schema(kind), body)


def write_list(manifests: Sequence[Json], kind: int, snapshot: Mapping[str, object]) -> bytes:
    """Write the list of the manifests of a snapshot."""
    parent = snapshot.get("parent-snapshot-id")
    metadata = {
        "snapshot-id": str(snapshot["snapshot-id"]),
        "sequence-number": str(snapshot["sequence-number"]),
        "parent-snapshot-id": "null" if parent is None else str(parent),
        "format-version": str(kind),
    }
    if kind == VECTORS:
        metadata["first-row-id"] = str(snapshot["first-row-id"])
    return _write(_list_schema(kind), manifests, metadata)


def read_list(body: bytes, kind: int) -> list[Json]:
    """Read what ``write_list`` wrote.

    Raises:
        ValueError: it is anything else.
    """
    return _read(_list_schema(kind), body)


def _write(schema: object, records: Sequence[Json], metadata: Mapping[str, str]) -> bytes:
    sink = io.BytesIO()
    load_avro().writer(sink, schema, records, codec="null", metadata=metadata)
    return sink.getvalue()


def _read(schema: object, body: bytes) -> list[Json]:
    """Read records, if they have this very schema and are not compressed: they may be hostile."""
    avro = load_avro()
    try:
        reader = avro.reader(io.BytesIO(body))
        if reader.metadata.get("avro.codec", "null") != "null":
            raise ValueError("it is compressed")
        written = json.loads(reader.metadata["avro.schema"])
        if avro.parse_schema(written) != schema:
            raise ValueError("another schema")
        records: list[Json] = list(reader)
    except (EOFError, IndexError, KeyError, TypeError, RecursionError, struct.error) as error:
        raise ValueError(str(error)) from error
    return records


def _named(name: str, kind: object, number: int, *, optional: bool = False) -> Json:
    if optional:
        return {"name": name, "type": ["null", kind], "default": None, "field-id": number}
    return {"name": name, "type": kind, "field-id": number}


def _counts(name: str, key: int, value: int, kind: str) -> Json:
    entry = {
        "type": "record",
        "name": f"k{key}_v{value}",
        "fields": [_named("key", "int", key), _named("value", kind, value)],
    }
    number = {"value_counts": 109, "null_value_counts": 110, "lower_bounds": 125}
    array = {"type": "array", "items": entry, "logicalType": "map"}
    return _named(name, array, number.get(name, 128), optional=True)


@cache
def _entry_schema(kind: int) -> object:
    file: list[Json] = [
        _named("content", "int", 134),
        _named("file_path", "string", 100),
        _named("file_format", "string", 101),
        _named("partition", {"type": "record", "name": "r102", "fields": []}, 102),
        _named("record_count", "long", 103),
        _named("file_size_in_bytes", "long", 104),
        _counts("value_counts", 119, 120, "long"),
        _counts("null_value_counts", 121, 122, "long"),
        _counts("lower_bounds", 126, 127, "bytes"),
        _counts("upper_bounds", 129, 130, "bytes"),
        _named("referenced_data_file", "string", 143, optional=True),
    ]
    if kind == VECTORS:
        file += [
            _named("first_row_id", "long", 142, optional=True),
            _named("content_offset", "long", 144, optional=True),
            _named("content_size_in_bytes", "long", 145, optional=True),
        ]
    fields = [
        _named("status", "int", 0),
        _named("snapshot_id", "long", 1, optional=True),
        _named("sequence_number", "long", 3, optional=True),
        _named("file_sequence_number", "long", 4, optional=True),
        _named("data_file", {"type": "record", "name": "r2", "fields": file}, 2),
    ]
    schema = {"type": "record", "name": "manifest_entry", "fields": fields}
    return load_avro().parse_schema(schema)


@cache
def _list_schema(kind: int) -> object:
    counts = ("added", "existing", "deleted")
    fields = [
        _named("manifest_path", "string", 500),
        _named("manifest_length", "long", 501),
        _named("partition_spec_id", "int", 502),
        _named("content", "int", 517),
        _named("sequence_number", "long", 515),
        _named("min_sequence_number", "long", 516),
        _named("added_snapshot_id", "long", 503),
        *(_named(f"{what}_files_count", "int", 504 + at) for at, what in enumerate(counts)),
        *(_named(f"{what}_rows_count", "long", 512 + at) for at, what in enumerate(counts)),
    ]
    if kind == VECTORS:
        fields.append(_named("first_row_id", "long", 520, optional=True))
    schema = {"type": "record", "name": "manifest_file", "fields": fields}
    return load_avro().parse_schema(schema)


def every_type(schema: Schema) -> Iterator[tuple[int, object]]:
    """Return the types of fields that have no parts, by id, as Iceberg says them."""

    def inside(fields: Iterable[pa.Field]) -> Iterator[tuple[int, object]]:
        for each in fields:
            parts = parts_of(each.type)
            yield from inside(parts)
            if not parts:
                yield id_of(each), _type(each.type, schema)

    yield from inside(schema.arrow)
