"""Sort rows of several files into several others, in bounded memory: a distribution sort.

The columns of the order are read first, and tell each row its place. Then all columns are read,
each row goes to the run in which its place lies, and each run is sorted by place in memory. One or
more runs make a target. Runs are Arrow files on the local disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from plait.arrow.curve import places_in_order
from plait.arrow.existing import Existing
from plait.arrow.memory import combined, taken
from plait.files.data_file import LiveFile
from plait.files.keys import Indices
from plait.files.row_map import RowMapBuilder
from plait.model.order import Order
from plait.model.schema import column_of
from plait.storage.scratch import Scratch

_PLACE = pa.field("place", pa.int64())
"""The last column of a run, known by that: the table may have one of this name."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """The visible rows of some files in an order, divided into targets."""

    existing: Existing
    sources: Sequence[LiveFile]
    order: Order
    places: Indices
    """For each row, the files one after another: its place in the order."""
    share: int
    """Rows of a run; the last may have fewer."""
    runs: int
    """Number of consecutive runs that go into one target."""

    @classmethod
    def plan(
        cls,
        existing: Existing,
        sources: Sequence[LiveFile],
        order: Order,
        *,
        size: int | None,
        memory: int,
    ) -> Distribution:
        """Read the columns of the order.

        Args:
            existing: reads the files.
            sources: the files.
            order: the columns, and how they are put in order.
            size: bytes of a target on storage, if there is a limit.
            memory: bytes of the rows of a run in memory.
        """
        blocks = [b.rows for file in sources for b in existing.blocks(file, order.columns)]
        places = places_in_order(pa.concat_tables(blocks), order.kind)
        live = sum(file.size_bytes * file.live_rows // max(1, file.rows) for file in sources)
        targets = 1 if size is None else max(1, -(-live // size))
        rows = max(1, -(-len(places) // targets))
        runs = max(1, -(-_width(existing, sources) * rows // memory))
        return cls(existing, sources, order, places, -(-rows // runs), runs)

    def targets(self, builders: Sequence[RowMapBuilder]) -> Iterator[Iterator[pa.Table]]:
        """Return the rows of one target after the other, and tell the maps where rows go.

        A target comes run by run, and is to be taken whole before the next one.

        Raises:
            StorageError: the local disk is full or not there.
        """
        count = -(-len(self.places) // self.share)
        with Scratch("cluster") as scratch:
            runs = [f"{number:06d}.arrow" for number in range(count)]
            self._divide(scratch, runs, builders)
            for first in range(0, count, self.runs):
                yield (_sorted(scratch, run) for run in runs[first : first + self.runs])

    def _divide(
        self, scratch: Scratch, runs: Sequence[str], builders: Sequence[RowMapBuilder]
    ) -> None:
        spec = self.existing.spec
        names, fields = spec.copied, [column_of(name, spec.schema)[1] for name in spec.copied]
        schema = pa.schema([*fields, _PLACE])
        first = 0
        with ExitStack() as stack:
            writers = [stack.enter_context(scratch.writer(run, schema)) for run in runs]
            for file, builder in zip(self.sources, builders, strict=True):
                for block in self.existing.blocks(file, names):
                    places = self.places[first : first + block.rows.num_rows]
                    first += len(places)
                    if block.positions is not None:
                        builder.add(block.positions, places)
                    rows = block.rows.append_column(_PLACE, pa.array(places)).cast(schema)
                    for number, chosen in self._by_run(places):
                        writers[number].write(rows.take(pa.array(chosen)))

    def _by_run(self, places: npt.NDArray[np.int64]) -> Iterator[tuple[int, Indices]]:
        run = places // self.share
        order = np.argsort(run, kind="stable")
        ends = np.flatnonzero(np.append(np.diff(run[order]), 1)) + 1
        start = 0
        for end in ends.tolist():
            chosen = order[start:end]
            yield int(run[chosen[0]]), chosen
            start = end


def _sorted(scratch: Scratch, run: str) -> pa.Table:
    rows = scratch.table(run)
    places = rows.num_columns - 1
    order = np.argsort(rows.column(places).to_numpy())
    return taken(combined(rows.remove_column(places)), order)


def _width(existing: Existing, sources: Sequence[LiveFile]) -> int:
    """Return the bytes of a row in memory, by the first rows that there are."""
    for file in sources:
        for block in existing.blocks(file, existing.spec.copied):
            size: int = block.rows.nbytes
            return max(1, size // max(1, int(block.rows.num_rows)))
    return 1
