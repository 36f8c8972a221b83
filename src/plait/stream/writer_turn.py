"""The rows of one writer of a stream in one turn: staged, then reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import pyarrow as pa

from plait.arrow.staging import ArrowStaging
from plait.arrow.task import Announcer, Task
from plait.errors import CorruptMetadataError, FormatError, PlanStaleError, StreamError
from plait.files.data_file import REMOVALS, RUN, parse_path
from plait.model.bucket import Partition, partition_parse, partition_path
from plait.model.changes import Digest, WriteStatus
from plait.model.contract import Options
from plait.model.decision import Span
from plait.model.instant import Operation
from plait.model.plan import Snapshot
from plait.model.request import WritePlan, WriteRequest
from plait.storage.port import Store
from plait.stream.messages import Progress, Report, Turn
from plait.stream.status_file import StatusFile
from plait.timeline.pending import find_request
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
        announce = _Proven(Announcer(handle.store, plan, label), handle.store, turn)
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


@dataclass(slots=True)
class _Proven:
    """Announces files of a turn, once the table has the record with which the turn began.

    A turn is a message, and anybody may send one. Files under an instant that nobody requested
    would be nobody's: no decision would name them, and no recovery would delete them.
    """

    announce: Callable[[Iterable[Partition]], None]
    store: Store
    turn: Turn
    proven: bool = False

    def __call__(self, partitions: Iterable[Partition]) -> None:
        """Announce partitions in which files will be.

        Raises:
            StreamError: no coordinator began the turn, or it is over.
        """
        partitions = tuple(partitions)
        if partitions and not self.proven:
            record = find_request(self.store, self.turn.instant)
            if record is None or record.writer != self.turn.session:
                message = f"turn {self.turn.number} has no record of instant {self.turn.instant}"
                hint = "it is over, or no coordinator sent it; its rows are read again"
                raise StreamError(message, hint=hint)
            self.proven = True
        self.announce(partitions)


def _bounded(options: Options, buffer: int) -> Options:
    """Return options whose buffers are no larger than this."""
    keys = ("write.buffer.size", "write.bucket.size")
    return options.merged({key: min(options.size(key), buffer) for key in keys})


def _size_of(data: object) -> int:
    size = getattr(data, "nbytes", 0)
    return size if isinstance(size, int) else 0


def status_of(report: Report, turn: Turn) -> WriteStatus:
    """Read what a report lists, and check that it is of this turn.

    A report is a message: whoever may write to the transport may send one. What it lists would be
    published, so each file must have the name of a file of the turn's instant, in the partition
    and bucket that the report says. Files that are there already are neither removed nor masked by
    writers of a stream.

    Raises:
        CorruptMetadataError: it is no status, or lists what is not its writer's.
    """
    try:
        status = WriteStatus.from_bytes(report.status) if report.status else WriteStatus()
        for table in status.changes.tables().values():
            table.validate(full=True)
        wrong = _not_its_own(report, status, turn)
    except _DAMAGE as error:
        wrong = f"{type(error).__name__}: {error}"
    if wrong:
        message = f"the report of {report.writer[:80]!r} is damaged: {wrong[:300]}"
        raise CorruptMetadataError(message, path="")
    return status


_DAMAGE: Final = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    OverflowError,
    FormatError,
    pa.ArrowException,
)
"""What the readers of Arrow, of its metadata and of partitions raise for bytes that are none."""


def _not_its_own(report: Report, status: WriteStatus, turn: Turn) -> str:
    """Say which file of a report is not one of its writer's turn; empty if all are."""
    changes = status.changes
    if any(t.num_rows for n, t in changes.tables().items() if n not in _ADDING):
        return "it changes files that are there already"
    if min((*status.stats.to_dict().values(), 0)) < 0:
        return "it has a negative count"
    runs = frozenset(report.runs)
    for path in (*runs, *changes.written()):
        name = parse_path(path)
        if name is None or name.instant != turn.instant:
            return f"{path[:200]!r} is not a file of instant {turn.instant}"
        if (path in runs) != (name.kind in (RUN, REMOVALS)):
            return f"{path[:200]!r} is a {name.kind}"
    for each in changes.added.to_pylist():
        name, place = parse_path(each["path"]), partition_path(partition_parse(each["partition"]))
        told = (place, each["bucket"], each["kind"], each["schema_id"])
        if name is None or told != (name.directory, name.bucket, name.kind, turn.schema_id):
            return f"{each['path'][:200]!r} is not where the report says"
        if min(each["rows"], each["bytes"]) < 0:
            return "it has a negative count"
    return ""


_ADDING: Final = frozenset({"added", "touched", "garbage"})
