"""Repushes from an older version, and undos of them, beside writers of real Parquet (RFC 0025)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from unittest import mock

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
from tests.interleave.real import made, rows, values
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
    "p": lay_out,
    "s": load_older,
    "t": take_back,
    "u": lay_back,
}
_MAY_END: Mapping[str, tuple[type[TableError], ...]] = {
    # one that is open, or that another one swapped in; a writer ends like this never
    "p": (RepushError,),
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
            self._before.append(decision.version - 1)
        was, self._opened = self._opened, None if told is None else OpenRepush.from_dict(told)
        if self._opened is None or (was and was.directory == self._opened.directory):
            return
        source, base = self._opened.source, self._opened.base
        self._load(base if source is None else source.version, base, decision.version + 1)


def _is_of(decision: Decision, nonces: str) -> bool:
    return decision.instant.nonce.startswith(nonces)


def check(end: End) -> None:
    """INV-04, INV-07, INV-08, INV-15: every version has its rows, and no writer failed."""
    table = Table(end.handle())
    first = _first(end)
    known = {v: values_at(table, v) for v in range(first + 1)}
    replay = Replay({name: each.nonces for name, each in end.outcomes.items()}, known)
    for decision in table._handle.cache.timeline.load_after(-1, limit=1_000):
        if decision.version <= first:
            replay._before += [decision.version - 1] * (
                decision.operation is Operation.REPUSH_SOURCE
            )
            continue
        replay.take(decision)
        found, wanted = values_at(table, decision.version), replay.versions[decision.version]
        assert found == wanted, f"version {decision.version} shows {found}, not {wanted}"
    assert values(table) == replay.versions[table.version]
    for name, outcome in end.outcomes.items():
        error = outcome.error
        ends = (*_MAY_END.get(name, ()), CommitRetriesExhaustedError)
        ends += (IncompatibleConflictError,) if "t" in end.outcomes else ()  # a restore ends any
        fine = error is None or outcome.hurt or outcome.crashed or isinstance(error, ends)
        assert fine, f"{name}: {error!r}"


def _first(end: End) -> int:
    """Return the last version of before the schedule."""
    nonces = tuple(each.nonces for each in end.outcomes.values())
    ours = end.handle().cache.timeline.load_after(-1, limit=1_000)
    return max(d.version for d in ours if not d.instant.nonce.startswith(nonces))


def values_at(table: Table, version: int) -> dict[int, str]:
    read = table.scan(version=version).to_arrow()
    ids = read["id"].to_pylist()
    assert len(ids) == len(set(ids)), f"INV-08: {sorted(ids)}"
    return dict(zip(ids, read["value"].to_pylist(), strict=True))


@cache
def start(table_type: str, swapped: str) -> Start:
    """Make a table that keeps its versions, and that had a repush of this kind."""
    table = made(table_type, files=1, clean_retain_versions="40")
    if swapped:
        ACTORS[swapped](table._handle)
    return Start.of(table._handle.store)


def sourcing(table_type: str, actors: str, *, swapped: str = "", events: bool = False) -> Scenario:
    """Make a scenario of these actors on a table that had a repush (``p``, ``s``), or none."""
    after = f" after {swapped}" if swapped else ""
    return Scenario(
        f"{actors}{after} on a {table_type} table",
        start(table_type, swapped),
        {name: ACTORS[name] for name in actors},
        check=check,
        events=("crash_before", "crash_after", "lost_reply", "delay") if events else (),
        oracle=Oracle(write_on, natural=(*NATURAL, RepushError, InstantNotFoundError)),
    )


LONG = [
    ("mor", "abcs", ""),
    ("cow", "ast", ""),
    ("cow", "abu", "s"),
    ("mor", "acu", "p"),
    ("cow", "ptu", "s"),
    ("cow", "su", "p"),
]
"""The type of a table, actors, and the repush that it had."""


def sourcing_scenarios() -> tuple[Scenario, ...]:
    """Make the long ones anew."""
    return tuple(sourcing(kind, names, swapped=had, events=True) for kind, names, had in LONG)


# --- rules that are left out -----------------------------------------------------------------


@contextlib.contextmanager
def without_a_look_at_the_head() -> Iterator[None]:
    """Swap whatever was committed since the last round."""
    with mock.patch("plait.repush.swap.changing_operations", return_value=frozenset()):
        yield


@contextlib.contextmanager
def without_what_was_written_since() -> Iterator[None]:
    """Bring the old files back, whatever was committed since the swap."""
    with mock.patch("plait.repush.undo.changing_operations", return_value=frozenset()):
        yield


@contextlib.contextmanager
def without_the_source_of_an_undo() -> Iterator[None]:
    """Lay the table out as before, and leave it the rows of the source."""
    with mock.patch("plait.repush.undo._replaced_rows", return_value=False):
        yield


BROKEN = {
    "a look at the head": (without_a_look_at_the_head, "as", ""),
    "what was written since": (without_what_was_written_since, "au", "s"),
    "the rows of before a source": (without_the_source_of_an_undo, "au", "s"),
}
"""A rule, and which actors notice that it is left out, on a table that had which repush."""
