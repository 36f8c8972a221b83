"""What a version of a table is in the language of a Delta log: schema, protocol and actions.

All of it is a function of the table alone, so that every publisher writes the same. Facts come from
the protocol specification of Delta Lake (PROTOCOL.md); what engines make of them was tried, and is
told in RFC 0046.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Final, Self, TypeAlias
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from plait.errors import CorruptMetadataError
from plait.model.evolution import is_wider, kinds_of
from plait.model.schema import NO_NOTE, Schema, id_of, ids_in, parts_of

Json: TypeAlias = dict[str, object]

WRITER_FEATURE: Final = "plait"
"""No engine knows it, so every engine that keeps to the protocol refuses to write."""
CLOCK_FEATURE: Final = "inCommitTimestamp"
VECTORS: Final = "deletionVectors"
NTZ: Final = "timestampNtz"
NOT_NULL: Final = "invariants"
MAPPING: Final = "columnMapping"
WIDENING: Final = "typeWidening"
FEATURES: Final = frozenset((VECTORS, NTZ, NOT_NULL, MAPPING, WIDENING))
"""The features that a log of ours may have beside those that it always has."""
_READER_TOO: Final = (VECTORS, NTZ, MAPPING, WIDENING)
"""The features that a reader must know, too."""
_DIRECTORY: Final = "_dv"
_VECTOR_NAME: Final = "deletion_vector_{}.bin"
_PLAIN: Final[Mapping[str, str]] = {
    "bool": "boolean",
    "int8": "byte",
    "int16": "short",
    "int32": "integer",
    "int64": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date32[day]": "date",
    "timestamp[us, tz=UTC]": "timestamp",
    "timestamp[us]": "timestamp_ntz",
}
_DIGITS_EXACT: Final = 15
"""Digits of a decimal that a double keeps: engines read numbers of JSON as doubles."""
_NEAR: Final = Decimal("0.0001")
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_ALPHABETS: Final = (
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
)
"""The digits of ``base64.b85encode``, and those of ZeroMQ's RFC 32."""
_Z85: Final = bytes.maketrans(*_ALPHABETS)
_FROM_Z85: Final = bytes.maketrans(*reversed(_ALPHABETS))
_T = pa.types


# --- schema -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeltaSchema:
    """A schema as a Delta log says it."""

    schema: Schema
    older: tuple[Schema, ...] = ()
    """The schemas that the table had before, oldest first: files may have narrower types."""

    @classmethod
    def of(cls, schemas: Mapping[int, Schema], number: int) -> Self:
        """Take one of the schemas of a table, by its id."""
        older = sorted(each for each in schemas if each < number)
        return cls(schemas[number], tuple(schemas[each] for each in older))

    @property
    def features(self) -> frozenset[str]:
        """The features of Delta that these columns need."""
        every = tuple(_every_field(self.schema.arrow))
        found = set()
        if any(_T.is_timestamp(each.type) and each.type.tz is None for each in every):
            found.add(NTZ)
        if any(not each.nullable for each in every):
            found.add(NOT_NULL)
        if any(note.stored_name for note in self.schema.notes.values()):
            found.add(MAPPING)
        if self._widened():
            found.add(WIDENING)
        return frozenset(found)

    @property
    def bounded(self) -> tuple[str, ...]:
        """The columns that every file of the table may have bounds of."""
        older = [{id_of(field) for field in each.arrow} for each in self.older]
        return tuple(
            field.name
            for field in self.schema.arrow
            if _has_bounds(field.type) and all(id_of(field) in each for each in older)
        )

    def text(self, features: Collection[str]) -> str:
        """Write it as Delta does, in a log with these features."""
        widened = self._widened()
        fields = [self._field(each, features, widened) for each in self.schema.arrow]
        return json.dumps({"type": "struct", "fields": fields}, separators=(",", ":"))

    def _widened(self) -> Mapping[int, list[pa.DataType]]:
        """Return by id the types that fields had before, narrowest first, and have now."""
        if not self.older:
            return {}
        now = dict(kinds_of(self.schema.arrow))
        found: dict[int, list[pa.DataType]] = {}
        for each in self.older:
            for number, kind in kinds_of(each.arrow):
                chain = found.setdefault(number, [])
                if number in now and is_wider(now[number], kind) and kind not in chain:
                    chain.append(kind)
        return {number: [*chain, now[number]] for number, chain in found.items() if chain}

    def _field(
        self,
        field: pa.Field,
        features: Collection[str],
        widened: Mapping[int, Sequence[pa.DataType]],
    ) -> Json:
        note = self.schema.notes.get(id_of(field), NO_NOTE)
        metadata: Json = {"comment": note.comment} if note.comment else {}
        if MAPPING in features:
            metadata["delta.columnMapping.id"] = id_of(field)
            metadata["delta.columnMapping.physicalName"] = note.stored_name or field.name
        changes = list(_changes(field, "", widened))
        if changes:
            metadata["delta.typeChanges"] = changes

        def member(inner: pa.Field) -> Json:
            return self._field(inner, features, widened)

        kind = _type(field.type, member)
        return {"name": field.name, "type": kind, "nullable": field.nullable, "metadata": metadata}


