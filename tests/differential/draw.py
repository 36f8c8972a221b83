"""Draws a history from a seed: few keys, few rows, so that clients meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from tests.differential.clauses import DRAWN, SETS
from tests.differential.program import (
    UNKEYED,
    WRITES,
    Block,
    Do,
    History,
    Look,
    Read,
    Row,
    Serve,
    Shape,
    Turn,
    Where,
    Write,
)
from tests.scheduler.choices import Given, Random, Seeded
from tests.scheduler.points import CALL_EVENTS, Strategy

T = TypeVar("T")
POLICIES = ("key", "file_group", "merge")
ISOLATIONS = ("serializable", "snapshot")
IDS, PLACES = 3, ("x", "y")
EVENTS = tuple(event for event in CALL_EVENTS if not event.startswith("cut_"))
LOOKS = ("skip", "upsert", "delete_keys", "merge")
"""Drawn twice as often: they look keys up, and may leave them as they are."""
ROUND = 600
"""So many seeds begin with the same tables; the short run is one round."""
SHAPES = 60
_CALLS = 6
"""A turn makes twice as many calls, so that few histories have no switch in the middle of one."""

STARTS: tuple[tuple[tuple[str, tuple[Row, ...]], ...], ...] = (
    (),
    (("append", ((0, "x", 10, 1), (1, "y", 20, 2))),),
    (("append", ((0, "x", 10, 1), (1, "x", 20, None), (2, "y", 30, 3), (3, "y", 40, 2))),),
    (
        ("append", ((0, "x", 10, 1), (1, "x", 20, 2), (2, "x", 30, 3), (3, "y", 40, 4))),
        ("delete_where", ((1, "x", 0, 0),)),
        ("append", ((1, "y", 50, 5),)),
    ),
)
"""Tables to begin with: empty, few rows, more rows, and one with a row that is gone."""


class Draw:
    """Makes one history."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._random = Random(mixed(seed))
        self._value = 100
        self._id = 100
        self.start = STARTS[0]
        self.shape = self._shape()
        self.calls = _CALLS
        self.moves: tuple[tuple[str, str], ...] = ()
        """The schedule, where the kind of history says it: one switch is enough."""
        self.long = self.chance(50)
        self._themes = tuple((self._random.below(IDS), place) for place in PLACES)
        """Most rows of a short history have these keys: in two places, so that two can cross."""

    # --- small choices -----------------------------------------------------------------------

    def one(self, values: Sequence[T]) -> T:
        """Choose one."""
        return values[self._random.below(len(values))]

    def chance(self, percent: int) -> bool:
        """Say yes so often."""
        return self._random.below(100) < percent

    def _shape(self) -> Shape:
        """Go through types, isolations and policies in turn, so that none is left to chance.

        Within a round a shape has one table to begin with, which is made once.
        """
        shapes = Random(mixed(self.seed // ROUND * SHAPES + self.seed % SHAPES))
        seed = self.seed % SHAPES
        keyed = seed // 12 != 4
        self.start = STARTS[shapes.below(len(STARTS))]
        return Shape(
            keyed=keyed,
            table_type=("cow", "mor")[seed % 2],
            isolation=ISOLATIONS[(seed // 2) % 2],
            policy=POLICIES[(seed // 4) % 3],
            partitioned=shapes.below(3) > 0,
            ordering=keyed and shapes.below(5) < 2,
            buckets=2 if keyed and shapes.below(5) < 2 else 1,
            little=shapes.below(8) == 0,
        )

    def history(self) -> History:
        """Draw the whole of it; in one of four a compaction runs beside the clients."""
        drawn = self._history()
        if self.shape.little and self.seed % 4:  # by the seed: no draw of another moves by it
            drawn = replace(drawn, clients=(*drawn.clients, (Serve("clean"),)))
        if not self.chance(25):
            return drawn
        self.moves = ()
        services = (Serve("compact"),) * self.one((1, 1, 2))
        several = tuple(self._begin(kind, rows) for kind, rows in STARTS[3])
        start = several if self.chance(80) else drawn.start
        return replace(drawn, clients=(*drawn.clients, services), start=start)

    def _history(self) -> History:
        """Draw what clients do: half of the histories are two clients with a turn each."""
        kinds = WRITES if self.shape.keyed else UNKEYED
        first = kinds[(self.seed // SHAPES + self.seed) % len(kinds)]
        if self.shape.keyed and not self.long and self.chance(70):
            clients = self._known()
            if self.chance(8):  # both are the same commit, tried by two
                clients = tuple(tuple(_named(turn, "one") for turn in turns) for turns in clients)
            return History(self.shape, clients, self._begun())
        drawn: list[tuple[Turn, ...]] = []
        long = self.long
        for number in range(self.one((2, 2, 3)) if long else 2):
            turns = self.one((1, 1, 2, 3)) if long else 1
            kept = None if number else first
            drawn.append(tuple(self._turn(None if at else kept) for at in range(turns)))
        events = EVENTS if long and self.chance(25) else ()
        return History(self.shape, tuple(drawn), self._begun(), events)

    def _begun(self) -> tuple[Do, ...]:
        return tuple(self._begin(kind, rows) for kind, rows in self.start)

    def _begin(self, kind: str, rows: tuple[Row, ...]) -> Do:
        if kind == "delete_where":
            return Do(kind, where=Where("id", "=", rows[0][0]))
        return Do(kind, rows=rows)

    # --- turns -------------------------------------------------------------------------------

    def _turn(self, kind: str | None) -> Turn:
        pick = self._random.below(100)
        if kind is None and self.long:
            if pick < 10:
                return Read(self._where(), back=self.one((0, 0, 1)))
            if pick < 20:
                return Serve(self.one(("clean", "set", "rollback")))
        if pick >= (68 if self.long else 50):
            return self._block(kind)
        return self._write(self._do(kind))

    def _write(self, do: Do) -> Write:
        plain = do.kind in ("append", "insert", "skip", "upsert", "overwrite")
        if self.chance(30 if self.long else 50):
            read = self._where() or True
            derive = self.one(("", "sum", "bump")) if plain and self.shape.keyed else ""
            derive = self.one(("", "sum")) if plain and not derive else derive
            named = self.one(("scan", "version", "snapshot", "older"))
            return Write(_with(do, derive), read=read, named=named)
        if plain and do.rows and self.chance(15):
            do = _with(do, "", batches=2)
        return Write(
            do,
            retry=self.chance(25),
            commit_id=self.one(("one", "two")) if self.chance(6) else None,
            aborts=plain and self.chance(5),
        )

    def _block(self, kind: str | None) -> Block:
        count = self.one((1, 2, 2, 3))
        parts: list[Do | Look] = [self._do(None if at else kind) for at in range(count)]
        if self.chance(60):
            at = self._random.below(len(parts) + 1)
            parts.insert(at, Look(self._where()))
            for later in range(at + 1, len(parts)):
                each = parts[later]
                if (
                    isinstance(each, Do)
                    and each.kind in ("append", "insert", "skip", "upsert")
                    and self.chance(50)
                ):
                    parts[later] = _with(each, "sum")
        looks = any(isinstance(part, Look) for part in parts)
        return Block(
            tuple(parts),
            retry=not looks and self.chance(25),
            commit_id=self.one(("one", "two")) if self.chance(5) else None,
            aborts=self.chance(5),
        )

    def _known(self) -> tuple[tuple[Turn, ...], ...]:
        """Draw one of the ways in which updates are known to be lost, or orders to cross."""
        pick = self._random.below(100)
        blind = self.shape.policy == "merge" and not self.shape.strict
        if pick < (80 if blind else 10):
            return self._overtaken()
        if pick >= (70 if self.shape.strict else 97):
            return self._skewed(0), self._skewed(1)
        if pick >= 55 and self.shape.strict:
            return self._matching(), (Write(self._on("upsert", self.one(self._themes))),)
        if pick < (90 if blind else 20 if self.shape.strict else 50):
            return self._behind()
        return self._crossing(0), self._crossing(1)

    def _behind(self) -> tuple[tuple[Turn, ...], ...]:
        """Look a key up by a named read, while another brings it or takes it away."""
        if self.chance(50):
            self.start = ()
        key, _ = self._themes
        kinds = ("insert", "upsert", "delete_keys")
        named = self.one(("scan", "version", "snapshot", "older"))
        does = self._on(self.one(("delete_keys", "delete_keys", *LOOKS)), key)
        slow = Write(does, read=self._where() or True, named=named)
        self.moves = ((f"a:{2 + self._random.below(12)}", ">b"),)
        return (slow,), (Write(self._on(self.one(kinds), key)),)

    def _matching(self) -> tuple[Turn]:
        """Change whatever a predicate holds for, in rows that come as well."""
        where = self.one((None, Where("v", "<", 200), Where("id", ">", -1)))
        if self.chance(50):
            return (Write(Do("update", where=where, values=self.one(tuple(SETS)))),)
        return (Write(Do("delete_where", where=where or Where("v", ">", 0))),)

    def _skewed(self, number: int) -> tuple[Turn]:
        """Write a key with a value that follows from what was read."""
        read = self.one((None, Where("v", "<", 200), Where("p", "=", PLACES[1 - number])))
        does = _with(self._on("upsert", self._themes[number]), "sum")
        if self.chance(50):
            return (Block((Look(read), does)),)
        return (Write(does, read=read or True, named=self.one(("scan", "snapshot"))),)

    def _crossing(self, number: int) -> tuple[Turn]:
        """Look one key up and change another: what two clients can do crosswise."""
        asked, changed = self._themes[number], self._themes[1 - number]
        looked = self._on(self.one(LOOKS), asked)
        does = self._on(self.one(("insert", "upsert", "delete_keys", "merge")), changed)
        parts = [looked, does] if self.chance(70) else [does, looked]
        if self.chance(30):
            return (Block((*parts, Look(self._where())) if self.chance(50) else (Look(), *parts)),)
        return (Block(tuple(parts), retry=self.chance(20)),)

    def _overtaken(self) -> tuple[tuple[Turn, ...], ...]:
        """Compute from a read, while another changes first a key beside it, then the key."""
        self.calls = _CALLS // 2  # it is overtaken twice
        key, _ = self._themes
        beside = ((key[0] + 1) % IDS, key[1])
        does = _with(self._on(self.one(("upsert", "upsert", "delete_keys", "merge")), key), "sum")
        slow: Turn = Write(does, read=Where("id", "=", key[0]), named="scan")
        if self.chance(40):
            slow = Block((Look(Where("id", "=", key[0])), does))
        kinds = ("upsert", "upsert", "delete_keys")
        others = (self._on("upsert", beside), self._on(self.one(kinds), key))
        return (slow,), tuple(Write(do) for do in others)

    def _on(self, kind: str, theme: tuple[int, str]) -> Do:
        self._value += 1
        row = (*theme, self._value, self._random.below(4))
        clauses = (self.one(("take", "drop", "new")),) if kind == "merge" else ()
        return Do(kind, (row,), clauses=clauses, placed=True)

    # --- operations ----------------------------------------------------------------------------

    def _do(self, kind: str | None) -> Do:
        keyed = self.shape.keyed
        if kind is None:
            kind = self.one((*WRITES, *LOOKS, "insert") if keyed else UNKEYED)
        if kind.startswith("overwrite") and self.chance(40):
            kind = self.one(("upsert", "delete_keys") if keyed else ("append", "delete_where"))
        if kind == "overwrite_partitions" and not self.shape.partitioned:
            kind = "overwrite"
        if kind == "delete_where":
            return Do(kind, where=self._where() or Where("id", ">", -1))
        if kind == "update":
            return Do(kind, where=self._where(), values=self.one(tuple(SETS)))
        if kind == "overwrite_where":
            return self._overwrite()
        if kind == "delete_keys":
            return Do(kind, self._rows(), placed=self.chance(50))
        if kind == "merge":
            names = {self.one(DRAWN) for _ in range(self.one((1, 2, 2, 3)))}
            return Do(kind, self._rows(), clauses=tuple(sorted(names)))
        rows = self._rows(new=kind in ("append", "insert"))
        if kind == "upsert" and self.chance(20):
            rows = (*rows, *self._again(rows))
        return Do(kind, rows)

    def _overwrite(self) -> Do:
        """Overwrite by a predicate that holds for the rows that come in."""
        if self.chance(50):
            place = self.one(PLACES)
            rows = tuple((i, place, v, n) for i, _, v, n in self._rows())
            return Do("overwrite_where", _once(rows), Where("p", "=", place))
        row = self._rows()[0]
        return Do("overwrite_where", (row,), Where("id", "=", row[0]))

    def _where(self) -> Where | None:
        pick = self._random.below(6)
        if pick == 0:
            return None
        if pick == 1:
            return Where("p", "=", self.one(PLACES))
        if pick == 2:
            return Where("v", self.one(("<", ">")), self.one((15, 25, 100)))
        if pick == 3:
            return Where("n", self.one(("<", ">")), self.one((2, 3, 101)))
        sign = self.one(("=", "=", "=", "<", ">", "<>"))
        return Where("id", sign, self._random.below(IDS))

    def _rows(self, *, new: bool = False) -> tuple[Row, ...]:
        return _once(
            [
                self._row(new=new)
                for _ in range(self.one((1, 1, 2, 3) if self.long else (1, 1, 2, 2)))
            ]
        )

    def _row(self, *, new: bool = False) -> Row:
        self._value += 1
        n = None if self.chance(10) else self._random.below(8)
        number, place = self._number(new=new), self.one(PLACES)
        if self.shape.keyed and not self.long and self.chance(30 if new else 75):
            number, place = self.one(self._themes)
        return number, place, self._value, n

    def _number(self, *, new: bool) -> int:
        """Choose a key; most of those that are to be new are not in the table."""
        if self.shape.keyed:
            return self._random.below(4 * IDS if new else IDS)
        self._id += 1
        return self._id

    def _again(self, rows: Sequence[Row]) -> list[Row]:
        if not self.shape.keyed:
            return []
        i, p, _, _ = rows[0]
        return [(i, p, *self._row()[2:])]


def _named(turn: Turn, commit_id: str) -> Turn:
    return replace(turn, commit_id=commit_id) if isinstance(turn, (Write, Block)) else turn


def _once(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Leave one row a key, whatever the partition."""
    return tuple({row[0]: row for row in rows}.values())


def _with(do: Do, derive: str, *, batches: int = 1) -> Do:
    return Do(do.kind, do.rows, do.where, do.values, do.clauses, do.placed, derive, batches)


def draw(seed: int) -> tuple[History, Strategy]:
    """Give a history and its schedule; the same as long as the code makes the same calls."""
    drawing = Draw(seed)
    history = drawing.history()
    if drawing.moves:
        return history, Given(drawing.moves)
    length = drawing.calls * (history.turns if history.turns > 3 else 2)
    return history, Seeded(mixed(seed + 1), length, 2 if history.events else 0)


def mixed(seed: int) -> int:
    """Give a number that has nothing in common with that of the next seed."""
    return Random(seed).next()
