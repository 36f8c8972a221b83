"""Tables whose columns change among writes show what a table in plain Python shows (RFC 0027)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from plait import SchemaError, Table
from tests.support.effort import share
from tests.support.memory import forget

_NAMES = itertools.count()
_COLUMNS = ("a", "b", "c", "d")
_KEYS = st.sets(st.integers(0, 6), min_size=1, max_size=4)
_INT, _LONG = "int", "bigint"
_DEFAULT = st.none() | st.integers(0, 9)
_COLUMN = st.sampled_from(_COLUMNS)
Row = dict[str, int | None]


@dataclass
class Model:
    """The columns, beside the key, with their types and defaults, and the rows by key."""

    kinds: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, int | None] = field(default_factory=dict)
    rows: dict[int, Row] = field(default_factory=dict)
    old: dict[int, tuple[list[str], list[Row]]] = field(default_factory=dict)
    """By version: its columns in their order, and its rows."""

    def shown(self) -> tuple[list[str], list[Row]]:
        """Return the columns, and the rows with their keys."""
        rows: list[Row] = [{"id": key, **self.rows[key]} for key in sorted(self.rows)]
        return ["id", *self.kinds], rows


class AlteredTable(RuleBasedStateMachine):
    """Writes, changes of columns and reads of every version."""

    @initialize(table_type=st.sampled_from(["cow", "mor"]))
    def make(self, table_type: str) -> None:
        self.uri = f"memory://altered-{next(_NAMES)}"
        self.table = Table.create(
            self.uri, "id bigint, a int", record_key="id", table_type=table_type, buckets=2
        )
        self.model = Model({"a": _INT}, {"a": None})
        self._note()

    def teardown(self) -> None:
        """Forget the table; it may not be made yet."""
        if hasattr(self, "uri"):
            forget(self.uri)

    def _note(self) -> None:
        self.model.old[self.table.version] = self.model.shown()

    @rule(keys=_KEYS, value=st.integers(0, 99))
    def upsert(self, keys: set[int], value: int) -> None:
        rows = {key: dict.fromkeys(self.model.kinds, value + key) for key in sorted(keys)}
        self.table.upsert(self._data(rows))
        self.model.rows.update({key: dict(row) for key, row in rows.items()})
        self._note()

    @rule(keys=_KEYS, value=st.integers(0, 99), column=_COLUMN)
    def upsert_with_a_new_column(self, keys: set[int], value: int, column: str) -> None:
        """The column is added in the same decision as the rows."""
        kinds = {**self.model.kinds, column: self.model.kinds.get(column, _INT)}
        rows: dict[int, Row] = {key: dict.fromkeys(kinds, value) for key in sorted(keys)}
        before = self.table.version
        self.table.upsert(self._data(rows, kinds), evolve="add")
        assert self.table.version == before + 1
        if column not in self.model.kinds:
            self._added(column, _INT, None)
        self.model.rows.update({key: dict(row) for key, row in rows.items()})
        self._note()

    @rule(keys=_KEYS)
    def delete(self, keys: set[int]) -> None:
        self.table.delete(keys=pa.table({"id": sorted(keys)}))
        for key in keys:
            self.model.rows.pop(key, None)
        self._note()

    @rule(
        column=_COLUMN, kind=st.sampled_from([_INT, _LONG]), default=st.none() | st.integers(0, 9)
    )
    def add(self, column: str, kind: str, default: int | None) -> None:
        change = self.table.alter.columns().add(column, kind, default=default)
        if column in self.model.kinds:
            self._refused(change.commit)
            return
        change.commit()
        self._added(column, kind, default)
        self._note()

    def _added(self, column: str, kind: str, default: int | None) -> None:
        self.model.kinds[column], self.model.defaults[column] = kind, default
        for row in self.model.rows.values():
            row[column] = default

    @precondition(lambda self: len(self.model.kinds) > 1)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        column = data.draw(st.sampled_from(sorted(self.model.kinds)))
        self.table.alter.columns().drop(column).commit()
        del self.model.kinds[column], self.model.defaults[column]
        for row in self.model.rows.values():
            del row[column]
        self._note()

    @rule(data=st.data(), name=_COLUMN)
    def rename(self, data: st.DataObject, name: str) -> None:
        column = data.draw(st.sampled_from(sorted(self.model.kinds)))
        change = self.table.alter.columns().rename(column, name)
        if name in self.model.kinds:
            if name != column:
                self._refused(change.commit)
            return
        change.commit()
        model = self.model
        model.kinds = {name if c == column else c: kind for c, kind in model.kinds.items()}
        model.defaults[name] = model.defaults.pop(column)
        model.rows = {
            key: {name if c == column else c: value for c, value in row.items()}
            for key, row in model.rows.items()
        }
        self._note()

    @rule(data=st.data())
    def widen(self, data: st.DataObject) -> None:
        column = data.draw(st.sampled_from(sorted(self.model.kinds)))
        self.table.alter.columns().widen(column, _LONG).commit()
        self.model.kinds[column] = _LONG
        self._note()

    @rule(data=st.data())
    def narrow(self, data: st.DataObject) -> None:
        column = data.draw(st.sampled_from(sorted(self.model.kinds)))
        if self.model.kinds[column] == _LONG:
            self._refused(self.table.alter.columns().widen(column, _INT).commit)

    @rule()
    def compact(self) -> None:
        self.table.maintenance.compact()
        self._note()

    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(sorted(self.model.old)))
        self.table.versions.restore(version=version)
        columns, rows = self.model.old[version]
        found = self.table.schema
        self.model.kinds = {
            name: _LONG if found.field(name).type == pa.int64() else _INT for name in columns[1:]
        }
        self.model.rows = {
            int(str(row["id"])): {name: row[name] for name in columns[1:]} for row in rows
        }
        self.model.defaults = dict.fromkeys(columns[1:])
        self._note()

    def _refused(self, call: object) -> None:
        before = self.table.version
        assert callable(call)
        try:
            call()
        except SchemaError:
            assert self.table.version == before
            return
        message = "a change that is not possible was decided"
        raise AssertionError(message)

    def _data(self, rows: dict[int, Row], kinds: dict[str, str] | None = None) -> pa.Table:
        kinds = self.model.kinds if kinds is None else kinds
        columns = {
            name: pa.array(
                [row[name] for row in rows.values()], pa.int64() if kind == _LONG else pa.int32()
            )
            for name, kind in kinds.items()
        }
        return pa.table({"id": pa.array(list(rows), pa.int64()), **columns})

    @invariant()
    def every_version_shows_its_own_columns_and_rows(self) -> None:
        """INV-04: for this client, and for one that opens the table."""
        if not hasattr(self, "uri"):
            return
        newest = max(self.model.old)
        for version in {newest, *sorted(self.model.old)[-3:], min(self.model.old)}:
            columns, rows = self.model.old[version]
            for table in (self.table, Table.open(self.uri)):
                found = table.scan(version=version).to_arrow()
                assert found.column_names == columns
                assert sorted(found.to_pylist(), key=lambda row: row["id"]) == rows

    @invariant()
    def a_change_read_leads_from_the_first_rows_to_the_newest(self) -> None:
        """INV-04: what was inserted and not deleted since is what there is."""
        if not hasattr(self, "uri"):
            return
        live: dict[int, int] = {}
        for row in self.table.changes(since=0).to_arrow().to_pylist():
            step = 1 if row["_change_type"] in ("insert", "update_postimage") else -1
            live[row["id"]] = live.get(row["id"], 0) + step
        assert {key for key, count in live.items() if count} == set(self.model.rows)


TestAlteredTable = AlteredTable.TestCase
TestAlteredTable.settings = settings(max_examples=share(12), stateful_step_count=14)
