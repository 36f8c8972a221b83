"""Schemas with field ids, the Arrow types that a table can hold, and the hidden column of files."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from plait.errors import CorruptMetadataError, OptionError, SchemaError, SchemaMismatchError
from plait.model import numbering
from plait.model.cached import cached_property
from plait.model.texts import is_text

FIELD_ID: Final = numbering.FIELD_ID
WRITTEN_COLUMN: Final = "_written"
"""The hidden column of data files that tells which version wrote a row (RFC 0023).

A file whose rows one commit wrote does not need it: the version that added the file wrote them. A
file with rows of other files has it, and says of each of these which version wrote it. Null is a
row that the file's own commit wrote, whose version is not known while the file is staged."""
WRITTEN_ID: Final = 2_000_000_000
"""A field id that no column of a user gets: those count from 1."""
WRITTEN_FIELD: Final = pa.field(
    WRITTEN_COLUMN, pa.int64(), metadata={FIELD_ID: str(WRITTEN_ID).encode()}
)
WRITTEN_OPTION: Final = "rows.written"
"""The property of a table whose files have it."""

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
NESTING_MAX: Final = 32
"""Types inside of a type."""
FIELDS_MAX: Final = 10_000
"""Columns of a schema, and all their parts: each costs every reader and writer time."""
CHECKS_MAX: Final = 1_000
"""Constraints of a schema: each costs every writer time."""
NAME_CHARS_MAX: Final = 1_000
_ID_END = 1 << 31
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
    stored_name: str | None = None
    """The name under which files have it, where that is not its own (RFC 0046)."""


NO_NOTE: Final = ColumnNote()


@dataclass(frozen=True, slots=True)
class Check:
    """A condition that no row may break: one where it is false is refused."""

    name: str
    predicate: str
    """SQL text over the columns of its schema."""


