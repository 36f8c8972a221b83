"""A repush beside two writers of real Parquet and a cleaner; and the same with a rule left out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any
from unittest import mock

import pyarrow as pa

from plait import Table
from plait.definition.policy import Verdict
from plait.errors import CommitError, CommitRetriesExhaustedError, RepushCancelledError
from plait.model.decision import CommitResult, Decision
from plait.services.maintenance import clean as cleaning
from plait.state.state import TableState
from plait.txn.conflict import Conflict, Judge
from plait.txn.table_handle import TableHandle
from tests.interleave.real import clean, made, rows, values
from tests.scheduler import End, Scenario, Start
from tests.scheduler.oracle import NATURAL, Oracle

EXPECTED = {1: "old", 2: "new", 3: "old"}
"""Nobody fails, so the end is one and the same."""


def put_one(handle: TableHandle) -> CommitResult:
    """Change a row: the number of rows stays, and tells nothing of it."""
    return Table(handle).upsert(rows("new", 2), on_conflict="retry")


def drop_one(handle: TableHandle) -> CommitResult:
    keys = pa.table({"id": pa.array([4], pa.int64())})
    return Table(handle).delete(keys=keys, on_conflict="retry")


def lay_out(handle: TableHandle) -> object:
    return Table(handle).layout.repush(buckets=3, rows_per_task=2)


def give_up(handle: TableHandle) -> object:
    return Table(handle).layout.cancel()


def check(end: End) -> None:
    """INV-04, INV-07, INV-15: every commit is there, and nobody failed."""
    for name, outcome in end.outcomes.items():
        lost = isinstance(outcome.error, (CommitRetriesExhaustedError, RepushCancelledError))
        assert outcome.error is None or lost, f"{name}: {outcome.error!r}"
        assert not isinstance(outcome.error, CommitError), f"{name}: {outcome.error!r}"
    table = Table(end.handle())
    expected = dict(EXPECTED)
    if "a" not in end.outcomes:
        expected[2] = "old"
    if "b" not in end.outcomes:
        expected[4] = "old"
    assert values(table) == expected
    for key in range(1, 6):
        found = table.scan(where=f"id = {key}").to_arrow()["value"].to_pylist()
        assert found == ([expected[key]] if key in expected else []), f"id = {key} gives {found}"
    problems = table.check.verify(data=True).problems
    assert not problems, str(problems)


@cache
def start(table_type: str) -> Start:
    """Make a table of which a clean keeps one version."""
    table = made(table_type, files=3 if table_type == "mor" else 1, clean_retain_versions="1")
    return Start.of(table._handle.store)


def repushing(table_type: str, actors: str = "abcp") -> Scenario:
    """Make a scenario of a repush beside whom these letters name."""
    acts = {"a": put_one, "b": drop_one, "c": clean, "p": lay_out, "q": lay_out, "x": give_up}
    return Scenario(
        f"a repush beside {table_type} writers",
        start(table_type),
        {name: acts[name] for name in actors},
        check=check,
        oracle=Oracle(natural=(*NATURAL, RepushCancelledError)),
    )


# --- rules that are left out -----------------------------------------------------------------


@contextlib.contextmanager
def without_restaging() -> Iterator[None]:
    """Publish what was staged under the old layout."""
    real = Judge.conflict_with

    def conflict_with(self: Judge, theirs: Decision, *given: Any) -> Conflict | None:
        found = real(self, theirs, *given)
        return None if found is not None and found.verdict is Verdict.RESTAGE else found

    with mock.patch.object(Judge, "conflict_with", conflict_with):
        yield


@contextlib.contextmanager
def without_a_look_at_the_head() -> Iterator[None]:
    """Swap whatever was committed since the last round."""
    with mock.patch("plait.repush.swap.changing_operations", return_value=frozenset()):
        yield


@contextlib.contextmanager
def without_the_base() -> Iterator[None]:
    """Clean as if no repush were open."""
    real: Callable[[TableHandle, TableState], int] = cleaning.horizon_of

    def horizon_of(handle: TableHandle, state: TableState) -> int:
        return real(handle, replace(state, table=replace(state.table, repush=None)))

    with mock.patch.object(cleaning, "horizon_of", horizon_of):
        yield


BROKEN = {
    "restaging": (without_restaging, "ap"),
    "a look at the head": (without_a_look_at_the_head, "ap"),
    "the base": (without_the_base, "acp"),
}
