"""Runs many schedules of a scenario, and makes the first failure small and repeatable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from plait.ports import SystemClock
from tests.scheduler.choices import Bounded, Complete, Given, Seeded
from tests.scheduler.ending import End, Problem
from tests.scheduler.points import Strategy
from tests.scheduler.program import program, read_moves, write_moves
from tests.scheduler.scenario import Scenario

Moves = tuple[tuple[str, str], ...]
_SHRINKS_MAX = 300


@dataclass(frozen=True, slots=True)
class Failure:
    """A schedule that broke a promise, as small as it could be made."""

    scenario: str
    seed: int | None
    """What drew it; None if it comes of going through all."""
    moves: Moves
    """All choices that are not the default: ``replay`` takes their text, or the seed."""
    problems: tuple[Problem, ...]
    steps: tuple[str, ...]

    @property
    def schedule(self) -> str:
        """The text that replays it."""
        return write_moves(self.moves)

    def __str__(self) -> str:
        """Write it as a short program."""
        drawn = "" if self.seed is None else f"seed {self.seed} of "
        head = f"{drawn}{self.scenario!r} breaks a promise"
        what = [f"  {problem}" for problem in self.problems]
        return "\n".join([head, *what, *self.steps, f"  replay: {self.schedule or 'no choices'}"])


@dataclass(slots=True)
class Report:
    """What many schedules came to."""

    scenario: str
    schedules: int = 0
    cut: int = 0
    """Schedules that were left off half way because they are the same as others."""
    calls: int = 0
    events: int = 0
    seconds: float = 0.0
    complete: bool = False
    """Whether there is no schedule left within the bounds."""
    traces: set[int] = field(default_factory=set, repr=False)
    """Of schedules that some actor, or who looks at the store later, can tell apart."""
    failure: Failure | None = None

    def to_dict(self) -> dict[str, object]:
        """Give it as plain values."""
        return {
            "scenario": self.scenario,
            "schedules": self.schedules,
            "cut": self.cut,
            "traces": len(self.traces),
            "calls": self.calls,
            "events": self.events,
            "seconds": round(self.seconds, 3),
            "complete": self.complete,
            "failed": self.failure is not None,
        }


def explore(scenario: Scenario, seeds: Iterable[int]) -> Report:
    """Run one schedule a seed, until one breaks a promise.

    A seed means the same schedule for ever, on every machine, as long as the code makes the
    same calls. The failure is shrunk; ``replay`` runs it again.
    """
    report = Report(scenario.name)
    for _ in each_seed(scenario, seeds, report):
        pass
    return report


def each_seed(scenario: Scenario, seeds: Iterable[int], report: Report) -> Iterator[End]:
    """Run one schedule a seed and give what it left, until one breaks a promise."""
    length = _length(scenario)
    for seed in seeds:
        end = _measured(scenario, Seeded(seed, length, scenario.events_max), report)
        if end.problems:
            report.failure = shrink(scenario, end, seed)
        yield end
        if end.problems:
            return


def explore_all(
    scenario: Scenario, *, switches: int | None = None, events: int = 0, limit: int = 1_000_000
) -> Report:
    """Run every schedule within bounds, until one breaks a promise.

    Args:
        scenario: what to run.
        switches: how often a lane that could go on may be left; None for any number, without
            events, and only one schedule of each set that differs in nothing.
        events: how many events.
        limit: the most schedules to run; the report says whether it was enough.
    """
    report = Report(scenario.name)
    for _ in each_schedule(scenario, report, switches=switches, events=events, limit=limit):
        pass
    return report


def each_schedule(
    scenario: Scenario,
    report: Report,
    *,
    switches: int | None = None,
    events: int = 0,
    limit: int = 1_000_000,
) -> Iterator[End]:
    """Run every schedule within bounds and give what each left, until one breaks a promise."""
    if switches is None and events:
        message = "events need a bound on switches"
        raise ValueError(message)
    strategy = Complete() if switches is None else Bounded(switches, events)
    for _ in range(limit):
        end = _measured(scenario, strategy, report)
        if end.problems:
            report.failure = shrink(scenario, end, None)
        if not end.abandoned:
            yield end
        if end.problems:
            return
        if not strategy.advance():
            report.complete = True
            return


def replay(scenario: Scenario, schedule: int | str) -> Failure | None:
    """Run one schedule again, by its seed or its text; None if every promise holds."""
    strategy: Strategy
    if isinstance(schedule, int):
        strategy = Seeded(schedule, _length(scenario), scenario.events_max)
    else:
        strategy = Given(read_moves(schedule))
    end = scenario.run(strategy)
    return _failure(scenario, end, schedule if isinstance(schedule, int) else None)


def shrink(scenario: Scenario, end: End, seed: int | None) -> Failure:
    """Take choices away as long as one of the same promises stays broken."""
    broken = {problem.promise for problem in end.problems}
    best, moves = end, list(end.moves)
    width, left = max(1, len(moves) // 2), _SHRINKS_MAX
    while width:
        at = 0
        while at < len(moves) and left:
            left -= 1
            fewer = moves[:at] + moves[at + width :]
            tried = _run(scenario, Given(fewer))
            if tried is not None and broken & {problem.promise for problem in tried.problems}:
                best, moves = tried, list(tried.moves)
            else:
                at += width
        width //= 2
    found = _failure(scenario, best, seed)
    if found is None:
        message = "a failure was lost while it was made smaller"
        raise RuntimeError(message)
    return found


def _run(scenario: Scenario, strategy: Strategy) -> End | None:
    try:
        return scenario.run(strategy)
    except RuntimeError:
        return None


def _failure(scenario: Scenario, end: End, seed: int | None) -> Failure | None:
    if not end.problems:
        return None
    return Failure(scenario.name, seed, end.moves, end.problems, tuple(program(end)))


def _measured(scenario: Scenario, strategy: Strategy, report: Report) -> End:
    clock = SystemClock()
    began = clock.monotonic()
    end = scenario.run(strategy)
    report.seconds += clock.monotonic() - began
    report.cut += end.abandoned
    report.schedules += not end.abandoned
    report.calls += len(end.lines)
    report.events += end.events
    report.traces.add(end.trace)
    return end


def _length(scenario: Scenario) -> int:
    """Give about how many places a schedule has at which something can be chosen."""
    known = scenario.memo.lengths
    if not known:
        known.append(len(scenario.run(Given(())).lines))
    return known[0]
