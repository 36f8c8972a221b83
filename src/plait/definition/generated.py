"""Generated columns: the value comes from other columns of the row (RFC 0031).

The expression is a transform, as partitions have them, or SQL text, as values of an update are. It
is checked when a table is made and at each change of the columns that it looks at.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from plait.errors import BadRecordError, OptionError, PredicateError, SchemaError
from plait.expr.bind import bind, find_column
from plait.expr.cast import cast
from plait.expr.checks import renamed_text, require_own_names
from plait.expr.evaluate import Sides, compute
from plait.expr.sql import parse_expression
from plait.expr.tree import TARGET, Call, Expression, columns_read, parts_of
from plait.files.partition_values import values_of
from plait.files.sample import first_failing, sample_of, shown
from plait.model.evolution import is_wider
from plait.model.partitioning import PartitionField, is_transform, parse_field
from plait.model.schema import NO_NOTE, Schema, type_name, unknown_column
from plait.model.steps import (
    ColumnStep,
    DefaultColumn,
    DropColumn,
    GenerateColumn,
    RenameColumn,
    WidenColumn,
    path_parts,
)
from plait.model.value import is_plain

_ALPHABETS: Final = ("upper", "lower")
"""Functions whose values depend on tables of letters: Arrow and the JVM have other ones."""


@dataclass(frozen=True, slots=True)
class Generated:
    """A column with its expression, bound to the columns of its table."""

    name: str
    text: str
    """The expression as definitions have it."""
    type: pa.DataType
    sources: tuple[str, ...]
    """The columns that it looks at."""
    formula: PartitionField | Expression

    @classmethod
    def of(cls, name: str, text: str, schema: pa.Schema) -> Generated:
        """Bind the expression of a column.

        Raises:
            PredicateError: it is not understood, or looks at no column that there is.
            SchemaError: its value is of another type than the column, or the same for all rows.
        """
        kind = schema.field(name).type
        made = _transform if is_transform(text) else _sql
        try:
            generated = made(name, text.strip(), schema)
        except PredicateError:
            raise
        except (ValueError, pa.ArrowException, TypeError) as error:
            message = f"column {name!r} cannot be generated as {text[:100]!r}: {str(error)[:200]}"
            hint = "use a transform such as day(c), or SQL text as in an update"
            raise SchemaError(message, hint=hint, column=name, found=text[:200]) from error
        found = generated.type
        other = isinstance(generated.formula, PartitionField) or not is_wider(kind, found)
        if not is_plain(kind) or (found != kind and other):
            message = (
                f"column {name!r} is {type_name(kind)}, and {text[:100]!r} gives {type_name(found)}"
            )
            hint = f"write CAST(... AS {type_name(kind)}), or give the column that type"
            raise SchemaError(message, hint=hint, column=name, found=type_name(found))
        if not generated.sources:
            message = f"{text[:100]!r} looks at no column"
            raise SchemaError(message, hint="use a default", column=name, found=text[:200])
        return replace(generated, type=kind)

    def values(self, rows: pa.RecordBatch) -> pa.Array:
        """Return the value for each row, whose columns have the table's types.

        Raises:
            BadRecordError: a number overflows, a divisor is zero, or a cast has no value. Names the
                first such row.
        """
        try:
            return self._computed(rows)
        except pa.ArrowInvalid as error:
            sample = sample_of(rows, first_failing(rows, self._computed), self.sources[0])
            message = (
                f"column {self.name!r}, which is generated as {self.text[:100]!r}, cannot be "
                f"computed for a row: {str(error)[:200]}; the first is {shown(sample)}"
            )
            hint = "correct or drop such rows before you write them"
            raise BadRecordError(message, hint=hint, column=self.name, sample=sample) from error

    def _computed(self, rows: pa.RecordBatch) -> pa.Array:
        if isinstance(self.formula, PartitionField):
            return values_of(self.formula, rows)
        looked_at = rows.select(list(self.sources))
        return cast(compute(self.formula, Sides({TARGET: looked_at}, rows.num_rows)), self.type)

    def renamed(self, old: str, new: str) -> str:
        """Return the expression with another name of a column."""
        if isinstance(self.formula, PartitionField):
            return replace(self.formula, sources=(new,)).text
        return renamed_text(self.text, old, new)


def _transform(name: str, text: str, schema: pa.Schema) -> Generated:
    field = parse_field(text)
    (source,) = field.sources
    field = replace(field, sources=find_column(schema, (source,), text).path)
    return Generated(name, field.text, field.kind(schema), field.sources, field)


def _sql(name: str, text: str, schema: pa.Schema) -> Generated:
    plain = pa.schema([each.remove_metadata() for each in schema])
    require_own_names(text, plain)
    formula = bind(parse_expression(text), {TARGET: plain}, text)
    for part in parts_of(formula):
        if isinstance(part, Call) and part.name in _ALPHABETS:
            message = f"{part.name.upper()} of some letters differs between engines, as of 'ß'"
            raise SchemaError(
                message, hint="let rows bring the value", column=name, found=text[:200]
            )
    value = compute(formula, Sides({TARGET: plain.empty_table()}, 0))
    read = columns_read(formula) or ()
    sources = tuple(each for each in plain.names if each in read)
    return Generated(name, text, value.type, sources, formula)


def generated_in(schema: Schema) -> tuple[Generated, ...]:
    """Return the generated columns of a schema.

    Raises:
        PredicateError: an expression is not understood: a newer Plait wrote it.
    """
    generated = schema.generated
    return _generated(tuple(generated.items()), schema.arrow) if generated else ()


@functools.lru_cache(maxsize=64)
def _generated(texts: tuple[tuple[str, str], ...], schema: pa.Schema) -> tuple[Generated, ...]:
    try:
        return tuple(Generated.of(name, text, schema) for name, text in texts)
    except SchemaError as error:
        raise PredicateError(error.message, hint="upgrade plait", text="") from error


def ungenerated(schema: Schema) -> Schema:
    """Return the columns of rows of which nobody knows whether their values were generated."""
    notes = {number: replace(note, generated=None) for number, note in schema.notes.items()}
    return replace(schema, notes=notes) if schema.generated else schema


_GIVEN = ("record key", "partition")
"""Uses in which a value must come with its row: it says which row that is, and where."""


def with_generated(schema: Schema, step: GenerateColumn, uses: Mapping[str, str]) -> Schema:
    """Return a schema in which a column is generated, or no longer is.

    Args:
        schema: the columns.
        step: which one, and from what.
        uses: what columns are needed for.

    Raises:
        SchemaError: the column cannot be generated so; the message says why.
        SchemaMismatchError: there is no such column.
        PredicateError: the expression is not understood, or does not fit the columns.
    """
    name = _column(schema, step.path)
    note = schema.notes.get(schema.ids[name], NO_NOTE)
    if step.expression is None:
        if note.generated is None:
            message = f"column {name!r} is not generated"
            known = ", ".join(schema.generated) or "none"
            raise SchemaError(message, hint=f"generated columns: {known}", column=name)
        return _with(schema, {name: None})
    if uses.get(name) in _GIVEN:
        use = uses[name]
        message = f"column {name!r} cannot be generated, because it is the {use} of the table"
        hint = "rows must bring its value"
        if use == "partition":
            hint = "give the table partitions by a transform first: repush(partition_by='day(c)')"
        raise SchemaError(message, hint=hint, column=name)
    if note.default is not None:
        message = f"column {name!r} has a default, and its value would always be generated"
        raise SchemaError(message, hint="drop the default first", column=name)
    found = Generated.of(name, step.expression, schema.arrow)
    _require_given(found, schema)
    return _with(schema, {name: found.text})


def _column(schema: Schema, path: str) -> str:
    """Return the column at a path; raise SchemaError if it is part of one."""
    if path in schema.names:
        return path
    column, *members = path_parts(path)
    if column not in schema.names:
        raise unknown_column(path, schema.names)
    if members:
        message = f"{path!r} is part of a column, and only whole columns are generated"
        raise SchemaError(message, hint="add a column", column=path)
    return column


def _require_given(found: Generated, schema: Schema) -> None:
    """Refuse a column that is generated from another one, or that another one comes from."""
    for source in found.sources:
        if source == found.name or source in schema.generated:
            message = f"column {found.name!r} cannot be generated from {source!r}"
            message += ", which rows would not bring"
            raise SchemaError(message, hint="name the columns that rows bring", column=found.name)
    for each in generated_in(schema):
        if found.name in each.sources:
            raise _needed(found.name, each, "cannot be generated")


def generated_after(before: Schema, step: ColumnStep, schema: Schema) -> Schema:
    """Return a schema after a step, with the generated columns of before over its columns.

    Raises:
        SchemaError: the step would change what a column is generated from, or how.
    """
    if not before.generated:
        return schema
    texts: dict[str, str | None] = {}
    names = {schema.ids[name]: name for name in schema.names}
    for each in generated_in(before):
        name = names.get(before.ids[each.name])
        if name is None:
            continue  # it was dropped
        text = _after(each, before, step, schema)
        try:
            texts[name] = Generated.of(name, text, schema.arrow).text
        except (PredicateError, SchemaError) as error:
            message = f"column {name!r} is generated as {each.text[:100]!r}: {error.message}"
            hint = "let it no longer be generated first, and generate it again as it is to be"
            raise SchemaError(message, hint=hint, column=name) from error
    return _with(schema, texts)


def _after(each: Generated, before: Schema, step: ColumnStep, schema: Schema) -> str:
    if not isinstance(step, (DropColumn, RenameColumn, WidenColumn, DefaultColumn)):
        return each.text
    column, *members = path_parts(step.path)
    if isinstance(step, DefaultColumn):
        if column == each.name and step.default is not None:
            message = f"column {column!r} is generated, so a default would never be used"
            raise SchemaError(message, hint="let it no longer be generated first", column=step.path)
        return each.text
    if isinstance(step, WidenColumn):
        touched = column in (each.name, *each.sources)
        if touched and before.arrow.field(column).type != schema.arrow.field(column).type:
            raise _needed(step.path, each, "keeps its type")
        return each.text
    if column not in each.sources:
        return each.text
    if isinstance(step, DropColumn) or members:
        raise _needed(step.path, each, "stays")
    return each.renamed(column, step.name)


def _needed(path: str, each: Generated, what: str) -> SchemaError:
    message = f"column {path!r} {what}, because {each.name!r} is generated as {each.text[:100]!r}"
    hint = f"drop {each.name!r}, or let it no longer be generated, first"
    return SchemaError(message, hint=hint, column=path)


def create_generated(schema: Schema, generated: Mapping[str, str], key: Sequence[str]) -> Schema:
    """Return the first schema of a table with its generated columns.

    Raises:
        SchemaError, SchemaMismatchError, PredicateError: as ``with_generated``.
    """
    spelled = {name.lower(): name for name in schema.names}
    uses = dict.fromkeys(key, "record key")
    for name, text in generated.items():
        column = spelled.get(name.lower(), name)
        if column in schema.generated:
            message = f"column {column!r} has two expressions"
            raise SchemaError(message, hint="leave one of them out", column=column)
        schema = with_generated(schema, GenerateColumn(column, text), uses)
    return schema


def placing_field(schema: Schema, field: PartitionField) -> PartitionField:
    """Return a field of columns that rows bring: for a generated one the transform behind it.

    A row is sent to its place before its columns are generated.

    Raises:
        OptionError: a column is generated by SQL text.
    """
    generated = schema.generated
    behind = generated.get(field.sources[0]) if field.is_column else None
    if behind is not None and is_transform(behind):
        return parse_field(behind)
    strange = [name for name in field.sources if name in generated]
    if strange:
        behind = generated[strange[0]]
        message = f"partition_by={field.text!r} needs {strange[0]!r}, which is generated as SQL"
        if is_transform(behind):
            message = f"partition_by={field.text!r} takes {strange[0]!r}, which is {behind}"
        hint = "use a transform of a column that rows bring, or let rows bring this one"
        raise OptionError(message, hint=hint, key="partition_by", value=field.text)
    return field


def _with(schema: Schema, texts: Mapping[str, str | None]) -> Schema:
    """Return the schema with the expressions of some columns."""
    if not texts:
        return schema
    notes = dict(schema.notes)
    for name, text in texts.items():
        number = schema.ids[name]
        note = replace(notes.pop(number, NO_NOTE), generated=text)
        if note != NO_NOTE:
            notes[number] = note
    return replace(schema, notes=notes)
