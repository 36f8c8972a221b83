"""Check rows before anything of them is written, and bring them to the table's types."""

from __future__ import annotations

import difflib
import functools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.arrow.cast import Fit, LossyError, apply, demanding, fit, missing_value
from plait.arrow.constraints import Constraints
from plait.arrow.generated import computed
from plait.arrow.ingest import Rows, open_rows
from plait.definition.generated import Generated, generated_in
from plait.errors import BadRecordError, OptionError, SchemaMismatchError
from plait.expr import to_sql
from plait.files.fitting import filled, sound
from plait.files.sample import first_bad, first_failing, sample_of
from plait.model.defaults import default_value
from plait.model.instant import Operation
from plait.model.plan import TableSpec
from plait.model.request import WriteRequest
from plait.model.schema import parts_of, type_name, unknown_column
from plait.read.condition import Condition

PIECE_BYTES = 8 << 20
_SHOWN_COLUMNS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRows(Rows):
    """Rows that are all in memory, with what ``prepare`` made of them for one layout.

    ``prepare`` gives that once, for the same layout. For another one it prepares ``table`` again:
    the columns may have changed since.
    """

    spec: TableSpec
    operation: Operation
    batches: deque[pa.RecordBatch]
    """Batches in the schema of the layout; each is released when it is taken."""

    @classmethod
    def of(
        cls, batches: Sequence[pa.RecordBatch], spec: TableSpec, operation: Operation
    ) -> PreparedRows:
        """Take batches that ``prepare`` returned for the same layout."""
        table = pa.Table.from_batches(batches)
        return cls(table.schema, table, spec=spec, operation=operation, batches=deque(batches))

    def fits(self, spec: TableSpec, operation: Operation) -> bool:
        """Tell whether there are batches, and they are what ``prepare`` would make."""
        ours, theirs = self.spec, spec
        return (
            bool(self.batches)
            and operation is self.operation
            and ours == theirs
            and (ours.unique, ours.rejects_nan_in) == (theirs.unique, theirs.rejects_nan_in)
            and ours.schema.arrow.equals(theirs.schema.arrow, check_metadata=True)
        )

    def given(self, where: Condition | None) -> Iterator[pa.RecordBatch]:
        """Return the batches, once; raise BadRecordError if ``where`` does not hold for a row.

        Whoever asks again, perhaps after a failure half-way, has the rows prepared again.
        """
        taken = self.batches.copy()
        self.batches.clear()
        if where is not None:
            for batch in taken:
                _check_where(batch, where)
        return iter(functools.partial(_next_of, taken), None)


def _next_of(batches: deque[pa.RecordBatch]) -> pa.RecordBatch | None:
    return batches.popleft() if batches else None


def prepare_all(
    data: pa.Table, spec: TableSpec, operation: Operation, *, piece_bytes: int = PIECE_BYTES
) -> PreparedRows:
    """Prepare a table to its last row, and hold the result until ``prepare`` is asked for it.

    Raises:
        SchemaMismatchError, BadRecordError, ConstraintError: as ``prepare``.
    """
    rows = open_rows(data)
    checker = _Checker.plan(rows, spec, operation, None)
    pieces = list(rows.pieces(piece_bytes))
    batches = deque(checker.prepare(each, pieces[at:]) for at, each in enumerate(pieces, 1))
    return PreparedRows(rows.schema, rows.table, spec=spec, operation=operation, batches=batches)


