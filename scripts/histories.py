"""Run random concurrent histories against a table in plain Python, or run one again.

    python scripts/histories.py --seeds 400 --covered
    python scripts/histories.py --minutes 30
    python scripts/histories.py --seed 1234
    python scripts/histories.py --seed 12 --upkeep
    python scripts/histories.py --seed 12 --moving

Each seed is a table, clients with their operations, and a schedule; see docs/spec/histories.md.
Every third seed also stands for a history with restores and services, the one of --upkeep, and
the next one for a history of a table with unique keys, the one of --moving. A history that does
not end as it should is made small and printed as a test. The exit code is 1 if there is one, or
with --covered if some combination was never exercised.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import pyarrow as pa  # noqa: E402 - the tests' modules are not installed

import tests  # noqa: E402, F401 - before plait, whose thresholds it may lower
from plait.ports import SystemClock  # noqa: E402
from tests.differential.counts import Counts  # noqa: E402
from tests.differential.draw import draw  # noqa: E402
from tests.differential.kinds import draw_moving  # noqa: E402
from tests.differential.shrink import Difference, check, shrink  # noqa: E402
from tests.differential.upkeep import draw_upkeep  # noqa: E402

FOUND_MAX = 3
"""After so many differences the run ends."""
KINDS = (draw_upkeep, draw_moving, None)
"""Of so many seeds in turn: what each also stands for."""


def main() -> int:
    """Explore, or replay; 1 if something differs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, help="so many histories")
    parser.add_argument(
        "--minutes", type=float, default=1.0, help="or as many as there is time for"
    )
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--covered", action="store_true", help="fail if a combination is missing")
    parser.add_argument("--seed", type=int, help="run this one again")
    parser.add_argument("--upkeep", action="store_true", help="of those with restores and services")
    parser.add_argument("--moving", action="store_true", help="of those of unique keys that move")
    asked = parser.parse_args()
    pa.set_cpu_count(1)  # tables of three rows need no thread pool
    if asked.seed is not None:
        drawing = draw_upkeep if asked.upkeep else draw_moving if asked.moving else draw
        found = check(asked.seed, drawing=drawing)
        print("no difference" if found is None else shrink(found))
        return 0 if found is None else 1
    counts, differences = explore(seeds(asked.first, asked.seeds, asked.minutes * 60))
    print(counts)
    missing = counts.missing() if asked.covered else []
    for line in missing:
        print(f"NOT COVERED: {line}")
    for each in differences:
        print(f"\nseed {each.seed}:\n{shrink(each)}")
    if not differences:
        print(f"\n{counts.histories} histories without a difference")
    return 1 if differences or missing else 0


def seeds(first: int, count: int | None, seconds: float) -> Iterator[int]:
    """Return so many seeds, or seeds until the time is over."""
    if count is not None:
        yield from range(first, first + count)
        return
    clock = SystemClock()
    until = clock.monotonic() + seconds
    for seed in itertools.count(first):
        if clock.monotonic() > until:
            return
        yield seed


def explore(found: Iterator[int]) -> tuple[Counts, list[Difference]]:
    """Run the histories of seeds, until a few of them differ."""
    clock = SystemClock()
    began, counts, differences = clock.monotonic(), Counts(), []
    for seed in found:
        also = KINDS[seed % len(KINDS)]
        found_of = [check(seed, counts=counts)]
        if also is not None:  # so that each kind goes through all shapes
            found_of.append(check(seed // len(KINDS), counts=counts, drawing=also))
        differences += [each for each in found_of if each is not None]
        if len(differences) >= FOUND_MAX:
            break
    counts.seconds = clock.monotonic() - began
    return counts, differences


if __name__ == "__main__":
    sys.exit(main())
