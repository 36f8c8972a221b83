"""Strategies: seeded random ones, all with a bound, all that differ, and one that is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.scheduler.points import GO, AbandonError, Point
from tests.scheduler.world import Call

_MASK = (1 << 64) - 1
_SWITCHES = (1, 1, 2, 2, 3, 4, 6, 10)


class Random:
    """Numbers from a seed, the same on every machine and Python (SplitMix64).

    >>> Random(7).below(100), Random(7).below(100)
    (40, 40)
    """

    def __init__(self, seed: int) -> None:
        self._state = (seed * 0x9E3779B97F4A7C15) & _MASK

    def next(self) -> int:
        """Give 64 random bits."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def below(self, count: int) -> int:
        """Give a number from 0 to count - 1."""
        return self.next() % count

    def one_in(self, count: float) -> bool:
        """Say yes once in so many times."""
        return self.next() < (1 << 64) / max(count, 1.0)


class Seeded:
    """Few switches at random places, and few events: nearly all bugs need no more.

    How many of each is drawn first, so that schedules with one switch are as frequent as those
    with ten. ``length`` is about how many calls a schedule has.
    """

    def __init__(self, seed: int, length: int, events_max: int) -> None:
        self._random = random = Random(seed)
        self._switch_every = length / _SWITCHES[random.below(len(_SWITCHES))]
        self._events = random.below(events_max + 1)
        self._event_every = length / max(self._events, 1)
        self._hurry = False

    def choose(self, point: Point) -> str:
        """Mostly go on."""
        random = self._random
        if self._events and random.one_in(self._event_every):
            events = point.events()
            if events:
                self._events -= 1
                chosen = events[random.below(len(events))]
                # a listing that answers later is one while others work
                self._hurry = chosen in ("!early", "!torn")
                return chosen
        others = point.others
        if not others:
            return GO
        if point.current is None or self._hurry or random.one_in(self._switch_every):
            self._hurry = self._hurry and point.current is None
            return f">{others[random.below(len(others))]}"
        return GO


@dataclass(slots=True)
class Given:
    """Choices that were recorded: those that make no sense any more are passed over."""

    moves: Sequence[tuple[str, str]]
    _left: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, move in self.moves:
            self._left.setdefault(key, []).append(move)

    def choose(self, point: Point) -> str:
        """Give what was recorded for this place, else the default."""
        left = self._left.get(point.key)
        while left:
            move = left.pop(0)
            if point.allows(move):
                return move
        return point.default


class Bounded:
    """Every schedule with at most so many switches and events, depth first.

    A switch away from a lane that could have gone on counts; one after its end does not
    (Musuvathi and Qadeer, "Iterative context bounding for systematic testing of multithreaded
    programs", PLDI 2007).
    """

    def __init__(self, switches: int, events: int = 0) -> None:
        self._switches, self._events = switches, events
        self._given: list[int] = []
        self._counts: list[int] = []
        self._taken: list[int] = []
        self._left = (switches, events)

    def choose(self, point: Point) -> str:
        """Follow the path to the newest fork, then take the first way."""
        switches, events = self._left
        going = point.current is not None
        options = [GO] if going else []
        if not going or switches > 0:
            options += [f">{name}" for name in point.others]
        if events > 0:
            options += point.events()
        at = len(self._taken)
        chosen = self._given[at] if at < len(self._given) else 0
        self._taken.append(chosen)
        self._counts.append(len(options))
        move = options[chosen]
        if move[0] == ">":
            switches -= going
        elif move != GO:
            events -= 1
        self._left = (switches, events)
        return move

    def advance(self) -> bool:
        """Prepare the next schedule; False after the last."""
        for at in range(len(self._taken) - 1, -1, -1):
            if self._taken[at] + 1 < self._counts[at]:
                self._given = [*self._taken[:at], self._taken[at] + 1]
                self._taken, self._counts = [], []
                self._left = (self._switches, self._events)
                return True
        return False


@dataclass(slots=True)
class _Node:
    """A place on the way, and what was done there already."""

    calls: dict[str, Call]
    asleep: set[str]
    tried: list[str] = field(default_factory=list)

    def rest(self) -> list[str]:
        return [name for name in self.calls if name not in self.asleep and name not in self.tried]


class Complete:
    """Every schedule without events, but only one of those that differ in nothing.

    Sleep sets: after a lane was let go first at a place, it need not be first in what is tried
    there later, until somebody made a call whose order with its call matters (Godefroid,
    "Partial-Order Methods for the Verification of Concurrent Systems", 1996).
    """

    def __init__(self) -> None:
        self._nodes: list[_Node] = []
        self._depth = 0

    def choose(self, point: Point) -> str:
        """Follow the path to the newest fork, then take a lane that is not asleep."""
        if point.arrived:
            return GO
        if self._depth == len(self._nodes):
            self._nodes.append(self._arrive(point))
        node = self._nodes[self._depth]
        if self._depth == len(self._nodes) - 1:
            rest = node.rest()
            if not rest:
                raise AbandonError
            node.tried.append(rest[0])
        self._depth += 1
        chosen = node.tried[-1]
        current = point.current
        return GO if current is not None and current.name == chosen else f">{chosen}"

    def _arrive(self, point: Point) -> _Node:
        lanes = {lane.name: lane.pending for lane in point.run.lanes if lane.enabled}
        first = point.current
        if first is not None:
            lanes = {first.name: first.pending, **lanes}
        if not self._nodes:
            return _Node(lanes, set())
        above = self._nodes[-1]
        chosen = above.tried[-1]
        call = above.calls[chosen]
        asleep = {*above.asleep, *above.tried[:-1]} - {chosen}
        return _Node(lanes, {n for n in asleep if n in lanes and not call.touches(lanes[n])})

    def advance(self) -> bool:
        """Prepare the next schedule; False after the last."""
        self._depth = 0
        while self._nodes and not self._nodes[-1].rest():
            self._nodes.pop()
        return bool(self._nodes)
