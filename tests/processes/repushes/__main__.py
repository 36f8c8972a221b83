"""``python -m tests.processes.repushes``: repushes that are killed, beside processes that write.

    python -m tests.processes.repushes --rows 5000000 --kills 50 --seed 7

Four processes upsert and delete small batches all the time. Meanwhile the table is laid out anew
on Spark, again and again; each repush is killed at a random moment, sometimes its driver alone and
sometimes everything that it began, until the number of kills is reached. The last one may end. No
writer may fail, and every row must be as the writer of its key knows it. Prints one JSON line;
ends in 1 if a fault was found, and then keeps the folder.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.processes.repushes.run import Run, planned


def main() -> int:
    """Run and print; 1 if a fault was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--per-task", type=int, default=250_000, help="rows of one task")
    parser.add_argument("--span", type=float, default=40, help="seconds until a kill, at most")
    parser.add_argument("--arrow", action="store_true", help="in one process each, without Spark")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 100_000)
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="plait-repushes-"))
    plan = planned(
        folder,
        rows=asked.rows,
        writers=asked.writers,
        per_task=asked.per_task,
        spark=not asked.arrow,
    )
    try:
        seen = Run(folder, plan, asked.kills, asked.seed, asked.span).carry_out()
    except AssertionError as error:
        fault = {"seed": asked.seed, "fault": str(error), "folder": str(folder)}
        sys.stdout.write(json.dumps(fault) + "\n")
        return 1
    sys.stdout.write(json.dumps({"seed": asked.seed, **seen}) + "\n")
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
