"""A writer in a process of its own: told what to do by arguments, reports as JSON lines.

Roles:

    upserts URI PLACE COUNT MODE   COUNT upserts; MODE own: into partition PLACE; MODE shared: all
                                   into one partition, each its own keys; MODE same: the same keys
    hold URI PLACE                 opens a writer, writes, says "staged", waits for a line, commits
    queue URI NUMBER [ALLOW]       upserts into one bucket, again where another was first
    forever URI PLACE              upserts until killed
"""

from __future__ import annotations

import json
import sys

import pyarrow as pa

from plait import Table
from plait.errors import ConflictError, TableError

ROWS = 40


def say(**facts: object) -> None:
    """Report one line."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def rows(place: str, first: int, count: int, value: int) -> pa.Table:
    """Make rows with keys ``first`` to ``first + count - 1``."""
    ids = list(range(first, first + count))
    columns = {"id": ids, "place": [place] * count, "value": [value] * count}
    schema = pa.schema([("id", pa.int64()), ("place", pa.string()), ("value", pa.int64())])
    return pa.table(columns, schema=schema)


def order_of(place: int, number: int) -> int:
    """Give the ordering field of an upsert of the same keys: no process is always ahead."""
    return (number * 37 + place * 11) % 1_009


def upserts(uri: str, place: str, count: int, mode: str) -> None:
    """Upsert again and again; half of each batch updates the batch before."""
    table = Table.open(uri)
    say(event="ready")
    sys.stdin.readline()
    for number in range(count):
        where = place if mode == "own" else "shared"
        first = number * ROWS // 2 if mode == "own" else int(place) * 1_000_000 + number * ROWS
        first, value = (0, order_of(int(place), number)) if mode == "same" else (first, number)
        try:
            result = table.upsert(rows(where, first, ROWS, value))
        except ConflictError as error:
            say(event="refused", number=number, first=first, **error.to_dict())
        except TableError as error:
            say(event="error", number=number, **error.to_dict())
        else:
            say(event="committed", number=number, first=first, version=result.version)


def hold(uri: str, place: str) -> None:
    """Stage a commit and wait before it is published."""
    table = Table.open(uri)
    try:
        with table.writer("upsert") as writer:
            writer.write(rows(place, 0, ROWS, 1))
            say(event="staged", instant=str(writer.instant))
            sys.stdin.readline()
    except TableError as error:
        say(event="refused", **error.to_dict())
    else:
        say(event="committed", version=writer.result.version)


def queue(uri: str, number: str, *allow: str) -> None:
    """Change one bucket again and again: it loses now and then, and does not give up."""
    table = Table.open(uri, allow=allow)
    say(event="ready")
    sys.stdin.readline()
    for key in keys_of(int(number)):
        ids = pa.table({"id": pa.array([key], pa.int64())})
        say(event="committed", attempts=table.upsert(ids, on_conflict="retry").attempts)


def keys_of(number: int) -> range:
    """Give the keys of a writer that queues."""
    return range(number * 100, number * 100 + 8)


def forever(uri: str, place: str) -> None:
    """Commit until killed."""
    table = Table.open(uri)
    say(event="ready")
    number = 0
    while True:
        result = table.upsert(rows(place, 0, ROWS, number), on_conflict="retry")
        say(event="committed", number=number, version=result.version)
        number += 1


def main(role: str, uri: str, place: str, *rest: str) -> None:
    """Take a role."""
    if role == "upserts":
        upserts(uri, place, int(rest[0]), rest[1])
    elif role == "hold":
        hold(uri, place)
    elif role == "queue":
        queue(uri, place, *rest)
    elif role == "forever":
        forever(uri, place)