def _changes(
    field: pa.Field, path: str, widened: Mapping[int, Sequence[pa.DataType]]
) -> Iterator[Json]:
    """Say how the type of a field widened, and those of elements in it that are no members."""
    for before, after in itertools.pairwise(widened.get(id_of(field), ())):
        said: Json = {"fromType": _plain_type(before), "toType": _plain_type(after)}
        yield {**said, "fieldPath": path} if path else said
    if _T.is_list(field.type) or _T.is_map(field.type):
        for part in parts_of(field.type):
            yield from _changes(part, f"{path}.{part.name}" if path else part.name, widened)


def _type(kind: pa.DataType, member: Callable[[pa.Field], Json]) -> object:
    if _T.is_struct(kind):
        return {"type": "struct", "fields": [member(each) for each in kind.fields]}
    if _T.is_list(kind):
        item = kind.value_field
        element = _type(item.type, member)
        return {"type": "array", "elementType": element, "containsNull": item.nullable}
    if _T.is_map(kind):
        return {
            "type": "map",
            "keyType": _type(kind.key_type, member),
            "valueType": _type(kind.item_type, member),
            "valueContainsNull": kind.item_field.nullable,
        }
    return _plain_type(kind)


def _plain_type(kind: pa.DataType) -> str:
    if _T.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _PLAIN[str(kind)]


def _every_field(fields: Iterable[pa.Field]) -> Iterator[pa.Field]:
    for each in fields:
        yield each
        kind = each.type
        yield from _every_field(kind.field(at) for at in range(kind.num_fields))


# --- protocol and table -------------------------------------------------------------------------


def protocol(features: Iterable[str]) -> Json:
    """Return the action that says what clients of the log must know."""
    given = sorted({WRITER_FEATURE, CLOCK_FEATURE, *features})
    readers = [name for name in given if name in _READER_TOO]
    said: Json = {"minReaderVersion": 3 if readers else 1, "minWriterVersion": 7}
    if readers:
        said["readerFeatures"] = readers
    return {"protocol": {**said, "writerFeatures": given}}


def log_id(identity: str) -> str:
    """Return the id of the log of a table, which also tells its checkpoints from those of others.

    >>> log_id("0123")
    'a49243c8-ed0e-5d9f-9305-d4fae0702ce8'
    """
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"plait:{identity}"))


