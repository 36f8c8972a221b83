"""Send each batch to all sinks at once, and wait until each has answered."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from plait.errors import ReplicationError
from plait.files.digest import Digester
from plait.model.sink_ledger import SinkLedger, TaskLedger
from plait.model.value import to_text
from plait.ports import Ports
from plait.replicate.lane import Ask, Batch, Lane, Retries, SinkOutcome, buffers
from plait.replicate.sink import Sink, SinkSchema

_CLOSE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How batches are cut, sent again, and waited for."""

    batch_size: int = 1
    retries: Retries = field(default_factory=Retries)
    patience_s: float = 300.0
    """How long a batch may take at a sink, retries included."""


class FanOut:
    """The sinks of one task. A batch is sent when all sinks have acknowledged the one before.

    So each sink gets the batches in order, at most one batch is under way, and sinks differ by at
    most one batch if the task dies; one that buffers, by what it got since its last flush.
    """

    def __init__(
        self, sinks: Sequence[Sink], schema: SinkSchema, pace: Pace, ports: Ports, instant: str
    ) -> None:
        self._schema, self._pace, self._instant = schema, pace, instant
        self._lanes = [Lane(sink, schema, pace.retries, ports) for sink in sinks]
        self._buffering = any(map(buffers, sinks))
        self._digester = Digester()
        self._batches = 0
        self._last_key: tuple[str | None, ...] = ()
        self._failed: ReplicationError | None = None

    def connect(self) -> None:
        """Open a session of every sink, and return when each is open.

        Raises:
            ReplicationError: a sink cannot be opened, or cannot hold such rows. Nothing was sent.
        """
        self._ask(Ask.OPEN)

    def send(self, batch: Batch, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Send a batch to every sink, and return when each has acknowledged it.

        A sink that buffers has only taken it; ``flush`` has it acknowledged.

        Args:
            batch: what is sent.
            meanwhile: what is done while the sinks take it.

        Raises:
            ReplicationError: a sink failed; all of them have been heard, or waited for.
        """
        self.check()

        def work() -> None:
            # The sums of a batch that fails are read by nobody.
            self._digester.add(batch.rows, removes=batch.removes)
            self._last_key = self._key_of(batch.rows)
            meanwhile()

        self._ask(batch, work)
        self._batches += 1

    def flush(self) -> None:
        """Return when every sink has acknowledged every batch.

        Raises:
            ReplicationError: as ``send``.
        """
        self.check()
        if self._buffering:
            self._ask(Ask.FLUSH)

    def _ask(self, batch: Batch | Ask, meanwhile: Callable[[], None] = lambda: None) -> None:
        futures = [lane.send(batch) for lane in self._lanes]
        meanwhile()
        concurrent.futures.wait(futures, timeout=self._pace.patience_s)
        outcomes = [
            future.result() if future.done() else self._silent(lane)
            for lane, future in zip(self._lanes, futures, strict=True)
        ]
        if any(outcome.state != "held" for outcome in outcomes):
            self.stop()
            self._failed = self._error(outcomes)
            raise self._failed

    def check(self) -> None:
        """Raise the ReplicationError of an earlier batch: after it, nothing may be committed."""
        if self._failed is not None:
            raise self._failed

    def ledger(self, task: str) -> SinkLedger | None:
        """Return what every sink holds; None if nothing was sent."""
        if not self._batches:
            return None
        entry = TaskLedger(task, self._batches, self._digester.digest, self._last_key)
        return SinkLedger(tuple(lane.sink.name for lane in self._lanes), (entry,))

    def stop(self) -> None:
        """Let no lane begin anything more: the write has failed."""
        for lane in self._lanes:
            lane.stop()

    @property
    def under_way(self) -> tuple[str, ...]:
        """The sinks that have not answered yet, and may take what was sent now or later."""
        return tuple(lane.sink.name for lane in self._lanes if lane.under_way)

    def when_quiet(self, then: Callable[[], None]) -> None:
        """Call something each time that one of these sinks has answered."""
        for lane in self._lanes:
            if lane.under_way:
                lane.when_quiet(then)

    def close(self) -> None:
        """Close every session; a sink that does not answer is left alone."""
        self.stop()
        silent = self._failed is not None
        for lane in self._lanes:
            lane.close(0.0 if silent else _CLOSE_S)

    def _silent(self, lane: Lane) -> SinkOutcome:
        error = f"no answer within {self._pace.patience_s:g} s"
        return SinkOutcome(lane.sink.name, "silent", lane.batches, error=error)

    def _error(self, outcomes: Sequence[SinkOutcome]) -> ReplicationError:
        failed = [outcome for outcome in outcomes if outcome.state != "held"]
        told = "; ".join(f"{each.sink}: {each.error}" for each in failed)
        message = f"{len(failed)} of {len(outcomes)} sinks did not take a batch: {told}"
        hint = "nothing was committed; write the same rows again, or run `tablectl replicas repair`"
        return ReplicationError(
            message,
            hint=hint,
            instant=self._instant,
            outcomes=[outcome.to_dict() for outcome in outcomes],
        )

    def _key_of(self, rows: pa.RecordBatch) -> tuple[str | None, ...]:
        last = rows.num_rows - 1
        return tuple(
            to_text(rows.column(name)[last], rows.column(name).type) for name in self._schema.key
        )
