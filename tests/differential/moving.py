"""Draws histories of tables in which a key names one row in all partitions (RFC 0030)."""

from __future__ import annotations

from dataclasses import replace

from tests.differential.clauses import CLAUSES
from tests.differential.draw import draw
from tests.differential.program import Block, Do, History, Look, Turn, Write
from tests.scheduler.points import Strategy


def draw_moving(seed: int) -> tuple[History, Strategy]:
    """Give the history of a seed on such a table, if it has a key; merges of it move rows."""
    history, strategy = draw(seed)
    if not history.shape.keyed:
        return history, strategy
    shape = replace(history.shape, partitioned=True, unique=True)
    clients = tuple(tuple(_turned(turn) for turn in turns) for turns in history.clients)
    return replace(history, shape=shape, clients=clients), strategy


def _turned(turn: Turn) -> Turn:
    if isinstance(turn, Write):
        return replace(turn, do=_done(turn.do))
    if isinstance(turn, Block):
        parts = (each if isinstance(each, Look) else _done(each) for each in turn.parts)
        return replace(turn, parts=tuple(parts))
    return turn


def _done(do: Do) -> Do:
    if do.derive == "bump":  # its rows may have a key of those that were read, in another place
        do = replace(do, derive="sum")
    if do.kind == "append":  # an insert, which no row that moves lets through
        return replace(do, kind="upsert")
    if do.kind != "merge":
        return do
    kept = [name for name in do.clauses if CLAUSES[name].part != "not_matched_by_source"]
    moves = ["move" if name == "take" else name for name in kept]
    return replace(do, clauses=tuple(moves or ["move"]))
