"""One process of a stream of several writers: its coordinator, or a writer with a source.

``coordinator``: decides epochs until ``end`` is in the directory; ends in 9 when it is fenced.
``writer``: its source is the numbers from a base on, without end. When ``last`` is in the directory
it takes no more, and leaves there how far it came.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pyarrow as pa

from plait import CoordinatorFencedError, StreamError, Table, TableError
from plait.stream.stream import Stream
from tests.support.topic import FileTopic

APPLICATION = "app"
FENCED = 9
BASE = 1_000_000
ROWS = 10
_PACE_S = 0.01


def main(role: str, directory: Path, number: int) -> None:
    """Be one of them."""
    stream = Table.open(str(directory / "table")).stream(APPLICATION)
    topic = FileTopic(directory / "topic")
    if role == "coordinator":
        sys.exit(coordinate(stream, topic, directory))
    write(stream, topic, directory, number)


def coordinate(stream: Stream, topic: FileTopic, directory: Path) -> int:
    """Decide epoch after epoch."""
    operation = (directory / "operation").read_text()
    with stream.coordinator(topic, operation) as coordinator:
        while not (directory / "end").exists():
            try:
                coordinator.commit(wait_s=10)
            except CoordinatorFencedError:
                return FENCED
            except TableError as error:  # it has begun anew
                sys.stderr.write(f"{error}\n")
            time.sleep(_PACE_S)
    return 0


def write(stream: Stream, topic: FileTopic, directory: Path, number: int) -> None:
    """Take rows of the source, from wherever the table is."""
    name = f"w{number}"
    with stream.participant(topic, name) as writer:
        while True:
            writer.poll(_PACE_S)
            if not writer.ready:
                continue
            start = writer.offset(name)
            if (directory / "last").exists():
                (directory / f"{name}.part").write_text(start)
                (directory / f"{name}.part").rename(directory / name)
                continue
            at = int(start or 0)
            rows = pa.table({"id": range(BASE * number + at, BASE * number + at + ROWS)})
            try:
                writer.write(rows, source=name, start=start, end=str(at + ROWS))
            except StreamError as error:  # it reads on from elsewhere
                sys.stderr.write(f"{error}\n")
