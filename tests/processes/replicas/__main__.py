"""``python -m tests.processes.replicas``: the dual write with sinks in trouble and writers killed.

    python -m tests.processes.replicas --rows 1000000 --seed 7

Processes write a table and four sinks: two tables of Plait, PostgreSQL and a Kafka topic. The sinks
fail, hang, acknowledge late, lose their answer and die half way through a batch; the writers are
killed. After each round everybody is killed. Then each row that a sink has and the table lacks, or
the other way round, must be told of by an attempt on record. In the end every sink is repaired and
equal. Prints one JSON line; ends in 1 if a fault was found, and then keeps the folder.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.processes.replicas.run import Run, planned
from tests.services.kafka import Kafka
from tests.services.postgresql import PostgreSql


def main() -> int:
    """Run and print; 1 if a fault was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--chunk", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=5_000)
    parser.add_argument("--writers", type=int, default=3)
    parser.add_argument("--share", type=float, default=0.2, help="of the puts that go wrong")
    parser.add_argument("--patience", type=float, default=20, help="seconds to wait for a batch")
    parser.add_argument("--round", type=int, default=40, help="attempts until all are killed")
    parser.add_argument("--kill", type=int, default=8, help="attempts between two kills")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 100_000)
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="plait-replicas-"))
    for name in ("postgresql", "kafka"):
        (folder / name).mkdir()
    with PostgreSql(folder / "postgresql") as postgresql, Kafka(folder / "kafka") as kafka:
        plan = planned(
            folder,
            postgresql,
            kafka,
            rows=asked.rows,
            chunk=asked.chunk,
            batch=asked.batch,
            writers=asked.writers,
            share=asked.share,
            patience_s=asked.patience,
        )
        try:
            seen = Run(plan, asked.seed, asked.round, asked.kill).carry_out()
        except AssertionError as error:
            fault = {"seed": asked.seed, "fault": str(error), "folder": str(folder)}
            sys.stdout.write(json.dumps(fault) + "\n")
            return 1
    sys.stdout.write(json.dumps({"seed": asked.seed, **seen}) + "\n")
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