def prepare(
    data: object,
    spec: TableSpec,
    operation: Operation = Operation.APPEND,
    *,
    where: Condition | None = None,
    piece_bytes: int = PIECE_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Return rows in the table's schema, in batches of about ``piece_bytes`` at most.

    Rows that are all in memory are checked to the last before the first batch is given; those
    of a stream batch by batch. A delete takes the key columns, and the partition columns where
    all of them are there; other columns of the table are left out. ``where`` must hold for
    every row. ``PreparedRows`` are given as they are.

    Raises:
        OptionError: this is no kind of data that can be written.
        SchemaMismatchError: columns are missing, unknown, or of a type that does not fit.
        BadRecordError: a value is missing or would change; names the column and a row.
        ConstraintError: rows break a check of the schema, or bring another value for a generated
            column than its expression gives; a delete's may.
    """
    rows = open_rows(data)
    if isinstance(rows, PreparedRows) and rows.fits(spec, operation):
        return rows.given(where)
    checker = _Checker.plan(rows, spec, operation, where)
    if rows.table is None or not (checker.fallible or checker.has_strange_text(rows.table)):
        return map(checker.prepare, rows.pieces(piece_bytes))
    pieces = list(rows.pieces(piece_bytes))
    if len(pieces) == 1 or not checker.copies:
        return iter([checker.prepare(piece, pieces[at:]) for at, piece in enumerate(pieces, 1)])
    # Cast copies of all pieces would not fit into the memory that a writer may use.
    for at, piece in enumerate(pieces, 1):
        checker.prepare(piece, pieces[at:])
    again = replace(checker, where=None, foreign=False, constraints=Constraints())
    return map(again.prepare, pieces)


def require_removals(request: WriteRequest) -> None:
    """Refuse an operation that takes no removals.

    Raises:
        OptionError: it is no upsert of whole rows.
    """
    if request.operation is Operation.UPSERT and request.clauses is None:
        return
    partial = " with missing_columns='keep'" if request.operation is Operation.UPSERT else ""
    message = f"{request.operation}{partial} does not take removals among its rows"
    hint = "use writer('upsert') with whole rows, or delete(keys=...) in a commit of its own"
    raise OptionError(message, hint=hint, key="operation", value=request.operation.value)


def prepare_removals(
    data: object, spec: TableSpec, *, piece_bytes: int = PIECE_BYTES
) -> Iterator[pa.RecordBatch]:
    """Return the keys of removals in the table's types, with the columns of their partitions.

    Where keys are unique in all partitions, they need no partition, and have none.

    Raises:
        SchemaMismatchError: a column of the key or of the partitions is missing.
        OptionError, BadRecordError: as ``prepare``.
    """
    rows = open_rows(data)
    for name in () if spec.unique_in_table else spec.partition_sources:
        if name not in rows.schema.names:
            message = f"the keys lack column {name!r}, which says where they are removed"
            hint = "add the columns of the partitions; delete(keys=...) looks in every partition"
            found = list(rows.schema.names)
            raise SchemaMismatchError(message, hint=hint, column=name, found=found)
    return prepare(rows, spec, Operation.DELETE, piece_bytes=piece_bytes)


def input_schema(spec: TableSpec, operation: Operation, names: Sequence[str]) -> pa.Schema:
    """Return the schema in which an operation takes rows whose columns have these names."""
    schema = spec.schema.arrow
    if operation is not Operation.DELETE:
        return schema
    wanted = set(spec.key)
    if not spec.unique_in_table and set(spec.partition_sources) <= set(names):
        wanted |= set(spec.partition_sources)
    elif not spec.unique_in_table:
        _refuse_half_placed(names, spec)
    return pa.schema([field for field in schema if field.name in wanted])


def _refuse_half_placed(names: Sequence[str], spec: TableSpec) -> None:
    """Refuse keys that seem to say in which partition they are, and would be removed in all."""
    for name in set(names).intersection(spec.schema.generated, spec.decided_columns):
        lacking = ", ".join(each for each in spec.partition_sources if each not in names)
        message = f"the keys have {name!r}, but lack {lacking}, which say where they are"
        hint = f"add the columns; or leave {name!r} out, to look in every partition"
        raise SchemaMismatchError(message, hint=hint, column=name, found=list(names))


@dataclass(frozen=True, slots=True)
class _ColumnCheck:
    """How one column of the table is made from the input."""

    field: pa.Field
    """The column; no null is allowed in one that identifies the row."""
    position: int | None
    fit: Fit
    rejects_nan: bool
    """NaN is refused: it is not equal to itself."""
    in_key: bool
    demanding: bool
    """Whether a null is refused, here or deeper in the type."""
    default: pa.Scalar | None = None
    """What rows have that come without the column; None: null."""
    generated: bool = False
    """Whether it is looked at once it is computed."""
    texts: bool = False
    """Whether there are texts in it, here or deeper: Arrow takes any bytes for one."""

    @property
    def fallible(self) -> bool:
        """Whether some value may be refused."""
        return self.demanding or self.rejects_nan or self.fit > Fit.TOTAL

    def prepare(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the column in the table's type; raise BadRecordError for what cannot be kept."""
        if self.position is None:
            return filled(self.default, self.field.type, batch.num_rows)
        given = batch.column(self.position)
        try:
            array = apply(given, self.field.type)
            if pa.types.is_nested(self.field.type):
                array = sound(array)
        except LossyError as error:
            message = f"a value of column {self.field.name!r} cannot be kept as "
            message += type_name(self.field.type)
            hint = "cast or clean the column before you write it"
            at = first_failing(given, lambda part: apply(part, self.field.type), LossyError)
            raise self._refused(message, hint, batch, at) from error
        if self.texts and not _is_utf8(array):
            message = f"a text of column {self.field.name!r} is not UTF-8"
            at = first_bad(array, lambda part: not _is_utf8(part))
            raise self._refused(message, "decode it, or write it to a column of bytes", batch, at)
        return array if self.generated else self.checked(array, batch)

    def checked(self, array: pa.Array, batch: pa.RecordBatch) -> pa.Array:
        """Return the values of the column, as they are; raise BadRecordError for one too few."""
        if self.demanding and (path := missing_value(array, self.field)) is not None:
            why = "record keys must not be null" if self.in_key else "the column must not be null"
            message = f"column {path!r} is null in a row, and {why}"
            at = first_bad(array, lambda part: missing_value(part, self.field) is not None)
            raise self._refused(message, "fill or drop such rows", batch, at)
        if self.rejects_nan and (at := pc.index(pc.is_nan(array), value=True).as_py()) >= 0:
            message = f"column {self.field.name!r} is NaN in a row, which is not equal to itself"
            hint = "NaN is not allowed in keys, partitions and ordering columns"
            raise self._refused(message, hint, batch, at)
        return array

    def _refused(self, message: str, hint: str, batch: pa.RecordBatch, at: int) -> BadRecordError:
        name = self.field.name
        return BadRecordError(message, hint=hint, column=name, sample=sample_of(batch, at, name))


@functools.lru_cache(maxsize=1024)
def _has_texts(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or any(_has_texts(part.type) for part in parts_of(kind))


def _is_utf8(array: pa.Array | pa.ChunkedArray) -> bool:
    """Tell whether every text in these rows is UTF-8; Arrow alone looks at all that share memory.

    So a slice of a list would cost what the whole one does, and be blamed for the text of another.
    """
    if isinstance(array, pa.ChunkedArray):
        return all(map(_is_utf8, array.chunks))
    if pa.types.is_struct(array.type):
        return all(_is_utf8(array.field(at)) for at in range(array.type.num_fields))
    if pa.types.is_list(array.type) or pa.types.is_map(array.type):
        start, stop = (array.offsets[at].as_py() for at in (0, -1))
        whole = (array.keys, array.items) if pa.types.is_map(array.type) else (array.values,)
        return all(_is_utf8(each.slice(start, stop - start)) for each in whole)
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Checker:
    schema: pa.Schema
    columns: tuple[_ColumnCheck, ...]
    where: Condition | None
    foreign: bool
    copies: bool
    """Whether some column takes new memory in the table's schema."""
    constraints: Constraints
    generated: tuple[Generated, ...] = ()

    @classmethod
    def plan(
        cls, rows: Rows, spec: TableSpec, operation: Operation, where: Condition | None
    ) -> _Checker:
        if operation is Operation.DELETE and not spec.keyed:
            message = "this table has no record key, so rows cannot be deleted by key"
            raise SchemaMismatchError(message, hint="delete with where=...", column="")
        names = rows.schema.names
        schema = input_schema(spec, operation, names)
        _check_names(names, schema, spec)
        if operation is Operation.UPSERT:
            lacking = frozenset(spec.schema.generated).difference(names)
            _check_whole(rows.schema, [each for each in schema if each.name not in lacking])
        made = frozenset(spec.schema.generated)
        columns = tuple([_plan_column(field, rows.schema, spec, made) for field in schema])
        given = dict(zip(names, rows.schema.types, strict=True))
        same = list(map(given.get, schema.names)) == schema.types
        keys = operation is Operation.DELETE
        bound = spec.schema.checks and not keys
        constraints = Constraints.of(spec.schema) if bound else Constraints()
        generated = generated_in(spec.schema) if made and not keys else ()
        copies = not same or bool(generated)
        return cls(schema, columns, where, rows.foreign, copies, constraints, generated)

    @property
    def fallible(self) -> bool:
        """Whether some row may be refused."""
        asked = self.foreign or self.where is not None or bool(self.constraints.every)
        return asked or bool(self.generated) or any(c.fallible for c in self.columns)

    def has_strange_text(self, rows: pa.Table) -> bool:
        """Tell whether some text is not UTF-8."""
        places = (each.position for each in self.columns if each.texts)
        return not all(_is_utf8(rows.column(at)) for at in places if at is not None)

    def prepare(self, batch: pa.RecordBatch, rest: Sequence[pa.RecordBatch] = ()) -> pa.RecordBatch:
        """Bring a batch to the table's schema, or refuse it; the rest is counted then."""
        prepared = self._fitted(batch, rest)
        if self.constraints.every:
            self.constraints.require(prepared, map(self._fitted, rest))
        return prepared

    def _fitted(self, batch: pa.RecordBatch, rest: Sequence[pa.RecordBatch] = ()) -> pa.RecordBatch:
        prepared = self._typed(batch)
        if self.generated:
            prepared = computed(self.generated, prepared, lambda: map(self._typed, rest))
            for column in self.columns:
                if column.generated:
                    column.checked(prepared.column(column.field.name), prepared)
        if self.where is not None:
            _check_where(prepared, self.where)
        return prepared

    def _typed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.foreign:
            _check_contents(batch)
        arrays = [column.prepare(batch) for column in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _check_names(names: Sequence[str], schema: pa.Schema, spec: TableSpec) -> None:
    check_known(names, spec.schema.names)
    left = frozenset(names).union(spec.schema.generated)
    for field in schema:
        if field.name in left:
            continue
        if default_value(spec.schema, field.name) is not None:
            continue
        if not field.nullable or field.name in spec.key:
            raise lacking_column(field.name, names, "which must not be null")


def lacking_column(name: str, names: Sequence[str], why: str) -> SchemaMismatchError:
    """Return the error for rows without a column, with the nearest name that they have."""
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    message = f"the rows lack column {name!r}, {why}"
    hint = f"rename {near[0]!r} if it is the same column" if near else "add the column"
    return SchemaMismatchError(message, hint=hint, column=name, found=names, nearest=near)


def check_known(names: Sequence[str], known: Sequence[str]) -> None:
    """Refuse columns that the table does not have, and a name that two have.

    Raises:
        SchemaMismatchError: there is such a column.
    """
    there, seen = frozenset(known), set[str]()
    for name in names:
        if name not in there:
            raise unknown_column(name, known, found=list(names))
        if name in seen:
            message = f"the input has two columns {name!r}"
            hint = "rename or drop one of them"
            raise SchemaMismatchError(message, hint=hint, column=name, found=list(names))
        seen.add(name)


def _check_whole(given: pa.Schema, schema: Sequence[pa.Field]) -> None:
    """Refuse rows that replace others and lack some of their values, which would be lost."""
    missing = _missing(pa.struct(list(given)), pa.struct(schema), "")
    if not missing:
        return
    several = "columns" if len(missing) > 1 else "column"
    shown = ", ".join(map(repr, missing[:_SHOWN_COLUMNS]))
    message = f"the rows lack {several} {shown}: an upsert would set them to null in existing rows"
    hint = (
        "write whole structs"
        if any(name not in {each.name for each in schema} for name in missing)
        else "add them, or upsert with missing_columns='keep' to keep the values that are there"
    )
    raise SchemaMismatchError(
        message, hint=hint, column=missing[0], missing=missing, found=list(given.names)
    )


def _missing(given: pa.DataType, wanted: pa.DataType, path: str) -> list[str]:
    """Return the paths of the fields of a type that another type lacks."""
    if pa.types.is_struct(wanted) and pa.types.is_struct(given):
        names: list[str] = []
        theirs = {child.name: child.type for child in given.fields}
        for child in wanted.fields:
            at = f"{path}.{child.name}".lstrip(".")
            names += _missing(theirs[child.name], child.type, at) if child.name in theirs else [at]
        return names
    if pa.types.is_list(wanted) and hasattr(given, "value_type"):
        return _missing(given.value_type, wanted.value_type, f"{path}.element")
    if pa.types.is_map(wanted) and pa.types.is_map(given):
        return _missing(given.item_type, wanted.item_type, f"{path}.value")
    return []


def _plan_column(
    field: pa.Field, schema: pa.Schema, spec: TableSpec, made: frozenset[str]
) -> _ColumnCheck:
    position = schema.get_field_index(field.name)
    in_key = field.name in spec.key
    generated = field.name in made
    rejects_nan = pa.types.is_floating(field.type) and (
        in_key or field.name in (spec.layout.ordering, spec.rejects_nan_in, *spec.partition_sources)
    )
    strict = field.with_nullable(field.nullable and not in_key)
    if position < 0:
        return _ColumnCheck(
            field,
            None,
            Fit.TOTAL,
            rejects_nan=rejects_nan and generated,
            in_key=in_key,
            demanding=generated and demanding(strict),
            default=default_value(spec.schema, field.name),
            generated=generated,
        )
    given = schema.field(position).type
    how = fit(given, field.type)
    if how is Fit.NEVER:
        raise SchemaMismatchError(
            f"column {field.name!r} is {type_name(field.type)}, the input has {given}",
            hint=_type_hint(given, field.type),
            column=field.name,
            expected=str(field.type),
            found=str(given),
        )
    strictly = demanding(strict)
    texts = _has_texts(field.type)
    return _ColumnCheck(
        strict, position, how, rejects_nan, in_key, strictly, generated=generated, texts=texts
    )


def _type_hint(given: pa.DataType, wanted: pa.DataType) -> str:
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted):
        return (
            "say which zone the input is in, for example with pyarrow.compute.assume_timezone"
            if given.tz is None
            else "the column has no zone: convert to local time first"
        )
    return "cast the column first, so that it is clear what becomes of each value"


def _check_contents(batch: pa.RecordBatch) -> None:
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        message = f"the input is not valid Arrow data: {str(error)[:200]}"
        hint = "report this to the producer of the data"
        raise BadRecordError(message, hint=hint, column="", sample={}) from error


def _check_where(batch: pa.RecordBatch, where: Condition) -> None:
    matches = where.matches(batch)
    if matches.all():
        return
    message = f"a row does not match the predicate of the overwrite: {to_sql(where.predicate)}"
    hint = "write only rows that match the overwrite's where"
    sample = sample_of(batch, int(np.argmin(matches)), "")
    raise BadRecordError(message, hint=hint, column=",".join(where.columns), sample=sample)
