"""Rules for changes of columns that are left out, one each, in the real code (RFC 0027)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from plait.arrow import restage
from plait.definition import evolving
from plait.definition.policy import Verdict
from plait.model.evolution import Evolution
from plait.model.instant import Operation
from plait.model.schema import ids_in
from plait.services.definition import alter
from plait.services.definition.validate import Validation
from plait.txn import conflict_checker
from plait.txn.conflict import Judge
from plait.txn.matrix import Cell, Meets
from plait.write import request


@dataclass(frozen=True)
class LeftOut:
    """One rule: where it is, what stands there instead, and which two actors notice."""

    owner: Any
    name: str
    make: Callable[[Any], Any]
    """Makes the broken one out of the real one."""
    actors: tuple[str, str]

    @contextlib.contextmanager
    def put_in(self) -> Iterator[None]:
        """Leave the rule out for a while."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.owner, self.name, self.make(vars(self.owner)[self.name]))
            yield


def _goes_on(real: Any) -> Any:
    harmless = Cell(Meets.NEVER, Verdict.COMPATIBLE, Verdict.COMPATIBLE)

    def cell(self: Any, theirs: Any) -> Any:
        return harmless if theirs.operation is Operation.SCHEMA else real(self, theirs)

    return cell


def _of_today(real: Any) -> Any:
    def made(schema: Any, _last: int, uses: Any) -> Evolution:
        return real(schema, max(ids_in(schema.arrow)), uses)  # type: ignore[no-any-return]

    return made


def _once(real: Any) -> Any:
    """Alter the columns that were there first, on whatever head."""
    first: dict[int, Any] = {}

    def altered(state: Any, steps: Any) -> Any:
        if id(steps) not in first:
            first[id(steps)] = steps, real(state, steps)
        return first[id(steps)][1]

    return altered


def _looks_once(real: Any) -> Any:
    looked: dict[int, Any] = {}

    def require(self: Any, state: Any, table: Any) -> None:
        if id(self) not in looked:
            looked[id(self)] = self
            real(self, state, table)

    return require


def _by_name(_: Any) -> Any:
    def with_columns(rows: pa.Table, _old: Any, new: Any, *, whole: bool) -> pa.Table:
        names = [name for name in new.names if name in rows.column_names]
        if not whole:
            return rows.select(names)
        columns = {
            each.name: rows[each.name].cast(each.type)
            if each.name in names
            else pa.nulls(rows.num_rows, each.type)
            for each in new.arrow
        }
        return pa.table(columns)

    return with_columns


LEFT_OUT: Mapping[str, LeftOut] = {
    "a writer stages again": LeftOut(Judge, "_cell", _goes_on, ("check", "put bad")),
    "a writer stages again when rows brought columns": LeftOut(
        conflict_checker, "_evolved", lambda _: lambda *_given: False, ("bring", "bring other")
    ),
    "rows are staged again by ids": LeftOut(restage, "with_columns", _by_name, ("rename", "put")),
    "an expression is not taken under other names": LeftOut(
        request, "_by_columns", lambda _: lambda asked, _schema: asked, ("rename and add", "update")
    ),
    "an alteration is taken from each head": LeftOut(
        alter, "_altered", _once, ("add", "add other")
    ),
    "ids follow those of all columns that ever were": LeftOut(
        evolving, "Evolution", _of_today, ("drop", "add")
    ),
    "rows are looked at from each head": LeftOut(
        Validation, "require", _looks_once, ("check", "put bad")
    ),
}
