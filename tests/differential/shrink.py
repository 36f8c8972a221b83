"""Makes a failing history small, and prints it as a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TypeVar

from plait.errors import DuplicateKeyError
from tests.differential.counts import Counts
from tests.differential.draw import draw
from tests.differential.evidence import Evidence, run
from tests.differential.judge import judge
from tests.differential.program import Block, Do, History, Look, Row, Serve, Turn, Write
from tests.scheduler import Problem
from tests.scheduler.choices import Given, Seeded
from tests.scheduler.points import Strategy
from tests.scheduler.program import read_moves, write_moves

Broken = Callable[[], AbstractContextManager[object]]
Drawing = Callable[[int], tuple[History, Strategy]]
"""Gives the history and the schedule of a seed: ``draw``, or ``draw_upkeep``."""
Moves = tuple[tuple[str, str], ...]
T = TypeVar("T")
_TRIES = 12
"""Schedules that a smaller history is tried with, beside the one that failed."""
_RUNS_MAX = 600


@dataclass(frozen=True, slots=True)
class Difference:
    """A history that did not end as it should."""

    seed: int | None
    history: History
    moves: Moves
    findings: tuple[Problem, ...]

    @property
    def schedule(self) -> str:
        """The choices as a text."""
        return write_moves(self.moves)

    def __str__(self) -> str:
        name = "found" if self.seed is None else f"of_seed_{self.seed}"
        lines = [f"def test_the_history_{name}() -> None:", "    history = History("]
        lines.append(f"        {self.history.shape!r},")
        lines.append("        clients=(")
        for turns in self.history.clients:
            lines.append("            (")
            lines += [f"                {turn!r}," for turn in turns]
            lines.append("            ),")
        lines.append("        ),")
        if self.history.start:
            lines.append("        start=(")
            lines += [f"            {do!r}," for do in self.history.start]
            lines.append("        ),")
        if self.history.events:
            lines.append(f"        events={self.history.events!r},")
        lines += ["    )", f'    assert differences(history, "{self.schedule}") == []', ""]
        lines += [f"    # {finding}" for finding in self.findings]
        return "\n".join(lines)


def differences(
    history: History, schedule: str | Moves | Strategy, broken: Broken = nullcontext
) -> list[Problem]:
    """Run a history as a schedule says, and give every difference."""
    if isinstance(schedule, str):
        schedule = read_moves(schedule)
    strategy = Given(schedule) if isinstance(schedule, tuple) else schedule
    return judge(run(history, strategy, broken))


def check(
    seed: int,
    broken: Broken = nullcontext,
    counts: Counts | None = None,
    drawing: Drawing = draw,
) -> Difference | None:
    """Run the history of a seed; give what differs."""
    evidence, found = _judged(*drawing(seed), broken, seed)
    if counts is not None:
        counts.add(evidence)
    return found


def sound(seed: int, drawing: Drawing = draw) -> Evidence:
    """Run the history of a seed, and give what was seen; a difference fails, made small."""
    evidence, found = _judged(*drawing(seed), nullcontext, seed)
    assert found is None, f"{shrink(found)}"
    return evidence


def _judged(
    history: History, strategy: Strategy, broken: Broken, seed: int | None
) -> tuple[Evidence, Difference | None]:
    evidence = run(history, strategy, broken)
    found = judge(evidence)
    if not found:
        return evidence, None
    return evidence, Difference(seed, history, evidence.schedule, tuple(found))


def shrink(found: Difference, broken: Broken = nullcontext) -> Difference:
    """Take away what is not needed to break the same promise."""
    promises = {finding.promise for finding in found.findings}
    best, left, again = found, _RUNS_MAX, True

    def better(history: History, strategy: Strategy) -> bool:
        nonlocal best, left
        left -= 1
        try:
            _, tried = _judged(history, strategy, broken, found.seed)
        except DuplicateKeyError:
            return False  # it begins with rows that no table can have
        if tried is None or not promises & {each.promise for each in tried.findings}:
            return False
        best = tried
        return True

    while again and left > 0:
        again = False
        for smaller in _smaller(best.history):
            length = 6 * max(1, smaller.turns)
            ways: list[Strategy] = [Given(best.moves)]
            tries = _TRIES if len(smaller.clients) > 1 or smaller.events else 0
            ways += [Seeded(seed, length, 1 if smaller.events else 0) for seed in range(tries)]
            if left > 0 and any(better(smaller, way) for way in ways):
                again = True
                break
    at = 0
    while at < len(best.moves) and left > 0:
        fewer = best.moves[:at] + best.moves[at + 1 :]
        if len(fewer) >= len(best.moves) or not better(best.history, Given(fewer)):
            at += 1
    return best


def _smaller(history: History) -> Iterator[History]:
    """Give histories with one thing less, the largest things first."""
    if history.events:
        yield replace(history, events=())
    for at in range(len(history.clients)):
        yield replace(history, clients=_without(history.clients, at))
    for clients in _each(history.clients, lambda turns: _fewer(turns, 1)):
        yield replace(history, clients=clients)
    for at in range(len(history.start)):
        yield replace(history, start=_without(history.start, at))
    for start in _each(history.start, _simpler_do):
        yield replace(history, start=start)
    for clients in _each(history.clients, lambda turns: _each(turns, _simpler)):
        yield replace(history, clients=clients)
    shape = history.shape
    for simple in (
        replace(shape, partitioned=False),
        replace(shape, ordering=False),
        replace(shape, buckets=1),
        replace(shape, little=False),
        replace(shape, published=False),
        replace(shape, aged=False),
        replace(shape, ordered=False),
        replace(shape, told=True),
        replace(shape, table_type="cow"),
        replace(shape, policy="key"),
    ):
        if simple != shape:
            yield replace(history, shape=simple)


def _simpler(turn: Turn) -> Iterator[Turn]:
    if isinstance(turn, Write):
        yield from _simpler_write(turn)
    elif isinstance(turn, Block):
        yield from _simpler_block(turn)
    elif isinstance(turn, Serve):
        if turn.replay:
            yield replace(turn, replay=False)
        if turn.back > 1:
            yield replace(turn, back=turn.back - 1)


def _simpler_write(turn: Write) -> Iterator[Turn]:
    if turn.commit_id is not None:
        yield replace(turn, commit_id=None)
    if turn.epoch is not None:
        yield replace(turn, epoch=None)
    if turn.retry:
        yield replace(turn, retry=False)
    if turn.read is not False:
        yield replace(turn, read=False, named="", do=replace(turn.do, derive=""))
    for do in _simpler_do(turn.do):
        yield replace(turn, do=do)


def _simpler_block(turn: Block) -> Iterator[Turn]:
    if len(turn.parts) == 1 and isinstance(turn.parts[0], Do):
        yield Write(replace(turn.parts[0], derive=""), retry=turn.retry)
    if turn.commit_id is not None:
        yield replace(turn, commit_id=None)
    if turn.retry:
        yield replace(turn, retry=False)
    for parts in _fewer(turn.parts, 1):
        yield replace(turn, parts=parts)
    for parts in _each(turn.parts, _simpler_part):
        yield replace(turn, parts=parts)


def _simpler_part(part: Do | Look) -> Iterator[Do | Look]:
    if isinstance(part, Do):
        yield from _simpler_do(part)
    elif part.where is not None:
        yield Look()


def _simpler_do(do: Do) -> Iterator[Do]:
    rows: Iterator[tuple[Row, ...]] = _fewer(do.rows, 1)
    for fewer in rows:
        yield replace(do, rows=fewer)
    for names in _fewer(do.clauses, 1):
        yield replace(do, clauses=names)
    if do.batches > 1:
        yield replace(do, batches=1)
    if do.derive:
        yield replace(do, derive="")


def _without(values: tuple[T, ...], at: int) -> tuple[T, ...]:
    return values[:at] + values[at + 1 :]


def _fewer(values: tuple[T, ...], least: int) -> Iterator[tuple[T, ...]]:
    if len(values) > least:
        for at in range(len(values)):
            yield _without(values, at)


def _each(values: tuple[T, ...], change: Callable[[T], Iterator[T]]) -> Iterator[tuple[T, ...]]:
    for at, value in enumerate(values):
        for other in change(value):
            yield (*values[:at], other, *values[at + 1 :])
