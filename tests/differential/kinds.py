"""Kinds of histories: what each draws instead of a plain one, and what must happen in them.

Each seed stands for its own choices; no other kind moves by them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.differential.clauses import CLAUSES
from tests.differential.draw import STARTS, draw, mixed
from tests.differential.evidence import Evidence
from tests.differential.judge import SERVICES
from tests.differential.program import CHANGE, Block, Do, History, Look, Serve, Turn, Write
from tests.differential.shrink import Drawing
from tests.differential.upkeep import draw_upkeep
from tests.scheduler.choices import Given, Seeded
from tests.scheduler.points import Strategy

MANY = tuple(Do(kind, rows=rows) for kind, rows in STARTS[2])
KEYED = tuple(seed for seed in range(200) if draw(seed)[0].shape.keyed)
_REMOVED_FROM = ("upsert", "delete_keys", "merge")


def draw_removals(seed: int) -> tuple[History, Strategy]:
    """Draw a history whose upserts, deletes by key and merges remove keys among their rows."""
    history, strategy = draw(seed)
    clients = tuple(tuple(map(_removing, turns)) for turns in history.clients)
    return replace(history, clients=clients), strategy


def _removing(turn: Turn) -> Turn:
    if not isinstance(turn, Write) or turn.do.kind not in _REMOVED_FROM or turn.epoch is not None:
        return turn
    return replace(turn, do=Do(CHANGE, turn.do.rows, derive=turn.do.derive))


def draw_moving(seed: int) -> tuple[History, Strategy]:
    """Draw a table in which a key names one row in all partitions; merges of it move rows."""
    history, strategy = draw(seed)
    if not history.shape.keyed:
        return history, strategy
    shape = replace(history.shape, partitioned=True, unique=True)
    clients = tuple(tuple(map(_moving, turns)) for turns in history.clients)
    return replace(history, shape=shape, clients=clients), strategy


def _moving(turn: Turn) -> Turn:
    if isinstance(turn, Write):
        return replace(turn, do=_moved(turn.do))
    if isinstance(turn, Block):
        parts = (each if isinstance(each, Look) else _moved(each) for each in turn.parts)
        return replace(turn, parts=tuple(parts))
    return turn


def _moved(do: Do) -> Do:
    if do.derive == "bump":  # its rows may have a key of those that were read, in another place
        do = replace(do, derive="sum")
    if do.kind == "append":  # an insert, which no row that moves lets through
        return replace(do, kind="upsert")
    if do.kind != "merge":
        return do
    kept = [name for name in do.clauses if CLAUSES[name].part != "not_matched_by_source"]
    moves = ["move" if name == "take" else name for name in kept]
    return replace(do, clauses=tuple(moves or ["move"]))


def draw_expiring(seed: int) -> tuple[History, Strategy]:
    """Draw one or two expiries beside the clients; in every third history one runs in a write.

    What a row was read for counts as read before it expired, so no reads are validated.
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


def draw_indexing(seed: int) -> tuple[History, Strategy]:
    """Draw keys with an index that is made and dropped beside them; every third has restores."""
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
    return history, Seeded(mixed(seed + 1), 12 * len(clients), 0)


def draw_repushing(seed: int) -> tuple[History, Strategy]:
    """Draw a repush, with an expiry beside it or an undo after it; or changes of the columns.

    In every other history it runs whole in the middle of a write. A repush makes far more calls
    than a write: the switches of the others are to fall into its middle.
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
        return history, Seeded(mixed(seed + 1), 25 * len(clients), 0)
    repusher = history.names[len(history.clients) - len(services)]
    return history, Given(((f"a:{2 + seed // 2 % 12}", f">{repusher}"),))


def draw_publishing(seed: int) -> tuple[History, Strategy]:
    """Draw a table that is published, with a clean and publishers beside its clients.

    One in three has restores and services, one a repush or changes of the columns.
    """
    drawing = (draw, draw_upkeep, draw_repushing)[seed % 3]
    history, strategy = drawing(seed)
    shape = replace(history.shape, published=True, little=seed % 2 == 0)
    services = (Serve("publish"), Serve("clean"), Serve("publish"))[seed % 2 :]
    return replace(history, shape=shape, clients=(*history.clients[:3], services)), strategy


# --- what must happen ----------------------------------------------------------------------------


def removed(evidence: Evidence) -> int:
    """Count the rows that went by upserts."""
    upserts = {each.number for each in evidence.versions if each.operation == "upsert"}
    return sum(c.kind == "delete" and c.version in upserts for c in evidence.changes)


def moved(evidence: Evidence) -> int:
    """Count the rows that went from one partition to another."""
    went = 0
    for before, after in zip(evidence.versions, evidence.versions[1:], strict=False):
        places = {row[0]: row[1] for row in before.rows}
        went += sum(row[1] != places.get(row[0], row[1]) for row in after.rows)
    return went


def shown(evidence: Evidence) -> int:
    """Count the versions that readers of other formats saw."""
    return len({number for _, number, _ in evidence.published})


def carried(evidence: Evidence) -> bool:
    """Tell whether a writer's rows were carried over an expiry."""
    return any(v.carried and v.operation not in SERVICES for v in evidence.versions)


def decided(operation: str) -> Callable[[Evidence], bool]:
    """Tell whether there was such a decision."""
    return lambda evidence: any(each.operation == operation for each in evidence.versions)


@dataclass(frozen=True)
class Kind:
    """Some histories of one kind."""

    drawing: Drawing
    seeds: Sequence[int]
    must: Mapping[Callable[[Evidence], int], float] = field(default_factory=dict)
    """What is counted in a history, and what it comes to in a hundred of them, at least."""


KINDS = {
    "plain": Kind(draw, range(60)),
    "restores": Kind(draw_upkeep, range(80)),
    "removals": Kind(draw_removals, KEYED[:160], {removed: 5}),
    "moves": Kind(draw_moving, KEYED[:100], {moved: 10}),
    "expiries": Kind(draw_expiring, range(120), {decided("expire"): 33, carried: 1}),
    "publications": Kind(draw_publishing, range(48), {shown: 200}),
    "an index": Kind(draw_indexing, range(120), {lambda evidence: evidence.indexed: 33}),
    "repushes": Kind(
        draw_repushing,
        range(120),
        {decided("repush"): 33, lambda e: any(version.restaged for version in e.versions): 1},
    ),
}
"""``scripts/histories.py`` runs more of the first, of those with restores, and of moves."""
