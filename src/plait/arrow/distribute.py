"""Sort rows of several files into several others, in bounded memory: a distribution sort.

The columns of the order are read first, and tell each row its place. Then all columns are read,
each row goes to the run of the target in which its place lies, and each run is sorted by place in
memory. Runs are Arrow files on the local disk.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

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
from plait.read.key_sort import spilling

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
    """Rows of a target; the last may have fewer."""

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
            memory: bytes of the rows of a target in memory.
        """
        blocks = [b.rows for file in sources for b in existing.blocks(file, order.columns)]
        places = places_in_order(pa.concat_tables(blocks), order.kind)
        live = sum(file.size_bytes * file.live_rows // max(1, file.rows) for file in sources)
        width = _width(existing, sources)
        files = 1 if size is None else -(-live // size)
        targets = max(1, files, -(-width * len(places) // memory))
        return cls(existing, sources, order, places, max(1, -(-len(places) // targets)))

    def targets(self, builders: Sequence[RowMapBuilder]) -> Iterator[pa.Table]:
        """Return the rows of one target after the other, and tell the maps where rows go.

        Raises:
            StorageError: the local disk is full or not there.
        """
        count = -(-len(self.places) // self.share)
        with spilling(), tempfile.TemporaryDirectory(prefix="plait-cluster-") as folder:
            runs = [Path(folder) / f"{number:06d}.arrow" for number in range(count)]
            self._divide(runs, builders)
            for run in runs:
                yield _sorted(run)

    def _divide(self, runs: Sequence[Path], builders: Sequence[RowMapBuilder]) -> None:
        names = self.existing.spec.schema.names
        schema = pa.schema([*self.existing.spec.schema.arrow, _PLACE])
        first = 0
        with ExitStack() as stack:
            sinks = [stack.enter_context(pa.OSFile(str(run), "wb")) for run in runs]
            writers = [stack.enter_context(pa.ipc.new_file(sink, schema)) for sink in sinks]
            for file, builder in zip(self.sources, builders, strict=True):
                for block in self.existing.blocks(file, names):
                    places = self.places[first : first + block.rows.num_rows]
                    first += len(places)
                    if block.positions is not None:
                        builder.add(block.positions, places)
                    rows = block.rows.append_column(_PLACE, pa.array(places)).cast(schema)
                    for number, chosen in self._by_target(places):
                        writers[number].write_table(rows.take(pa.array(chosen)))

    def _by_target(self, places: npt.NDArray[np.int64]) -> Iterator[tuple[int, Indices]]:
        target = places // self.share
        order = np.argsort(target, kind="stable")
        ends = np.flatnonzero(np.append(np.diff(target[order]), 1)) + 1
        start = 0
        for end in ends.tolist():
            chosen = order[start:end]
            yield int(target[chosen[0]]), chosen
            start = end


def _sorted(run: Path) -> pa.Table:
    with pa.OSFile(str(run)) as source, pa.ipc.open_file(source) as reader:
        rows = reader.read_all()
    places = rows.num_columns - 1
    order = np.argsort(rows.column(places).to_numpy())
    return taken(combined(rows.remove_column(places)), order)


def _width(existing: Existing, sources: Sequence[LiveFile]) -> int:
    """Return the bytes of a row in memory, by the first rows that there are."""
    for file in sources:
        for block in existing.blocks(file, existing.spec.schema.names):
            size: int = block.rows.nbytes
            return max(1, size // max(1, int(block.rows.num_rows)))
    return 1
