"""Tables whose columns change, in plain Python: what every version of a schedule must show.

A column is told apart by the version that added it and its name of then. Field ids, which tell it
apart in the table, are compared with that: the same column has one id for ever, and no two share
one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

import pyarrow as pa

from plait import Table
from plait.errors import LockError, RolledBackError, TableError
from plait.model.decision import Decision
from plait.txn.table_handle import TableHandle
from tests.scheduler import End

Row: TypeAlias = Mapping[str, object]
"""Values by the identity of their column."""


@dataclass(frozen=True)
class Column:
    """One column of a version."""

    identity: str
    name: str
    kind: pa.DataType
    nullable: bool = True
    default: object = None


@dataclass(frozen=True)
class Shown:
    """What a version shows."""

    columns: tuple[Column, ...]
    rows: Mapping[int, Row]
    rules: Mapping[str, Callable[[Mapping[str, object]], bool]] = field(default_factory=dict)
    """By the name of a check: whether a row holds it, whose values come by identity."""

    def find(self, name: str) -> Column | None:
        return next((each for each in self.columns if each.name == name), None)

    def edited(self, column: str, **changes: object) -> Shown:
        """Return it with another column in place of one."""
        edited = [
            replace(each, **changes) if each.name == column else each  # type: ignore[arg-type]  # by name
            for each in self.columns
        ]
        return replace(self, columns=tuple(edited))

    def added(self, column: Column) -> Shown:
        """Return it with one more column, which rows that are there have the default of."""
        rows = {key: {**row, column.identity: column.default} for key, row in self.rows.items()}
        return replace(self, columns=(*self.columns, column), rows=rows)

    def dropped(self, name: str) -> Shown:
        return replace(self, columns=tuple(each for each in self.columns if each.name != name))

    def put(self, key: int, given: Row) -> Shown:
        """Return it with a row, which has the defaults of the columns that it came without."""
        row = {each.identity: given.get(each.identity, each.default) for each in self.columns}
        return replace(self, rows={**self.rows, key: row})

    def table(self) -> dict[int, dict[str, object]]:
        """Return the rows as a reader sees them."""
        names = {each.identity: each.name for each in self.columns}
        return {
            key: {names[number]: value for number, value in row.items() if number in names}
            for key, row in self.rows.items()
        }

    def broken_by(self, row: Row) -> list[str]:
        """Return what a row breaks."""
        found = [name for name, holds in self.rules.items() if not holds(row)]
        nulls = (each for each in self.columns if row.get(each.identity) is None)
        return [*found, *(f"{each.name} NOT NULL" for each in nulls if not each.nullable)]

    def require_sound(self) -> None:
        """No row of a version breaks a constraint of that version."""
        for key, row in self.rows.items():
            broken = self.broken_by(row)
            assert not broken, f"row {key} breaks {broken}: {row}"


@dataclass(frozen=True)
class Past:
    """The versions so far."""

    versions: Mapping[int, Shown]

    @property
    def newest(self) -> Shown:
        return self.versions[max(self.versions)]

    def ever(self, holds: Callable[[Shown], bool]) -> bool:
        return any(map(holds, self.versions.values()))


class Part(Protocol):
    """What one actor does, and what becomes of the table by its decision."""

    def __call__(self, handle: TableHandle) -> object: ...

    def effect(self, past: Past, decision: Decision) -> Shown:
        """Return the table after its decision."""
        ...

    def may_refuse(self, error: TableError, past: Past) -> bool:
        """Tell whether it may end like this, though nothing failed."""
        ...


def began(decision: Decision) -> int:
    """Return the version whose columns a writer began with."""
    found = decision.client.get("began", decision.base)
    assert isinstance(found, int)
    return found


@dataclass(frozen=True)
class ColumnsCheck:
    """Every version shows the columns, the ids and the rows that its decisions come to."""

    parts: Mapping[str, Part]
    first: Mapping[int, Shown]
    """The versions of before the schedule; of these the last is looked at again."""
    verified: bool = False
    """Whether verify looks too: it finds nothing that this does not, and takes longer."""

    def __call__(self, end: End) -> None:
        past = self._replayed(end)
        table = Table(end.handle())
        identities: dict[int, str] = {}
        for version, shown in past.versions.items():
            if version < max(self.first):
                continue
            shown.require_sound()
            schema = table._handle.cache.snapshot(version=version).spec.schema
            found = [(each.name, each.type, each.nullable) for each in schema.arrow]
            wanted = [(each.name, each.kind, each.nullable) for each in shown.columns]
            assert found == wanted, f"version {version} has {found}, not {wanted}"
            for column in shown.columns:
                number = schema.ids[column.name]
                known = identities.setdefault(number, column.identity)
                assert known == column.identity, f"id {number}: {known} and {column.identity}"
            rows = table.scan(version=version).to_arrow().to_pylist()
            keyed = {row["id"]: {**row} for row in rows}
            assert len(rows) == len(keyed), f"INV-08: {rows}"
            assert keyed == shown.table(), f"version {version} shows {keyed}, not {shown.table()}"
        assert len(set(identities.values())) == len(identities), f"a column has two: {identities}"
        if self.verified:
            problems = table.check.verify(data=True).problems
            assert not problems, str(problems)
        self._judge_errors(end, past)

    def _replayed(self, end: End) -> Past:
        versions = dict(self.first)
        for decision in end.handle().cache.timeline.load_after(max(versions), limit=1_000):
            past = Past(dict(versions))
            mine = (
                part
                for name, part in self.parts.items()
                if decision.instant.nonce.startswith(end.outcomes[name].nonces)
            )
            part = next(mine, None)
            note = part is None or decision.operation.value in ("clean", "rollback", "reserve")
            shown = past.newest if note or part is None else part.effect(past, decision)
            versions[decision.version] = shown
        return Past(versions)

    def _judge_errors(self, end: End, past: Past) -> None:
        """See that nobody was refused but where nothing else is right."""
        for name, part in self.parts.items():
            outcome = end.outcomes[name]
            error = outcome.error
            if outcome.hurt or outcome.crashed or not isinstance(error, TableError):
                continue
            excused = isinstance(error, (RolledBackError, LockError))  # a recoverer was there
            assert excused or part.may_refuse(error, past), f"{name}: {error!r}"