def table_action(
    identity: str, schema: DeltaSchema, features: Collection[str], *, start: int, start_ms: int
) -> Json:
    """Return the action that says what the table is.

    Args:
        identity: that of the table.
        schema: of this version.
        features: of the log.
        start: the first number of the log, and when its version was decided.
        start_ms: the same.
    """
    configuration = {"delta.enableInCommitTimestamps": "true"}
    if start:
        configuration["delta.inCommitTimestampEnablementVersion"] = str(start)
        configuration["delta.inCommitTimestampEnablementTimestamp"] = str(start_ms)
    if VECTORS in features:
        configuration["delta.enableDeletionVectors"] = "true"
    if MAPPING in features:
        configuration["delta.columnMapping.mode"] = "name"
        most = max(ids_in(schema.schema.arrow))
        configuration["delta.columnMapping.maxColumnId"] = str(most)
    if WIDENING in features:
        configuration["delta.enableTypeWidening"] = "true"
    if schema.bounded:
        names = ",".join(f"`{name.replace('`', '``')}`" for name in schema.bounded)
        configuration["delta.dataSkippingStatsColumns"] = names
    else:
        configuration["delta.dataSkippingNumIndexedCols"] = "0"
    return {
        "metaData": {
            "id": log_id(identity),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema.text(features),
            "partitionColumns": [],
            "configuration": configuration,
            "createdTime": start_ms,
        }
    }


# --- files --------------------------------------------------------------------------------------


def add_action(file: Mapping[str, object], schemas: Mapping[int, Schema], **said: object) -> Json:
    """Return the action that shows a file, with its hidden rows.

    Args:
        file: a row of LIVE.
        schemas: of the table, by id.
        said: ``modificationTime`` and ``dataChange``.
    """
    # As UTF-8: deltalake reads escapes of characters from U+100000 on as others.
    stats = json.dumps(_statistics(file, schemas), ensure_ascii=False, separators=(",", ":"))
    action: Json = {
        "path": quote(str(file["path"])),
        "partitionValues": {},
        "size": file["bytes"],
        **said,
        "stats": stats,
    }
    return {"add": _with_vector(action, file)}


def remove_action(file: Mapping[str, object], **said: object) -> Json:
    """Return the action that takes a file away, as it was shown: its identity has the vector.

    Args:
        file: a row of LIVE.
        said: ``deletionTimestamp`` and ``dataChange``.
    """
    action: Json = {
        "path": quote(str(file["path"])),
        **said,
        "extendedFileMetadata": True,
        "partitionValues": {},
        "size": file["bytes"],
    }
    return {"remove": _with_vector(action, file)}


def _with_vector(action: Json, file: Mapping[str, object]) -> Json:
    if not file["masked"]:
        return action
    inline, path = file["inline"], file["dv_path"]
    if isinstance(inline, bytes):
        place: Json = {
            "storageType": "i",
            "pathOrInlineDv": z85(inline),
            "sizeInBytes": len(inline),
        }
    else:
        number = _vector_number(str(path))
        place = {
            "storageType": "u",
            "pathOrInlineDv": _DIRECTORY + z85(number.bytes),
            "offset": file["dv_offset"],
            "sizeInBytes": file["dv_bytes"],
        }
    action["deletionVector"] = {**place, "cardinality": file["masked"]}
    return action


def z85(value: bytes) -> str:
    """Write bytes in ZeroMQ's base 85, padded with zeros to a multiple of four bytes.

    >>> z85(bytes.fromhex("864fd26fb559f75b"))
    'HelloWorld'
    """
    padded = value + bytes(-len(value) % 4)
    return base64.b85encode(padded).translate(_Z85).decode("ascii")


def from_z85(text: str) -> bytes:
    """Read ZeroMQ's base 85, with its padding; raise ValueError for anything else.

    >>> from_z85("HelloWorld").hex()
    '864fd26fb559f75b'
    """
    return base64.b85decode(text.encode("ascii").translate(_FROM_Z85))


def vector_copy(path: str) -> str:
    """Return where the copy of a file of deletion vectors lies for readers of the log.

    >>> vector_copy("data/a.dv.bin")
    '_dv/deletion_vector_9bb85b3f-ef09-5901-ab3b-05ceb2d03957.bin'
    """
    return f"{_DIRECTORY}/{_VECTOR_NAME.format(_vector_number(path))}"


