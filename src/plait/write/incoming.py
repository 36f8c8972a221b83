"""What came in for each bucket and is to be merged: spilled runs, and rows still in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from plait.write.buffer import Buffer, Order
from plait.write.merge import Block, Source
from plait.write.ranges import KeyRange, hull
from plait.write.spill import RunSink, key_range, pieces
from plait.write.split import Group


@dataclass(slots=True)
class Incoming:
    """Gives the rows of a bucket as sorted sources, as often as they are asked for."""

    sink: RunSink
    kept: dict[Group, Order] = field(default_factory=dict)

    def settle(self, buffer: Buffer) -> None:
        """Keep what is left in the buffer: it is sorted and can be merged where it is."""
        self.kept = {order.group: order for order in buffer.rest()}

    def groups(self) -> list[Group]:
        """Give the buckets that rows came for, in the order of their first flush."""
        return list(dict.fromkeys([*self.sink.runs, *self.kept]))

    def sources(self, group: Group) -> list[Source]:
        """Give the rows of a bucket, oldest first; none if nothing came for it."""
        runs = self.sink.runs.get(group, ())
        found = [Source(Block(rows) for rows in run.blocks()) for run in runs]
        order = self.kept.get(group)
        return found if order is None else found + pieces(order)

    def range(self, group: Group) -> KeyRange | None:
        """Give the range of the first key column of what came for a bucket; None: not known."""
        column = self.sink.key[0]
        found = [run.range for run in self.sink.runs.get(group, ())]
        order = self.kept.get(group)
        if order is not None:
            found.append(key_range(order.batches, column))
        return hull(found)

    def close(self) -> None:
        """Drop everything."""
        for order in self.kept.values():
            order.done()
        self.kept.clear()
        self.sink.close()
