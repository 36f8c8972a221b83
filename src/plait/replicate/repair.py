"""Drive a sink to the state of the table, row by row, and note at which version it was equal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final, Literal, Self

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import OptionError, ReplicationError, TableError, redacted
from plait.model.instant import Instant
from plait.model.plain import Plain
from plait.model.sink_ledger import Attempt, SinkPosition
from plait.replicate.compare import Differences, compare
from plait.replicate.fan_out import FanOut, Pace
from plait.replicate.lane import Batch
from plait.replicate.sender import Sender
from plait.replicate.sink import Sink, SinkSchema
from plait.services.verify.sink_status import UNKNOWN, History, status_of
from plait.table import Table, handle_of
from plait.timeline.pending import load_pending
from plait.timeline.replica_records import (
    delete_attempts,
    load_attempts,
    write_attempt,
    write_position,
)
from plait.txn.liveness import has_ended

_BATCH_ROWS: Final = 1_000
_SHOWN: Final = 500
_SILENT_MS_MAX: Final = 3_600_000
"""No call to a sink takes longer, wherever the process is that made it."""


@dataclass(frozen=True, slots=True)
class ReplicaRepair(Plain):
    """What a repair found, and did unless it was a dry run."""

    sink: str
    version: int
    """The version of the table that the sink was compared with."""
    rows: int
    """How many rows the table has there."""
    missing: int
    """Rows that the sink lacked."""
    different: int
    """Rows that had other values in the sink."""
    extra: int
    """Rows that only the sink had."""
    removed: int
    """How many of them were removed."""
    overlapped: tuple[Instant, ...] = ()
    """Writers that sent rows to the sink meanwhile: repair it again when they have ended."""
    dry_run: bool = False

    @property
    def equal(self) -> bool:
        """Whether nothing had to be changed."""
        return not (self.missing or self.different or self.extra)


def repair(
    table: Table,
    sink: Sink,
    *,
    extra: Literal["remove", "keep"] = "remove",
    dry_run: bool = False,
) -> ReplicaRepair:
    """Compare a sink with the newest version of a table, and set right what differs.

    Writers may go on meanwhile. What they send to the sink while it is compared is named in the
    report, and stays behind for the next repair.

    Args:
        table: the table.
        sink: the sink, under the name that the table's commits give it.
        extra: what happens to rows that only the sink has: ``remove`` or ``keep``.
        dry_run: change nothing, and only count.

    Raises:
        OptionError: the sink cannot hold such rows, or cannot remove those that it has too many.
        ReplicationError: the sink cannot be read, or does not take a batch. Run it again.
    """
    if extra not in ("remove", "keep"):
        message = f"extra={extra!r} is unknown"
        raise OptionError(message, hint="one of remove, keep", key="extra", value=extra)
    records = _Records.load(table, sink.name)
    run = _Run(table, sink, removes=extra == "remove", dry_run=dry_run)
    found = run.settle()
    if dry_run:
        return found
    overlapped = records.overlapping(found.version, run.instant)
    kept = found.extra - found.removed
    decided = next(iter(handle_of(table).cache.decisions(found.version - 1, limit=1)))
    at = SinkPosition(sink.name, found.version, kept, overlapped, decision=decided.checksum)
    write_position(handle_of(table).store, at)
    records.settle()
    run.forget()
    return replace(found, overlapped=overlapped)


class _Run:
    """One pass over a sink."""

    def __init__(self, table: Table, sink: Sink, *, removes: bool, dry_run: bool) -> None:
        self._table, self._sink, self._dry = table, sink, dry_run
        self._scan = table.scan()
        spec = handle_of(table).cache.known().table.spec
        # Without an ordering column, a put replaces a greater value too.
        self._schema = replace(SinkSchema.of(spec), ordering=None)
        self._removes = removes
        self._fan_out: FanOut | None = None
        handle = handle_of(table)
        self.instant = handle.new_instant(handle.cache.known())
        """Instant of its record. While there is one, sent rows may hide newer ones in the sink."""
        self._sender = Sender(handle.store, self.instant, handle.ports, lambda: None)

    def forget(self) -> None:
        """Delete the own record: what was sent is told by the position now."""
        if self._fan_out is not None:
            delete_attempts(handle_of(self._table).store, self.instant)

    def settle(self) -> ReplicaRepair:
        """Compare, and send what differs."""
        files = self._scan.snapshot.files
        rows = (pc.sum(files["rows"]).as_py() or 0) - (pc.sum(files["masked"]).as_py() or 0)
        missing = wanted = extra = removed = 0
        try:
            for part in compare(self._rows(), self._held(), self._schema, rows=rows):
                missing += part.missing
                wanted += part.wanted.num_rows
                extra += part.extra.num_rows
                removed += 0 if self._dry else self._repair(part)
                if self._fan_out is not None:
                    self._fan_out.flush()
        except BaseException:
            if self._fan_out is not None:
                self._fan_out.close()
                self._sender.leave_record([self._sink], self._fan_out)
            raise
        if self._fan_out is not None:
            self._fan_out.close()
        different, version = wanted - missing, self._scan.version
        return ReplicaRepair(
            self._sink.name, version, rows, missing, different, extra, removed, dry_run=self._dry
        )

    def _repair(self, part: Differences) -> int:
        """Send what differs in a part; return how many rows were removed."""
        for rows in part.wanted.to_batches(_BATCH_ROWS):
            self._send(Batch(rows))
        if not self._removes or not part.extra.num_rows:
            return 0
        if not self._sink.removes:
            message = f"sink {self._sink.name} has rows too many, and cannot remove them"
            hint = "keep them (extra='keep'), or remove them there and repair again"
            raise OptionError(message, hint=hint, key="extra", value="remove")
        for keys in part.extra.select(list(self._schema.key)).to_batches(_BATCH_ROWS):
            self._send(Batch(keys, removes=True))
        return int(part.extra.num_rows)

    def _send(self, batch: Batch) -> None:
        if self._fan_out is None:
            ports = handle_of(self._table).ports
            self._sender.write_record([self._sink], (self._sink.name,))
            self._fan_out = FanOut([self._sink], self._schema, Pace(), ports, str(self.instant))
        self._fan_out.send(batch)

    def _rows(self) -> Iterator[pa.RecordBatch]:
        for batch in self._scan.to_reader():
            yield batch.select(self._schema.arrow.names).cast(self._schema.arrow)

    def _held(self) -> Iterator[pa.RecordBatch]:
        try:
            with closing(self._sink.open(self._schema)) as session:
                for batch in session.held():
                    yield batch.select(self._schema.arrow.names).cast(self._schema.arrow)
        except TableError:
            raise
        except Exception as error:  # foreign code: whatever it raises, it could not be read
            name = self._sink.name
            text = redacted(f"{type(error).__name__}: {error}")[:_SHOWN]
            message = f"sink {name} cannot be read: {text}"
            raise ReplicationError(message, hint="nothing was changed", outcomes=[]) from error


@dataclass(frozen=True, slots=True)
class _Records:
    """The attempts at a sink before it is compared, and which of them had ended."""

    table: Table
    sink: str
    attempts: tuple[Attempt, ...]
    pending: frozenset[str]

    @classmethod
    def load(cls, table: Table, sink: str) -> Self:
        """Load them; one without a pending record is decided, and has been since before now."""
        store = handle_of(table).store
        mine = tuple(each for each in load_attempts(store) if each.concerns(sink))
        return cls(table, sink, mine, frozenset(e.instant.nonce for e in load_pending(store)))

    def overlapping(self, version: int, own: Instant) -> tuple[Instant, ...]:
        """Return the instants that may have sent rows since these records were loaded, but our own.

        A writer that is gone from the records has committed, so decisions are read after them.
        """
        handle, ended = handle_of(self.table), set(self._ended())
        now = [each for each in load_attempts(handle.store) if each.concerns(self.sink)]
        now = [each for each in now if each.instant != own]
        head = handle.cache.refresh().version
        decisions = handle.cache.timeline.load_after(version, limit=head - version)
        later = History.of(decisions, handle.cache.known().table)
        sent = [change.instant for change in later.changes if self.sink in change.sinks]
        open_ones = [each.instant for each in (*self.attempts, *now) if each not in ended]
        return tuple(sorted(dict.fromkeys((*sent, *open_ones))))

    def settle(self) -> None:
        """Take the sink off the records of attempts that had ended; delete those without sinks."""
        handle = handle_of(self.table)
        store, state = handle.store, handle.cache.known()
        now = set(load_attempts(store))  # a writer that was paused may have written its own again
        for attempt in self._ended():
            if attempt not in now:
                continue
            rest = tuple(n for n in attempt.sinks or self._every_sink() if n != self.sink)
            # A task whose attempt did not count is told of by nothing else, commit or not.
            if rest and (attempt.task or state.find_instant(store, attempt.instant) is None):
                write_attempt(store, replace(attempt, sinks=rest))
            else:
                delete_attempts(store, attempt.instant, [attempt.task])

    def _every_sink(self) -> list[str]:
        """Name the sinks that an attempt may be at whose record does not say it."""
        return sorted({each.sink for each in status_of(handle_of(self.table))} - {UNKNOWN})

    def _ended(self) -> list[Attempt]:
        return [each for each in self.attempts if self._is_over(each)]

    def _is_over(self, attempt: Attempt) -> bool:
        """Tell whether nothing of an attempt can come to the sink any more."""
        if attempt.instant.nonce in self.pending:
            return False
        if self.sink not in attempt.under_way or has_ended(attempt.process):
            return True
        silent_ms = handle_of(self.table).store.now_ms() - attempt.began_ms
        return silent_ms > _SILENT_MS_MAX
