"""A writer, or a repusher, in a process of its own.

write URI NUMBER    upserts and deletes keys of its own until a line comes; then says what it
                    knows of them, as JSON
repush URI COUNT    lays the table out anew, in that many buckets
"""

from __future__ import annotations

import json
import random
import sys
import threading

import pyarrow as pa

from plait import Table

KEYS = 40
SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.int64())])


def rows(ids: list[int], value: int) -> pa.Table:
    places = ["xyz"[number % 3] for number in ids]
    return pa.table({"id": ids, "p": places, "v": [value] * len(ids)}, schema=SCHEMA)


def write(uri: str, number: int) -> None:
    """Write until told to stop; no conflict is anybody's fault here."""
    over, draw = threading.Event(), random.Random(number)
    threading.Thread(target=lambda: (sys.stdin.readline(), over.set()), daemon=True).start()
    table, known, value = Table.open(uri), dict[int, int](), 0
    while not over.is_set():
        value += 1
        ids = draw.sample(range(number * 1_000, number * 1_000 + KEYS), draw.randint(1, 8))
        if draw.random() < 0.3:
            keys = rows(ids, 0).select(["id"])
            table.delete(keys=keys, on_conflict="retry")
            for each in ids:
                known.pop(each, None)
            continue
        with table.writer("upsert", on_conflict="retry") as writer:
            writer.write(rows(ids, value))
            over.wait(draw.random() * 0.05)  # a swap may come between
        known.update(dict.fromkeys(ids, value))
    sys.stdout.write(json.dumps({"known": sorted(known.items()), "commits": value}) + "\n")


def main(role: str, uri: str, number: str) -> None:
    """Take a role."""
    if role == "write":
        write(uri, int(number))
    else:
        report = Table.open(uri).repush(buckets=int(number), rows_per_task=20)
        sys.stdout.write(json.dumps(report.to_dict()) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
