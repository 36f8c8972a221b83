"""The generated columns of a table as its columns change (RFC 0031)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from plait.errors import OptionError, PredicateError, SchemaError
from plait.files.generated import Generated, generated_in
from plait.model.column_path import path_parts
from plait.model.partitioning import PartitionField, is_transform, parse_field
from plait.model.schema import NO_NOTE, Schema, unknown_column
from plait.model.steps import (
    ColumnStep,
    DefaultColumn,
    DropColumn,
    GenerateColumn,
    RenameColumn,
    WidenColumn,
)

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
    note = schema.notes.get(schema.field_id(name), NO_NOTE)
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
            hint = "name the columns that rows bring"
            raise SchemaError(message, hint=hint, column=found.name)
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
    names = {schema.field_id(name): name for name in schema.names}
    for each in generated_in(before):
        name = names.get(before.field_id(each.name))
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
            hint = "let it no longer be generated first"
            raise SchemaError(message, hint=hint, column=step.path)
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
        number = schema.field_id(name)
        note = replace(notes.pop(number, NO_NOTE), generated=text)
        if note != NO_NOTE:
            notes[number] = note
    return replace(schema, notes=notes)
