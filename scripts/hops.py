"""Count the files and calls of Plait that an upsert, a scan and a conflict pass through.

``python scripts/hops.py``: two rows each, on a table in memory; ``--files`` lists the files in the
order in which they are entered. What a reader must know to follow an operation is what it enters.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pyarrow as pa

import plait
from plait import RetryableConflictError, Table

ROOT = Path(plait.__file__).parent
ROWS = pa.table({"id": [1, 2], "value": [10, 20]})


class Hops:
    """The calls of Plait's own functions, by file, in the order in which files are entered."""

    def __init__(self) -> None:
        self.files: dict[str, int] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Count one call; a profile function of the interpreter."""
        del argument
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(str(ROOT)) and frame.f_code.co_name != "<module>":
            name = str(Path(path).relative_to(ROOT))
            self.files[name] = self.files.get(name, 0) + 1

    def of(self, act: Callable[[Table], object], table: Table) -> None:
        """Count what an act calls in this thread."""
        sys.setprofile(self)
        try:
            act(table)
        finally:
            sys.setprofile(None)


def make(name: str) -> Table:
    """Create a keyed table with two rows."""
    uri = f"memory://hops-{name}"
    table = Table.create(uri, "id bigint, value bigint", record_key=["id"], buckets=1, lock="none")
    table.upsert(ROWS)
    return table


def conflict(table: Table) -> None:
    """Lose to another commit of the same keys."""
    try:
        with table.writer("upsert") as writer:
            writer.write(ROWS)
            sys.setprofile(None)
            Table.open(str(table.describe()["uri"])).upsert(ROWS)
            sys.setprofile(HOPS["conflict"])
    except RetryableConflictError:
        return
    message = "the commit met no conflict"
    raise AssertionError(message)


HOPS = {name: Hops() for name in ("upsert", "scan", "conflict")}


def measure() -> dict[str, Hops]:
    """Run each once, after a first time that loads modules."""
    for name, act in (
        ("upsert", lambda table: table.upsert(ROWS)),
        ("scan", lambda table: table.scan().to_arrow()),
        ("conflict", conflict),
    ):
        act(make(f"{name}-first"))
        HOPS[name].files.clear()
        HOPS[name].of(act, make(name))
    return HOPS


def main() -> None:
    """Print a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", action="store_true", help="list the files too")
    listed = parser.parse_args().files
    for name, hops in measure().items():
        print(f"{name:<10}{len(hops.files):4} files {sum(hops.files.values()):6} calls")
        if listed:
            for file, calls in hops.files.items():
                print(f"    {calls:5}  {file}")


if __name__ == "__main__":
    main()
