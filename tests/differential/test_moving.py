"""Histories of tables in which a key names one row in all partitions (RFC 0030)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from plait.txn.conflict import Judge
from plait.txn.keys import Keys
from tests.differential.draw import draw
from tests.differential.evidence import Evidence
from tests.differential.moving import draw_moving
from tests.differential.program import Do, History, Shape, Write
from tests.differential.shrink import differences, sound

SHARE = 40
CALLS_MAX = 12
"""A client with one operation makes fewer calls before it publishes."""
SEEDS = tuple(seed for seed in range(300) if draw(seed)[0].shape.keyed)[:240]


def moves(evidence: Evidence) -> int:
    """Count the rows that went from one partition to another."""
    went = 0
    for before, after in zip(evidence.versions, evidence.versions[1:], strict=False):
        places = {row[0]: row[1] for row in before.rows}
        went += sum(row[1] != places.get(row[0], row[1]) for row in after.rows)
    return went


@pytest.mark.long(1)
@pytest.mark.parametrize("begin", range(0, len(SEEDS), SHARE))
def test_every_history_of_moves_leaves_what_its_operations_mean(begin: int) -> None:
    """INV-07, INV-08, INV-10."""
    moved = 0
    for seed in SEEDS[begin : begin + SHARE]:
        evidence = sound(seed, draw_moving)
        moved += moves(evidence)
    assert moved > SHARE / 10, "hardly a row moved"


def places_apart(patch: pytest.MonkeyPatch) -> None:
    """What came into another partition is nobody's business."""
    patch.setattr(Judge, "in_other_partitions", lambda *_: frozenset())


def no_keys_elsewhere(patch: pytest.MonkeyPatch) -> None:
    """Keys are compared in one partition only."""
    patch.setattr(Keys, "overlap_elsewhere", lambda self, *given: self.overlap(*given[:3]))


def taken_away(patch: pytest.MonkeyPatch) -> None:
    """A row that was read may be gone since, if it was in another partition."""
    patch.setattr(Judge, "counts_removals", False)


_COMES = Write(Do("upsert", rows=((0, "y", 101, 5),)))
_COMES_TOO = Write(Do("upsert", rows=((0, "z", 103, 5),)))
_FOLLOWS = Write(Do("upsert", rows=((0, "y", 101, 5),), derive="sum"), read=True, named="scan")
_GOES = Write(Do("delete_keys", rows=((0, "x", 103, 5),)))


@pytest.mark.long(2)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize(
    ("broken", "turns", "promise"),
    [
        (places_apart, (_COMES, _COMES_TOO), "INV-08"),
        (no_keys_elsewhere, (_COMES, _COMES_TOO), "INV-08"),
        (taken_away, (_FOLLOWS, _GOES), "lost update"),
    ],
)
def test_a_rule_of_moves_that_is_left_out_is_found(
    broken: Callable[[pytest.MonkeyPatch], None],
    turns: tuple[Write, Write],
    promise: str,
    table_type: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One history finds it, whatever is drawn; the sound code passes the same one."""
    first, second = turns
    came = ((1, "x", 20, 1),) if first is _COMES else ((0, "x", 10, 1), (1, "x", 20, 1))
    history = History(
        Shape(table_type=table_type, partitioned=True, unique=True),
        clients=((first,), (second,)),
        start=(Do("append", rows=came),),
    )
    schedules = [f"a:{call}>b" for call in range(1, CALLS_MAX)]
    assert [differences(history, schedule) for schedule in schedules] == [[]] * len(schedules)
    broken(monkeypatch)
    found = {each.promise for schedule in schedules for each in differences(history, schedule)}
    assert promise in found


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("kind", ["upsert", "delete_keys"])
def test_a_key_that_moves_is_met_whenever_another_changes_it(
    table_type: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-07, INV-08: the other comes in the middle, wherever that may be."""
    history = History(
        Shape(table_type=table_type, partitioned=True, unique=True),
        clients=(
            (Write(Do("upsert", rows=((0, "y", 101, 5), (2, "y", 102, 5)))),),
            (Write(Do(kind, rows=((0, "z", 103, 5),))),),
        ),
        start=(Do("append", rows=((0, "x", 10, 1), (1, "x", 20, 1))),),
    )
    for call in range(1, CALLS_MAX):
        assert differences(history, f"a:{call}>b") == []
        assert differences(history, f"b:{call}>a") == []
