"""Rows that are there, compared with constraints that are to come (RFC 0027)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from plait.arrow.constraints import constraint_error
from plait.arrow.sample import sample_of
from plait.expr.checks import checked_columns, violation
from plait.model.schema import Check, Schema, id_of
from plait.model.steps import AddCheck, Step
from plait.read.scan import Scan
from plait.state.definition import TableDef
from plait.state.state import TableState
from plait.txn.read_pin import ReadPin
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

    def require(self, state: TableState, table: TableDef) -> None:
        """Refuse a definition that rows of a state break.

        Raises:
            ConstraintError: names the constraint, how many rows break it, and one of them.
        """
        demands = self._new_of(state.table.spec.schema, table.spec.schema)
        under = (demands, state.table.spec.schema.id, state.lineage.restores)
        if under != self._under:
            self._seen.clear()
            self._under = under
        if not demands:
            return
        pin = ReadPin(self.handle, state.version)
        try:
            snapshot = state.snapshot(self.handle.store)
            paths = snapshot.files["path"].to_pylist()
            fresh = pa.array([path not in self._seen for path in paths], pa.bool_())
            snapshot = replace(
                snapshot,
                spec=table.spec,
                schemas=dict(table.schemas),
                files=snapshot.files.filter(fresh),
            )
            for check in demands:
                where = violation(check, table.spec.schema.arrow)
                _require_none(check, Scan(self.handle.store, snapshot, where=where))
            self._seen.update(paths)
        finally:
            pin.release()

    def _new_of(self, before: Schema, schema: Schema) -> tuple[Check, ...]:
        names = {step.name.lower() for step in self.steps if isinstance(step, AddCheck)}
        checks = [each for each in schema.checks if each.name.lower() in names]
        free = {id_of(column) for column in before.arrow if column.nullable}
        for column in schema.arrow:
            if id_of(column) in free and not column.nullable:
                quoted = "`" + column.name.replace("`", "``") + "`"
                checks.append(Check(f"{column.name} NOT NULL", f"{quoted} IS NOT NULL"))
        return tuple(checks)


def _require_none(check: Check, scan: Scan) -> None:
    """Refuse rows that a scan finds; raise ConstraintError."""
    columns = sorted(checked_columns(check, scan.schema))
    count, sample = 0, dict[str, str]()
    for batch in scan.to_reader():
        if batch.num_rows and not count:
            sample = sample_of(batch, 0, columns[0] if columns else "")
        count += batch.num_rows
    if count:
        raise constraint_error(check, count, ",".join(columns), sample, there=True)
