"""One of several writers of a stream: it buffers, stages and reports (RFC 0007).

``WriterTurn`` stages the rows of one turn, and ``UndecidedReports`` keeps reports until they are
decided. ``ReceivedMessages`` remembers which messages came, because a transport may repeat any of
them. ``StreamName`` guards the name of the stream, which other tables on the transport may use.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final, Never, Self, TypeAlias

import pyarrow as pa

from plait.arrow.staging import ArrowStaging
from plait.arrow.task import Announcer, Task
from plait.errors import (
    CorruptMetadataError,
    FormatError,
    OffsetGapError,
    OptionError,
    PlanStaleError,
    StorageError,
    StreamError,
    TableError,
    TransactionClosedError,
)
from plait.files.data_file import REMOVALS, RUN, parse_path
from plait.model.bucket import Partition, partition_parse, partition_path
from plait.model.changes import Digest, WriteStatus
from plait.model.contract import Options
from plait.model.decision import Span
from plait.model.instant import Instant, Operation
from plait.model.plan import Snapshot, TableSpec
from plait.model.request import WritePlan, WriteRequest
from plait.storage.port import Store
from plait.stream.message_schema import ERROR_MAX, NAME_MAX, OFFSET_MAX
from plait.stream.messages import (
    TURNS_MAX,
    Acknowledgement,
    Farewell,
    Hello,
    Offsets,
    Progress,
    Report,
    Turn,
    encode,
    understood,
)
from plait.stream.status_file import StatusFile
from plait.stream.transport import Endpoint
from plait.timeline.pending import find_request
from plait.txn.table_handle import TableHandle
from plait.write.run_files import RunStaging

Parts: TypeAlias = Sequence[tuple[bool, object]]
"""Rows in order; where the flag is set, keys to remove."""


@dataclass(slots=True)
class WriterTurn:
    """The rows of a writer in one turn."""

    turn: Turn
    plan: WritePlan
    staging: ArrowStaging | RunStaging
    status_file: StatusFile
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
        if (spec.schema.id, spec.layout.buckets.id) != (turn.schema_id, turn.bucket_spec_id):
            message = f"turn {turn.number} has another layout than the table"
            raise PlanStaleError(message, hint="the coordinator begins a new turn")
        operation = Operation(turn.operation)
        options = table.options if buffer is None else _bounded(table.options, buffer)
        plan = WritePlan(
            WriteRequest(operation),
            handle.store.address,
            turn.instant,
            spec,
            options,
            digests=True,
        )
        announce = _RequestedAnnouncer(Announcer(handle.store, plan, label), handle.store, turn)
        size_max = options.size("control.message.size")
        large = StatusFile(handle.store, turn.instant, label, announce, size_max)
        # Rows of several writers may meet in a bucket of a keyed table. Only the coordinator has
        # them all and can merge them, so it gets runs of rows and not files of the table.
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
            (self.staging.remove if removes else self.staging.write)(data)
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
        if isinstance(self.staging, RunStaging):
            runs = tuple(self.staging.finish())
            report = replace(report, runs=runs, flushes=self.staging.flushes)
            digest = self.staging.digest
            return self.status_file.offload(replace(report, rows=digest.rows, hash=digest.hash))
        spec = self.plan.spec
        status = self.staging.stage(Snapshot(0, spec, {spec.schema.id: spec.schema}), None)
        digest = status.digest or Digest()
        report = replace(report, rows=digest.rows, hash=digest.hash, status=status.to_bytes())
        return self.status_file.offload(report)

    def progress(self, about: Report, *, urgent: bool) -> Progress:
        """Return what is held, as it is told to the coordinator."""
        names = about.table, about.session, about.writer, about.life, about.number
        return Progress(*names, self.staging.rows, self.bytes, bool(self.starts), urgent)

    def close(self) -> None:
        """Drop what is in memory."""
        self.staging.close()


@dataclass(slots=True)
class _RequestedAnnouncer:
    """Announces files of a turn, once the table has the record with which the turn began.

    A turn is a message, and anybody may send one. Files under an instant that nobody requested
    would be nobody's: no decision would name them, and no recovery would delete them.
    """

    announce: Callable[[Iterable[Partition]], None]
    store: Store
    turn: Turn
    requested: bool = False

    def __call__(self, partitions: Iterable[Partition]) -> None:
        """Announce partitions in which files will be.

        Raises:
            StreamError: no coordinator began the turn, or it is over.
        """
        partitions = tuple(partitions)
        if partitions and not self.requested:
            record = find_request(self.store, self.turn.instant)
            if record is None or record.writer != self.turn.session:
                message = f"turn {self.turn.number} has no record of instant {self.turn.instant}"
                hint = "it is over, or no coordinator sent it; its rows are read again"
                raise StreamError(message, hint=hint)
            self.requested = True
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
        wrong = _foreign_content(report, status, turn)
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
"""Exceptions that decoding of Arrow data and partitions raises for invalid bytes."""


def _foreign_content(report: Report, status: WriteStatus, turn: Turn) -> str:
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
        reported = (place, each["bucket"], each["kind"], each["schema_id"])
        if name is None or reported != (name.directory, name.bucket, name.kind, turn.schema_id):
            return f"{each['path'][:200]!r} is not where the report says"
        if min(each["rows"], each["bytes"]) < 0:
            return "it has a negative count"
    return ""


_ADDING: Final = frozenset({"added", "touched", "garbage"})


@dataclass(slots=True)
class StreamName:
    """The name that a writer uses, until a coordinator of another table answers to it."""

    application: str
    table: str
    """The table's identity."""
    _error: StreamError | None = None

    def refuse(self, turn: Turn) -> Never:
        """Refuse a turn of another table, now and at each later call of ``require``.

        Its coordinator would commit the rows of this table into the other one.

        Raises:
            StreamError: always.
        """
        self._error = name_taken(self.application, self.table, turn.table)
        raise self._error

    def require(self) -> None:
        """Raise StreamError if a turn was refused."""
        if self._error is not None:
            raise self._error


