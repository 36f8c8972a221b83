"""What came in for each bucket and is to be merged: spilled runs, and rows still in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from plait.write.buffer import Buffer, Order
from plait.write.flusher import Flusher
from plait.write.limits import Limits
from plait.write.merge import Block, Source
from plait.write.ranges import KeyRange, hull
from plait.write.spill import RunSink, SortedRows, sort_rows
from plait.write.split import Group

_COPIES = 3
"""What merging rows in memory takes of it: them sorted, what they meet, and the outcome."""


@dataclass(slots=True)
class Incoming:
    """Gives the rows of a bucket as sorted sources, as often as they are asked for."""

    sink: RunSink
    kept: dict[Group, Order] = field(default_factory=dict)

    def settle(self, buffer: Buffer, flusher: Flusher) -> None:
        """Flush the rest: to disk what would not leave room to merge, the others stay here."""
        rest = buffer.rest()
        flusher.wait()
        room = buffer.ledger.room
        large = [order for order in rest if order.size * _COPIES > room]
        self.kept = {order.group: order for order in rest if order.size * _COPIES <= room}
        flusher.submit(large)
        flusher.wait()

    def groups(self) -> list[Group]:
        """Give the buckets that rows came for, in the order of their first flush."""
        return list(dict.fromkeys([*self.sink.runs, *self.kept]))

    def sources(self, group: Group, limits: Limits) -> list[Source]:
        """Give the rows of a bucket, oldest first; none if nothing came for it."""
        found = [Source(_run_blocks(run.blocks())) for run in self.sink.runs.get(group, ())]
        order = self.kept.get(group)
        if order is not None:
            rows = sort_rows(order.batches, self.sink.key, self.sink.ordering)
            found.append(Source(_sorted_blocks(rows, limits.slice)))
        return found

    def range(self, group: Group) -> KeyRange | None:
        """Give the range of the first key column of what came for a bucket; None: not known."""
        column = self.sink.key[0]
        found = [run.range for run in self.sink.runs.get(group, ())]
        order = self.kept.get(group)
        if order is not None:
            table = pa.Table.from_batches(order.batches)
            ends = pc.min_max(table.column(column))
            found.append(KeyRange.of(column, ends["min"], ends["max"]))
        return hull(found)

    def close(self) -> None:
        """Drop everything."""
        for order in self.kept.values():
            order.done()
        self.kept.clear()
        self.sink.close()


def _run_blocks(blocks: Iterator[pa.Table]) -> Iterator[Block]:
    return (Block(rows) for rows in blocks)


def _sorted_blocks(rows: SortedRows, size_bytes: int) -> Iterator[Block]:
    return (Block(block) for block in rows.blocks(size_bytes))
