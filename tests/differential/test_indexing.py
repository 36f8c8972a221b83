"""Histories with a record index, made and dropped beside the clients; look-ups beside them all.

Nobody is refused because of it, and no look-up gives other rows than a scan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from plait.services.index.publish import WrittenRun
from plait.txn import key_window
from tests.differential.draw import draw, mixed
from tests.differential.evidence import run
from tests.differential.judge import judge
from tests.differential.program import History, Serve
from tests.differential.shrink import sound
from tests.differential.upkeep import draw_upkeep
from tests.scheduler.choices import Seeded
from tests.scheduler.points import Strategy

SHARE = 30
EVERY = 2
"""So often a writer makes a run of what came since."""
_CALLS = 12


@pytest.fixture(autouse=True)
def _runs_are_made_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.services.index.build.FOLD_LAG_MAX", EVERY)


def drawn(seed: int) -> tuple[History, Strategy]:
    """Give a history of keys, with an index beside the clients; every third one has restores."""
    drawing = draw_upkeep if seed % 3 == 0 else draw
    history, _ = drawing(seed)
    if not history.shape.keyed:
        history, _ = drawing(seed + 120)
    services = {
        0: (Serve("index"), Serve("look"), Serve("index")),
        1: (Serve("index"), Serve("unindex"), Serve("index")),
        2: (Serve("index"), Serve("repush"), Serve("index")),
        3: (Serve("index"), Serve("compact"), Serve("look")),
    }[seed // 3 % 4]
    looks = (Serve("look"), Serve("index"), Serve("look"))
    clients = (services, *history.clients[:2], looks)
    history = replace(history, clients=clients, events=())
    return history, Seeded(mixed(seed + 1), _CALLS * len(clients), 0)


@pytest.mark.long(1)
@pytest.mark.parametrize("begin", range(0, 120, SHARE))
def test_every_history_with_an_index_leaves_what_its_operations_mean(begin: int) -> None:
    """INV-04, INV-10, INV-11."""
    asked = 0
    for seed in range(begin, begin + SHARE):
        evidence = sound(seed, drawn)
        asked += evidence.indexed
    assert asked > SHARE / 3, "no look-up asked an index"


def newer_runs_left_out(patch: pytest.MonkeyPatch) -> None:
    """A build forgets what others published meanwhile, and says that it goes as far."""
    real = WrittenRun.beside

    def beside(self: WrittenRun, manifest: object, number: int) -> object:
        whole = real(self, manifest, number)  # type: ignore[arg-type]  # as it is given
        return replace(whole, runs=tuple(run for run in whole.runs if run.last <= self.run.last))

    patch.setattr(WrittenRun, "beside", beside)


def buckets_left_out(patch: pytest.MonkeyPatch) -> None:
    """Nobody reads buckets of which a decision tells no keys."""
    real = key_window._Adding._with_keys
    patch.setattr(
        key_window._Adding, "_with_keys", lambda self, *given: replace(real(self, *given), whole={})
    )


def restores_left_out(patch: pytest.MonkeyPatch) -> None:
    """Runs are used after rows came back that they do not have."""
    patch.setattr(key_window, "_MOVING", ())


@pytest.mark.long(2)
@pytest.mark.parametrize(
    ("broken", "begin"),
    [(newer_runs_left_out, 245), (buckets_left_out, 388), (restores_left_out, 1243)],
)
def test_a_rule_of_the_index_that_is_left_out_is_found(
    broken: Callable[[pytest.MonkeyPatch], None], begin: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search begins shortly before the first history that is known to find it."""
    broken(monkeypatch)
    assert any(judge(run(*drawn(seed))) for seed in range(begin, begin + 160))
