"""Run schedules of the protocol for so many minutes, or run one again.

    python scripts/schedules.py --minutes 60
    python scripts/schedules.py --replay "three writers" 1234
    python scripts/schedules.py --replay "two writers" "a:6>b b:5!crash_after"

The scenarios are those of tests/interleave/scenarios.py. Seeds go on from ``--from``, so that a
second run is not the first again. The exit code is 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import pyarrow as pa  # noqa: E402 - the tests' scenarios are not installed

import tests  # noqa: E402, F401 - before plait, whose thresholds it may lower
from plait.ports import SystemClock  # noqa: E402
from tests.interleave.scenarios import scenarios, short_scenarios  # noqa: E402
from tests.scheduler import Report, Scenario, explore, replay  # noqa: E402

ROUND = 200
HEAD = (
    f"{'scenario':42}{'schedules':>10}{'traces':>9}{'events':>9}{'calls':>10}{'s':>8}{'ms each':>9}"
)


def main() -> int:
    """Explore, or replay; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--from", dest="first", type=int, default=1_000, help="the first seed")
    parser.add_argument("--round", type=int, default=ROUND, help="schedules of each at a time")
    parser.add_argument("--rounds", type=int, help="so many rounds, however long they take")
    parser.add_argument("--only", help="a part of the names of scenarios")
    parser.add_argument("--replay", nargs=2, metavar=("SCENARIO", "SEED"))
    asked = parser.parse_args()
    pa.set_cpu_count(1)  # tables of three rows need no thread pool
    if asked.replay:
        return again(*asked.replay)
    every = [each for name, each in scenarios().items() if not asked.only or asked.only in name]
    seconds = float("inf") if asked.rounds else asked.minutes * 60
    reports = run(every, seconds, asked.first, each=asked.round, rounds=asked.rounds)
    print(table(reports))
    failures = [each.failure for each in reports if each.failure is not None]
    for failure in failures:
        print(f"\n{failure}")
    return 1 if failures else 0


def run(
    every: Sequence[Scenario],
    seconds: float,
    first: int,
    *,
    each: int = ROUND,
    rounds: int | None = None,
) -> list[Report]:
    """Draw schedules of all scenarios in turn until the time is over; stop those that fail.

    Args:
        every: the scenarios.
        seconds: the time.
        first: the first seed.
        each: schedules of a scenario before the next one's turn.
        rounds: turns after which it ends too; None: as many as there is time for.
    """
    clock = SystemClock()
    until = clock.monotonic() + seconds
    totals = [Report(scenario.name) for scenario in every]
    seed = first
    last = float("inf") if rounds is None else first + rounds * each
    while (
        seed < last and clock.monotonic() < until and any(total.failure is None for total in totals)
    ):
        for scenario, total in zip(every, totals, strict=True):
            if total.failure is None and clock.monotonic() < until:
                add(total, explore(scenario, range(seed, seed + each)))
        seed += each
    return totals


def add(total: Report, part: Report) -> None:
    """Add a round to what a scenario came to."""
    total.schedules += part.schedules
    total.calls += part.calls
    total.events += part.events
    total.seconds += part.seconds
    total.traces |= part.traces
    total.failure = part.failure


def table(reports: Sequence[Report]) -> str:
    """Write the numbers, one scenario a line, and their sum."""
    sums = Report("all")
    lines = [HEAD]
    for each in reports:
        add(sums, each)
        lines.append(row(each, len(each.traces)))
    return "\n".join([*lines, row(sums, sum(len(each.traces) for each in reports))])


def row(report: Report, traces: int) -> str:
    """Write one line."""
    each_ms = 1000 * report.seconds / max(1, report.schedules)
    return (
        f"{report.scenario:42}{report.schedules:>10}{traces:>9}{report.events:>9}"
        f"{report.calls:>10}{report.seconds:>8.1f}{each_ms:>9.2f}"
        + ("   BROKEN" if report.failure else "")
    )


def again(name: str, schedule: str) -> int:
    """Run one schedule again and print what is broken."""
    known = {**short_scenarios(), **scenarios()}
    if name not in known:
        print(f"no scenario {name!r}; there are: {', '.join(known)}")
        return 2
    failure = replay(known[name], int(schedule) if schedule.isdigit() else schedule)
    print(failure or "every promise holds")
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main())
