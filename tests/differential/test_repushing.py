"""Histories with a repush or a change of columns beside the clients.

Nobody is refused or loses a row because of one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from plait.definition.policy import Verdict
from plait.model.instant import Operation
from plait.txn.conflict import Judge
from plait.txn.matrix import Cell, Meets
from tests.differential.draw import STARTS, draw, mixed
from tests.differential.evidence import run
from tests.differential.judge import judge
from tests.differential.program import Do, History, Serve
from tests.differential.shrink import sound
from tests.scheduler.choices import Given, Seeded
from tests.scheduler.points import Strategy

SHARE = 30
MANY = tuple(Do(kind, rows=rows) for kind, rows in STARTS[2])
_CALLS = 25
"""A repush makes far more calls than a write: the switches are to fall into its middle."""
_HARMLESS = Cell(Meets.NEVER, Verdict.COMPATIBLE, Verdict.COMPATIBLE)


def drawn(seed: int) -> tuple[History, Strategy]:
    """Give the history of a seed with a repush, with an expiry beside it or an undo after it.

    One in five has changes of the columns instead.
    """
    history, _ = draw(seed)
    services: tuple[tuple[Serve, ...], ...] = ((Serve("repush"),),)
    shape = history.shape
    if seed % 5 == 0:
        services = ((Serve("repush"), Serve("undo_repush")),)
    elif seed % 5 == 2:
        services = ((Serve("alter"), Serve("alter")),)
    elif seed % 5 == 1:
        services = ((Serve("repush"),), (Serve("expire"),))
        shape = replace(shape, isolation="snapshot")  # as in the histories with expiries
    start = history.start if seed % 4 == 0 else MANY
    clients = (*history.clients[:2], *services)
    history = replace(history, shape=shape, start=start, clients=clients, events=())
    if seed % 2:
        return history, Seeded(mixed(seed + 1), _CALLS * len(clients), 0)
    repusher = history.names[len(history.clients) - len(services)]
    return history, Given(((f"a:{2 + seed // 2 % 12}", f">{repusher}"),))  # whole, in a write


@pytest.mark.long(1)
@pytest.mark.parametrize("begin", range(0, 120, SHARE))
def test_every_history_with_repushes_leaves_what_its_operations_mean(begin: int) -> None:
    """INV-01, INV-04, INV-07, INV-08, INV-10, INV-15."""
    swaps = commits = 0
    for seed in range(begin, begin + SHARE):
        evidence = sound(seed, drawn)
        swaps += any(version.operation == "repush" for version in evidence.versions)
        commits += any(version.restaged for version in evidence.versions)
    assert swaps > SHARE / 3, "nothing was laid out anew"
    assert commits, "nobody met a swap"


def layouts_mixed(patch: pytest.MonkeyPatch) -> None:
    """A writer commits files that lie as they did before the swap."""
    real = Judge._cell
    patch.setattr(
        Judge,
        "_cell",
        lambda self, theirs: (
            _HARMLESS if theirs.operation is Operation.REPUSH else real(self, theirs)
        ),
    )


def rounds_left_out(patch: pytest.MonkeyPatch) -> None:
    """A swap does not ask what was committed since the last round."""
    patch.setattr("plait.repush.swap.changing_operations", lambda *_: frozenset())


def removals_left_out(patch: pytest.MonkeyPatch) -> None:
    """A round takes the rows that came, and not those that went."""
    patch.setattr("plait.repush.follow._Replay._remove", lambda *_: 0)


@pytest.mark.parametrize(
    ("broken", "begin"), [(layouts_mixed, 0), (rounds_left_out, 580), (removals_left_out, 0)]
)
def test_a_rule_of_a_repush_that_is_left_out_is_found(
    broken: Callable[[pytest.MonkeyPatch], None], begin: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few histories have a commit between the last look and the swap: writers wait by then."""
    broken(monkeypatch)
    assert any(judge(run(*drawn(seed))) for seed in range(begin, begin + 120))
