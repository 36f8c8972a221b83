"""Schemas with field ids, and the Arrow types that a table can hold."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from plait.errors import CorruptMetadataError, OptionError, SchemaError, SchemaMismatchError
from plait.model import numbering

FIELD_ID: Final = numbering.FIELD_ID

_PLAIN: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_NAME = {kind: name for name, kind in _PLAIN.items()}
_DECIMAL = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)", re.ASCII)
DECIMAL_DIGITS_MAX: Final = 38
_NESTING_MAX = 32
_WIDENED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}


CHANGE_COLUMNS: Final = ("_change_type", "_commit_version", "_commit_timestamp")
"""What change reads add; no column of a table may be called so."""


def names_of(given: object, what: str) -> tuple[str, ...]:
    """Return the names of an argument that takes one or several; a text is one name.

    Raises:
        OptionError: it is neither a text nor texts, or they have no order.

    >>> names_of("id", "record_key"), names_of(["a", "b"], "record_key")
    (('id',), ('a', 'b'))
    """
    names = (given,) if isinstance(given, str) else given
    if isinstance(names, (set, frozenset)):
        message = f"{what} needs ordered names, and a set has no order"
        hint = f"{what}={sorted(map(str, names))[:10]}, in the order that you want"
        raise OptionError(message, hint=hint, key=what, value=str(given)[:100])
    if isinstance(names, Iterable) and not isinstance(names, bytes):
        listed = tuple(names)
        if all(isinstance(name, str) for name in listed):
            return listed
    message = f"{what} takes a name or a list of names, not {str(given)[:100]!r}"
    raise OptionError(message, hint=f"{what}=['a', 'b']", key=what, value=str(given)[:100])


def unknown_column(
    name: str, known: Sequence[str], *, found: Sequence[str] = ()
) -> SchemaMismatchError:
    """Return the error for an unknown column, with the nearest column name."""
    near = [other for other in known if other.casefold() == name.casefold()][:1]
    near = near or difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    message = f"the table has no column {name!r}"
    hint = f"did you mean {near[0]!r}?" if near else f"its columns: {', '.join(known)}"
    return SchemaMismatchError(
        message, hint=hint, column=name, expected=known, found=found, nearest=near
    )


@dataclass(frozen=True, slots=True)
class ColumnNote:
    """What a schema says of a field beside its name and its type."""

    comment: str = ""
    initial: str | None = None
    """Canonical text of the value in rows of files that lack the column; None: null."""
    default: str | None = None
    """Canonical text of the value in rows that come without the column; None: null."""
    was_float: bool = False
    """Whether it was a float and is a double, so that bounds of older files are texts of floats."""
    generated: str | None = None
    """The expression that gives each row its value; None: rows bring it (RFC 0031)."""


NO_NOTE: Final = ColumnNote()


@dataclass(frozen=True, slots=True)
class Check:
    """A condition that no row may break: one where it is false is refused."""

    name: str
    predicate: str
    """SQL text over the columns of its schema."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A version of the table's columns. Every field, nested ones too, carries its id."""

    id: int
    arrow: pa.Schema
    notes: Mapping[int, ColumnNote] = field(default_factory=dict)
    """By the id of a field; most have none."""
    checks: tuple[Check, ...] = ()
    """Rows that are written under the schema break none of them."""

    @classmethod
    def create(cls, schema: pa.Schema) -> Schema:
        """Return a table's first schema, with storable types and field ids.

        Raises:
            SchemaError: a type cannot be stored, or two columns share a name.
        """
        names = [name.lower() for name in schema.names]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            message = f"two columns are called {twice[0]!r}"
            raise SchemaError(
                message, hint="column names must differ in more than case", column=twice[0]
            )
        if not names:
            message = "a table needs at least one column"
            raise SchemaError(message)
        for name in schema.names:
            check_column_name(name)
        ids = iter(range(1, 1 << 31))
        return cls(0, pa.schema([numbering.numbered_by(ids, _storable(field)) for field in schema]))

    @property
    def names(self) -> list[str]:
        """The column names."""
        return list(self.arrow.names)

    @property
    def defaults(self) -> bool:
        """Whether some column has a default."""
        texts = ((note.initial, note.default) for note in self.notes.values())
        return any(each != (None, None) for each in texts)

    @property
    def generated(self) -> dict[str, str]:
        """The columns whose value others of the row decide, and the expression of each."""
        texts = {number: note.generated for number, note in self.notes.items() if note.generated}
        named = ((each.name, id_of(each)) for each in (self.arrow if texts else ()))
        return {name: texts[number] for name, number in named if number in texts}

    def same_columns(self, other: Schema) -> bool:
        """Tell whether two schemas differ in nothing but comments and their own ids."""
        mine, theirs = (
            {number: replace(note, comment="") for number, note in each.notes.items()}
            for each in (self, other)
        )
        return (
            self.arrow.equals(other.arrow)
            and list(ids_in(self.arrow)) == list(ids_in(other.arrow))
            and self.checks == other.checks
            and all(mine.get(n, NO_NOTE) == theirs.get(n, NO_NOTE) for n in {*mine, *theirs})
        )

    def field_id(self, name: str) -> int:
        """Return the id of a column."""
        return id_of(self.arrow.field(name))

    def to_dict(self) -> dict[str, object]:
        """Write it as JSON values."""
        checks = [{"name": each.name, "predicate": each.predicate} for each in self.checks]
        return {
            "id": self.id,
            "fields": [_field_json(each, self.notes) for each in self.arrow],
            **({"checks": checks} if checks else {}),
        }

    @classmethod
    def from_dict(cls, value: object) -> Schema:
        """Read what ``to_dict`` wrote; raise CorruptMetadataError for anything else."""
        try:
            entry = _dict(value)
            notes: dict[int, ColumnNote] = {}
            fields = [_field_from(item, 0, notes) for item in _list(entry["fields"])]
            number = entry["id"]
            if not isinstance(number, int):
                raise TypeError(number)
            checks = tuple(map(_check_from, _list(entry.get("checks", []))))
            return cls(number, pa.schema(fields), notes, checks)
        except (KeyError, TypeError, ValueError) as error:
            message = f"not a schema: {str(value)[:120]}"
            raise CorruptMetadataError(message, found=str(error)) from error


