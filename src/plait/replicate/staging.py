"""A staging that sends rows to sinks first: batches go out, rows go on when all sinks hold them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import pyarrow as pa

from plait.arrow.check import prepare, prepare_removals
from plait.engine import Removing, Restaging, Staging, may_have_written, reached_by
from plait.errors import InvariantError, ReplicationError, RetryableConflictError, StorageError
from plait.model.bucket import BucketId, Partition
from plait.model.changes import WriteStatus
from plait.model.decision import CommitResult
from plait.model.instant import Operation
from plait.model.plan import Snapshot, TableSpec
from plait.model.replicas import SinkLedger
from plait.model.request import WritePlan
from plait.replicate.fan_out import FanOut, Pace
from plait.replicate.lane import Batch
from plait.replicate.sender import Sender
from plait.replicate.sink import Sink, SinkSchema
from plait.timeline.replica_records import delete_attempts

_log = logging.getLogger(__name__)
_TASK: Final = "0"
_BATCHES_MAX: Final = 8_192
_BYTES_MAX: Final = 64 << 20
"""Sinks are flushed, and rows handed on, after so many batches or bytes."""


@dataclass(slots=True)
class Cutter:
    """Cuts rows into batches of so many consecutive rows."""

    size: int
    _parts: list[pa.RecordBatch] = field(default_factory=list)
    _rows: int = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take rows; return the batches that are full."""
        start = 0
        while start < batch.num_rows:
            part = batch.slice(start, self.size - self._rows)
            start += part.num_rows
            self._parts.append(part)
            self._rows += part.num_rows
            if self._rows == self.size:
                yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Return what is left, if anything is."""
        parts, self._parts, self._rows = self._parts, [], 0
        if len(parts) == 1:
            yield parts[0]
        elif parts:
            yield pa.concat_batches(parts)


def require_same_in_sinks(before: TableSpec, after: TableSpec) -> None:
    """Refuse to go on where sinks got rows in other columns, or under another key or ordering.

    Raises:
        RetryableConflictError: they changed; the rows that were sent are told of.
    """
    if SinkSchema.of(before) != SinkSchema.of(after):
        message = "the columns, the key or the ordering changed after rows were sent to sinks"
        hint = "make the sinks as the table is now, and write the same rows again"
        raise RetryableConflictError(message, hint=hint)


def restaged_with_sinks(inner: Staging, before: WritePlan, after: WritePlan) -> Staging:
    """Stage rows again that sinks have, under another layout of the table.

    Raises:
        RetryableConflictError: the operation would mean something else there, for the table or for
            the sinks.
    """
    if not isinstance(inner, Restaging):
        message = "the engine of a dual write cannot stage again"
        raise InvariantError(message)
    require_same_in_sinks(before.spec, after.spec)
    return inner.restaged(after)


class DualStaging:
    """Sends each batch to all sinks, then hands its rows on to the table's own staging."""

    def __init__(
        self,
        inner: Staging,
        plan: WritePlan,
        sender: Sender,
        sinks: Sequence[Sink],
        pace: Pace,
    ) -> None:
        """Begin; nothing is written, and no sink is opened.

        Args:
            inner: stages the rows that all sinks hold.
            plan: what the writer does.
            sender: who sends.
            sinks: get each batch first.
            pace: how batches are cut and sent.
        """
        self._inner, self._plan, self._sender = inner, plan, sender
        self._sinks, self._pace = sinks, pace
        self._schema = SinkSchema.of(plan.spec)
        self._cutter = Cutter(pace.batch_size)
        self._fan_out: FanOut | None = None
        self._sent: list[pa.RecordBatch] = []
        self._bytes = 0
        self._whole = True
        """Whether every batch so far reached every sink, and the table's own staging."""
        self._closed = False

    def write(self, data: object) -> None:
        """Take rows, or the keys of a delete.

        Raises:
            SchemaError: they do not fit the table.
            ReplicationError: a sink failed; the writer cannot commit any more.
        """
        if self._plan.request.operation is Operation.DELETE:
            self._remove(prepare_removals(data, self._plan.spec), self._inner.write)
            return
        for batch in prepare(data, self._plan.spec, self._plan.request.operation):
            self._put(self._cutter.add(batch))

    def remove(self, keys: object) -> None:
        """Take keys to remove, after all rows that came before."""
        inner = self._inner
        if not isinstance(inner, Removing):
            message = "the engine of a dual write takes no removals"
            raise InvariantError(message)
        self._remove(prepare_removals(keys, self._plan.spec), inner.remove)

    def restaged(self, plan: WritePlan) -> Self:
        """Stage the same rows under another layout of the table; the sinks hold them already.

        Raises:
            RetryableConflictError: the operation would mean something else there, for the table or
                for the sinks.
        """
        self._inner, self._plan = restaged_with_sinks(self._inner, self._plan, plan), plan
        return self

    def reach(self) -> frozenset[Partition] | None:
        """Return the partitions in which files are looked at; every row has come."""
        self._drain()
        return reached_by(self._inner)

    def stage(self, snapshot: Snapshot, buckets: frozenset[BucketId] | None) -> WriteStatus:
        """Stage what all sinks hold."""
        self._drain()
        self._require_whole()
        return self._inner.stage(snapshot, buckets)

    @property
    def ledger(self) -> SinkLedger | None:
        """What every sink holds; None if no row came."""
        task = self._sender.task or self._plan.label(_TASK)
        return None if self._fan_out is None else self._fan_out.ledger(task)

    @property
    def wrote(self) -> bool:
        """Whether the instant must be rolled back if it fails: something of it exists."""
        return self._fan_out is not None or may_have_written(self._inner)

    def close(self) -> None:
        """Close the sinks and drop what is held locally."""
        if self._closed:
            return
        self._closed = True
        if self._fan_out is not None:
            self._fan_out.close()
        self._inner.close()

    def end(self, result: CommitResult | None) -> None:
        """Remove the attempt record after a commit; write it again after anything else."""
        if self._fan_out is None:
            return  # nothing was sent, and there is no record
        sender = self._sender
        try:
            if result is None:
                sender.write_record(self._sinks)
            else:
                delete_attempts(sender.store, sender.instant, [sender.task])
        except StorageError:
            _log.warning("the attempt record of %s is as it was", sender.instant, exc_info=True)

    def _put(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            self._send(Batch(batch), self._hand_on_if_many)
            self._sent.append(batch)
            self._bytes += batch.nbytes

    def _remove(self, keys: Iterable[pa.RecordBatch], hand_on: Callable[[object], None]) -> None:
        self._drain()
        order = list(self._schema.key)
        for piece in keys:
            cutter = Cutter(self._pace.batch_size)
            for batch in (*cutter.add(piece.select(order)), *cutter.rest()):
                self._send(Batch(batch, removes=True))
                self._hand(hand_on, pa.Table.from_batches([batch]))

    def _send(self, batch: Batch, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Send a batch; if that fails, whatever the reason, the writer cannot commit any more."""
        self._require_whole()
        self._whole = False
        self._sender.check_alive()
        if self._fan_out is None:
            self._fan_out = self._connect()
        self._fan_out.send(batch, meanwhile)
        self._whole = True

    def _connect(self) -> FanOut:
        """Open every sink; then, and before anything is sent, write the record of the attempt."""
        sender = self._sender
        fan_out = FanOut(self._sinks, self._schema, self._pace, sender.ports, str(sender.instant))
        try:
            fan_out.connect()
            sender.write_record(self._sinks)
        except BaseException:
            fan_out.close()
            raise
        return fan_out

    def _require_whole(self) -> None:
        """Raise ReplicationError if a batch did not get where it should."""
        if self._whole:
            return
        if self._fan_out is not None:
            self._fan_out.check()
        message = "an earlier batch failed, so this writer cannot commit"
        hint = "let the error of the earlier batch end the writer, and write again"
        raise ReplicationError(message, hint=hint, instant=str(self._sender.instant), outcomes=[])

    def _drain(self) -> None:
        self._put(self._cutter.rest())
        self._hand_on()

    def _hand_on_if_many(self) -> None:
        if len(self._sent) >= _BATCHES_MAX or self._bytes >= _BYTES_MAX:
            self._hand_on()

    def _hand_on(self) -> None:
        if self._sent:
            rows = pa.Table.from_batches(self._sent)
            self._sent, self._bytes = [], 0
            self._hand(self._inner.write, rows)

    def _hand(self, take: Callable[[object], None], rows: pa.Table) -> None:
        """Let the table's own staging take rows, once every sink holds them."""
        whole, self._whole = self._whole, False
        if self._fan_out is not None:
            self._sender.check_alive()
            self._fan_out.flush()
        take(rows)
        self._whole = whole
