"""Run files on the table's store: rows that another process will commit.

They are for a writer that may share any bucket with others. It reads nothing of the table; the
process that decides merges its rows (``group_commit.py``). Rows are buffered by bucket, as in every
writer, so memory is bounded and the rows of a bucket keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from plait.arrow.buffer import Buffer, FlushBatch, Flusher, Ledger
from plait.arrow.check import prepare
from plait.arrow.ingest import Intake, split
from plait.arrow.memory import MemoryLimits
from plait.arrow.output import Output
from plait.files.data_file import RUN, Place
from plait.files.digest import Digester
from plait.files.writer import DataFileWriter
from plait.model.bucket import UNKEYED, Partition
from plait.model.changes import Digest
from plait.model.request import WritePlan
from plait.storage.port import Store
from plait.write.group_commit import RUN_HOME


@dataclass(slots=True)
class _Sink:
    """Writes each hand-over into one file, bucket by bucket."""

    output: Output
    runs: list[str] = field(default_factory=list)

    def flush(self, orders: Sequence[FlushBatch]) -> None:
        self.output.announce([RUN_HOME])
        home = (RUN_HOME, UNKEYED)
        place = Place(self.output.name(home, RUN), *home, RUN)
        with DataFileWriter(self.output.store, place, self.output.spec) as file:
            for order in orders:
                for batch in order.batches:
                    file.write(batch)
                order.done()
            file.close()
        self.runs.append(place.path)


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
        self._intake = Intake(limits)
        self._flusher = Flusher(self._sink, ledger)
        self._digester = Digester()

    @property
    def flushes(self) -> int:
        """Buckets flushed so far."""
        return self._buffer.policy.flushes

    @property
    def digest(self) -> Digest:
        """The digest of the rows that were written."""
        return self._digester.digest

    def write(self, data: object) -> None:
        """Take rows; raise SchemaError for those that do not fit, StorageError of a flush."""
        plan = self._plan
        pieces = prepare(data, plan.spec, plan.request.operation, piece_bytes=self._limits.chunk)
        for batch in pieces:
            self._digester.add(batch)
            for rows in self._intake.add(batch):
                self._flusher.submit(self._buffer.add(split(rows, plan.spec)))

    def finish(self) -> list[str]:
        """Flush everything, and return the paths of all runs, oldest first."""
        for rows in self._intake.rest():
            self._flusher.submit(self._buffer.add(split(rows, self._plan.spec)))
        self._flusher.finish(self._buffer.rest())
        return self._sink.runs

    def close(self) -> None:
        """Drop what is in memory; runs stay."""
        self._flusher.close()
        self._buffer.clear()
        self._intake.clear()