def name_taken(application: str, table: str, other: str) -> StreamError:
    """Return the error that another table uses the name of a stream."""
    message = f"the name {application!r} is used by another table, whose processes answer"
    hint = "use another application name; for a sink, pass another --name"
    return StreamError(message, hint=hint, application=application, table=table, other=other)


@dataclass(slots=True)
class ReceivedMessages:
    """The newest turns and acknowledgements that came, so that older ones can be ignored."""

    begun: dict[str, int] = field(default_factory=dict)
    """By session of a coordinator, the newest turn that this writer began."""
    last: tuple[str, int] = ("", -1)
    """The coordinator and the number of the turn that came last; a hello answers it."""
    committed: Offsets = field(default_factory=dict)
    """Offsets in the table, as last received."""
    _names: dict[Instant, tuple[str, int]] = field(default_factory=dict)
    """By instant, the coordinator and the number of the newest turns that were heard."""
    _committed_at: tuple[str, int] = ("", -1)
    """Session and last decided turn of the message that ``committed`` came from."""

    def newest(self, session: str) -> int:
        """Return the newest turn of a coordinator that was begun; -1 if there is none."""
        return self.begun.get(session, -1)

    def contradicts(self, turn: Turn) -> bool:
        """Whether a turn has the instant of another one, or another instant than it had before.

        A coordinator requests an instant for each turn, so one of the two is nobody's.
        """
        named = turn.session, turn.number
        known = self._names.get(turn.instant)
        return known != named if known is not None else named in self._names.values()

    def note(self, turn: Turn) -> None:
        """Note a turn that a coordinator sent; a hello answers the last one."""
        self.last = turn.session, turn.number
        self._names[turn.instant] = self.last
        if len(self._names) > TURNS_MAX:
            del self._names[next(iter(self._names))]

    def is_old(self, turn: Turn) -> bool:
        """Whether a turn was begun, or is of a coordinator that another one overtook."""
        overtaken = turn.session < max(self.begun, default="")
        return overtaken or turn.number <= self.newest(turn.session)

    def note_committed(self, message: Turn | Acknowledgement) -> None:
        """Note how far the table is, unless more is known."""
        at = (message.session, message.decided)
        if at >= self._committed_at:
            self.committed, self._committed_at = message.offsets, at


