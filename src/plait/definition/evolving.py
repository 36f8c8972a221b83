"""The definition of a table after changes of its columns (RFC 0027); nothing is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from plait.definition.constraints import checks_after, with_check
from plait.definition.generated import generated_after, with_generated
from plait.definition.table_def import TableDef
from plait.errors import SchemaError
from plait.model.evolution import Evolution
from plait.model.order import recorded_order
from plait.model.request import WriteRequest
from plait.model.schema import NAME_CHARS_MAX, NO_NOTE, Schema, admitted, id_of, ids_in, parts_of
from plait.model.steps import (
    AddCheck,
    AddColumn,
    DropCheck,
    GenerateColumn,
    RenameColumn,
    Step,
    column_path,
    path_parts,
)

_T = pa.types
_SUFFIX_CHARS = 11
"""A dash and the longest id."""


def altered(table: TableDef, steps: Sequence[Step], *, since: int) -> TableDef | None:
    """Return the definition after some steps, as it is from a version on; None if it is the same.

    Raises:
        SchemaError: a step is not possible.
        PredicateError: a condition is not understood.
        RepushOpenError: a repush is open.
    """
    table.require_no_repush()
    return _after(table, steps, since=since)


def _after(table: TableDef, steps: Sequence[Step], *, since: int = 0) -> TableDef | None:
    last = max(number for schema in table.schemas.values() for number in ids_in(schema.arrow))
    evolution, renamed = Evolution(table.spec.schema, last, uses_of(table)), table
    for step in _runs(steps):
        before = evolution.schema
        if isinstance(step, list):  # nothing that is there is called or typed otherwise after it
            evolution = evolution.adding(step)
            continue
        if isinstance(step, (AddCheck, DropCheck)):
            evolution = replace(evolution, schema=with_check(before, step))
            continue
        if isinstance(step, GenerateColumn):
            schema = with_generated(before, step, evolution.uses)
            evolution = replace(evolution, schema=schema)
            continue
        if isinstance(step, RenameColumn):
            renamed = _renamed(renamed, step, evolution.uses)
        evolution = evolution.taking(step)
        schema = generated_after(before, step, checks_after(before, step, evolution.schema))
        evolution = replace(evolution, schema=schema)
    admitted(evolution.schema.arrow)  # once: each step alone would look at every column
    first = table.spec.schema
    if evolution.schema.same_columns(first) and evolution.schema.notes == first.notes:
        return None
    newest = max(table.schemas)
    number = newest + 1 if first.id == newest else newest + 2  # see TableDef.only_comments
    schema = with_stored_names(replace(evolution.schema, id=number), table.schemas.values())
    after = table.laid_out(replace(renamed.spec, schema=schema), since=since)
    schemas = {**table.schemas, schema.id: schema}
    return replace(after, schemas=schemas, options=renamed.options, ttl=renamed.ttl)


def with_stored_names(schema: Schema, others: Iterable[Schema]) -> Schema:
    """Return a schema whose fields have in files the names that they always had there.

    A new field gets its own name, unless a field beside it ever had that: then its id is added.
    So nobody who finds columns by name takes one for another (RFC 0046).

    Args:
        schema: that the table is to have.
        others: all that it had.
    """
    names: dict[int, str] = {}
    taken: dict[int, set[str]] = {}
    for each in others:
        for number, (name, parent) in _names_in(each.stored).items():
            names[number] = name
            taken.setdefault(parent, set()).add(name.lower())
    notes = dict(schema.notes)
    for number, (name, parent) in _names_in(schema.arrow).items():
        known = names.get(number)
        if known is None:
            known = name
            while known.lower() in taken.get(parent, ()):
                known = f"{known[: NAME_CHARS_MAX - _SUFFIX_CHARS]}-{number}"
            taken.setdefault(parent, set()).add(known.lower())
        note = replace(notes.get(number, NO_NOTE), stored_name=None if known == name else known)
        if note != NO_NOTE:
            notes[number] = note
        else:
            notes.pop(number, None)
    return replace(schema, notes=notes)


def _names_in(fields: Iterable[pa.Field], parent: int = 0) -> dict[int, tuple[str, int]]:
    """Return by id the name of each column and member of a struct, and whose member it is."""
    found: dict[int, tuple[str, int]] = {}
    for each in fields:
        number = id_of(each)
        found[number] = each.name, parent
        found |= _names_in(parts_of(each.type), number)
    return found


def _runs(steps: Sequence[Step]) -> Iterator[Step | list[AddColumn]]:
    """Divide steps: columns that are added one after the other come together."""
    added = list[AddColumn]()
    for step in steps:
        if isinstance(step, AddColumn):
            added.append(step)
            continue
        if added:
            yield added
            added = []
        yield step
    if added:
        yield added


def with_name(table: TableDef, old: str, new: str) -> TableDef:
    """Return the definition with another name of a column wherever it stands, but in the schema."""

    def named(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(new if name == old else name for name in names)

    spec, ttl, options = table.spec, table.ttl, table.options
    layout = spec.layout
    buckets = replace(layout.buckets, key=named(spec.key), by=named(layout.buckets.by))
    fields = (replace(each, sources=named(each.sources)).text for each in spec.fields)
    ordering = new if layout.ordering == old else layout.ordering
    layout = replace(layout, buckets=buckets, partition_by=tuple(fields), ordering=ordering)
    if ttl is not None and ttl.by_column and ttl.by == old:
        ttl = replace(ttl, by=new)
        if not ttl.by_column:
            message = f"the time to live cannot name a column {new!r}"
            raise SchemaError(message, hint="choose another name", column=old)
    order = recorded_order(options)
    if order is not None and old in order.columns:
        columns = named(order.columns)
        options = options.merged({"cluster.by": ", ".join(columns)})
        if options.names("cluster.by") != columns:
            message = f"the order that the table records cannot name a column {new!r}"
            raise SchemaError(message, hint="choose another name", column=old)
    return replace(table, spec=replace(spec, layout=layout), ttl=ttl, options=options)


def _renamed(table: TableDef, step: RenameColumn, uses: Mapping[str, str]) -> TableDef:
    """Return the definition after another name; a function may look into a column's parts."""
    column, *parts = path_parts(step.path)
    if column not in uses:
        return table
    if parts:
        why = f"its column is the {uses[column]} of the table"
        message = f"{step.path!r} keeps its name, because {why}"
        hint = "rename columns, or parts that the table's layout does not need"
        raise SchemaError(message, hint=hint, column=step.path)
    return with_name(table, column, step.name)


