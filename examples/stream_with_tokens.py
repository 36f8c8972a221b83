"""You see a stream that is killed after a commit start again, and apply nothing twice.

It prints:

    epoch 0: rows 0 to 4
    killed before it could note what it had done
    epoch 1: rows 4 to 8
    epoch 2: rows 8 to 10
    10 rows, 10 different ones
"""

from __future__ import annotations

import pyarrow as pa

from plait import Table

SOURCE = [{"id": number} for number in range(10)]
table = Table.create("memory://stream-with-tokens", "id bigint")


def run(epochs: int) -> None:
    """Load a number of epochs; where to go on stands in the table, in the newest commit."""
    stream = table.stream("loader")
    for _ in range(epochs):
        position = stream.position  # None before the first epoch
        start, number = (int(position.end), position.epoch + 1) if position else (0, 0)
        rows = SOURCE[start : start + 4]
        if not rows:
            return
        end = start + len(rows)
        with stream.writer("append", after=position, end=str(end)) as epoch:
            epoch.write(pa.Table.from_pylist(rows))
        print(f"epoch {number}: rows {start} to {end}")


run(epochs=1)
print("killed before it could note what it had done")
run(epochs=9)
ids = table.scan().to_arrow()["id"].to_pylist()
print(f"{len(ids)} rows, {len(set(ids))} different ones")
