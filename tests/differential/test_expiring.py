"""Histories with expiries beside the clients: nobody is refused or loses a row because of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.differential.draw import STARTS, draw, mixed
from tests.differential.evidence import Evidence, run
from tests.differential.judge import SERVICES, judge
from tests.differential.program import Do, History, Serve
from tests.differential.shrink import sound
from tests.scheduler.choices import Given, Seeded
from tests.scheduler.points import Strategy

SHARE = 30
MANY = tuple(Do(kind, rows=rows) for kind, rows in STARTS[2])


def drawn(seed: int) -> tuple[History, Strategy]:
    """Give the history of a seed with one or two expiries; the other histories stay as they are.

    What a row was read for counts as read before it expired, so no reads are validated. In every
    third history an expiry runs whole in the middle of a write.
    """
    history, _ = draw(seed)
    services = (Serve("expire"),) * (1 + seed % 2)
    shape = replace(history.shape, isolation="snapshot")
    start = history.start if seed % 4 == 0 else MANY
    clients = (*history.clients, services)
    history = replace(history, shape=shape, start=start, clients=clients, events=())
    if seed % 3 == 0:
        return history, Given(((f"a:{2 + seed // 3 % 8}", f">{history.names[-1]}"),))
    return history, Seeded(mixed(seed + 1), 8 * len(clients), 0)


def carried(evidence: Evidence) -> bool:
    """Tell whether a writer's rows were carried over an expiry."""
    return any(v.carried and v.operation not in SERVICES for v in evidence.versions)


@pytest.mark.long(1)
@pytest.mark.parametrize("begin", range(0, 120, SHARE))
def test_every_history_with_expiries_leaves_what_its_operations_mean(begin: int) -> None:
    """INV-07, INV-08, INV-10, INV-15."""
    expiries = commits = 0
    for seed in range(begin, begin + SHARE):
        evidence = sound(seed, drawn)
        expiries += any(version.operation == "expire" for version in evidence.versions)
        commits += carried(evidence)
    assert expiries > SHARE / 3, "nothing expired"
    assert commits, "nobody met an expiry"


def masks_lost(patch: pytest.MonkeyPatch) -> None:
    """A writer does not join its masks with those of an expiry."""
    patch.setattr("plait.txn.carry.HiddenRows.join", lambda _self, _expiry: None)


def masks_alone(patch: pytest.MonkeyPatch) -> None:
    """A writer's masks leave out what is hidden at the head."""
    patch.setattr("plait.txn.carry.union", lambda _old, new: new)


def copies_kept(patch: pytest.MonkeyPatch) -> None:
    """A writer that copied rows does nothing again."""
    patch.setattr("plait.txn.conflict.COW", "none")


@pytest.mark.long(2)
@pytest.mark.parametrize("broken", [masks_lost, masks_alone, copies_kept])
def test_a_rule_of_expiry_that_is_left_out_is_found(
    broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    assert any(judge(run(*drawn(seed))) for seed in range(120))
