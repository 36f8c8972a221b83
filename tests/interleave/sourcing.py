"""Repushes, also from an older version, undos of them, writers of real Parquet and a cleaner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from plait import RestoreRefusedError, Table
from plait.errors import (
    CommitRetriesExhaustedError,
    IncompatibleConflictError,
    InstantNotFoundError,
    RepushError,
    RetryableConflictError,
    TableError,
)
from plait.model.decision import CommitResult, Decision
from plait.model.instant import Operation
from plait.model.repush import OpenRepush
from plait.txn.table_handle import TableHandle
from tests.interleave.real import clean, made, rows, values
from tests.scheduler import End, Oracle, Scenario, Start
from tests.scheduler.oracle import NATURAL

Rows = Mapping[int, str]
SOURCE = 1
"""The version that is loaded; it has two rows less than the next one."""
_WRITES: Mapping[str, Callable[[Rows], Rows]] = {
    "a": lambda now: {**now, 2: "new"},
    "b": lambda now: {key: value for key, value in now.items() if key not in (1, 4)},
    "c": lambda now: {**now, 3: "more", 6: "more"},
}


def put_one(handle: TableHandle) -> CommitResult:
    """Change a row: the number of rows stays, and tells nothing of it."""
    return Table(handle).upsert(rows("new", 2), on_conflict="retry")


def put_more(handle: TableHandle) -> CommitResult:
    return Table(handle).upsert(rows("more", 3, 6), on_conflict="retry")


def drop_two(handle: TableHandle) -> CommitResult:
    """Delete a row that the source has, and one that it lacks."""
    keys = pa.table({"id": pa.array([1, 4], pa.int64())})
    return Table(handle).delete(keys=keys, on_conflict="retry")


def lay_out(handle: TableHandle) -> object:
    return Table(handle).layout.repush(buckets=3, rows_per_task=2)


def load_older(handle: TableHandle) -> object:
    return Table(handle).layout.repush(buckets=2, source=SOURCE, rows_per_task=2)


def lay_back(handle: TableHandle) -> object:
    return Table(handle).layout.undo()


def give_up(handle: TableHandle) -> object:
    return Table(handle).layout.cancel()


def take_back(handle: TableHandle) -> object:
    """Undo the newest commit of rows, unless another one came meanwhile."""
    try:
        return Table(handle).versions.undo()
    except RestoreRefusedError:
        return "refused"


ACTORS: Mapping[str, Callable[[TableHandle], object]] = {
    "a": put_one,
    "b": drop_two,
    "c": put_more,
    "k": clean,
    "p": lay_out,
    "q": lay_out,
    "s": load_older,
    "t": take_back,
    "u": lay_back,
    "x": give_up,
}
_MAY_END: Mapping[str, tuple[type[TableError], ...]] = {
    # one that is open, or that another one swapped in; a writer ends like this never
    "p": (RepushError,),
    "q": (RepushError,),
    "s": (RepushError,),
    "t": (RepushError,),
    "u": (RepushError, InstantNotFoundError, RetryableConflictError),
}


def write_on(handle: TableHandle) -> object:
    """Give up a repush that nobody goes on with, and write."""
    table = Table(handle)
    table.layout.cancel()
    return table.upsert(rows("next", 9))


class Replay:
    """The rows of every version, as the decisions say: what is loaded, and what is carried over."""

    def __init__(self, actors: Mapping[str, str], known: Mapping[int, Rows]) -> None:
        """Begin with the rows of the versions before the schedule; nonces tell actors apart."""
        self.versions: dict[int, Rows] = dict(known)
        self._actors = actors
        self._opened: OpenRepush | None = None
        self._loaded: dict[int, str] = {}
        """What the open repush leads to."""
        self._before: list[int] = []
        """The last version before each swap that replaced rows."""

    def swapped_before(self, decision: Decision) -> None:
        """Note that a decision of before the schedule replaced the rows."""
        self._before.append(decision.version - 1)

    def take(self, decision: Decision) -> None:
        """Take in the next decision."""
        before = self.versions[decision.version - 1]
        now = self._rows_after(decision, before)
        self.versions[decision.version] = now
        self._carry_over(before, now)
        if decision.table is not None:
            self._follow(decision)

    def _rows_after(self, decision: Decision, before: Rows) -> Rows:
        if decision.operation in (Operation.UPSERT, Operation.DELETE):
            name = next(n for n, nonce in self._actors.items() if _is_of(decision, nonce))
            return _WRITES[name](before)
        if decision.restored is not None:
            return self.versions[decision.restored.to]
        if decision.operation is not Operation.REPUSH_SOURCE:
            return before
        if self._opened is None:  # an undo in one decision
            self._load(self._before[-1], self._before[-1] + 1, decision.version)
        return dict(self._loaded)

    def _load(self, source: int, since: int, until: int) -> None:
        """Take the rows of a version, and what changed after another one and before a third."""
        self._loaded = dict(self.versions[source])
        for version in range(since + 1, until):
            self._carry_over(self.versions[version - 1], self.versions[version])

    def _carry_over(self, before: Rows, now: Rows) -> None:
        for key in before.keys() | now.keys():
            if before.get(key) != now.get(key):
                self._loaded.pop(key, None)
                if key in now:
                    self._loaded[key] = now[key]

    def _follow(self, decision: Decision) -> None:
        assert decision.table is not None
        told = decision.table.get("repush")
        if decision.operation is Operation.REPUSH_SOURCE:
            self.swapped_before(decision)
        was, self._opened = self._opened, None if told is None else OpenRepush.from_dict(told)
        if self._opened is None or (was and was.directory == self._opened.directory):
            return
        source, base = self._opened.source, self._opened.base
        self._load(base if source is None else source.version, base, decision.version + 1)


def _is_of(decision: Decision, nonces: str) -> bool:
    return decision.instant.nonce.startswith(nonces)


@dataclass(frozen=True)
class RowsCheck:
    """INV-04, INV-07, INV-08, INV-15: every version has its rows, and no writer failed."""

    known: Mapping[int, Rows]
    """The rows of the versions of before the schedule."""

    def __call__(self, end: End) -> None:
        table = Table(end.handle())
        horizon = table._handle.cache.refresh().horizon
        replay = Replay({name: each.nonces for name, each in end.outcomes.items()}, self.known)
        for decision in table._handle.cache.timeline.load_after(-1, limit=1_000):
            if decision.version not in self.known:
                replay.take(decision)
            elif decision.operation is Operation.REPUSH_SOURCE:
                replay.swapped_before(decision)
            if max(horizon, len(self.known)) <= decision.version:
                found, wanted = (
                    values_at(table, decision.version),
                    replay.versions[decision.version],
                )
                assert found == wanted, f"version {decision.version} shows {found}, not {wanted}"
        newest = replay.versions[table.version]
        assert values(table) == newest
        for key in range(1, 7):
            shown = table.scan(where=f"id = {key}").to_arrow()["value"].to_pylist()
            assert shown == ([newest[key]] if key in newest else []), f"id = {key} gives {shown}"
        for name, outcome in end.outcomes.items():
            error = outcome.error
            ends = (*_MAY_END.get(name, ()), CommitRetriesExhaustedError)
            ends += (IncompatibleConflictError,) if "t" in end.outcomes else ()  # it ends any
            fine = error is None or outcome.hurt or outcome.crashed or isinstance(error, ends)
            assert fine, f"{name}: {error!r}"


def values_at(table: Table, version: int) -> dict[int, str]:
    read = table.scan(version=version).to_arrow()
    ids = read["id"].to_pylist()
    assert len(ids) == len(set(ids)), f"INV-08: {sorted(ids)}"
    return dict(zip(ids, read["value"].to_pylist(), strict=True))


@cache
def start(table_type: str, swapped: str, *, kept: int) -> tuple[Start, Mapping[int, Rows]]:
    """Make a table that keeps versions and that had a repush of this kind; tell its rows."""
    files = 3 if table_type == "mor" and kept == 1 else 1
    table = made(table_type, files=files, clean_retain_versions=kept)
    if swapped:
        ACTORS[swapped](table._handle)
    known = {version: values_at(table, version) for version in range(table.version + 1)}
    return Start.of(table._handle.store), known


def sourcing(table_type: str, actors: str, *, swapped: str = "", events: bool = False) -> Scenario:
    """Make a scenario of these actors on a table that had a repush (``p``, ``s``), or none.

    Beside a cleaner (``k``) the table keeps one version.
    """
    after = f" after {swapped}" if swapped else ""
    first, known = start(table_type, swapped, kept=1 if "k" in actors else 40)
    return Scenario(
        f"{actors}{after} on a {table_type} table",
        first,
        {name: ACTORS[name] for name in actors},
        check=RowsCheck(known),
        events=("crash_before", "crash_after", "lost_reply", "delay") if events else (),
        oracle=Oracle(write_on, natural=(*NATURAL, RepushError, InstantNotFoundError)),
    )


LONG = [
    ("mor", "abkp", ""),
    ("mor", "abcs", ""),
    ("cow", "ast", ""),
    ("cow", "abkp", ""),
    ("cow", "abu", "s"),
    ("mor", "acu", "p"),
    ("cow", "apq", ""),
    ("cow", "apx", ""),
    ("cow", "ptu", "s"),
    ("cow", "su", "p"),
]
"""The type of a table, actors, and the repush that it had."""


def sourcing_scenarios() -> tuple[Scenario, ...]:
    """Make the long ones anew."""
    return tuple(sourcing(kind, names, swapped=had, events=True) for kind, names, had in LONG)