def check_column_name(name: str) -> None:
    """Refuse a name that change reads use themselves; raise SchemaError."""
    if name.lower() in CHANGE_COLUMNS:
        message = f"invalid column name {name!r}: change reads add a column with that name"
        hint = f"choose another name than {', '.join(CHANGE_COLUMNS)}"
        raise SchemaError(message, hint=hint, column=name)


def _storable(field: pa.Field) -> pa.Field:
    return pa.field(field.name, storable_type(field.type, field.name), field.nullable)


def storable_type(kind: pa.DataType, column: str) -> pa.DataType:
    """Return the type in which values of this Arrow type are kept, without loss.

    Raises:
        SchemaError: Spark and Parquet share no such type.
    """
    t = pa.types
    if kind in _NAME:
        return kind
    if kind in _WIDENED:
        return _WIDENED[kind]
    if t.is_dictionary(kind):
        return storable_type(kind.value_type, column)
    if t.is_large_string(kind) or t.is_string_view(kind):
        return pa.string()
    if t.is_large_binary(kind) or t.is_binary_view(kind) or t.is_fixed_size_binary(kind):
        return pa.binary()
    if t.is_decimal(kind) and kind.precision <= DECIMAL_DIGITS_MAX and kind.scale >= 0:
        return pa.decimal128(kind.precision, kind.scale)
    if t.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if t.is_struct(kind) and kind.num_fields:
        return pa.struct([_storable(child) for child in kind.fields])
    if t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind):
        item = kind.value_field
        return pa.list_(pa.field("element", storable_type(item.type, column), item.nullable))
    if t.is_map(kind):
        value = kind.item_field
        return pa.map_(
            pa.field("key", storable_type(kind.key_type, column), nullable=False),
            pa.field("value", storable_type(value.type, column), value.nullable),
        )
    message = f"column {column!r} has type {kind}, which Spark and Parquet do not both support"
    raise SchemaError(message, hint="cast the column first", column=column, found=str(kind))


def type_name(kind: pa.DataType) -> str:
    """Return the SQL name of a type, for people and for errors.

    >>> type_name(pa.list_(pa.int64()))
    'array<bigint>'
    """
    t = pa.types
    if kind in _NAME:
        return _NAME[kind]
    if t.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if t.is_struct(kind):
        return "struct<" + ",".join(f"{f.name}:{type_name(f.type)}" for f in kind.fields) + ">"
    if t.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    if t.is_map(kind):
        return f"map<{type_name(kind.key_type)},{type_name(kind.item_type)}>"
    return str(kind)