@dataclass(frozen=True)  # no slots: what follows from the columns is computed once
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
            SchemaError: as ``admitted``.
        """
        ids = iter(range(1, _ID_END))
        fields = admitted(schema)
        return cls(0, pa.schema([numbering.numbered_by(ids, each) for each in fields]))

    @property
    def names(self) -> list[str]:
        """The column names."""
        return list(self.arrow.names)

    @cached_property
    def defaults(self) -> bool:
        """Whether some column has a default."""
        texts = ((note.initial, note.default) for note in self.notes.values())
        return any(each != (None, None) for each in texts)

    @cached_property
    def generated(self) -> Mapping[str, str]:
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

    @cached_property
    def stored(self) -> pa.Schema:
        """The columns as files have them that are written under this schema.

        A field that is renamed keeps its name in files, so that other engines, which find columns
        by name, find it in files from before and after.
        """
        if not any(note.stored_name for note in self.notes.values()):
            return self.arrow
        return pa.schema([_stored(each, self.notes) for each in self.arrow])

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """The id of each column, by its name."""
        return {each.name: id_of(each) for each in self.arrow}

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
            listed = _list(entry["fields"])
            if len(listed) > FIELDS_MAX:
                raise ValueError(_too_many(()))
            fields = [_field_from(item, 0, notes) for item in listed]
            _require_kept(fields)
            if any(note.stored_name is not None for note in notes.values()):
                _require_kept([_stored(each, notes) for each in fields])
            number = entry["id"]
            if type(number) is not int or not 0 <= number < _ID_END:
                raise TypeError(number)
            checks = tuple(map(_check_from, _list(entry.get("checks", []))))
            if len(checks) > CHECKS_MAX:
                raise ValueError(f"{len(checks)} checks, and at most {CHECKS_MAX} are allowed")
            return cls(number, pa.schema(fields), notes, checks)
        except (KeyError, TypeError, ValueError, SchemaError) as error:
            message = f"not a schema: {str(error)[:200]}: {value!r:.120}"
            raise CorruptMetadataError(message, found=str(error)[:200]) from error


def admitted(fields: Iterable[pa.Field]) -> list[pa.Field]:
    """Return columns as a table keeps them, with the types in which it keeps their values.

    This is the one place that decides what a column may be: every schema passes it, whether it
    comes from a caller, with rows, by a change of columns, or from the metadata of a table.

    Raises:
        SchemaError: a type cannot be stored, names are equal but for their case, at any depth, or
            reserved, or there are too many columns or none.
    """
    made = _Admission().fields(list(fields), ())
    if not made:
        raise SchemaError("a table needs at least one column")
    return made


def storable_type(kind: pa.DataType, column: str) -> pa.DataType:
    """Return the type in which values of this Arrow type are kept, without loss.

    Raises:
        SchemaError: as ``admitted``.

    >>> storable_type(pa.large_list(pa.uint8()), "a")
    ListType(list<element: int16>)
    """
    return _Admission().type(kind, (column,))


@dataclass(slots=True)
class _Admission:
    """Looks at the columns of one schema."""

    count: int = 0

    def fields(self, fields: Sequence[pa.Field], above: tuple[str, ...]) -> list[pa.Field]:
        """Admit columns, or the members of a struct."""
        if len(fields) > FIELDS_MAX - self.count:
            raise SchemaError(_too_many(above), hint="make several tables")
        known: dict[str, str] = {}
        for at, each in enumerate(fields):
            check_name(each.name, above)
            first = known.setdefault(each.name.lower(), each.name)
            if len(known) == at:
                raise _same_names(above, first, each.name)
        return [self._field(each, (*above, each.name)) for each in fields]

    def _field(self, field: pa.Field, path: tuple[str, ...]) -> pa.Field:
        return pa.field(field.name, self.type(field.type, path), field.nullable)

    def type(self, kind: pa.DataType, path: tuple[str, ...]) -> pa.DataType:
        """Return the type in which a column, or a part of one, is kept."""
        self.count += 1
        if self.count > FIELDS_MAX:
            raise SchemaError(_too_many(path), hint="make several tables", column=path[0])
        if len(path) > NESTING_MAX + 1:
            message = f"column {path[0]!r} has types nested in more than {NESTING_MAX} levels"
            raise SchemaError(message, hint="make columns of its parts", column=path[0])
        plain = _plain_storable(kind)
        if plain is not None:
            return plain
        t = pa.types
        if t.is_dictionary(kind) or t.is_run_end_encoded(kind):
            return self.type(kind.value_type, path)
        if isinstance(kind, pa.BaseExtensionType) and is_plain_extension(kind):
            return self.type(kind.storage_type, path)
        if t.is_struct(kind) and kind.num_fields and not is_tagged(kind):
            return pa.struct(self.fields(kind.fields, path))
        if any(test(kind) for test in LISTS):
            item = kind.value_field.with_name("element")
            return pa.list_(self._field(item, (*path, item.name)))
        if t.is_map(kind):
            key = kind.key_field.with_name("key").with_nullable(nullable=False)
            value = kind.item_field.with_name("value")
            return pa.map_(*(self._field(each, (*path, each.name)) for each in (key, value)))
        column = ".".join(path)
        what = (
            "a type that is a struct in Arrow alone" if is_tagged(kind) else f"type {kind!s:.200}"
        )
        message = f"column {column!r} has {what}, which Spark and Parquet do not both support"
        raise SchemaError(
            message, hint="cast the column first", column=column, found=str(kind)[:200]
        )


LISTS: Final = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)
"""What is kept as a list."""
_TAGS: Final = (b"variant", b"geometry", b"geography")
"""What Spark writes to the fields of a struct that is no struct."""
_PLAIN_EXTENSIONS: Final = frozenset(("arrow.uuid", "arrow.json"))


def is_plain_extension(kind: pa.BaseExtensionType) -> bool:
    """Tell whether values of an extension type mean what their storage says.

    >>> is_plain_extension(pa.uuid()), is_plain_extension(pa.bool8())
    (True, False)
    """
    return getattr(kind, "extension_name", "") in _PLAIN_EXTENSIONS


def is_tagged(kind: pa.DataType) -> bool:
    """Tell whether a struct stands for a value that is none, such as a VARIANT of Spark."""
    return pa.types.is_struct(kind) and any(
        tag in (child.metadata or {}) for child in kind.fields for tag in _TAGS
    )


def _plain_storable(kind: pa.DataType) -> pa.DataType | None:
    """Return the type in which values that have no parts are kept; None if there is none."""
    t = pa.types
    if isinstance(kind, pa.BaseExtensionType):  # some cannot be hashed
        return None
    if kind in _NAME:
        return kind
    if kind in _WIDENED:
        return _WIDENED[kind]
    if t.is_large_string(kind) or t.is_string_view(kind):
        return pa.string()
    if t.is_large_binary(kind) or t.is_binary_view(kind) or t.is_fixed_size_binary(kind):
        return pa.binary()
    if t.is_decimal(kind):
        # A scale below zero, or one above the digits, is Arrow's alone.
        digits, scale = max(kind.precision - min(kind.scale, 0), kind.scale), max(kind.scale, 0)
        return pa.decimal128(digits, scale) if digits <= DECIMAL_DIGITS_MAX else None
    if t.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    return None


def check_name(name: str, above: Sequence[str] = ()) -> None:
    """Refuse the name of a column, or of a member of a struct; raise SchemaError."""
    path = ".".join((*above, name))[:NAME_CHARS_MAX]
    if not name:
        message = f"a column, or a part of {'.'.join(above)!r}, has an empty name"
        raise SchemaError(message, hint="give it a name", column=path)
    if len(name) > NAME_CHARS_MAX:
        message = f"the name of column {name[:40]!r}... has {len(name)} characters"
        raise SchemaError(message, hint=f"names have at most {NAME_CHARS_MAX}", column=path)
    if not name.isascii() and not is_text(name):
        message = f"the name of column {name!r:.80} has half of a character, a lone surrogate"
        raise SchemaError(message, hint="give it another name", column=repr(path)[:100])
    if not above and name.lower() in CHANGE_COLUMNS:
        message = f"invalid column name {name!r}: change reads add a column with that name"
        hint = f"choose another name than {', '.join(CHANGE_COLUMNS)}"
        raise SchemaError(message, hint=hint, column=name)


def _same_names(above: tuple[str, ...], one: str, other: str) -> SchemaError:
    what = f"two parts of {'.'.join(above)!r}" if above else "two columns"
    message = f"{what} are called {one!r}" + ("" if one == other else f" and {other!r}")
    hint = "names must differ in more than case"
    return SchemaError(message, hint=hint, column=".".join((*above, other)))


def _too_many(path: Sequence[str]) -> str:
    what = f"column {'.'.join(path)!r}" if path else "the schema"
    return f"{what} brings more than {FIELDS_MAX} columns, with their parts"


def _require_kept(fields: Sequence[pa.Field]) -> None:
    """Refuse columns that no table could have, and ids that two of them have.

    Raises:
        SchemaError: see ``admitted``.
        ValueError: the metadata says something else than would be written.
    """
    for given, kept in zip(fields, admitted(fields), strict=True):
        if not given.type.equals(kept.type):
            raise ValueError(f"column {given.name!r} has type {given.type}")
    numbers = list(ids_in(fields))
    if len(set(numbers)) < len(numbers) or not all(0 < each < _ID_END for each in numbers):
        raise ValueError("ids of columns that are not each other's")


def type_name(kind: pa.DataType) -> str:
    """Return the SQL name of a type, for people and for errors.

    >>> type_name(pa.list_(pa.int64()))
    'array<bigint>'
    """
    t = pa.types
    if isinstance(kind, pa.BaseExtensionType):  # some cannot be hashed
        return str(kind)
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
    raise ValueError(f"unknown type {name[:80]!r}")


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
        **({} if note.stored_name is None else {"stored": note.stored_name}),
    }


def _stored(field: pa.Field, notes: Mapping[int, ColumnNote]) -> pa.Field:
    """Return a field under the name that files have for it, its parts too."""
    name = notes.get(id_of(field), NO_NOTE).stored_name or field.name
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_stored(child, notes) for child in kind.fields])
    elif pa.types.is_list(kind):
        kind = pa.list_(_stored(kind.value_field, notes))
    elif pa.types.is_map(kind):
        kind = pa.map_(*(_stored(each, notes) for each in (kind.key_field, kind.item_field)))
    return field.with_type(kind).with_name(name)


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
    generated, stored = _text(entry, "generated"), _text(entry, "stored")
    comment = str(entry.get("comment", ""))
    note = ColumnNote(comment, initial, default, was is not None, generated, stored)
    if note != NO_NOTE:
        notes[number] = note
    return pa.field(name, kind, nullable, {FIELD_ID: str(number).encode()})


def _text(entry: Mapping[str, object], name: str) -> str | None:
    value = entry.get(name)
    if not isinstance(value, str | None):
        raise TypeError(value)
    return value


def _type_from(value: object, depth: int, notes: dict[int, ColumnNote]) -> pa.DataType:
    if depth > NESTING_MAX:
        raise ValueError("types are nested too deeply")
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


def is_written(name: str, schema: Schema) -> bool:
    """Tell whether a name means the hidden column, and no column of the table."""
    return name == WRITTEN_COLUMN and name not in schema.names


def column_of(name: str, schema: Schema) -> tuple[int, pa.Field]:
    """Return the field id and the field of a column of the table, or of the hidden one."""
    if is_written(name, schema):
        return WRITTEN_ID, WRITTEN_FIELD
    return schema.ids[name], schema.arrow.field(name)


def without_written(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows without the hidden column: it counts in no digest."""
    return rows.select([name for name in rows.schema.names if name != WRITTEN_COLUMN])


def unwritten(rows: pa.Table) -> pa.Table:
    """Return rows with the hidden column: the commit that adds their file writes them."""
    return rows.append_column(WRITTEN_FIELD, pa.nulls(rows.num_rows, pa.int64()))
