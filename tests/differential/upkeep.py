"""Draws histories in which commits are undone and redone, while services run beside the clients.

Without a switch the clients go one after the other: jobs, an operator who undoes, jobs that send
the same again. Each seed stands for its own choices; no other kind of history moves by them.
"""

from __future__ import annotations

from dataclasses import replace

from tests.differential.draw import SHAPES, STARTS, Draw, mixed
from tests.differential.program import Do, History, Row, Serve, Turn, Write
from tests.scheduler.choices import Random, Seeded
from tests.scheduler.points import Strategy

UPKEEP = 240
"""So many seeds are one round."""
_CALLS = 8


class _Upkeep(Draw):
    """Makes one such history."""

    def history(self) -> History:
        """Draw the whole of it."""
        traits = Random(mixed(UPKEEP + self.seed % SHAPES))  # those of a shape: tables are shared
        self.shape = replace(
            self.shape,
            aged=traits.below(10) < 3,
            ordered=traits.below(10) < 3,
            told=traits.below(7) > 0,
            little=traits.below(5) == 0,
        )
        self._epochs: dict[int, Do] = {}
        start = self._begun() if self.chance(20) else self._several()
        jobs = self._stream() if self.chance(55) else self._same_ids()
        clients = [jobs[0], self._operator(), jobs[1]]
        if self.chance(60):
            clients.insert(self.one((0, 1, 2)), self._services())
        if self.chance(25):
            clients.append((self._turn(None),))
        return History(self.shape, tuple(clients), start)

    def _several(self) -> tuple[Do, ...]:
        return tuple(self._begin(kind, rows) for kind, rows in STARTS[3])

    # --- jobs --------------------------------------------------------------------------------

    def _same_ids(self) -> tuple[tuple[Turn, ...], tuple[Turn, ...]]:
        """Draw two jobs that send the same commit ids."""
        first, again = self._with_id("one"), self._with_id("one")
        other = self._with_id("two")
        before = (first, other) if self.chance(40) else (first,)
        after = (again, self._write(self._do(None))) if self.chance(40) else (again,)
        return before, (*after, *((self._with_id("two"),) if self.chance(30) else ()))

    def _with_id(self, name: str) -> Turn:
        kinds = ("upsert", "upsert", "delete_keys", "update", "delete_where")
        unkeyed = ("append", "append", "delete_where", "update")
        do = self._do(self.one(kinds if self.shape.keyed else unkeyed))
        return Write(do, commit_id=name, retry=self.chance(20))

    def _stream(self) -> tuple[tuple[Turn, ...], tuple[Turn, ...]]:
        """Draw two writers of one stream: the second sends some epochs again."""
        count = self.one((1, 2, 2))
        before = tuple(self._epoch(number) for number in range(count))
        first = self.one((0, count - 1, count - 1, count))
        after = tuple(self._epoch(first + number) for number in range(self.one((1, 1, 2))))
        return before, after

    def _epoch(self, number: int) -> Write:
        """Send an epoch with its rows, seldom with others."""
        if number not in self._epochs or self.chance(8):
            rows: tuple[Row, ...] = self._rows()
            self._epochs[number] = Do("upsert" if self.shape.keyed else "append", rows)
        return Write(self._epochs[number], retry=self.chance(50), epoch=number)

    # --- who undoes --------------------------------------------------------------------------

    def _operator(self) -> tuple[Turn, ...]:
        turns = [self._undoing()]
        if self.chance(20):
            turns.insert(0, Serve("save"))
        if self.chance(45):
            turns.append(Serve("replay"))
        if self.chance(40):
            turns.append(self._undoing())
        if self.chance(15):
            turns.append(Serve("replay"))
        return tuple(turns)

    def _undoing(self) -> Serve:
        kind = self.one(("undo", "undo", "restore", "restore", "restore", "saved"))
        back = self.one((1, 1, 2, 3, 4)) if kind == "restore" else 1
        return Serve(kind, back, replay=self.chance(20))

    def _services(self) -> tuple[Turn, ...]:
        kinds = ["compact", "cluster"]
        kinds += ["order", "order"] if self.shape.ordered else []
        kinds += ["archive"] * 4 if self.shape.aged else []
        kinds += ["clean"] * 2 if self.shape.little else []
        kinds += ["rebuild"] if not self.shape.told else []
        return tuple(Serve(self.one(kinds)) for _ in range(self.one((1, 2, 2))))


def draw_upkeep(seed: int) -> tuple[History, Strategy]:
    """Give a history and its schedule; the same as long as the code makes the same calls."""
    history = _Upkeep(seed).history()
    return history, Seeded(mixed(seed + 1), _CALLS * history.turns, 0)
