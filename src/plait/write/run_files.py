"""Run files on the table's store: rows and removals that another process will commit.

They are for a writer that may share any bucket with others. It reads nothing of the table; the
process that decides merges them (``group_commit.py``). They are buffered by bucket, as in every
writer, so memory is bounded and what came for a bucket keeps its order: the keys that a hand-over
removes come in a file of their own, before the rows that came after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from plait.arrow.buffer import Buffer, FlushBatch, Flusher, Ledger
from plait.arrow.check import prepare, prepare_removals, require_removals
from plait.arrow.ingest import Arrival, Intake, split
from plait.arrow.memory import MemoryLimits
from plait.arrow.merge import DuplicateRule, Merge
from plait.arrow.output import Output
from plait.arrow.runs import merged_order, merged_removals
from plait.files.data_file import REMOVALS, RUN, Place
from plait.files.digest import Digester
from plait.files.writer import DataFileWriter
from plait.model.bucket import UNKEYED, Partition
from plait.model.changes import Digest
from plait.model.plan import TableSpec
from plait.model.request import WritePlan
from plait.storage.port import Store
from plait.write.group_commit import RUN_HOME, removals_spec


@dataclass(slots=True)
class _Sink:
    """Writes each hand-over into one file, bucket by bucket; what it removes into another."""

    output: Output
    runs: list[str] = field(default_factory=list)

    def flush(self, orders: Sequence[FlushBatch]) -> None:
        self.output.announce([RUN_HOME])
        removing = [order for order in orders if order.removals]
        if removing:
            blocks = (block for order in removing for block in self._removals(order))
            self._write(REMOVALS, removals_spec(self.output.spec), blocks)
        filled = [order for order in orders if order.batches]
        if filled:
            self._write(RUN, self.output.spec, (b for order in filled for b in self._rows(order)))

    def _write(
        self, kind: str, spec: TableSpec, blocks: Iterable[pa.Table | pa.RecordBatch]
    ) -> None:
        home = (RUN_HOME, UNKEYED)
        place = Place(self.output.name(home, kind), *home, kind)
        with DataFileWriter(self.output.store, place, spec) as file:
            for block in blocks:
                file.write(block)
            file.close()
        self.runs.append(place.path)

    def _removals(self, order: FlushBatch) -> Iterator[pa.Table]:
        limits = self.output.limits
        return merged_removals(order, self.output.spec.key, limits, limits.slice)

    def _rows(self, order: FlushBatch) -> Iterator[pa.Table | pa.RecordBatch]:
        """Return the rows of a bucket, without those that it removes."""
        spec, limits = self.output.spec, self.output.limits
        if order.removals:
            merge = Merge(spec.key, spec.layout.ordering, DuplicateRule.REPLACE)
            yield from merged_order(order, merge, limits, limits.slice)
        else:
            yield from order.batches
        order.done()


class RunStaging:
    """Buffers rows by bucket, and flushes them in the background while buffering goes on."""

    def __init__(
        self,
        plan: WritePlan,
        announce: Callable[[Iterable[Partition]], None],
        *,
        label: str,
        store: Store,
    ) -> None:
        """Begin; write nothing yet. ``label`` is unique among the stagings of the instant."""
        self._plan = plan
        limits = MemoryLimits.of(plan.options)
        self._limits = limits
        self._sink = _Sink(Output(store, plan, limits, label, announce))
        ledger = Ledger(limits)
        self._buffer = Buffer(limits, ledger)
        self._intake = Intake(limits, plan.spec)
        self._flusher = Flusher(self._sink, ledger)
        self._digester = Digester()

    @property
    def flushes(self) -> int:
        """Buckets flushed so far."""
        return self._buffer.policy.flushes

    @property
    def rows(self) -> int:
        """Rows taken so far."""
        return self._digester.digest.rows

    @property
    def digest(self) -> Digest:
        """The digest of what was written and removed."""
        return self._digester.digest

    def write(self, data: object) -> None:
        """Take rows; raise SchemaError for those that do not fit, StorageError of a flush."""
        plan = self._plan
        self._admit(
            prepare(data, plan.spec, plan.request.operation, piece_bytes=self._limits.chunk)
        )

    def remove(self, keys: object) -> None:
        """Take keys that are removed; raise OptionError if the operation takes none."""
        require_removals(self._plan.request)
        batches = prepare_removals(keys, self._plan.spec, piece_bytes=self._limits.chunk)
        self._admit(batches, removes=True)

    def finish(self) -> list[str]:
        """Flush everything, and return the paths of all runs, oldest first."""
        for came in self._intake.rest():
            self._take(came)
        self._flusher.finish(self._buffer.rest())
        return self._sink.runs

    def close(self) -> None:
        """Drop what is in memory; runs stay."""
        self._flusher.close()
        self._buffer.clear()
        self._intake.clear()

    def _admit(self, batches: Iterator[pa.RecordBatch], *, removes: bool = False) -> None:
        for batch in batches:
            self._digester.add(batch, removes=removes)
            for came in self._intake.add(batch, removes=removes):
                self._take(came)

    def _take(self, came: Arrival) -> None:
        chunk = replace(split(came.rows, self._plan.spec), removes=came.removes)
        self._flusher.submit(self._buffer.add(chunk))