@dataclass(slots=True)
class UndecidedReports:
    """Reports that are not known to be decided; any thread may add to them."""

    _reports: list[Report] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def any_rows(self) -> bool:
        """Whether there are any that say more than that nothing came."""
        with self._lock:
            return any(not each.idle for each in self._reports)

    def add(self, report: Report) -> None:
        """Add a report."""
        with self._lock:
            self._reports.append(report)

    def forget(self, decided: int) -> list[Report]:
        """Drop those of turns up to this one; return the others."""
        with self._lock:
            self._reports = [each for each in self._reports if each.number > decided]
            return list(self._reports)

    def clear(self) -> None:
        """Drop all."""
        with self._lock:
            self._reports.clear()

    def left_out_by(self, message: Turn | Acknowledgement) -> bool:
        """Whether turns were decided without what was reported for them."""
        with self._lock:
            decided = [each.ends for each in self._reports if each.number <= message.decided]
        reached = {source: end for ends in decided for source, end in ends.items()}
        return any(message.offsets.get(source, "") != end for source, end in reached.items())


_ASK_S = 1.0
"""Seconds to wait for an answer before asking again."""
_PROGRESS_S = 0.2
"""Minimum seconds between two messages of progress."""


def _one_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="plait-turn")


class Participant:
    """Takes rows with their offsets, stages them, and reports them to the coordinator.

    Rows are buffered by bucket. A bucket that exceeds ``write.bucket.size`` is flushed; all are
    flushed when they exceed ``write.buffer.size`` or a turn ends. Buffering continues under the
    instant of the next turn, so at most two buffers are in memory. A participant belongs to one
    thread; flushing runs in another one.

    It has no state of its own that must survive a crash: the table knows the offsets. After a
    failure, ``offset`` returns them again, and rows that start elsewhere are refused.
    """

    def __init__(
        self,
        handle: TableHandle,
        application: str,
        endpoint: Endpoint,
        name: str,
        *,
        label: str = "",
        flushing: Callable[[], Executor] = _one_thread,
    ) -> None:
        """Create a writer; use ``Stream.participant``.

        Args:
            handle: the table.
            application: the name of the stream.
            endpoint: its end of the transport.
            name: tells it from the other writers.
            label: stands in the names of its files.
            flushing: returns what stages and reports turns that have ended, one after the other.

        Raises:
            OptionError: the name is too long for a message.
        """
        _require_text("name", name, NAME_MAX)
        self._handle, self._endpoint, self._name = handle, endpoint, name
        self._own = StreamName(application, handle.identity)
        self._label = f"{label}-" if label else ""
        self._life = handle.ports.ids.nonce()
        self._turn: WriterTurn | None = None
        self._offsets: dict[str, str] = {}
        self._received = ReceivedMessages()
        self._undecided = UndecidedReports()
        self._finishing: list[tuple[WriterTurn, Future[None]]] = []
        self._flushing = flushing
        self._thread = flushing()
        self._asked: float | None = None
        self._progress_sent = -_PROGRESS_S
        self._urgent = False
        self.buffer: int | None = None
        """Bytes of rows to hold in a turn that begins from now on, if ``write.buffer.size`` is
        not smaller."""
        self._admitted = self._closed = False
        """Welcome: a coordinator has counted this life in."""

    def __enter__(self) -> Self:
        """Say hello."""
        self.poll(0)
        return self

    def __exit__(self, *error: object) -> None:
        """End. What was not reported is dropped; the next run reads it again."""
        self.close()

    @property
    def ready(self) -> bool:
        """Whether a turn has begun, so that ``write`` takes rows."""
        return self._turn is not None

    @property
    def spec(self) -> TableSpec | None:
        """The layout and the columns of the turn that has begun; None if none has."""
        return None if self._turn is None else self._turn.plan.spec

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources whose offsets the coordinator has told, in order of their names."""
        return tuple(sorted(self._offsets))

    def offset(self, source: str = "") -> str:
        """Return the offset at which to read a source next, "" for its beginning; see ``poll``."""
        self._own.require()
        return self._offsets.get(source, "")

    def committed(self, source: str = "") -> str:
        """Return how far a source is in the table, as was last told; see ``poll``."""
        self._own.require()
        return self._received.committed.get(source, "")

    def poll(self, wait_s: float = 0) -> None:
        """Receive the messages of the coordinator; ``write`` does so too.

        Raises:
            StreamError: another writer has taken this name; or another table uses the name of the
                stream, and each later call raises this again.
        """
        self._require_open()
        if self._turn is None:
            self._say_hello()
        while (body := self._endpoint.receive(wait_s)) is not None:
            wait_s = 0
            message = understood(body)
            if isinstance(message, Turn):
                self._receive_turn(message)
            elif isinstance(message, Acknowledgement):
                self._receive_acknowledgement(message)
        self._send_progress(_ASK_S)

    def write(
        self,
        data: object,
        *,
        start: str,
        end: str,
        source: str = "",
        removals: object = None,
        schema_id: int | None = None,
    ) -> None:
        """Add the rows of a source between two offsets.

        In a stream of upserts, ``removals`` are keys to remove before these rows are added, as by
        ``Writer.remove``. Rows and removals of one call are committed together.

        ``schema_id`` is that of ``spec``, for which the rows were made.

        Raises:
            PlanStaleError: a turn with another schema has begun; make the rows again.
            OffsetGapError: ``start`` is not where this writer is; read again from ``offset``.
            TransactionClosedError: no coordinator has begun a turn yet.
            OptionError: the stream's operation takes no removals: everything undecided is dropped.
                Or a source or offset is too long for a message: nothing was taken.
            SchemaError: the rows do not fit the table. Everything undecided is dropped.
        """
        removed = [] if removals is None else [(True, removals)]
        self._take(Span(source, start, end), [*removed, (False, data)], schema_id)

    def remove(self, keys: object, *, start: str, end: str, source: str = "") -> None:
        """Remove keys between two offsets of a source, as ``Writer.remove``; see ``write``."""
        self._take(Span(source, start, end), [(True, keys)])

    def hurry(self) -> None:
        """Ask the coordinator to end the turn now."""
        self._urgent = True
        self._send_progress(0)

    def leave(self) -> None:
        """End, and tell the coordinator, so that it does not wait; idempotent."""
        if not self._closed:
            self._endpoint.send(encode(Farewell(self._own.table, self._name, self._life)))
            self.close()

    def settle(self) -> None:
        """Wait until every ended turn is reported."""
        for _, future in self._finishing:
            if not future.cancelled():
                future.exception()

    def close(self) -> None:
        """End; drop what was not reported; idempotent."""
        if self._closed:
            return
        self._closed = True
        self._drop()
        self._thread.shutdown(wait=True)

    # --- inside ----------------------------------------------------------------------------

    def _take(self, span: Span, parts: Parts, schema_id: int | None = None) -> None:
        """Add rows and removals, which the flag tells, of a source."""
        self.poll()
        turn = self._turn
        if turn is None:
            message = "no coordinator has begun a turn"
            raise TransactionClosedError(message, hint="start a coordinator, and poll until ready")
        _require_text("source", span.source, NAME_MAX)
        _require_text("end", span.end, OFFSET_MAX)
        source, start, expected = span.source, span.start, self.offset(span.source)
        if start != expected:
            message = f"rows of source {source!r} start at {start!r}, but {expected!r} is next"
            hint = (
                "continue from Participant.offset; rows that were not committed must be read again"
            )
            raise OffsetGapError(message, hint=hint, expected=expected, given=start, source=source)
        turn.require_schema(schema_id)
        try:
            turn.take(span, parts)
        except BaseException as error:
            self._give_up(turn, error)
            raise
        self._offsets[source] = span.end
        self._send_progress(_PROGRESS_S)

    def _say_hello(self) -> None:
        """Ask for the turn; ask again if no answer arrives."""
        now = self._handle.ports.clock.monotonic()
        if self._asked is None or now >= self._asked + _ASK_S:
            self._asked = now
            self._endpoint.send(encode(self._hello()))

    def _send_progress(self, after_s: float) -> None:
        """Send what is held, at most once in ``after_s``: a message may have been lost.

        A writer that holds nothing, but has undecided reports, asks by it what became of them.
        """
        turn, now = self._turn, self._handle.ports.clock.monotonic()
        if turn is None or now < self._progress_sent + after_s:
            return
        if not (turn.starts or self._urgent or self._undecided.any_rows):
            return
        self._progress_sent = now
        about = self._about(turn.turn.session, turn.turn.number)
        self._endpoint.send(encode(turn.progress(about, urgent=self._urgent)))

    def _receive_turn(self, turn: Turn) -> None:
        if turn.table != self._own.table:
            self._drop()
            self._own.refuse(turn)
        if self._turn is not None and turn.session < self._turn.turn.session:
            return  # of a coordinator that another one overtook
        if self._received.contradicts(turn) or not self._is_proven(turn):
            return
        self._received.note(turn)
        life = turn.lives.get(self._name)
        if life is None or (life != self._life and not self._admitted):
            self._introduce(turn)
            return
        if life != self._life:
            if self._received.is_old(turn):
                return
            self._drop()
            message = f"another writer has taken the name {self._name!r}"
            raise StreamError(message, hint="stop this writer, or give it another name")
        self._admitted = True
        self._received.note_committed(turn)
        seen = self._received.newest(turn.session)
        if turn.number <= seen:
            self._receive_repeated(turn)
            return
        self._received.begun[turn.session] = turn.number
        known = self._holds(turn)
        # The turn ends the one that we hold, and the coordinator has counted all that we reported.
        # So our rows go on: report them, and answer missed turns as empty ones. Otherwise what we
        # hold does not continue the table's offsets: drop it, and read again.
        if known is not None and not turn.reset and not self._left_out(turn):
            self._turn = None
            self._end(known)
            for missed in _missed(known.turn.number, turn):
                self._report(self._about(turn.session, missed))
            self._send_again(turn.decided)
        else:
            self._drop()
            self._offsets = dict(turn.offsets)
            # It may be awaited in turns whose messages it has missed, and holds nothing of them.
            for missed in () if turn.reset else _missed(turn.decided, turn):
                self._report(self._given_up(turn.session, missed, begun=missed <= seen))
        self._begin(turn)

    def _is_proven(self, turn: Turn) -> bool:
        """Whether a coordinator sent a turn: of one that changes much, the table is asked.

        A coordinator writes the record of an instant before it sends the turn. Without this look
        one message could bind this writer for good to a coordinator that there is not, or to a
        number that the real one never reaches. Turns that follow the last one cost no look. Of a
        turn that is over meanwhile nothing is known: the coordinator sends the one that is open.
        """
        session, number = self._received.last
        if turn.session == session and turn.number <= number + TURNS_MAX:
            return True
        try:
            record = find_request(self._handle.store, turn.instant)
        except StorageError:
            return False  # it is sent again
        return record is not None and record.writer == turn.session

    def _receive_acknowledgement(self, message: Acknowledgement) -> None:
        if self._holds(message) is not None:
            self._received.note_committed(message)
            if self._left_out(message):
                self._drop()
            else:
                self._undecided.forget(message.decided)

    def _introduce(self, turn: Turn) -> None:
        """Introduce this writer to a coordinator that is new or has dismissed it."""
        known = self._holds(turn)
        if known is None:
            self._endpoint.send(encode(self._hello()))
        elif turn.age > known.turn.age:  # an older one was sent before it knew of us
            self._drop()

    def _receive_repeated(self, turn: Turn) -> None:
        """Tell again what is not decided; a turn that was given up is not begun a second time.

        Files of the first time have no owner but the instant: it must be rolled back.
        """
        if self._left_out(turn):
            self._drop()
        known = self._holds(turn)
        if known is not None:
            known.turn = max(known.turn, turn, key=lambda each: each.age)
            self._send_again(turn.decided)
        else:
            self._report(self._given_up(turn.session, turn.number, begun=True))

    def _holds(self, message: Turn | Acknowledgement) -> WriterTurn | None:
        """Return the turn that is held, if it is one of the coordinator that sent a message."""
        known = self._turn
        return known if known is not None and known.turn.session == message.session else None

    def _left_out(self, message: Turn | Acknowledgement) -> bool:
        """Whether turns were decided without what was reported for them.

        The coordinator went on without this writer, and counted it in again when a late hello
        came. What it holds since then does not continue the offsets in the table.
        """
        return self._holds(message) is not None and self._undecided.left_out_by(message)

    def _hello(self) -> Hello:
        return Hello(self._own.table, self._name, self._life, *self._received.last)

    def _about(self, session: str, number: int) -> Report:
        return Report(self._own.table, session, self._name, self._life, number)

    def _given_up(self, session: str, number: int, *, begun: bool) -> Report:
        """Report a turn of which nothing is held; files may be left if it was ``begun``."""
        return replace(self._about(session, number), error="the turn was given up" if begun else "")

    def _begin(self, turn: Turn) -> None:
        self._urgent = False
        label = f"{self._label}{self._life}-{turn.number}"
        try:
            self._turn = WriterTurn.begin(self._handle, turn, label, buffer=self.buffer)
        except TableError as error:
            self._report(_failed(self._about(turn.session, turn.number), error))

    def _end(self, turn: WriterTurn) -> None:
        """Stage and report the rows of a turn in the background."""
        self._finishing = [pair for pair in self._finishing if not pair[1].done()]
        try:
            self._finishing.append((turn, self._thread.submit(self._finish, turn)))
        except RuntimeError:  # no thread can be had: nothing of it ran, nor ever will
            self._thread.shutdown(cancel_futures=True)
            self._thread = self._flushing()
            self._finish(turn)

    def _finish(self, turn: WriterTurn) -> None:
        about = self._about(turn.turn.session, turn.turn.number)
        try:
            self._report(turn.finish(about))
        except Exception as error:  # noqa: BLE001 - the coordinator is told, and begins anew
            taken = replace(about, starts=turn.starts, ends=turn.ends)
            self._report(_failed(taken, error))  # what it took tells whether it was left out
        finally:
            turn.close()

    def _give_up(self, turn: WriterTurn, error: BaseException) -> None:
        about = self._about(turn.turn.session, turn.turn.number)
        self._drop()
        self._report(_failed(about, error))

    def _report(self, report: Report) -> None:
        self._undecided.add(report)
        self._endpoint.send(encode(report))

    def _send_again(self, decided: int) -> None:
        """Send again what the coordinator may not have received: a transport may lose messages."""
        for report in self._undecided.forget(decided):
            self._endpoint.send(encode(report))

    def _drop(self) -> None:
        """Forget everything that is not decided."""
        for turn, future in self._finishing:
            if future.cancel():
                turn.close()
        # What already runs cannot be cancelled. Wait for it, or its report would be sent after the
        # drop and name rows that are about to be read again.
        self.settle()
        self._finishing.clear()
        self._undecided.clear()
        if self._turn is not None:
            self._turn.close()
        self._turn = self._asked = None

    def _require_open(self) -> None:
        self._own.require()
        if self._closed:
            message = f"the writer {self._name!r} is closed"
            raise TransactionClosedError(message, hint="create a new one")


def _missed(after: int, turn: Turn) -> range:
    """Return the turns before one whose reports may be awaited: no more than are ever open."""
    return range(max(after + 1, turn.number - TURNS_MAX), turn.number)


def _failed(about: Report, error: BaseException) -> Report:
    """Report why a turn was given up, in as many characters as a message takes."""
    text = f"{type(error).__name__}: {error}".encode("utf-8", "replace").decode("utf-8")
    return replace(about, error=text[:ERROR_MAX])


def _require_text(key: str, text: str, length: int) -> None:
    """Refuse a text that no message takes; raise OptionError."""
    wrong = f"has {len(text)} characters" if len(text) > length else ""
    if not text.isascii() and text != text.encode("utf-8", "replace").decode("utf-8"):
        wrong = "is not of whole characters"
    if wrong:
        message = f"the {key} of a writer of a stream {wrong}: {text[:80]!a}"
        hint = f"use a text of at most {length} characters"
        raise OptionError(message, hint=hint, key=key, value=text[:80])
