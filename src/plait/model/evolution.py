"""Changes of the columns of a table, step by step (RFC 0027).

Columns are told apart by their ids, which nobody gets twice, so that a file that was written under
any schema is read under any later one. A step that would change the meaning of rows in files, or
need every file to be read, is refused.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, assert_never

import pyarrow as pa

from plait.errors import SchemaError
from plait.model.numbering import numbered
from plait.model.schema import (
    DECIMAL_DIGITS_MAX,
    NO_NOTE,
    ColumnNote,
    Schema,
    check_name,
    id_of,
    ids_by_path,
    ids_in,
    parts_of,
    storable_type,
    type_name,
    unknown_column,
)
from plait.model.steps import (
    AddColumn,
    AllowNull,
    ColumnStep,
    CommentColumn,
    DefaultColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    RequireColumn,
    WidenColumn,
    column_path,
    path_parts,
)
from plait.model.value import from_text, is_kept, is_plain, plain_value, to_text

_T = pa.types
Fields: TypeAlias = list[pa.Field]
_WIDER: Mapping[pa.DataType, tuple[pa.DataType, ...]] = {
    pa.int8(): (pa.int16(), pa.int32(), pa.int64()),
    pa.int16(): (pa.int32(), pa.int64()),
    pa.int32(): (pa.int64(),),
    pa.float32(): (pa.float64(),),
    pa.date32(): (pa.timestamp("us"),),
}
"""What Iceberg (version 3) and Delta both allow; decimals follow by their digits."""
_NO_DEFAULT = ("record key", "partition", "ordering column", "time to live")
"""Uses in which a value must come with its row: rows with a default key would all be one row."""


@dataclass(frozen=True, slots=True)
class Evolution:
    """A schema between two steps."""

    schema: Schema
    last_id: int
    """The greatest id that any field of the table ever had."""
    uses: Mapping[str, str] = field(default_factory=dict)
    """What columns are needed for: column -> ``record key``, ``partition`` and so on."""

    def taking(self, step: ColumnStep) -> Evolution:
        """Return the schema after one more step.

        Raises:
            SchemaError: the step is not possible; the message says why.
            SchemaMismatchError: there is no such column.
        """
        match step:
            case AddColumn():
                return self.adding([step])
            case DropColumn():
                return self._dropped(step.path)
            case RenameColumn():
                return self._renamed(step)
            case MoveColumn():
                return self._moved(step)
            case WidenColumn():
                return self._widened(step)
            case AllowNull():
                self._refuse_use(step.path, "may not be null", ("record key",))
                return self._with(self._edited(step.path, lambda f: f.with_nullable(nullable=True)))
            case RequireColumn():
                return self._required(step.path)
            case CommentColumn():
                return self._noted(step.path, comment=step.comment)
            case DefaultColumn():
                found = self.find(step.path)
                if step.default is not None:
                    self._refuse_use(step.path, "cannot have a default", _NO_DEFAULT)
                text = _default_text(step.path, found.type, step.default)
                return self._noted(step.path, default=text)
            case _:
                assert_never(step)

    def adding(self, steps: Sequence[AddColumn]) -> Evolution:
        """Return the schema after columns were added, in this order.

        Raises:
            SchemaError, SchemaMismatchError: as ``taking``.
        """
        evolution = self
        for parent, siblings in itertools.groupby(steps, lambda each: path_parts(each.path)[:-1]):
            evolution = evolution._added(parent, list(siblings))
        return evolution

    def find(self, path: str) -> pa.Field:
        """Return the field at a path; raise SchemaMismatchError if there is none."""
        found: Fields = []

        def look(field: pa.Field) -> pa.Field:
            found.append(field)
            return field

        self._edited(path, look)
        return found[0]

    # --- steps -----------------------------------------------------------------------------

    def _added(self, parent: Sequence[str], steps: Sequence[AddColumn]) -> Evolution:
        """Add siblings in one pass: a table may get a thousand columns at once."""
        new: list[tuple[AddColumn, pa.Field, ColumnNote]] = []
        last_id = self.last_id
        for step in steps:
            made, note, last_id = self._made(step, last_id)
            new.append((step, made, note))

        def added(siblings: Fields) -> Fields:
            taken, found = {each.name.lower() for each in siblings}, siblings
            for step, made, _ in new:
                _require_free(made.name, taken, step.path)
                taken.add(made.name.lower())
                found = _placed(found, made, step.after)
            return found

        changed = self._with(self._siblings(parent, added))
        notes = {id_of(made): note for _, made, note in new if note != NO_NOTE}
        schema = replace(changed.schema, notes={**changed.schema.notes, **notes})
        return replace(changed, schema=schema, last_id=last_id)

    def _made(self, step: AddColumn, last_id: int) -> tuple[pa.Field, ColumnNote, int]:
        *parent, name = path_parts(step.path)
        default = _default_text(step.path, step.data_type, step.default)
        if not step.nullable and default is None:
            message = f"column {step.path!r} is required, and rows that are there have no value"
            hint = "give it a default, or let it be null"
            raise SchemaError(message, hint=hint, column=step.path)
        if parent and default is not None:
            message = f"{step.path!r} is part of a struct, and only whole columns have defaults"
            raise SchemaError(message, hint="let it be null", column=step.path)
        check_name(name, parent)
        kind = storable_type(step.data_type, step.path)
        made, last_id = numbered(pa.field(name, kind, step.nullable), last_id)
        return made, ColumnNote(step.comment, default, default), last_id

    def _dropped(self, path: str) -> Evolution:
        *parent, name = path_parts(path)
        self._refuse_use(path, "cannot be dropped")
        self.find(path)

        def dropped(siblings: Fields) -> Fields:
            if len(siblings) == 1:
                message = f"{path!r} is the only column left where it is"
                raise SchemaError(message, hint="add another one first", column=path)
            return [each for each in siblings if each.name != name]

        return self._with(self._siblings(parent, dropped))

    def _renamed(self, step: RenameColumn) -> Evolution:
        *parent, name = path_parts(step.path)
        self.find(step.path)
        if "." in step.name:
            message = f"invalid column name {step.name!r}: a dot divides a column from its parts"
            raise SchemaError(message, hint="use another name", column=step.path)
        check_name(step.name, parent)

        def renamed(siblings: Fields) -> Fields:
            others = {each.name.lower() for each in siblings if each.name != name}
            _require_free(step.name, others, step.path)
            return [each.with_name(step.name) if each.name == name else each for each in siblings]

        changed = self._with(self._siblings(parent, renamed))
        if parent:
            return changed
        uses = {step.name if used == name else used: what for used, what in self.uses.items()}
        return replace(changed, uses=uses)

    def _moved(self, step: MoveColumn) -> Evolution:
        *parent, name = path_parts(step.path)
        field = self.find(step.path)

        def moved(siblings: Fields) -> Fields:
            return _placed([each for each in siblings if each.name != name], field, step.after)

        return self._with(self._siblings(parent, moved))

    def _widened(self, step: WidenColumn) -> Evolution:
        field, kind = self.find(step.path), storable_type(step.data_type, step.path)
        if field.type == kind:
            return self
        if not is_wider(kind, field.type):
            old, new = type_name(field.type), type_name(kind)
            message = f"column {step.path!r} of type {old} cannot become {new}"
            hint = "types only widen; add a column of that type and write it from this one"
            raise SchemaError(message, hint=hint, column=step.path, found=old, expected=new)
        self._refuse_use(step.path, "keeps its type", ("record key", "partition"))
        changed = self._with(self._edited(step.path, lambda f: f.with_type(kind)))
        note = self.schema.notes.get(id_of(field), NO_NOTE)
        initial, default = (
            None if text is None else to_text(from_text(text, field.type).cast(kind), kind)
            for text in (note.initial, note.default)
        )
        was_float = note.was_float or _T.is_float32(field.type)
        wide = replace(note, initial=initial, default=default, was_float=was_float)
        return _with_note(changed, field, wide)

    def _required(self, path: str) -> Evolution:
        self.find(path)
        if len(path_parts(path)) > 1:
            message = f"{path!r} is part of a column, and only whole columns become required"
            raise SchemaError(message, hint="require the column", column=path)
        return self._with(self._edited(path, lambda f: f.with_nullable(nullable=False)))

    # --- how ---------------------------------------------------------------------------------

    def _refuse_use(self, path: str, what: str, uses: Sequence[str] | None = None) -> None:
        use = self.uses.get(path_parts(path)[0])  # a function may look into a struct
        if use is None or (uses is not None and use not in uses):
            return
        message = f"column {path!r} {what}, because it is the {use} of the table"
        hint = "change that first" if use == "time to live" else "a repush can give it another"
        raise SchemaError(message, hint=hint, column=path)

    def _with(self, fields: Fields) -> Evolution:
        arrow, notes = pa.schema(fields), self.schema.notes
        if notes:
            kept = set(ids_in(arrow))
            notes = {number: note for number, note in notes.items() if number in kept}
        return replace(self, schema=replace(self.schema, arrow=arrow, notes=notes))

    def _noted(self, path: str, **changes: str | None) -> Evolution:
        field = self.find(path)
        note = self.schema.notes.get(id_of(field), NO_NOTE)
        return _with_note(self, field, replace(note, **changes))  # type: ignore[arg-type]  # its fields

    def _siblings(self, parent: Sequence[str], change: Callable[[Fields], Fields]) -> Fields:
        """Return all fields, with those below a path changed; none for the columns themselves."""
        if not parent:
            return change(list(self.schema.arrow))
        path = column_path(parent)

        def inside(field: pa.Field) -> pa.Field:
            if not _T.is_struct(field.type):
                message = f"{path!r} of type {type_name(field.type)} has no members"
                raise SchemaError(message, hint="only a struct has some", column=path)
            return field.with_type(pa.struct(change(list(field.type.fields))))

        return self._edited(path, inside)

    def _edited(self, path: str, change: Callable[[pa.Field], pa.Field]) -> Fields:
        """Return all fields, with the one at a path changed."""
        return _edit(list(self.schema.arrow), path_parts(path), path, change)


def is_wider(new: pa.DataType, old: pa.DataType) -> bool:
    """Tell whether a type has every value of another, and files of it are read as it.

    >>> is_wider(pa.int64(), pa.int32()), is_wider(pa.int32(), pa.int64())
    (True, False)
    >>> is_wider(pa.decimal128(12, 3), pa.decimal128(10, 2))
    True
    """
    if _T.is_decimal(new) and _T.is_decimal(old):
        more, scale = new.precision - old.precision, new.scale - old.scale
        return bool(scale >= 0 and more >= scale and (more or scale))
    return new in _WIDER.get(old, ())


def widest(schema: Schema, others: Iterable[Schema]) -> Schema:
    """Return a schema whose fields have a type for all values that they have in others too.

    A field that has two types to which no decimal is wide enough keeps the one of before.
    """
    paths = {number: column_path(path) for path, number in ids_by_path(schema.arrow)}
    kinds, widened = dict(kinds_of(schema.arrow)), Evolution(schema, 0)
    for other in others:
        for number, there in kinds_of(other.arrow):
            kind = _holding(kinds.get(number, there), there)
            if number in kinds and is_wider(kind, kinds[number]):
                widened = widened.taking(WidenColumn(paths[number], kind))
                kinds[number] = kind
    return widened.schema


def kinds_of(fields: Iterable[pa.Field]) -> Iterator[tuple[int, pa.DataType]]:
    """Return the types of fields and of all their parts, by id."""
    for each in fields:
        yield id_of(each), each.type
        yield from kinds_of(parts_of(each.type))


def _holding(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the narrowest type that has the values of two, of which one is a type of columns."""
    if not (_T.is_decimal(one) and _T.is_decimal(other)):
        return other
    scale = max(one.scale, other.scale)
    digits = scale + max(each.precision - each.scale for each in (one, other))
    return pa.decimal128(digits, scale) if digits <= DECIMAL_DIGITS_MAX else one


