"""Rows that are there, compared with constraints that are to come (RFC 0027, 0031)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from plait.arrow.constraints import constraint_error, not_computed
from plait.arrow.generated import different, rule_of
from plait.definition.generated import Generated, generated_in
from plait.definition.table_def import TableDef
from plait.errors import CorruptMetadataError, SchemaError
from plait.expr.checks import checked_columns, violation
from plait.files.sample import sample_of
from plait.model.evolution import kinds_of
from plait.model.plan import Snapshot
from plait.model.schema import Check, Schema, id_of, ids_in
from plait.model.steps import AddCheck, GenerateColumn, RequireColumn, Step, WidenColumn
from plait.read.scan import Scan
from plait.state.state import TableState
from plait.storage.port import Store
from plait.txn.table_handle import TableHandle


@dataclass(slots=True)
class Validation:
    """Looks at each live file once, however often others commit meanwhile.

    A file that holds has no more rows later, only fewer: so from each head that a decision could
    follow, only those files are read that came since. A restore can show rows again, and another
    schema can give a column's name to another one: then every file is read again.
    """

    handle: TableHandle
    steps: Sequence[Step]
    _under: tuple[object, ...] = ()
    """The demands, the schema and the restores under which files were seen."""
    _seen: set[str] = field(default_factory=set)
    """The files that hold all demands."""

    @property
    def reads(self) -> bool:
        """Whether rows may have to be read."""
        kinds = (AddCheck, GenerateColumn, RequireColumn, WidenColumn)
        return any(isinstance(step, kinds) for step in self.steps)

    def require(self, state: TableState, table: TableDef) -> None:
        """Refuse a definition that rows of a state break.

        The caller holds a read pin, and looked at the head for this state after that.

        Raises:
            ConstraintError: names the constraint, how many rows break it, and one of them.
            BadRecordError: a constraint has no value for a row.
        """
        before = state.table.spec.schema
        demands = (*self._new_of(before, table.spec.schema), *_dated(before, table.spec.schema))
        under = (demands, state.table.spec.schema.id, state.lineage.restores)
        if under != self._under:
            self._seen.clear()
            self._under = under
        if not demands:
            return
        snapshot = state.snapshot(self.handle.store)
        paths = snapshot.files["path"].to_pylist()
        fresh = pa.array([path not in self._seen for path in paths], pa.bool_())
        snapshot = replace(
            snapshot,
            spec=table.spec,
            schemas=dict(table.schemas),
            files=snapshot.files.filter(fresh),
        )
        for demand in demands:
            if isinstance(demand, _Dates):
                _require_times(demand, snapshot, self.handle.store)
            else:
                _require_none(demand, snapshot, self.handle.store)
        self._seen.update(paths)

    def _new_of(self, before: Schema, schema: Schema) -> tuple[Check | Generated, ...]:
        names = {step.name.lower() for step in self.steps if isinstance(step, AddCheck)}
        checks = [each for each in schema.checks if each.name.lower() in names]
        free = {id_of(column) for column in before.arrow if column.nullable}
        for column in schema.arrow:
            if id_of(column) in free and not column.nullable:
                quoted = "`" + column.name.replace("`", "``") + "`"
                checks.append(Check(f"{column.name} NOT NULL", f"{quoted} IS NOT NULL"))
        asked = any(isinstance(step, GenerateColumn) for step in self.steps)
        known = {_meaning(each, before) for each in generated_in(before)} if asked else set()
        generated = generated_in(schema) if asked else ()
        return (*checks, *(each for each in generated if _meaning(each, schema) not in known))


@dataclass(frozen=True, slots=True)
class _Dates:
    """The dates of a column become times, which end sooner."""

    column: str


def _dated(before: Schema, schema: Schema) -> Iterator[_Dates]:
    """Find columns with a date, here or deeper, that is a time from now on."""
    kinds = {number: kind for number, kind in kinds_of(before.arrow) if pa.types.is_date32(kind)}
    for column in schema.arrow if kinds else ():
        now = kinds_of([column])
        if any(number in kinds and pa.types.is_timestamp(kind) for number, kind in now):
            yield _Dates(column.name)


def _require_times(demand: _Dates, snapshot: Snapshot, store: Store) -> None:
    """Refuse rows with a date that no timestamp has.

    Raises:
        SchemaError: there is one.
    """
    try:
        for _ in Scan(store, snapshot, columns=[demand.column]).to_reader():
            pass
    except CorruptMetadataError as error:
        if not isinstance(error.__cause__, pa.ArrowInvalid):
            raise
        message = f"column {demand.column!r} has a date that no timestamp has"
        hint = "timestamps end in the year 294247; correct such rows first"
        raise SchemaError(message, hint=hint, column=demand.column) from error


def _meaning(column: Generated, schema: Schema) -> tuple[object, ...]:
    """Return what decides the values of a column: its text may name other columns than before."""
    fields = [schema.arrow.field(name) for name in column.sources]
    sources = ((field.name, field.type, *ids_in([field])) for field in fields)
    return schema.ids[column.name], column.type, column.text, *sources


def _require_none(demand: Check | Generated, snapshot: Snapshot, store: Store) -> None:
    """Refuse rows of a snapshot that break a demand.

    Raises:
        ConstraintError: some do.
        BadRecordError: the demand has no value for one.
    """
    if isinstance(demand, Generated):
        check, columns = rule_of(demand), [demand.name, *demand.sources]
        found = _unlike(demand, Scan(store, snapshot, columns=columns))
    else:
        check, schema = demand, snapshot.spec.schema.arrow
        columns = sorted(checked_columns(check, schema))
        found = Scan(store, snapshot, where=violation(check, schema)).to_reader()
    count, sample = 0, dict[str, str]()
    try:
        for batch in found:
            if batch.num_rows and not count:
                sample = sample_of(batch, 0, columns[0] if columns else "")
            count += batch.num_rows
    except pa.ArrowInvalid as error:
        raise not_computed(check, error, ",".join(columns), {}) from error
    if count:
        raise constraint_error(check, count, ",".join(columns), sample, there=True)


def _unlike(column: Generated, scan: Scan) -> Iterator[pa.RecordBatch]:
    for batch in scan.to_reader():
        yield batch.filter(pa.array(different(column, batch)))
