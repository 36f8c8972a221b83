"""Clauses of an update or a merge, bound to the columns that they compute from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from plait.arrow.check import check_known, lacking_column, prepare
from plait.arrow.generated import Transformed
from plait.definition.generated import generated_in
from plait.errors import BadRecordError, OptionError, PredicateError, SchemaMismatchError
from plait.expr import parse_value
from plait.expr.bind import MergeSides, bind, condition, find_column
from plait.expr.cast import cast
from plait.expr.evaluate import Sides, compute, holds
from plait.expr.tree import (
    SOURCE,
    TARGET,
    Column,
    Compare,
    Expression,
    Function,
    IsNull,
    Name,
    Or,
    Predicate,
    columns_read,
)
from plait.files.keys import Indices
from plait.model.clauses import Clauses, Delete, Insert, Matched, Update
from plait.model.instant import Operation
from plait.model.plan import TableSpec
from plait.model.schema import Schema, storable_type, type_name, unknown_column

Schemas: TypeAlias = Mapping[str, pa.Schema]
Clause = TypeVar("Clause", Insert, Matched)
Flags = npt.NDArray[np.bool_]


def parsed(clauses: Clauses) -> Clauses:
    """Return the clauses with formulas in place of what the caller wrote.

    Raises:
        PredicateError: a value or a condition is not understood.
        OptionError: a clause stands where it has no meaning.
    """
    return Clauses(
        tuple(_read(_one_of((Update, Delete), each, "matched")) for each in clauses.matched),
        tuple(_insert(_one_of((Insert,), each, "not_matched")) for each in clauses.not_matched),
        tuple(
            _read(_one_of((Update, Delete), each, "not_matched_by_source"))
            for each in clauses.by_source
        ),
        clauses.merges,
    )


def _one_of(allowed: tuple[type, ...], clause: Clause, where: str) -> Clause:
    if not isinstance(clause, allowed):
        names = ", ".join(kind.__name__ for kind in allowed)
        message = f"{where} takes {names}, not {type(clause).__qualname__}"
        hint = f"pass a list of them: from plait import {names}"
        raise OptionError(message, hint=hint, key=where, value=str(clause)[:100])
    return clause


def _read(clause: Matched) -> Matched:
    if isinstance(clause, Update):
        return Update(_formulas(clause.values), _condition(clause.when))
    return Delete(_condition(clause.when))


def _insert(clause: Insert) -> Insert:
    return Insert(_formulas(clause.values), _condition(clause.when))


def _condition(when: object) -> Predicate | None:
    return None if when is None else parse_value(when)


def _formulas(values: Mapping[str, object] | None) -> Mapping[str, Expression] | None:
    if values is None:
        return None
    return {str(name): _formula(value) for name, value in values.items()}


def _formula(value: object) -> Expression:
    transform = Transformed.find(value)
    return parse_value(value) if transform is None else Function(transform)


def partial(spec: TableSpec) -> Clauses:
    """Return what a partial upsert does: what rows lack stays; those that are new get defaults.

    As in every upsert a row that comes in wins unless the ordering column says otherwise.
    """
    when: Predicate | None = None
    if spec.layout.ordering is not None:
        ours, theirs = Name((TARGET, spec.layout.ordering)), Name((SOURCE, spec.layout.ordering))
        when = Or((IsNull(ours), Compare(theirs, ">=", ours)))
    return Clauses((Update(when=when),), (Insert(),))


def rows_spec(operation: Operation, spec: TableSpec, schema: pa.Schema) -> TableSpec:
    """Return the spec of the rows that come in for clauses, by the operation.

    Raises:
        SchemaMismatchError: a column is missing that must be there.
        SchemaError: a column has a type that no table can have.
        OptionError: some columns of rows do not say which row wins.
    """
    if operation is Operation.MERGE:
        return source_spec(spec, schema)
    check_known(schema.names, spec.schema.names)
    ordering = spec.layout.ordering
    if ordering in spec.schema.generated:
        message = f"the ordering column {ordering!r} is generated, and rows without all "
        message += "columns may lack what it comes from: nobody could tell which row wins"
        hint = "upsert whole rows, or use merge() with a condition"
        raise OptionError(message, hint=hint, key="missing_columns", value="keep")
    placed = dict.fromkeys([*spec.partition_sources, *spec.key, *filter(None, [ordering])])
    for name in placed:
        if name not in schema.names:
            raise lacking_column(name, schema.names, "which a partial upsert needs")
    given = frozenset(schema.names)
    kept = [field for field in spec.schema.arrow if field.name in given]
    return replace(spec, schema=Schema(spec.schema.id, pa.schema(kept)))


def check_again(first: TableSpec, names: Sequence[str]) -> None:
    """Refuse rows that have other columns than the first that came in for clauses.

    Raises:
        SchemaMismatchError: they have.
    """
    known = first.schema.names
    other = sorted(set(names) ^ set(known))
    if other:
        message = f"column {other[0]!r} is in some rows of this write but not in others"
        hint = "write rows with the same columns, or use one writer for each set of columns"
        raise SchemaMismatchError(
            message, hint=hint, column=other[0], expected=known, found=list(names)
        )


def source_spec(spec: TableSpec, schema: pa.Schema) -> TableSpec:
    """Return the spec of a merge's source: its own columns, the table's keys and partitions.

    Raises:
        SchemaMismatchError: a column of the key or of the partitions is missing.
        SchemaError: a column has a type that no table can have.
    """
    names = list(schema.names)
    for name in (*spec.partition_sources, *spec.key):
        if name not in names:
            raise lacking_column(name, names, "which a merge needs to match rows")
    known, placed = spec.schema.arrow, {*spec.partition_sources, *spec.key}
    fields = []
    for name, given in zip(names, schema.types, strict=True):
        if name in placed:
            fields.append(known.field(name).remove_metadata())
        elif pa.types.is_null(given):
            kind = known.field(name).type if name in known.names else pa.string()
            fields.append(pa.field(name, kind))
        else:
            fields.append(pa.field(name, storable_type(given, name)))
    layout = replace(spec.layout, ordering=None)
    return replace(spec, schema=Schema(spec.schema.id, pa.schema(fields)), layout=layout)


@dataclass(frozen=True, slots=True)
class Chosen:
    """What becomes of rows, by their position among those that were asked about."""

    changed: Indices
    rows: pa.Table
    """The changed or inserted rows, in the table's schema, one for each of ``changed``."""
    deleted: Indices