def _vector_number(path: str) -> uuid.UUID:
    """Return the number of a file of vectors. It is part of the identity of files in the log."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"plait:{path}")


# --- bounds -------------------------------------------------------------------------------------


def _statistics(file: Mapping[str, object], schemas: Mapping[int, Schema]) -> Json:
    """Return counts and bounds. They include hidden rows, so they are not tight where some are.

    deltalake takes a bound that is missing for one that no value meets, and leaves the file out. So
    a file has the bounds of all columns that the log names for them, or of none.
    """
    schema = schemas[int(str(file["schema_id"]))]
    told = told_bounds(file)
    lower, upper, nulls, whole = {}, {}, {}, True
    for field in schema.stored:
        if not _has_bounds(field.type):
            continue
        low, high, count = told.get(str(id_of(field)), (None, None, None))
        least, most = _bound(low, field.type, up=False), _bound(high, field.type, up=True)
        if least is not None and most is not None and count is not None:
            lower[field.name], upper[field.name] = least, most
        elif count != file["rows"]:  # where all are null, it is known that no bound is missing
            whole = False
        nulls[field.name] = count
    said: Json = {"numRecords": file["rows"]}
    if whole and nulls:
        said |= {"minValues": lower, "maxValues": upper, "nullCount": nulls}
    if file["masked"]:
        said["tightBounds"] = False
    return said


def told_bounds(file: Mapping[str, object]) -> Mapping[str, Sequence[object]]:
    """Return lower bound, upper bound and nulls of a file's columns, by field id, as texts.

    Raises:
        CorruptMetadataError: they are damaged.
    """
    text = file.get("stats")
    if text is None:
        return {}
    found = json.loads(str(text))
    if not isinstance(found, dict) or not all(map(_is_entry, found.values())):
        path = str(file["path"])
        message = f"the bounds of columns of {path} are damaged"
        raise CorruptMetadataError(message, hint="run tablectl verify", path=path)
    return found


def _is_entry(value: object) -> bool:
    """Tell whether a value is a lower bound, an upper bound and a number of nulls."""
    return isinstance(value, list) and len(value) == 3  # noqa: PLR2004 - these three


def _has_bounds(kind: pa.DataType) -> bool:
    """Tell whether engines agree on bounds of a type: no booleans, bytes or long decimals."""
    return bool(
        _T.is_signed_integer(kind)
        or _T.is_string(kind)
        or _T.is_floating(kind)
        or (_T.is_decimal128(kind) and kind.precision <= _DIGITS_EXACT)
        or _T.is_date32(kind)
        or _T.is_timestamp(kind)
    )


def _bound(text: object, kind: pa.DataType, *, up: bool) -> object:
    """Return a bound as engines read it; None where they do not agree on it, or have no text."""
    if not isinstance(text, str):
        return None
    if _T.is_signed_integer(kind):
        return int(text)
    if _T.is_string(kind):
        return text
    if _T.is_floating(kind):
        if "inf" in text or "nan" in text:
            return None
        # The text has the fewest digits of a float. As a double it would be another number, and
        # engines compare doubles once the column is widened.
        return float(np.float32(text)) if _T.is_float32(kind) else float(text)
    if _T.is_decimal128(kind):
        # Smaller ones would be written with an exponent, which deltalake does not read.
        exact = Decimal(text)
        near = exact.quantize(_NEAR, ROUND_CEILING if up else ROUND_FLOOR)
        return float(near if abs(exact) < 1 else exact)
    if _T.is_date32(kind):
        return text if _DAY.fullmatch(text) else None
    if _T.is_timestamp(kind):
        return _milliseconds(text, up=up)
    return None


def _milliseconds(text: str, *, up: bool) -> str | None:
    """Return a timestamp at milliseconds, rounded away from the values: that is what Delta has."""
    day, clock, rest = text.rstrip("Z").partition("T")
    if not _DAY.fullmatch(day) or not clock:
        return None
    zone = "Z" if text.endswith("Z") else ""
    try:
        moment = datetime.fromisoformat(f"{day}T{rest}")
        if up:
            moment += timedelta(microseconds=-moment.microsecond % 1000)
    except (ValueError, OverflowError):
        return None
    return moment.isoformat(timespec="milliseconds") + zone