def _with_note(evolution: Evolution, field: pa.Field, note: ColumnNote) -> Evolution:
    schema, number = evolution.schema, id_of(field)
    notes = {known: each for known, each in schema.notes.items() if known != number}
    if note != NO_NOTE:
        notes[number] = note
    return replace(evolution, schema=replace(schema, notes=notes))


def _edit(
    fields: Fields, names: Sequence[str], path: str, change: Callable[[pa.Field], pa.Field]
) -> Fields:
    known = [each.name for each in fields]
    if names[0] not in known:
        raise unknown_column(path, known)
    at = known.index(names[0])
    found = fields[at]
    edited = change(found) if len(names) == 1 else _inside(found, names[1:], path, change)
    return [*fields[:at], edited, *fields[at + 1 :]]


def _inside(
    field: pa.Field, names: Sequence[str], path: str, change: Callable[[pa.Field], pa.Field]
) -> pa.Field:
    """Change a field below another; the key of a map is not changed."""
    kind = field.type
    if _T.is_struct(kind):
        return field.with_type(pa.struct(_edit(list(kind.fields), names, path, change)))
    if _T.is_list(kind):
        return field.with_type(pa.list_(*_edit([kind.value_field], names, path, change)))
    if _T.is_map(kind):
        value = kind.item_field.with_name("value")
        return field.with_type(
            pa.map_(kind.key_field, *_edit([value], names, path, change), kind.keys_sorted)
        )
    message = f"{field.name!r} of type {type_name(kind)} has no part {'.'.join(names)!r}"
    raise SchemaError(message, hint="name a column or a part of one", column=path)