@dataclass(frozen=True, slots=True)
class _BoundClause:
    when: Predicate | None
    values: Mapping[str, Expression] | None
    """New values; None deletes the row."""


@dataclass(frozen=True, slots=True)
class BoundClauses:
    """A list of clauses over the same columns; the first that holds for a row wins."""

    spec: TableSpec
    rules: tuple[_BoundClause, ...]
    inserts: bool = False

    @classmethod
    def bind(
        cls,
        clauses: Sequence[Matched | Insert],
        spec: TableSpec,
        source: TableSpec | None,
        *,
        target: bool = True,
        merges: bool = True,
    ) -> Self:
        """Look up every column, and compute once without rows, so that types are checked.

        Raises:
            PredicateError: a column is not there, or an operation does not go with the types.
            SchemaMismatchError: a value does not fit its column.
            OptionError: a column of the key or of the partitions would change.
        """
        sides = MergeSides() if merges else dict[str, pa.Schema]()
        if target:
            sides[TARGET] = _plain(spec)
        if source is not None:
            sides[SOURCE] = _plain(source)
        rules = tuple(_bound(clause, spec, sides) for clause in clauses)
        bound = cls(spec, rules, not target)
        empty = Sides({side: schema.empty_table() for side, schema in sides.items()}, 0)
        for rule in rules:
            holds(rule.when, empty)
            if rule.values is not None:
                bound._rows(rule.values, empty)
        return bound

    @property
    def target_columns(self) -> frozenset[str]:
        """The columns of the table's rows that are looked at or kept."""
        names: set[str] = set()
        for rule in self.rules:
            values = rule.values or {}
            formulas = [*values.values(), *([] if rule.when is None else [rule.when])]
            for formula in formulas:
                read = columns_read(formula, TARGET)
                if read is None:
                    return frozenset(self.spec.schema.names)
                names |= read
            if rule.values is not None and not self.inserts:
                names |= set(self.spec.schema.names) - {*values, *self.spec.schema.generated}
        return frozenset(names)

    @property
    def set_columns(self) -> frozenset[str]:
        """The columns that may get another value."""
        named = frozenset(name for rule in self.rules for name in rule.values or ())
        generated = generated_in(self.spec.schema)
        return named.union(each.name for each in generated if named.intersection(each.sources))

    def choose(self, rows: Sides) -> Chosen:
        """Decide what becomes of rows.

        Raises:
            BadRecordError: a value cannot be computed or stored; names the column and a row.
        """
        rest: Indices = np.arange(rows.length)
        deleted: list[Indices] = []
        changed: list[Indices] = []
        tables: list[pa.Table] = []
        for rule in self.rules:
            if not len(rest):
                break
            left = rows if len(rest) == rows.length else _taken(rows, rest)
            flags = self._holds(rule, left)
            here = rest[flags]
            rest = rest[~flags]
            if rule.values is None:
                deleted.append(here)
            elif len(here):
                changed.append(here)
                tables.append(self._rows(rule.values, _taken(rows, here)))
        positions = np.concatenate([_NONE, *changed])
        table = pa.concat_tables([self.spec.schema.arrow.empty_table(), *tables])
        order = np.argsort(positions, kind="stable")
        gone = np.sort(np.concatenate([_NONE, *deleted]))
        return Chosen(positions[order], table.take(pa.array(order)), gone)

    def _holds(self, rule: _BoundClause, rows: Sides) -> Flags:
        try:
            flags: Flags = holds(rule.when, rows).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid as error:
            what = "a condition"
            raise _not_computed(what, "when", error) from error
        return flags

    def _rows(self, values: Mapping[str, Expression], rows: Sides) -> pa.Table:
        """Compute rows of the table; check them as rows that come in are checked."""
        schema, generated = self.spec.schema.arrow, self.spec.schema.generated
        columns: dict[str, pa.Array | pa.ChunkedArray] = {}
        for name in schema.names:
            if name in values:
                columns[name] = _value(name, values[name], rows, schema.field(name).type)
            elif not self.inserts and name not in generated:
                columns[name] = rows.tables[TARGET].column(name)
        operation = Operation.INSERT if self.inserts else Operation.UPSERT
        batches = list(prepare(pa.table(columns), self.spec, operation))
        return pa.Table.from_batches(batches, schema)


