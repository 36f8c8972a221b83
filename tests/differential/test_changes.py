"""Histories of upserts that remove keys among their rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from plait.arrow.merge import Flags, Indices, Round
from tests.differential.draw import draw
from tests.differential.evidence import run
from tests.differential.judge import judge
from tests.differential.program import CHANGE, Do, History, Shape, Turn, Write
from tests.differential.shrink import differences, sound
from tests.scheduler.points import Strategy

SHARE = 40
CALLS_MAX = 12
"""A client with one operation makes fewer calls before it publishes."""
SEEDS = tuple(seed for seed in range(200) if draw(seed)[0].shape.keyed)[:160]
TURNED = ("upsert", "delete_keys", "merge")


def drawn(seed: int) -> tuple[History, Strategy]:
    """Give the history of a seed; its upserts, deletes by key and merges are such upserts."""
    history, strategy = draw(seed)
    clients = tuple(tuple(_turned(turn) for turn in turns) for turns in history.clients)
    return replace(history, clients=clients), strategy


def _turned(turn: Turn) -> Turn:
    if not isinstance(turn, Write) or turn.do.kind not in TURNED or turn.epoch is not None:
        return turn
    return replace(turn, do=Do(CHANGE, turn.do.rows, derive=turn.do.derive))


@pytest.mark.long(1)
@pytest.mark.parametrize("begin", range(0, len(SEEDS), SHARE))
def test_every_history_with_removals_leaves_what_its_operations_mean(begin: int) -> None:
    """INV-07, INV-08, INV-10."""
    deleted = 0
    for seed in SEEDS[begin : begin + SHARE]:
        evidence = sound(seed, drawn)
        upserts = {each.number for each in evidence.versions if each.operation == "upsert"}
        deleted += sum(c.kind == "delete" and c.version in upserts for c in evidence.changes)
    assert deleted > 1, "no removal found a row"


def gone_unsaid(patch: pytest.MonkeyPatch) -> None:
    """The keys of rows that went are not in the write set."""
    patch.setattr(Round, "removed", lambda self, names: self.rows.select(names).slice(0, 0))


def absent_unsaid(patch: pytest.MonkeyPatch) -> None:
    """Keys that were not there do not count as read."""
    real = Round.unchanged

    def unchanged(self: Round, names: list[str]) -> pa.Table:
        return real(replace(self, absent=None), names)

    patch.setattr(Round, "unchanged", unchanged)


def all_stay(patch: pytest.MonkeyPatch) -> None:
    """A row that came before a removal of its key competes all the same."""

    def last_removals(numbers: Indices, removes: Flags) -> tuple[Indices, Flags]:
        return np.full(int(numbers.max(initial=-1)) + 1, -1, dtype=np.int64), ~removes

    patch.setattr("plait.arrow.merge.last_removals", last_removals)


@pytest.mark.long(1)
@pytest.mark.parametrize("broken", [absent_unsaid, all_stay])
def test_a_rule_of_removals_that_is_left_out_is_found(
    broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    assert any(judge(run(*drawn(seed))) for seed in SEEDS)


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_row_that_goes_is_in_the_write_set_whenever_another_changes_it(
    table_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-07: the other comes in the middle, wherever that may be; without the rule it is seen."""
    history = History(
        Shape(table_type=table_type),
        clients=(
            (Write(Do(CHANGE, rows=((0, "x", 101, 5), (1, "x", 102, 5)))),),
            (Write(Do("upsert", rows=((0, "x", 103, 5),))),),
        ),
        start=(Do("append", rows=((0, "x", 10, 1), (2, "x", 20, 1))),),
    )
    schedules = [f"a:{call}>b" for call in range(1, CALLS_MAX)]
    assert not any(differences(history, schedule) for schedule in schedules)
    gone_unsaid(monkeypatch)
    found = {each.promise for schedule in schedules for each in differences(history, schedule)}
    assert "first committer wins" in found
