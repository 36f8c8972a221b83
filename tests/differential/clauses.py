"""Clauses and assignments: as a caller writes them, and as what they mean in plain Python.

Of a row ``(id, p, v, n)``; ``v`` is never null.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plait import Delete, Insert, Update
from tests.differential.program import Row

Make = Callable[[Row, Row], Row | None]
"""What becomes of a row of the table, given the source's; None: it goes."""
Asks = Callable[[Row, Row], bool]


def _always(_s: Row, _t: Row) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause of a merge."""

    given: Any
    """As the caller writes it."""
    when: Asks
    make: Make
    part: str = "matched"


CLAUSES = {
    "take": Clause(Update({"v": "s.v", "n": "s.n"}), _always, lambda s, t: (*t[:2], s[2], s[3])),
    "add": Clause(
        Update({"v": "t.v + s.v"}), _always, lambda s, t: (t[0], t[1], t[2] + s[2], t[3])
    ),
    "newer": Clause(
        Update({"v": "s.v"}, when="s.v > t.v"),
        lambda s, t: s[2] > t[2],
        lambda s, t: (t[0], t[1], s[2], t[3]),
    ),
    "move": Clause(Update(), _always, lambda s, _t: s),
    "drop": Clause(Delete(), _always, lambda _s, _t: None),
    "drop_low": Clause(Delete(when="t.v < 30"), lambda _s, t: t[2] < 30, lambda _s, _t: None),
    "new": Clause(Insert(), _always, lambda s, _t: s, "not_matched"),
    "new_high": Clause(
        Insert(when="v > 20"), lambda s, _t: s[2] > 20, lambda s, _t: s, "not_matched"
    ),
    "rest_drop": Clause(
        Delete(when="v < 15"), lambda _s, t: t[2] < 15, lambda _s, _t: None, "not_matched_by_source"
    ),
    "rest_mark": Clause(
        Update({"v": "v + 1"}, when="id > 1"),
        lambda _s, t: t[0] > 1,
        lambda _s, t: (t[0], t[1], t[2] + 1, t[3]),
        "not_matched_by_source",
    ),
}
DRAWN = tuple(name for name in CLAUSES if name != "move")
"""Those that any table takes: a row goes to the partition of the source's where keys are unique."""
PARTS = ("matched", "not_matched", "not_matched_by_source")

SETS: dict[str, tuple[dict[str, object], Callable[[Row], Row]]] = {
    "inc": ({"v": "v + 1"}, lambda t: (t[0], t[1], t[2] + 1, t[3])),
    "double": ({"v": "v * 2"}, lambda t: (t[0], t[1], t[2] * 2, t[3])),
    "seven": ({"v": 7}, lambda t: (t[0], t[1], 7, t[3])),
    "rank": ({"n": "v"}, lambda t: (t[0], t[1], t[2], t[2])),
}
"""What an update assigns, and what it makes of a row."""


def clauses_of(names: tuple[str, ...]) -> dict[str, list[Any]]:
    """Give the clauses of a merge as ``Table.merge`` takes them."""
    return {part: [CLAUSES[n].given for n in names if CLAUSES[n].part == part] for part in PARTS}