_NONE: Indices = np.zeros(0, dtype=np.int64)


def _plain(spec: TableSpec) -> pa.Schema:
    return pa.schema([each.remove_metadata() for each in spec.schema.arrow])


def _taken(rows: Sides, at: Indices) -> Sides:
    chosen = pa.array(at)
    return Sides({side: table.take(chosen) for side, table in rows.tables.items()}, len(at))


def _value(name: str, formula: Expression, rows: Sides, kind: pa.DataType) -> pa.Array:
    try:
        values = compute(formula, rows)
        if pa.types.is_floating(kind) and (
            pa.types.is_decimal(values.type) or pa.types.is_floating(values.type)
        ):
            kept = cast(values, kind)  # the nearest number, as everywhere
            beyond = pc.and_not(pc.is_inf(kept), pc.is_inf(values))
            if pc.any(beyond).as_py():  # these stay as they are: the check of rows names the first
                return pc.if_else(beyond, values, kept.cast(values.type))
            return kept
    except pa.ArrowInvalid as error:
        what = f"the value of column {name!r}"
        raise _not_computed(what, name, error) from error
    except PredicateError as error:
        message = f"the value of column {name!r}: {error.message}"
        raise PredicateError(message, hint=error.hint, text="", column=name) from error
    return values


def _not_computed(what: str, column: str, error: Exception) -> BadRecordError:
    message = f"{what} cannot be computed for a row: {str(error)[:200]}"
    hint = "exclude such rows with a condition, or use CASE WHEN ... THEN ... END"
    return BadRecordError(message, hint=hint, column=column, sample={})


def _bound(clause: Matched | Insert, spec: TableSpec, sides: Schemas) -> _BoundClause:
    when = None if clause.when is None else condition(parse_value(clause.when), sides)
    if not isinstance(clause, (Update, Insert)):
        return _BoundClause(when, None)
    inserts = isinstance(clause, Insert)
    fixed = _fixed_columns(spec, sides, inserts=inserts)
    values, known = _defaults(clause, spec, sides), frozenset(spec.schema.names)
    for name, value in ({} if clause.values is None else clause.values).items():
        if name not in known:
            raise unknown_column(name, spec.schema.names)
        formula = parse_value(value)
        bound = bind(formula, sides)
        own = isinstance(bound, Column) and (bound.path, bound.side) == ((name,), SOURCE)
        if name in fixed and not (inserts and own):
            raise _fixed(name, spec, inserts=inserts)
        values[name] = bound
    return _BoundClause(when, values)


def _defaults(clause: Update | Insert, spec: TableSpec, sides: Schemas) -> dict[str, Expression]:
    """Return what columns get that the clause does not name: the source's columns of that name."""
    fixed = _fixed_columns(spec, sides, inserts=isinstance(clause, Insert))
    names = spec.schema.names if clause.values is None else []
    if isinstance(clause, Insert):
        chosen = fixed.union(names)
        names = [name for name in spec.schema.names if name in chosen]
    else:  # both rows are in one partition: all that it comes from may be taken
        kept = {*spec.key, *spec.partition_columns} & fixed
        names = [name for name in names if name not in kept]
    if SOURCE not in sides:
        if clause.values is None:
            message = "this Update needs values, because it has no source row"
            raise OptionError(message, hint="Update({column: value})", key="values", value="None")
        return {}
    given = frozenset(sides[SOURCE].names)
    return {
        name: find_column(sides[SOURCE], (name,), side=SOURCE) for name in names if name in given
    }


def _fixed_columns(spec: TableSpec, sides: Schemas, *, inserts: bool) -> set[str]:
    """Return the columns that a clause cannot set: those that say which row it is, and where.

    A row that a key names in all partitions may move to that of the source's row.
    """
    moves = spec.unique_in_table and not inserts and {SOURCE, TARGET} <= sides.keys()
    return {*spec.key} if moves else {*spec.key, *spec.partition_sources}


def _fixed(column: str, spec: TableSpec, *, inserts: bool) -> OptionError:
    what = "record key" if column in spec.key else "partition"
    if inserts:
        message = (
            f"column {column!r} is part of the {what}: an inserted row takes it from the source"
        )
        hint = f"omit it, or write 's.{column}'; compute it in the source"
    else:
        kind = type_name(spec.schema.arrow.field(column).type)
        message = f"column {column!r} ({kind}) is part of the {what}, which an update cannot change"
        hint = "delete the rows and insert them again in one transaction()"
    return OptionError(message, hint=hint, key="values", value=column)
