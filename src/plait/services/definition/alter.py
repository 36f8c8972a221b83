"""``Table.alter``: the definition of a table. A change of columns is one decision (RFC 0027)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Final, Literal, overload

import pyarrow as pa

from plait.definition.evolving import altered
from plait.definition.replicated_table import require_no_replicas
from plait.definition.sink_schema import SinkSchema
from plait.definition.table_def import TableDef
from plait.definition.ttl import Ttl
from plait.errors import OptionError, SchemaError
from plait.expr.alter import parse_steps
from plait.expr.ddl import parse_ddl
from plait.interop.publication import require_libraries
from plait.model.decision import CommitResult, Decision
from plait.model.instant import Action, Operation
from plait.model.schema import Schema
from plait.model.steps import (
    AddCheck,
    AddColumn,
    AllowNull,
    CommentColumn,
    DefaultColumn,
    DropCheck,
    DropColumn,
    GenerateColumn,
    MoveColumn,
    RenameColumn,
    RequireColumn,
    Step,
    WidenColumn,
)
from plait.model.words import Concurrency, FailedWrites
from plait.services.definition.contract import change_contract, reopen
from plait.services.definition.upgrade import (
    FeaturePlan,
    change_features,
    plan_downgrade,
    plan_upgrade,
)
from plait.services.definition.validate import Validation
from plait.state.state import TableState
from plait.txn.read_pin import pinned
from plait.txn.service import publish_service
from plait.txn.table_decisions import set_properties, set_ttl
from plait.txn.table_handle import Namespace, TableHandle, client, require_plan

_TEXTS: Final[Mapping[str, type]] = {
    "path": str,
    "name": str,
    "comment": str,
    "predicate": str,
    "expression": type(None),
    "after": type(None),
}
"""What must be text in a step, and what it may be besides."""


class Alteration:
    """Changes of columns, to be decided together. Each call returns a longer one.

    >>> import pyarrow as pa
    >>> from plait import Table
    >>> t = Table.create("memory://doc-alter", "id bigint, n int", record_key="id")
    >>> t.upsert(pa.table({"id": [1], "n": pa.array([7], pa.int32())})).version
    1
    >>> change = t.alter.columns().rename("n", "count").widen("count", "bigint")
    >>> change.add("note", "string").commit().version
    2
    >>> t.scan().to_arrow().to_pylist()
    [{'id': 1, 'count': 7, 'note': None}]
    """

    def __init__(self, handle: TableHandle, steps: Sequence[Step] = ()) -> None:
        self._handle, self._steps = handle, tuple(steps)

    def add(
        self,
        column: str,
        data_type: str | pa.DataType,
        *,
        nullable: bool = True,
        default: object = None,
        comment: str = "",
        after: str | None = None,
    ) -> Alteration:
        """Add a column, or a member of a struct as ``struct.member``.

        Args:
            column: its name.
            data_type: its type, as SQL or as an Arrow type.
            nullable: whether it may be null; if not, it needs a default.
            default: the value of rows that are there, and of rows that come without the column.
            comment: what it means.
            after: the column behind which it comes; "" for the first place, None for the last.
        """
        step = AddColumn(column, _type(data_type), nullable, default, comment, after)
        return self._with(step)

    def drop(self, column: str) -> Alteration:
        """Drop a column. Older versions still show it; no later column gets its values."""
        return self._with(DropColumn(column))

    def rename(self, column: str, name: str) -> Alteration:
        """Give a column another name."""
        return self._with(RenameColumn(column, name))

    def move(self, column: str, *, after: str) -> Alteration:
        """Put a column behind another; "" for the first place."""
        return self._with(MoveColumn(column, after))

    def widen(self, column: str, data_type: str | pa.DataType) -> Alteration:
        """Give a column a type that has every value of its type.

        Whole numbers become longer, ``float`` becomes ``double``, ``date`` becomes
        ``timestamp_ntz``, and a decimal gets more digits, before the point or behind it.
        """
        return self._with(WidenColumn(column, _type(data_type)))

    def allow_null(self, column: str) -> Alteration:
        """Let a column be null that was required."""
        return self._with(AllowNull(column))

    def require(self, column: str) -> Alteration:
        """Let a column never be null: rows that are there are looked at first."""
        return self._with(RequireColumn(column))

    def add_check(self, name: str, predicate: str) -> Alteration:
        """Add a condition that no row may break: rows that are there are looked at first.

        A row breaks it if the condition is false; null breaks nothing, as in SQL. From this commit
        on every writer compares its rows with it, also one that is at work.

        Args:
            name: what errors call it.
            predicate: SQL text over the columns of a row, such as ``"fare >= 0"``.

        >>> from plait import Table
        >>> t = Table.create("memory://doc-alter-check", "id bigint, fare int")
        >>> t.alter.columns().add_check("paid", "fare >= 0").require("id").commit().version
        1
        """
        return self._with(AddCheck(name, predicate))

    def drop_check(self, name: str) -> Alteration:
        """Drop a condition by its name."""
        return self._with(DropCheck(name))

    def generate(self, column: str, expression: str | None) -> Alteration:
        """Let the value of a column come from others of its row, from now on.

        Rows that are there are looked at first: each must have the value already. Writers may
        leave the column out, or bring the same value.

        Args:
            column: its name; it is there, or an ``add`` before this adds it.
            expression: a transform of a column, such as ``"day(at)"``, or SQL text, such as
                ``"fare + tip"``; None: rows bring the value again.

        >>> import pyarrow as pa
        >>> from plait import Table
        >>> t = Table.create("memory://doc-alter-generate", "fare int, tip int")
        >>> t.alter.columns().add("paid", "int").generate("paid", "fare + tip").commit().version
        1
        >>> t.append(pa.table({"fare": [7], "tip": [2]})).version
        2
        >>> t.scan().to_arrow().to_pylist()
        [{'fare': 7, 'tip': 2, 'paid': 9}]
        """
        return self._with(GenerateColumn(column, expression))

    def comment(self, column: str, text: str) -> Alteration:
        """Say what a column means; "" for nothing."""
        return self._with(CommentColumn(column, text))

    def default(self, column: str, value: object) -> Alteration:
        """Give rows that come without the column a value from now on; None for null."""
        return self._with(DefaultColumn(column, value))

    def sql(self, text: str) -> Alteration:
        """Add what a text asks for, as ``ALTER TABLE`` of Spark SQL: ``ADD COLUMN n int``.

        Raises:
            SchemaError: it is not understood.

        >>> from plait import Table
        >>> t = Table.create("memory://doc-alter-sql", "id bigint")
        >>> change = t.alter.columns().sql("ADD COLUMN n int DEFAULT 1 FIRST")
        >>> change.sql("RENAME COLUMN id TO k").commit().version
        1
        """
        return Alteration(self._handle, (*self._steps, *parse_steps(text)))

    @overload
    def commit(self, *, dry_run: Literal[False] = False) -> CommitResult | None: ...
    @overload
    def commit(self, *, dry_run: Literal[True]) -> pa.Schema: ...
    def commit(self, *, dry_run: bool = False) -> CommitResult | pa.Schema | None:
        """Decide all of it at once; return None if the columns are as wanted.

        Writers that are at work stage their rows again by themselves, if they can.

        Args:
            dry_run: write nothing, and return the columns as they would be.

        Raises:
            SchemaError: a step is not possible; nothing was written.
            ConstraintError: rows that are there break a constraint that is to come.
            PredicateError: a condition is not understood.
            SchemaMismatchError: there is no such column.
            RepushOpenError: a repush is open, which copies the columns as they are.
            OptionError: the table's definition names sinks, whose columns stay as they are.
        """
        if dry_run:
            return planned(self._handle, self._steps).arrow
        return alter(self._handle, self._steps)

    def _with(self, step: Step) -> Alteration:
        for each in dataclasses.fields(step):
            given = getattr(step, each.name)
            if each.name in _TEXTS and not isinstance(given, (str, _TEXTS[each.name])):
                message = f"{each.name}={given!r} is not a text"
                raise SchemaError(message, hint="pass a str", found=str(given)[:100])
        return Alteration(self._handle, (*self._steps, step))


class Alter(Namespace):
    """The definition of a table: its columns, options, contract and features."""

    def columns(self) -> Alteration:
        """Begin a change of the columns; ``commit`` decides all of it at once.

        >>> from plait import Table
        >>> t = Table.create("memory://doc-alter-begin", "id bigint")
        >>> t.alter.columns().add("note", "string", default="none").commit().version
        1
        """
        return Alteration(self._handle)

    def set(self, properties: Mapping[str, object]) -> CommitResult:
        """Set options in one commit.

        Raises:
            OptionError: an unknown one.
            MissingDependencyError: this client cannot publish in a format that is named.
        """
        require_libraries(properties)
        return set_properties(self._handle, properties)

    def set_ttl(self, ttl: Ttl | str | None) -> CommitResult:
        """Set the time to live of rows in one commit; None: they live for ever.

        A row whose time is over may disappear at any time from then on; ``expire`` takes it away.

        Args:
            ttl: ``Ttl``, or its text: a column of dates or timestamps and a time, such as
                ``"day 30d"``; or ``"written 30d partition"``; or ``"written 30d row"`` with the
                property ``rows.written``.

        Raises:
            OptionError, SchemaMismatchError: it does not fit the table; nothing was written.

        >>> import pyarrow as pa
        >>> from plait import Table
        >>> t = Table.create("memory://doc-ttl", "id bigint, day date", ttl="day 30d")
        >>> t.alter.set_ttl(None).version
        1
        """
        return set_ttl(self._handle, Ttl.of(ttl))

    def contract(
        self,
        *,
        concurrency: Concurrency | None = None,
        lock: str | None = None,
        failed_writes: FailedWrites | None = None,
        wait_s: float = 0,
    ) -> CommitResult:
        """Change the contract while no other writer is live; what is not named stays.

        Args:
            concurrency: as in ``Table.create``.
            lock: as in ``Table.create``.
            failed_writes: as in ``Table.create``.
            wait_s: how long to wait for live writers to end; 0 raises at once.

        Raises:
            ContractError: other writers are live. Nothing was written.
            OptionError: the contract is invalid, or the store does not support the lock.
        """
        given = {"concurrency": concurrency, "lock": lock, "failed_writes": failed_writes}
        parts = {name: value for name, value in given.items() if value is not None}
        result = change_contract(self._handle, parts, wait_s=wait_s)
        self._opened.handle = reopen(self._handle, *([] if lock is None else [lock]))
        return result

    @overload
    def upgrade(
        self,
        plan: FeaturePlan | None = None,
        *,
        features: Iterable[str] | None = None,
        dry_run: Literal[False] = False,
    ) -> CommitResult | None: ...
    @overload
    def upgrade(
        self, plan: None = None, *, features: Iterable[str] | None = None, dry_run: Literal[True]
    ) -> FeaturePlan: ...
    def upgrade(
        self,
        plan: FeaturePlan | None = None,
        *,
        features: Iterable[str] | None = None,
        dry_run: bool = False,
    ) -> CommitResult | FeaturePlan | None:
        """Let the table use more features, in one decision; None if it may use them already.

        From then on writers must know them. Readers need a feature from its first use on.

        Args:
            plan: what to turn on.
            features: their names; by default all that this version of Plait knows.
            dry_run: only return the plan.

        Raises:
            FeatureError: a live writer has a client that does not know them; nothing was written.
            OptionError: a feature is unknown here.

        >>> from plait import Table
        >>> t = Table.create("memory://doc-upgrade", "id bigint", record_key="id")
        >>> t.alter.downgrade(to=[]).version  # what every client knows
        1
        >>> t.alter.upgrade(features=["ttl-1"]).version
        2
        """
        require_plan(FeaturePlan, plan, dry_run=dry_run, features=features)
        planned = plan or plan_upgrade(self._handle, features)
        return planned if dry_run else change_features(self._handle, planned)

    @overload
    def downgrade(
        self,
        plan: FeaturePlan | None = None,
        *,
        to: Iterable[str] | int | None = None,
        dry_run: Literal[False] = False,
    ) -> CommitResult | None: ...
    @overload
    def downgrade(
        self, plan: None = None, *, to: Iterable[str] | int, dry_run: Literal[True]
    ) -> FeaturePlan: ...
    def downgrade(
        self,
        plan: FeaturePlan | None = None,
        *,
        to: Iterable[str] | int | None = None,
        dry_run: bool = False,
    ) -> CommitResult | FeaturePlan | None:
        """Let the table use fewer features, in one decision; None if it is like that already.

        Afterwards a client that knows those that stay reads and writes the table.

        Args:
            plan: what to turn off.
            to: the names of those that stay, or a version of the format.
            dry_run: only return the plan.

        Raises:
            FeatureError: something uses a feature that would go, or a live writer has a client
                that could bring it back. Nothing was written.
            OptionError: a feature or version is unknown here, or none is named.
        """
        require_plan(FeaturePlan, plan, dry_run=dry_run, to=to)
        if plan is None:
            if to is None:
                message = "a downgrade needs to know what stays"
                hint = "pass to=, the names of features or a version of the format"
                raise OptionError(message, hint=hint, key="to", value="")
            plan = plan_downgrade(self._handle, to)
        return plan if dry_run else change_features(self._handle, plan)


def alter(handle: TableHandle, steps: Sequence[Step]) -> CommitResult | None:
    """Change the columns of a table; the steps are taken anew from each head that is met."""
    validation = Validation(handle, steps)

    def draft(state: TableState) -> Decision | None:
        table = _altered(state, steps)
        if table is None:
            return None
        validation.require(state, table)
        return Decision(
            instant=handle.new_instant(state),
            action=Action.SCHEMA,
            operation=Operation.SCHEMA,
            base=state.version,
            table=table.to_dict(),
            client=client(),
        )

    # The pin comes before the look at each head from which rows are read.
    with pinned(handle, lambda state: state) if validation.reads else nullcontext():
        decision = publish_service(handle, draft)
    if decision is None:
        return None
    return CommitResult(decision.version, decision.instant, decision.stats)


def _altered(state: TableState, steps: Sequence[Step]) -> TableDef | None:
    """Return the definition after some steps; None if it is the same.

    Raises:
        OptionError: the definition names sinks, whose columns stay as they are.
    """
    table = altered(state.table, steps, since=state.version + 1)
    if table is not None and not SinkSchema.alike(state.table.spec.schema, table.spec.schema):
        require_no_replicas(state.table, "a change of columns")
    return table


def planned(handle: TableHandle, steps: Sequence[Step]) -> Schema:
    """Return the columns after some steps from the newest version; write nothing.

    Raises:
        ConstraintError: rows that are there break a constraint that is to come.
    """

    def columns(state: TableState) -> Schema:
        table = _altered(state, steps)
        if table is not None:
            Validation(handle, steps).require(state, table)
        return (table or state.table).spec.schema

    with pinned(handle, columns) as found:
        return found


def _type(data_type: str | pa.DataType) -> pa.DataType:
    if isinstance(data_type, pa.DataType):
        return data_type
    fields = list(parse_ddl(f"c {data_type}"))
    if len(fields) != 1 or not fields[0].nullable or fields[0].metadata:
        message = f"expected one type, found {data_type[:100]!r}"
        hint = "give a type alone, such as 'int'; nullable=, default= and comment= say the rest"
        raise SchemaError(message, hint=hint, found=data_type[:100])
    return fields[0].type