def _placed(siblings: Fields, field: pa.Field, after: str | None) -> Fields:
    """Put a field at its place; the list may be changed."""
    if after is None:
        siblings.append(field)
        return siblings
    if not after:
        return [field, *siblings]
    names = [each.name for each in siblings]
    if after not in names:
        raise unknown_column(after, names)
    at = names.index(after) + 1
    return [*siblings[:at], field, *siblings[at:]]


def _require_free(name: str, taken: Collection[str], path: str) -> None:
    """Refuse a name that is empty, or one of those taken, which are in lower case."""
    if not name:
        message = f"{path!r} leaves the name of a column empty"
        raise SchemaError(message, hint="give it a name", column=path)
    if name.lower() in taken:
        message = f"there is a column {name!r} already"
        raise SchemaError(message, hint="column names must differ in more than case", column=path)


def _default_text(path: str, kind: pa.DataType, value: object) -> str | None:
    """Return a default as the table keeps it; None for null."""
    if value is None or (isinstance(value, pa.Scalar) and not value.is_valid):
        return None
    kind = storable_type(kind, path)
    if not is_plain(kind):
        message = f"column {path!r} of type {type_name(kind)} can have no default but null"
        raise SchemaError(message, hint="leave the default out", column=path)
    # A scalar may be beyond what Python can spell: dates of the year 10,000, for example.
    shown = repr(plain_value(value) if isinstance(value, pa.Scalar) else value)
    message = f"{shown} is no value of column {path!r}, which is a {type_name(kind)}"
    hint = "give a value of that type"
    try:
        if isinstance(value, pa.Scalar) and value.type == kind:
            return to_text(value, kind)
        given = value.as_py() if isinstance(value, pa.Scalar) else value
        if _T.is_decimal(kind):
            given = str(given)  # as a number it would need all digits of a bigint
        default = pa.scalar(given).cast(kind)
        text = to_text(default, kind) if _is_meant(given, default) else None
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise SchemaError(message, hint=hint, column=path) from error
    if text is None:
        raise SchemaError(message, hint=hint, column=path)
    return text


def _is_meant(value: object, default: pa.Scalar) -> bool:
    """Tell whether a default is the value that was given: a text says it in its column's type.

    Floating-point columns take the nearest number, which is never an infinite one.
    """
    if _T.is_floating(default.type) and not isinstance(value, bool):
        return not math.isinf(default.as_py()) or "inf" in str(value).lower()
    return isinstance(value, str) or is_kept(value, default.as_py())
