"""Histories in which commits are undone and redone while services run beside the clients."""

from __future__ import annotations

import pytest

from plait.errors import UndoneError
from tests.differential.broken import Broken
from tests.differential.broken_upkeep import BROKEN
from tests.differential.evidence import run
from tests.differential.judge import judge
from tests.differential.program import Do, History, Serve, Shape, Write
from tests.differential.shrink import Difference, check, differences, shrink
from tests.differential.upkeep import UPKEEP, draw_upkeep
from tests.scheduler.choices import Given

SHARE = 20
ROW, OTHER = (0, "x", 101, 1), (1, "x", 102, 1)


@pytest.mark.long(1)
@pytest.mark.parametrize("begin", range(0, 80, SHARE))
def test_every_history_with_restores_leaves_what_its_operations_mean(begin: int) -> None:
    """INV-01, INV-09, INV-14 to INV-16: what is there, what was undone, and all that was told."""
    for seed in range(begin, begin + SHARE):
        found = check(seed, drawing=draw_upkeep)
        assert found is None, f"{shrink(found)}"


@pytest.mark.long(3)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("broken", BROKEN, ids=[each.name for each in BROKEN])
def test_a_rule_of_a_service_that_is_left_out_is_found(broken: Broken) -> None:
    for seed in (broken.seed, *range(UPKEEP)):
        found = check(seed, broken, drawing=draw_upkeep)
        if found is not None and broken.promises & {each.promise for each in found.findings}:
            break
    else:
        pytest.fail(f"{broken.name}: nothing is seen of it in {UPKEEP} histories")
    assert check(seed, drawing=draw_upkeep) is None


@pytest.mark.timeout(600)
def test_a_difference_of_a_restore_is_made_small() -> None:
    """What is drawn for services goes too: traits of a table, epochs, a replay."""
    broken = next(each for each in BROKEN if "hidden" in each.name)
    history = History(
        Shape(table_type="mor", aged=True, ordered=True, told=False),
        clients=(
            (
                Write(Do("upsert", (ROW,)), epoch=0),
                Serve("restore", replay=True),
                Serve("compact"),
            ),
        ),
        start=(Do("append", rows=((0, "x", 10, 1), OTHER)),),
    )
    evidence = run(history, Given(()), broken)
    found = Difference(None, history, evidence.schedule, tuple(judge(evidence)))
    assert found.findings
    small = shrink(found, broken)
    assert small.history.shape == Shape(table_type="mor")
    assert small.history.clients == ((Write(Do("upsert", (ROW,))), Serve("restore")),)
    assert "Serve('restore')" in str(small)
    assert differences(small.history, small.moves) == []


# --- one after the other: what the judge must know about lineages ------------------------------

SENT = Write(Do("upsert", (ROW,)), commit_id="one")


def told(*turns: Write | Serve) -> list[str]:
    """Run turns of one client after the other; give what each of them raised."""
    evidence = run(History(Shape(), (turns,)), Given(()))
    assert judge(evidence) == []
    return [type(each.error).__name__ for each in evidence.told]


def test_an_undone_commit_id_is_refused_until_a_replay_counts() -> None:
    """INV-16."""
    none, undone = type(None).__name__, UndoneError.__name__
    undo, replay = Serve("undo"), Serve("replay")
    assert told(SENT, undo, SENT) == [none, none, undone]
    assert told(SENT, undo, replay, SENT) == [none] * 4
    assert told(SENT, Serve("undo", replay=True), SENT) == [none] * 3
    back = Serve("restore")  # the version before the replay: it counts no more
    assert told(SENT, undo, replay, back, SENT) == [*[none] * 4, undone]
    assert told(SENT, undo, back, SENT) == [none] * 4


def test_an_undone_epoch_is_refused_until_a_replay_counts() -> None:
    """INV-09, INV-16."""
    none, undone = type(None).__name__, UndoneError.__name__
    first, second = (
        Write(Do("upsert", (row,)), epoch=epoch) for epoch, row in enumerate((ROW, OTHER))
    )
    undo, replay = Serve("undo"), Serve("replay")
    assert told(first, second, undo, second) == [*[none] * 3, undone]
    assert told(first, second, undo, first) == [none] * 4
    assert told(first, second, undo, replay, second, second) == [none] * 6
    assert told(first, second, undo, replay, Serve("restore", 2), first) == [none] * 6
