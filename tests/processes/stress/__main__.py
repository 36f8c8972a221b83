"""``python -m tests.processes.stress``: as many commits as asked for, on each kind of place."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.processes.stress.run import Stress


def main() -> int:
    """Run and print one JSON line a run; 1 if a fault was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("places", nargs="*", default=["local"])
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--commits", type=int, default=1000)
    parser.add_argument("--type", default="cow", choices=["cow", "mor"])
    parser.add_argument("--seed", type=int, default=time.time_ns() % 100_000)
    parser.add_argument("--minutes", type=float, default=30)
    asked = parser.parse_args()
    worst = 0
    for place in asked.places:
        with tempfile.TemporaryDirectory() as folder:
            stress = Stress(
                f"{folder}/t",
                Path(folder),
                processes=asked.processes,
                commits=asked.commits,
                table_type=asked.type,
                seed=asked.seed,
                deadline_s=asked.minutes * 60,
            )
            try:
                seen = stress.run()
            except AssertionError as fault:
                seen, worst = {"fault": str(fault)}, 1
            line = {"place": place, "type": asked.type, "seed": asked.seed, **seen}
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
    return worst


if __name__ == "__main__":
    sys.exit(main())