def plain_type(name: str) -> pa.DataType:
    """Return the type of a plain SQL type name; raise ValueError for an unknown one.

    >>> plain_type("decimal(10,2)")
    Decimal128Type(decimal128(10, 2))
    """
    if name in _PLAIN:
        return _PLAIN[name]
    match = _DECIMAL.fullmatch(name)
    if match and 1 <= int(match[1]) <= DECIMAL_DIGITS_MAX and int(match[2]) <= int(match[1]):
        return pa.decimal128(int(match[1]), int(match[2]))
    message = f"unknown type {name[:80]!r}"
    raise ValueError(message)


def _field_json(field: pa.Field, notes: Mapping[int, ColumnNote]) -> dict[str, object]:
    note = notes.get(id_of(field), NO_NOTE)
    return {
        "id": id_of(field),
        "name": field.name,
        "type": _type_json(field.type, notes),
        "nullable": field.nullable,
        **({"comment": note.comment} if note.comment else {}),
        **({} if note.initial is None else {"initial": note.initial}),
        **({} if note.default is None else {"default": note.default}),
        **({"was": type_name(pa.float32())} if note.was_float else {}),
        **({} if note.generated is None else {"generated": note.generated}),
    }


def _type_json(kind: pa.DataType, notes: Mapping[int, ColumnNote]) -> object:
    if pa.types.is_struct(kind):
        return {"struct": [_field_json(child, notes) for child in kind.fields]}
    if pa.types.is_list(kind):
        return {"list": _field_json(kind.value_field, notes)}
    if pa.types.is_map(kind):
        return {"map": [_field_json(each, notes) for each in (kind.key_field, kind.item_field)]}
    return type_name(kind)


def _field_from(value: object, depth: int, notes: dict[int, ColumnNote]) -> pa.Field:
    entry = _dict(value)
    name, nullable, number = entry["name"], entry["nullable"], entry["id"]
    if not (isinstance(name, str) and isinstance(nullable, bool) and isinstance(number, int)):
        raise TypeError(value)
    kind = _type_from(entry["type"], depth, notes)
    initial, default, was = (_text(entry, each) for each in ("initial", "default", "was"))
    generated = _text(entry, "generated")
    note = ColumnNote(str(entry.get("comment", "")), initial, default, was is not None, generated)
    if note != NO_NOTE:
        notes[number] = note
    return pa.field(name, kind, nullable, {FIELD_ID: str(number).encode()})


def _text(entry: Mapping[str, object], name: str) -> str | None:
    value = entry.get(name)
    if not isinstance(value, str | None):
        raise TypeError(value)
    return value


def _type_from(value: object, depth: int, notes: dict[int, ColumnNote]) -> pa.DataType:
    if depth > _NESTING_MAX:
        message = "types are nested too deeply"
        raise ValueError(message)
    if isinstance(value, str):
        return plain_type(value)
    entry = _dict(value)
    if "struct" in entry:
        return pa.struct([_field_from(item, depth + 1, notes) for item in _list(entry["struct"])])
    if "list" in entry:
        return pa.list_(_field_from(entry["list"], depth + 1, notes))
    key, item = _list(entry["map"])
    return pa.map_(_field_from(key, depth + 1, notes), _field_from(item, depth + 1, notes))


def id_of(field: pa.Field) -> int:
    """Return the id of a field."""
    return int((field.metadata or {})[FIELD_ID])


def _check_from(value: object) -> Check:
    entry = _dict(value)
    name, predicate = entry["name"], entry["predicate"]
    if not (isinstance(name, str) and isinstance(predicate, str) and name):
        raise TypeError(value)
    return Check(name, predicate)


def parts_of(kind: pa.DataType) -> list[pa.Field]:
    """Return the fields right inside of a type, by the names that paths have for them."""
    if pa.types.is_struct(kind):
        return list(kind.fields)
    if pa.types.is_list(kind):
        return [kind.value_field]
    if pa.types.is_map(kind):
        return [kind.key_field.with_name("key"), kind.item_field.with_name("value")]
    return []


def ids_in(fields: Iterable[pa.Field]) -> Iterator[int]:
    """Return the ids of fields and of all their parts."""
    for each in fields:
        yield id_of(each)
        yield from ids_in(parts_of(each.type))


def ids_by_path(
    fields: Iterable[pa.Field], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], int]]:
    """Return columns and all their parts: the names on the way to each, and its id."""
    for each in fields:
        path = (*above, each.name)
        yield path, id_of(each)
        yield from ids_by_path(parts_of(each.type), path)


def _dict(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise TypeError(value)
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(value)
    return value
