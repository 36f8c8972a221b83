"""One of several writers of a stream: it buffers, stages and reports (RFC 0007)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Self

from plait.arrow.engine import Announcer, ArrowStaging, Task
from plait.errors import (
    CorruptMetadataError,
    OffsetGapError,
    PlanStaleError,
    StreamError,
    TableError,
    TransactionClosedError,
)
from plait.model.changes import Digest, WriteStatus
from plait.model.instant import Operation
from plait.model.plan import Snapshot
from plait.model.request import WritePlan, WriteRequest
from plait.stream.messages import Hello, Report, Turn, encode, understood
from plait.stream.transport import Endpoint
from plait.txn.table_handle import TableHandle
from plait.write.run_files import RunStaging

_ASK_S = 1.0
"""How long to wait for an answer before asking again."""


class Participant:
    """Takes rows with their offsets, stages them, and reports them to the coordinator.

    Rows are buffered by bucket. A bucket that exceeds ``write.bucket.size`` is flushed; all are
    flushed when they exceed ``write.buffer.size`` or a turn ends. Buffering continues under the
    instant of the next turn, so at most two buffers are in memory. A participant belongs to one
    thread; flushing runs in another one.

    It has no state of its own that must survive a crash: the table knows the offsets. After a
    failure, ``offset`` returns them again, and rows that start elsewhere are refused.
    """

    def __init__(self, handle: TableHandle, endpoint: Endpoint, name: str) -> None:
        self._handle, self._endpoint, self._name = handle, endpoint, name
        self._life = handle.ports.ids.nonce()
        self._turn: _Open | None = None
        self._offsets: dict[str, str] = {}
        self._unheard: list[Report] = []
        self._lock = threading.Lock()
        self._finishing: list[tuple[_Open, Future[None]]] = []
        self._thread = _one_thread()
        self._seen: dict[str, int] = {}
        """By coordinator: the newest turn that was begun."""
        self._asked: float | None = None
        self._welcome = self._closed = False
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

    def offset(self, source: str = "") -> str:
        """Return the offset at which to read a source next; "" is its beginning."""
        return self._offsets.get(source, "")

    def poll(self, wait_s: float = 0) -> None:
        """Receive the messages of the coordinator; ``write`` does so too.

        Raises:
            StreamError: another writer has taken this name.
        """
        self._require_open()
        if self._turn is None:
            self._say_hello()
        while (body := self._endpoint.receive(wait_s)) is not None:
            wait_s = 0
            message = understood(body)
            if isinstance(message, Turn):
                self._hear(message)

    def write(self, data: object, *, start: str, end: str, source: str = "") -> None:
        """Add the rows of a source between two offsets.

        Raises:
            OffsetGapError: ``start`` is not where this writer is; read again from ``offset``.
            TransactionClosedError: no coordinator has begun a turn yet.
            SchemaError: the rows do not fit the table. Everything undecided is dropped.
        """
        self.poll()
        turn = self._turn
        if turn is None:
            message = "no coordinator has begun a turn"
            raise TransactionClosedError(message, hint="start a coordinator, and poll until ready")
        expected = self.offset(source)
        if start != expected:
            message = f"rows of source {source!r} start at {start!r}, but {expected!r} is next"
            hint = (
                "continue from Participant.offset; rows that were not committed must be read again"
            )
            raise OffsetGapError(message, hint=hint, expected=expected, given=start, source=source)
        try:
            turn.write(data)
        except BaseException as error:
            self._give_up(turn, error)
            raise
        turn.starts.setdefault(source, start)
        turn.ends[source] = self._offsets[source] = end

    def settle(self) -> None:
        """Wait until every ended turn is reported."""
        wait([future for _, future in self._finishing])

    def close(self) -> None:
        """End; drop what was not reported; idempotent."""
        if self._closed:
            return
        self._closed = True
        self._drop()
        self._thread.shutdown(wait=True)

    # --- inside ----------------------------------------------------------------------------

    def _say_hello(self) -> None:
        """Ask for the turn; ask again if no answer arrives."""
        now = self._handle.ports.clock.monotonic()
        if self._asked is None or now >= self._asked + _ASK_S:
            self._asked = now
            self._endpoint.send(encode(Hello(self._name, self._life)))

    def _hear(self, turn: Turn) -> None:
        life = turn.lives.get(self._name)
        if life is None:
            self._introduce(turn)
            return
        if life != self._life and not self._welcome:
            return  # it was sent before the coordinator knew of us
        if life != self._life:
            self._drop()
            message = f"another writer has taken the name {self._name!r}"
            raise StreamError(message, hint="stop this writer, or give it another name")
        self._welcome = True
        if turn.number <= self._seen.get(turn.session, -1):
            self._hear_again(turn)
            return
        self._seen[turn.session] = turn.number
        known = self._turn
        if known is not None and known.turn.session == turn.session and not turn.reset:
            self._turn = None
            self._end(known)
            for missed in range(known.turn.number + 1, turn.number):
                self._report(self._about(turn.session, missed))
            self._send_again(turn.decided)
        else:
            self._drop()
            self._offsets = dict(turn.offsets)
        self._begin(turn)

    def _introduce(self, turn: Turn) -> None:
        """Introduce this writer to a coordinator that is new or has dismissed it."""
        known = self._turn
        if known is None or known.turn.session != turn.session:
            self._endpoint.send(encode(Hello(self._name, self._life)))
        else:
            self._drop()

    def _hear_again(self, turn: Turn) -> None:
        """Tell again what is not decided; a turn that was given up is not begun a second time.

        Files of the first time have no owner but the instant: it must be rolled back.
        """
        known = self._turn
        if known is not None and known.turn.session == turn.session:
            self._send_again(turn.decided)
        else:
            about = self._about(turn.session, turn.number)
            self._report(replace(about, error="the turn was given up"))

    def _about(self, session: str, number: int) -> Report:
        return Report(session, self._name, self._life, number)

    def _begin(self, turn: Turn) -> None:
        label = f"{self._life}-{turn.number}"
        try:
            self._turn = _Open.begin(self._handle, turn, label)
        except TableError as error:
            about = self._about(turn.session, turn.number)
            self._report(replace(about, error=f"{type(error).__name__}: {error}"))

    def _end(self, turn: _Open) -> None:
        """Stage and report the rows of a turn in the background."""
        self._finishing = [pair for pair in self._finishing if not pair[1].done()]
        try:
            self._finishing.append((turn, self._thread.submit(self._finish, turn)))
        except RuntimeError:  # no thread can be had: nothing of it ran, nor ever will
            self._thread.shutdown(cancel_futures=True)
            self._thread = _one_thread()
            self._finish(turn)

    def _finish(self, turn: _Open) -> None:
        about = self._about(turn.turn.session, turn.turn.number)
        try:
            self._report(turn.finish(about))
        except Exception as error:  # noqa: BLE001 - the coordinator is told, and begins anew
            self._report(replace(about, error=f"{type(error).__name__}: {error}"))
        finally:
            turn.close()

    def _give_up(self, turn: _Open, error: BaseException) -> None:
        about = self._about(turn.turn.session, turn.turn.number)
        self._drop()
        self._report(replace(about, error=f"{type(error).__name__}: {error}"))

    def _report(self, report: Report) -> None:
        with self._lock:
            self._unheard.append(report)
        self._endpoint.send(encode(report))

    def _send_again(self, decided: int) -> None:
        """Send again what the coordinator may not have received: a transport may lose messages."""
        with self._lock:
            self._unheard = [report for report in self._unheard if report.number > decided]
            again = list(self._unheard)
        for report in again:
            self._endpoint.send(encode(report))

    def _drop(self) -> None:
        """Forget everything that is not decided."""
        for turn, future in self._finishing:
            if future.cancel():
                turn.close()
        self.settle()
        self._finishing.clear()
        with self._lock:
            self._unheard.clear()
        if self._turn is not None:
            self._turn.close()
        self._turn = self._asked = None

    def _require_open(self) -> None:
        if self._closed:
            message = f"the writer {self._name!r} is closed"
            raise TransactionClosedError(message, hint="create a new one")


def _one_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="plait-turn")


@dataclass(slots=True)
class _Open:
    """The rows of a writer in one turn."""

    turn: Turn
    plan: WritePlan
    work: ArrowStaging | RunStaging
    starts: dict[str, str] = field(default_factory=dict)
    ends: dict[str, str] = field(default_factory=dict)

    @classmethod
    def begin(cls, handle: TableHandle, turn: Turn, label: str) -> _Open:
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
        options = table.options
        plan = WritePlan(
            WriteRequest(operation),
            handle.store.spec,
            turn.instant,
            spec,
            options,
            digests=True,
        )
        announce = Announcer(handle.store, plan, label)
        if spec.keyed:
            return cls(turn, plan, RunStaging(plan, announce, label=label, store=handle.store))
        return cls(turn, plan, ArrowStaging(plan, announce, task=Task(label), store=handle.store))

    @property
    def write(self) -> Callable[[object], None]:
        """Take rows."""
        return self.work.write

    def finish(self, about: Report) -> Report:
        """Flush everything, and return the report."""
        report = replace(about, starts=self.starts, ends=self.ends)
        if not self.starts:
            return report
        if isinstance(self.work, RunStaging):
            runs = tuple(self.work.finish())
            report = replace(report, runs=runs, flushes=self.work.flushes)
            return replace(report, rows=self.work.digest.rows, hash=self.work.digest.hash)
        spec = self.plan.spec
        status = self.work.stage(Snapshot(0, spec, {spec.schema.id: spec.schema}), None)
        digest = status.digest or Digest()
        return replace(report, rows=digest.rows, hash=digest.hash, status=status.to_bytes())

    def close(self) -> None:
        """Drop what is in memory."""
        self.work.close()


def status_of(report: Report) -> WriteStatus:
    """Read the status of a report; raise CorruptMetadataError if it is none."""
    try:
        return WriteStatus.from_bytes(report.status) if report.status else WriteStatus()
    except (OSError, ValueError) as error:
        message = f"the report of {report.writer!r} is damaged: {error}"
        raise CorruptMetadataError(message, path="") from error
