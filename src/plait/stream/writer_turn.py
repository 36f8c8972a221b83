"""The rows of one writer of a stream in one turn: staged, then reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from plait.arrow.staging import ArrowStaging
from plait.arrow.task import Announcer, Task
from plait.errors import CorruptMetadataError, PlanStaleError
from plait.model.changes import Digest, WriteStatus
from plait.model.contract import Options
from plait.model.decision import Span
from plait.model.instant import Operation
from plait.model.plan import Snapshot
from plait.model.request import WritePlan, WriteRequest
from plait.stream.messages import Progress, Report, Turn
from plait.stream.status_file import StatusFile
from plait.txn.table_handle import TableHandle
from plait.write.run_files import RunStaging

Parts: TypeAlias = Sequence[tuple[bool, object]]
"""Rows, or keys to remove where the flag is set, in order."""


@dataclass(slots=True)
class WriterTurn:
    """The rows of a writer in one turn."""

    turn: Turn
    plan: WritePlan
    work: ArrowStaging | RunStaging
    large: StatusFile
    starts: dict[str, str] = field(default_factory=dict)
    ends: dict[str, str] = field(default_factory=dict)
    bytes: int = 0

    @classmethod
    def begin(
        cls, handle: TableHandle, turn: Turn, label: str, *, buffer: int | None = None
    ) -> WriterTurn:
        """Take the table's layout at the turn; write nothing yet.

        Raises:
            PlanStaleError: the layout has changed; the next turn will have the new one.
        """
        table = handle.cache.refresh().table
        spec = table.spec
        if (spec.schema.id, spec.buckets.id) != (turn.schema_id, turn.bucket_spec_id):
            message = f"turn {turn.number} has another layout than the table"
            raise PlanStaleError(message, hint="the coordinator begins a new turn")
        operation = Operation(turn.operation)
        options = table.options if buffer is None else _bounded(table.options, buffer)
        plan = WritePlan(
            WriteRequest(operation),
            handle.store.spec,
            turn.instant,
            spec,
            options,
            digests=True,
        )
        announce = Announcer(handle.store, plan, label)
        size_max = options.size("control.message.size")
        large = StatusFile(handle.store, turn.instant, label, announce, size_max)
        if spec.keyed:
            runs = RunStaging(plan, announce, label=label, store=handle.store)
            return cls(turn, plan, runs, large)
        files = ArrowStaging(plan, announce, task=Task(label), store=handle.store)
        return cls(turn, plan, files, large)

    def require_schema(self, schema_id: int | None) -> None:
        """Refuse rows that were made for another schema than the turn's: columns would be lost.

        Raises:
            PlanStaleError: so it is.
        """
        if schema_id not in (None, self.turn.schema_id):
            message = f"rows of schema {schema_id} came in a turn of schema {self.turn.schema_id}"
            raise PlanStaleError(message, hint="make the rows again, with Participant.spec")

    def take(self, span: Span, parts: Parts) -> None:
        """Take rows and removals, which the flag tells, of a source."""
        for removes, data in parts:
            (self.work.remove if removes else self.work.write)(data)
            self.bytes += _size_of(data)
        self.starts.setdefault(span.source, span.start)
        self.ends[span.source] = span.end

    def finish(self, about: Report) -> Report:
        """Flush everything, and return the report as it is sent.

        Raises:
            TableError: rows could not be written.
        """
        report = replace(about, starts=self.starts, ends=self.ends)
        if not self.starts:
            return report
        if isinstance(self.work, RunStaging):
            runs = tuple(self.work.finish())
            report = replace(report, runs=runs, flushes=self.work.flushes)
            digest = self.work.digest
            return self.large.shorten(replace(report, rows=digest.rows, hash=digest.hash))
        spec = self.plan.spec
        status = self.work.stage(Snapshot(0, spec, {spec.schema.id: spec.schema}), None)
        digest = status.digest or Digest()
        report = replace(report, rows=digest.rows, hash=digest.hash, status=status.to_bytes())
        return self.large.shorten(report)

    def progress(self, about: Report, *, urgent: bool) -> Progress:
        """Return what is held, as it is told to the coordinator."""
        names = about.table, about.session, about.writer, about.life, about.number
        return Progress(*names, self.work.rows, self.bytes, bool(self.starts), urgent)

    def close(self) -> None:
        """Drop what is in memory."""
        self.work.close()


def _bounded(options: Options, buffer: int) -> Options:
    """Return options whose buffers are no larger than this."""
    keys = ("write.buffer.size", "write.bucket.size")
    return options.merged({key: min(options.size(key), buffer) for key in keys})


def _size_of(data: object) -> int:
    size = getattr(data, "nbytes", 0)
    return size if isinstance(size, int) else 0


def status_of(report: Report) -> WriteStatus:
    """Read the status of a report; raise CorruptMetadataError if it is none."""
    try:
        return WriteStatus.from_bytes(report.status) if report.status else WriteStatus()
    except (OSError, ValueError) as error:
        message = f"the report of {report.writer!r} is damaged: {error}"
        raise CorruptMetadataError(message, path="") from error
