"""The coordinator of a stream: it commits what the writers staged, once per epoch (RFC 0007)."""

from __future__ import annotations

from dataclasses import replace
from typing import Never, Self

from plait.errors import (
    CoordinatorFencedError,
    EpochUnknownError,
    OptionError,
    StreamError,
    TransactionClosedError,
)
from plait.model.decision import CommitResult, Token
from plait.model.instant import Instant, Operation
from plait.model.request import WriteRequest
from plait.model.stream import Position
from plait.state.state import TableState
from plait.stream.fence import Fence
from plait.stream.messages import (
    Hello,
    Report,
    Turn,
    encode,
    offsets_text,
    parse_offsets,
    understood,
)
from plait.stream.open_turn import OpenTurn, digest_of, follow, gathered_of, spans_of
from plait.stream.transport import Endpoint
from plait.timeline import paths
from plait.txn.begin import pending_record
from plait.txn.table_handle import TableHandle, require_slots
from plait.write.group_commit import decide

_OPERATIONS = (Operation.APPEND, Operation.INSERT, Operation.UPSERT)
_TURNS_MAX = 100
"""The largest number of open turns while writers are silent."""
_LOOK_S = 0.05
"""The pause between two polls while waiting for reports."""


class Coordinator:
    """Begins turns, collects what writers staged in them, and commits it exactly once.

    ``checkpoint`` ends a turn. The next instant is requested before the writers are asked to
    report, so no writer waits. ``complete`` commits every turn that all writers have reported, in
    one commit whose token holds their offsets. A late or incomplete turn goes into the next commit.

    Every failure is handled in the same way: what is undecided is rolled back, and the writers
    continue from the offsets in the table. If an application has two coordinators, the newer one
    wins. When it starts, it ends the turns of the older one, which notices at its next turn or
    commit and ends with CoordinatorFencedError. Until then it does no harm, because the table
    applies an epoch only once.

    A coordinator belongs to one thread. The writers may be in any thread or process.
    """

    def __init__(
        self,
        handle: TableHandle,
        application: str,
        request: WriteRequest,
        endpoint: Endpoint,
    ) -> None:
        """Create a coordinator; use ``Stream.coordinator``."""
        if request.operation not in _OPERATIONS:
            message = f"{request.operation} is not an operation for a stream with several writers"
            hint = "use append, insert or upsert"
            raise OptionError(message, hint=hint, key="operation", value=request.operation.value)
        require_slots(handle)
        self._handle, self._application, self._request = handle, application, request
        self._endpoint = endpoint
        self._lives: dict[str, str] = {}
        self._open: list[OpenTurn] = []
        self._next = 0
        self._decided = -1
        self._position: Position | None = None
        self._begun = self._closed = False
        self._fence = Fence(handle, application, handle.new_instant(handle.cache.known()))
        self._fenced: CoordinatorFencedError | None = None

    def __enter__(self) -> Self:
        """Start the coordinator; see ``start``."""
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        """End; what is undecided is rolled back."""
        self.close()

    @property
    def position(self) -> Position | None:
        """The last applied epoch that this coordinator knows of."""
        return self._position

    @property
    def writers(self) -> tuple[str, ...]:
        """The writers that take part now."""
        return tuple(sorted(self._lives))

    @property
    def instant(self) -> Instant:
        """The instant that writers write under now."""
        return self._require_open()[-1].turn.instant

    def start(self) -> None:
        """Request the first instant, take the stream over, and notify the writers.

        Raises:
            StreamError: the position in the table is not that of a stream of several writers.
            CoordinatorFencedError: a newer coordinator began at the same time.
        """
        if self._closed:
            message = "the coordinator is closed"
            raise TransactionClosedError(message, hint="create a new one")
        self._begun = True
        self._drop("its coordinator starts again")
        self._fence = Fence.newest(self._handle, self._application)
        self._position = self._load_position()
        first = self._request_turn(self._handle.cache.known(), reset=True)
        try:
            self._fence.end_older()
            self._require_newest()
            self._position = self._load_position()
            first.turn = replace(first.turn, offsets=self._offsets())
        except BaseException:
            self._drop("its coordinator could not begin")
            raise
        self._endpoint.send(encode(first.turn))

    def poll(self, wait_s: float = 0) -> None:
        """Receive the messages of writers, and check the open instants.

        Raises:
            StreamError: a writer failed, or another client rolled an instant back. Everything
                undecided is rolled back, and the writers continue from the offsets in the table.
            CoordinatorFencedError: a newer coordinator took the stream over; this one ended.
        """
        self._require_open()
        self._handle.ports.background.tend()
        self._require_first(self._handle.cache.known())
        while (body := self._endpoint.receive(wait_s)) is not None:
            wait_s = 0
            message = understood(body)
            if isinstance(message, Hello):
                self._welcome(message)
            elif isinstance(message, Report):
                self._take(message)
            elif isinstance(message, Turn) and message.session > self._session:
                self._end_fenced(f"coordinator {message.session} sends turns")
        self._require_sound()

    def checkpoint(self, *, wait_s: float = 60) -> bool:
        """End the turn; return whether every writer reported all its rows in time.

        Late rows are not lost: they go into the next commit.

        Raises:
            StreamError, CoordinatorFencedError: as ``poll``.
        """
        self.poll()
        if len(self._open) < _TURNS_MAX:
            self._begin_turn(reset=False)
        clock = self._handle.ports.clock
        until = clock.monotonic() + wait_s
        while True:
            self.poll()
            if all(each.complete for each in self._open[:-1]):
                return True
            if clock.monotonic() >= until:
                self._require_newest()
                return False
            self.poll(min(_LOOK_S, max(0.0, until - clock.monotonic())))

    def complete(self) -> CommitResult | None:
        """Commit all turns that every writer has reported; return None if there is nothing new.

        Raises:
            StreamError: as ``poll``, or the reports contradict each other.
            CommitError: as a writer. In each case the writers continue from the table's offsets.
            CoordinatorFencedError: a newer coordinator took the stream over; this one ended.
        """
        self.poll()
        ready = self._ready()
        if not ready:
            return None
        if all(report.idle for each in ready for report in each.ordered()):
            self._withdraw(ready)
            return None
        try:
            result = self._decide(ready)
        except Exception as error:
            self._require_first(self._handle.cache.refresh(), error)
            self._require_newest(error)
            self._restart(f"{type(error).__name__} while an epoch was decided")
            raise
        if result.instant.nonce != ready[-1].turn.instant.nonce:
            self._end_fenced(f"version {result.version} is this epoch, by another coordinator")
        self._decided = ready[-1].turn.number
        self._open = self._open[len(ready) :]
        for each in ready[:-1]:
            each.roll_back(self._handle, "its rows were carried into a later epoch")
        self._position = self._load_position()
        return result

    def commit(self, *, wait_s: float = 60) -> CommitResult | None:
        """Call ``checkpoint``, then ``complete``."""
        self.checkpoint(wait_s=wait_s)
        return self.complete()

    def dismiss(self, writer: str) -> None:
        """Stop waiting for a writer that will not return; the others start again."""
        self._require_open()
        if self._lives.pop(writer, None) is not None:
            self._restart(f"writer {writer!r} was dismissed")

    def close(self) -> None:
        """Roll back what is undecided, and end; idempotent."""
        if self._closed:
            return
        self._closed = True
        self._drop("its coordinator ended")

    # --- turns -----------------------------------------------------------------------------

    def _restart(self, reason: str) -> None:
        """Roll back what is undecided, and continue from the offsets in the table."""
        self._require_first(self._handle.cache.refresh())
        self._drop(reason)
        self._position = self._load_position()
        self._begin_turn(reset=True)

    def _drop(self, reason: str) -> None:
        doomed, self._open = self._open, []
        for each in doomed:
            each.roll_back(self._handle, reason)

    def _begin_turn(self, *, reset: bool) -> None:
        """Request an instant, then notify the writers: never in the other order."""
        state = self._handle.cache.refresh()
        self._require_first(state)
        self._endpoint.send(encode(self._request_turn(state, reset=reset).turn))

    def _request_turn(self, state: TableState, *, reset: bool) -> OpenTurn:
        handle, table = self._handle, state.table
        record = pending_record(handle, self._request, state)
        record = replace(record, writer=self._session, stream=self._application)
        turn = Turn(
            self._session,
            self._next,
            record.instant,
            self._request.operation.value,
            table.spec.schema.id,
            table.spec.buckets.id,
            self._decided,
            self._offsets(),
            reset,
            dict(self._lives),
        )
        self._next += 1
        self._open.append(OpenTurn.begin(handle, turn, record, state))
        return self._open[-1]

    def _withdraw(self, idle: list[OpenTurn]) -> None:
        """Drop instants under which no file was written and none can be written any more."""
        doomed: list[str] = []
        for each in idle:
            each.heartbeat.stop()
            doomed += [paths.requested(each.turn.instant), paths.heartbeat(each.turn.instant)]
        self._handle.store.delete(doomed)
        self._decided = idle[-1].turn.number
        self._open = self._open[len(idle) :]

    # --- messages --------------------------------------------------------------------------

    def _welcome(self, hello: Hello) -> None:
        """Admit a writer. One that returns has lost what it held."""
        known = self._lives.get(hello.writer)
        self._lives[hello.writer] = hello.life
        if known is not None and known != hello.life:
            self._restart(f"writer {hello.writer!r} started again")
            return
        newest = self._open[-1]
        newest.turn = replace(
            newest.turn,
            decided=self._decided,
            offsets=self._offsets(),
            lives=dict(self._lives),
        )
        self._endpoint.send(encode(newest.turn))

    def _take(self, report: Report) -> None:
        if report.session != self._session or self._lives.get(report.writer) != report.life:
            return
        for each in self._open:
            if each.turn.number == report.number and report.writer in each.turn.lives:
                each.reports.setdefault(report.writer, report)

    def _require_sound(self) -> None:
        """Start again and raise if a writer gave up or another client ended an instant."""
        for each in self._open:
            ended = each.heartbeat.ended_by
            failed = next((report for report in each.ordered() if report.error), None)
            if ended is None and failed is None:
                continue
            if ended is not None:
                self._require_newest()
            if failed is not None:
                message = f"writer {failed.writer!r} failed: {failed.error}"
            else:
                message = f"instant {each.turn.instant} was rolled back because it seemed dead"
            self._restart(message)
            raise StreamError(message, hint="read its rows again from the table's position")

    def _ready(self) -> list[OpenTurn]:
        """Return the oldest turns that have ended and that all writers have reported."""
        ready: list[OpenTurn] = []
        for each in self._open[:-1]:
            if not each.complete:
                break
            ready.append(each)
        return ready

    # --- deciding --------------------------------------------------------------------------

    def _decide(self, ready: list[OpenTurn]) -> CommitResult:
        last = ready[-1]
        reports = [report for each in ready for report in each.ordered()]
        epoch, start = (0, "") if self._position is None else _next(self._position)
        before = self._offsets()
        ends = follow(before, reports)
        spans = spans_of(before, reports, ends)
        end = offsets_text(ends)
        token = Token(self._application, epoch, start, end, spans, digest_of(reports))
        last.heartbeat.stop()
        request = replace(self._request, token=token)
        gathered = gathered_of(ready[:-1], last)
        return decide(self._handle, request, last.turn.instant, gathered)

    def _offsets(self) -> dict[str, str]:
        """Return the offsets in the table, by source."""
        if self._position is None:
            return {}
        try:
            return parse_offsets(self._position.end)
        except ValueError:
            message = f"stream {self._application!r} is at {self._position.end[:80]!r}"
            hint = "a stream with several writers needs its own name"
            raise EpochUnknownError(message, hint=hint, end=self._position.end) from None

    @property
    def _session(self) -> str:
        return str(self._fence.session)

    def _load_position(self) -> Position | None:
        return self._handle.cache.refresh().streams.get(self._application)

    # --- others ----------------------------------------------------------------------------

    def _require_first(self, state: TableState, cause: Exception | None = None) -> None:
        """Raise if another coordinator decided an epoch of this stream."""
        ours = {each.turn.instant.nonce for each in self._open}
        why = self._fence.find_epoch_of_another(state, self._position, ours)
        if why is not None:
            self._end_fenced(why, cause)

    def _require_newest(self, cause: Exception | None = None) -> None:
        """Raise if a newer coordinator began a turn of this stream."""
        why = self._fence.find_successor()
        if why is not None:
            self._end_fenced(why, cause)

    def _end_fenced(self, why: str, cause: Exception | None = None) -> Never:
        """End for good. The other coordinator continues from the offsets in the table."""
        self._closed = True
        self._drop("another coordinator has the stream")
        self._position = self._load_position()
        self._fenced = self._fence.error(why, self._position)
        raise self._fenced from cause

    def _require_open(self) -> list[OpenTurn]:
        if self._fenced is not None:
            raise self._fenced
        if self._closed or not self._begun or not self._open:
            message = "the coordinator is not open"
            raise TransactionClosedError(message, hint="use it in a with block")
        return self._open


def _next(position: Position) -> tuple[int, str]:
    return position.epoch + 1, position.end