def named_as_in(table: TableDef, schema: Schema) -> TableDef:
    """Return the definition with the names of columns in options as an older schema has them.

    What names a column that is not there any more goes.
    """
    now, there = table.spec.schema, {schema.ids[name]: name for name in schema.names}
    ttl, options, order = table.ttl, table.options, recorded_order(table.options)
    if ttl is not None and ttl.by_column:
        name = there.get(now.ids[ttl.by])
        ttl = None if name is None else replace(ttl, by=name)
    if order is not None:
        names = [there.get(now.ids[name]) for name in order.columns]
        known = ", ".join(name for name in names if name is not None)
        options = options.merged({"cluster.by": "" if None in names else known})
    return replace(table, ttl=ttl, options=options)


# --- columns that rows bring along ---------------------------------------------------------------


def with_added_columns(request: WriteRequest, table: TableDef, columns: pa.Schema) -> WriteRequest:
    """Return a request with those columns of its rows that the table lacks, if it adds such."""
    if not request.adds_columns:
        return request
    return replace(request, added_columns=tuple(lacking_columns(columns, table.spec.schema)))


def with_columns_of(table: TableDef, request: WriteRequest) -> TableDef:
    """Return the definition with the columns that rows bring along, if the writer asked for it.

    Two writers that bring the same column get one, whoever is first.

    Raises:
        SchemaError: a column cannot be added.
        RepushOpenError: a repush is open, and a column would be added.
    """
    steps = _lacking(table.spec.schema, request)
    return (altered(table, steps, since=0) if steps else None) or table


def definition_with(table: TableDef, request: WriteRequest) -> dict[str, object] | None:
    """Return the definition for the decision of a write; None if it adds no column."""
    evolved = with_columns_of(table, request)
    return None if evolved is table else evolved.to_dict()


def schemas_with(table: TableDef, request: WriteRequest) -> Mapping[int, Schema]:
    """Return the schemas by which files of a writer are read, whether or not it may commit."""
    steps = _lacking(table.spec.schema, request)
    return ((_after(table, steps) if steps else None) or table).schemas


def _lacking(schema: Schema, request: WriteRequest) -> tuple[AddColumn, ...]:
    """Return what rows bring along and a schema lacks, perhaps just members of a struct in it."""
    return tuple(
        step
        for each in request.added_columns or ()
        for step in _still_lacking(list(schema.arrow), each)
    )


def _still_lacking(fields: Sequence[pa.Field], step: AddColumn) -> Iterator[AddColumn]:
    path = path_parts(step.path)
    found = _find(fields, path)
    if found is None:
        yield step
    else:
        yield from _members(tuple(path), step.data_type, found.type)


def _find(fields: Sequence[pa.Field], path: Sequence[str]) -> pa.Field | None:
    name, *rest = path
    found = next((each for each in fields if each.name == name), None)
    return found if found is None or not rest else _find(parts_of(found.type), rest)


def lacking_columns(given: pa.Schema, known: Schema) -> Iterator[AddColumn]:
    """Return the columns, and members of structs, of some rows that a schema does not have."""
    there = {field.name: field.type for field in known.arrow}
    for field in given:
        if field.name in there:
            yield from _members((field.name,), field.type, there[field.name])
        else:
            yield AddColumn(column_path([field.name]), field.type)


def _members(path: Sequence[str], given: pa.DataType, known: pa.DataType) -> Iterator[AddColumn]:
    if _T.is_struct(given) and _T.is_struct(known):
        there = {child.name: child.type for child in known.fields}
        for child in given.fields:
            at = (*path, child.name)
            if child.name in there:
                yield from _members(at, child.type, there[child.name])
            else:
                yield AddColumn(column_path(at), child.type)
    elif _T.is_list(known) and hasattr(given, "value_type"):
        yield from _members((*path, "element"), given.value_type, known.value_type)
    elif _T.is_map(known) and _T.is_map(given):
        yield from _members((*path, "value"), given.item_type, known.item_type)


def uses_of(table: TableDef) -> dict[str, str]:
    """Return what columns of a table are needed for."""
    spec, order = table.spec, recorded_order(table.options)
    uses = dict.fromkeys(() if order is None else order.columns, "recorded order")
    if table.ttl is not None and table.ttl.by_column:
        uses[table.ttl.by] = "time to live"
    if spec.layout.ordering is not None:
        uses[spec.layout.ordering] = "ordering column"
    uses |= dict.fromkeys(spec.partition_sources, "partition")
    return uses | dict.fromkeys(spec.key, "record key")
