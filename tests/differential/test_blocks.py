"""What a part of a transaction does counts, though a later one undoes it: against serial order.

Another commit comes between the parts and the commit of the transaction. Under ``serializable`` the
judge asks for what the two do one after the other; under both isolations first committers win.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from tests.differential.program import Block, Do, History, Row, Shape, Where, Write
from tests.differential.shrink import differences
from tests.support.effort import MORE

KEY, OTHER = 2, 5
STARTS: dict[str, tuple[Do, ...]] = {
    "absent": (Do("append", rows=((9, "y", 10, 1), (7, "x", 20, 1))),),
    "elsewhere": (Do("append", rows=((9, "y", 10, 1), (KEY, "z", 20, 1))),),
    "here": (Do("append", rows=((9, "y", 10, 1), (KEY, "x", 20, 1))),),
}


def at(place: str, value: int = 50, key: int = KEY) -> Row:
    """Return a row in a place."""
    return (key, place, value, 5)


PARTS: dict[str, Do] = {
    "upsert_x": Do("upsert", rows=(at("x"),)),
    "upsert_y": Do("upsert", rows=(at("y", 51),)),
    "skip_x": Do("skip", rows=(at("x", 52),)),
    "delete_key": Do("delete_keys", rows=(at("x"),)),
    "delete_place": Do("delete_where", where=Where("p", "=", "x")),
    "delete_row": Do("delete_where", where=Where("id", "=", KEY)),
    "update_row": Do("update", where=Where("id", "=", KEY), values="inc"),
    "replace_place": Do("overwrite_partitions", rows=(at("x", 60, OTHER),)),
    "replace_match": Do("overwrite_where", rows=(at("x", 61, OTHER),), where=Where("p", "=", "x")),
    "replace_table": Do("overwrite", rows=(at("y", 62, OTHER),)),
    "merge_x": Do("merge", rows=(at("x", 53),), clauses=("move", "new")),
    "merge_drop": Do("merge", rows=(at("x"),), clauses=("drop",)),
}
BESIDE: dict[str, Do] = {
    "upsert_x": Do("upsert", rows=(at("x", 70),)),
    "upsert_y": Do("upsert", rows=(at("y", 71),)),
    "skip_z": Do("skip", rows=(at("z", 72),)),
    "upsert_another": Do("upsert", rows=(at("z", 73, 8),)),
    "delete_key": Do("delete_keys", rows=(at("x"),)),
}
SHAPES = tuple(
    Shape(table_type=kind, isolation=isolation, partitioned=True, unique=unique)
    for kind, isolation, unique in itertools.product(
        ("cow", "mor"), ("serializable", "snapshot"), (True, False)
    )
)
PAIRS: Sequence[tuple[str, ...]] = tuple(itertools.product(PARTS, repeat=2))
TRIPLES: Sequence[tuple[str, ...]] = (
    ("upsert_x", "delete_place", "upsert_y"),
    ("upsert_x", "upsert_y", "delete_row"),
    ("upsert_x", "replace_place", "delete_place"),
    ("delete_key", "upsert_x", "delete_place"),
    ("skip_x", "update_row", "replace_table"),
    ("merge_x", "merge_drop", "skip_x"),
)
_STRIDE = 1 if MORE else 60
SEEN: tuple[tuple[str, str, str], ...] = (
    ("absent", "skip_x replace_place", "upsert_y"),
    ("absent", "upsert_x delete_place", "upsert_y"),
    ("absent", "upsert_y delete_row", "upsert_x"),
    ("elsewhere", "upsert_x replace_table", "delete_key"),
    ("absent", "skip_x replace_place", "upsert_another"),
)
"""Run for every shape: those of which one part once met nobody, and one that must meet nobody."""


def blocks(number: int) -> list[tuple[str, str, str]]:
    """Return starts, parts and what runs beside, for the shape of a number."""
    every = [
        (start, " ".join(parts), beside)
        for parts in (*TRIPLES, *PAIRS)
        for start in STARTS
        for beside in BESIDE
    ]
    return [*SEEN, *every[number % _STRIDE :: _STRIDE]]


@pytest.mark.long(2)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_transaction_meets_whoever_wrote_what_one_of_its_parts_wrote(shape: Shape) -> None:
    """INV-07, INV-08: the write set is the union of what the parts wrote, not their net effect."""
    moves = shape.unique
    for start, named, beside in blocks(SHAPES.index(shape)):
        parts = tuple(PARTS[name] for name in named.split())
        if not moves:  # a row stays in its place there
            parts = tuple(_without_moves(part) for part in parts)
        clients = ((Block(parts),), (Write(BESIDE[beside]),))
        history = History(shape, clients, STARTS[start])
        schedule = "a:8>b" if (start, named, beside) in SEEN else "a:5>b"
        found = differences(history, schedule)
        assert found == [], f"{named} on {start} beside {beside}: {found}"


def _without_moves(do: Do) -> Do:
    clauses = tuple("take" if name == "move" else name for name in do.clauses)
    return Do(do.kind, do.rows, do.where, do.values, clauses)
