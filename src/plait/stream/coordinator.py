"""The one that decides for the writers of a stream, once an epoch (RFC 0007)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Self

from plait.errors import (
    EpochUnknownError,
    OptionError,
    StreamError,
    TransactionClosedError,
)
from plait.model.decision import CommitResult, Token
from plait.model.instant import Instant, Operation
from plait.model.stream import Position
from plait.stream.messages import (
    Hello,
    Report,
    Turn,
    encode,
    offsets_text,
    parse_offsets,
    understood,
)
from plait.stream.transport import Endpoint
from plait.stream.turns import OpenTurn, follow, gathered_of
from plait.timeline import paths
from plait.txn.site import Site, require_slots
from plait.write.gather import decide
from plait.write.order import Order

_OPERATIONS = (Operation.APPEND, Operation.INSERT, Operation.UPSERT)
_TURNS_MAX = 100
"""More than so many turns are not begun while writers are silent."""
_LOOK_S = 0.05
"""Between two looks at what has come, while waiting for reports."""


class Coordinator:
    """Begins turns, collects what writers staged in them, and decides it: exactly once.

    ``checkpoint`` ends a turn: its instant was requested before any writer heard of it, and the
    next one is requested before this one is asked for, so that no writer waits. ``complete``
    decides every turn that all writers have reported, in one commit whose token holds their
    offsets. What was reported late, or was completed by nobody, goes into the next decision.

    Any failure ends in the same place: what is undecided is rolled back, and writers read on from
    the offsets in the table. Two coordinators of one application do no harm: the table takes the
    epoch of one, and the other gets a StreamError and begins anew where the first one is.

    Not for several threads. Any thread or process may hold the writers.
    """

    def __init__(
        self,
        site: Site,
        application: str,
        order: Order,
        endpoint: Endpoint,
        *,
        after: Callable[[], None],
    ) -> None:
        """Make it; ``Stream.coordinator`` does."""
        if order.operation not in _OPERATIONS:
            message = f"{order.operation} is no operation of a stream of several writers"
            hint = "append, insert or upsert"
            raise OptionError(message, hint=hint, key="operation", value=order.operation.value)
        require_slots(site)
        self._site, self._application, self._order = site, application, order
        self._endpoint, self._after = endpoint, after
        self._session = site.ports.ids.nonce()
        self._lives: dict[str, str] = {}
        self._open: list[OpenTurn] = []
        self._next = 0
        self._decided = -1
        self._position: Position | None = None
        self._begun = self._closed = False

    def __enter__(self) -> Self:
        """Begin: from here on an instant is requested, whenever a writer comes."""
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        """End; what is undecided is rolled back."""
        self.close()

    @property
    def position(self) -> Position | None:
        """How far the table is, as far as this coordinator knows."""
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
        """Request the first instant, and tell the writers that are there.

        Raises:
            StreamError: the position in the table is not of a stream of several writers.
        """
        if self._closed:
            message = "the coordinator is closed"
            raise TransactionClosedError(message, hint="make a new one")
        self._begun = True
        self._restart("a coordinator begins")

    def poll(self, wait_s: float = 0) -> None:
        """Hear what writers say."""
        self._require_open()
        while (body := self._endpoint.receive(wait_s)) is not None:
            wait_s = 0
            message = understood(body)
            if isinstance(message, Hello):
                self._welcome(message)
            elif isinstance(message, Report):
                self._take(message)

    def checkpoint(self, *, wait_s: float = 60) -> bool:
        """End the turn; tell whether every writer has reported all that it held, in time.

        Those that were late are not lost: they go into the next one.

        Raises:
            StreamError: a writer failed, or an instant was taken for dead. Everything undecided is
                rolled back, and the writers begin anew from the offsets in the table.
        """
        self.poll()
        self._require_sound()
        if len(self._open) < _TURNS_MAX:
            self._begin_turn(reset=False)
        clock = self._site.ports.clock
        until = clock.monotonic() + wait_s
        while True:
            self.poll()
            self._require_sound()
            if all(each.complete for each in self._open[:-1]):
                return True
            if clock.monotonic() >= until:
                return False
            self.poll(min(_LOOK_S, max(0.0, until - clock.monotonic())))

    def complete(self) -> CommitResult | None:
        """Decide all turns that every writer has reported; None if that brings nothing new.

        Raises:
            StreamError: the table has gone on without us, or reports do not fit together.
            CommitError: as a writer. In each case the writers begin anew.
        """
        self.poll()
        self._require_sound()
        ready = self._ready()
        if not ready:
            return None
        if all(report.idle for each in ready for report in each.ordered()):
            self._withdraw(ready)
            return None
        try:
            result = self._decide(ready)
        except Exception as error:
            self._restart(f"{type(error).__name__} while an epoch was decided")
            raise
        self._decided = ready[-1].turn.number
        self._open = self._open[len(ready) :]
        for each in ready[:-1]:
            each.roll_back(self._site, "its rows were carried into a later epoch")
        self._position = self._load_position()
        return result

    def commit(self, *, wait_s: float = 60) -> CommitResult | None:
        """``checkpoint``, then ``complete`` what was reported in time."""
        self.checkpoint(wait_s=wait_s)
        return self.complete()

    def dismiss(self, writer: str) -> None:
        """Wait no more for a writer that will not come again; the others begin anew."""
        self._require_open()
        if self._lives.pop(writer, None) is not None:
            self._restart(f"writer {writer!r} was dismissed")

    def close(self) -> None:
        """End: roll back what is undecided, and leave the rest to the next; idempotent."""
        if self._closed:
            return
        self._closed = True
        self._drop("its coordinator ended")

    # --- turns -----------------------------------------------------------------------------

    def _restart(self, reason: str) -> None:
        """Roll back what is undecided; go on from what the table says (fail over)."""
        self._drop(reason)
        self._position = self._load_position()
        self._begin_turn(reset=True)

    def _drop(self, reason: str) -> None:
        doomed, self._open = self._open, []
        for each in doomed:
            each.roll_back(self._site, reason)

    def _begin_turn(self, *, reset: bool) -> None:
        """Request an instant, then tell the writers: never the other way round."""
        site = self._site
        state = site.cache.refresh()
        table = state.table
        instant = site.new_instant(state)
        turn = Turn(
            self._session,
            self._next,
            instant,
            self._order.operation.value,
            table.spec.schema.id,
            table.spec.buckets.id,
            self._decided,
            self._offsets(),
            reset,
            dict(self._lives),
        )
        self._next += 1
        self._open.append(OpenTurn.begin(site, turn, state))
        self._endpoint.send(encode(turn))

    def _withdraw(self, idle: list[OpenTurn]) -> None:
        """Let go of instants under which no file was written, and none can be any more."""
        doomed: list[str] = []
        for each in idle:
            each.heartbeat.stop()
            doomed += [paths.requested(each.turn.instant), paths.heartbeat(each.turn.instant)]
        self._site.store.delete(doomed)
        self._decided = idle[-1].turn.number
        self._open = self._open[len(idle) :]

    # --- messages --------------------------------------------------------------------------

    def _welcome(self, hello: Hello) -> None:
        """Let a writer take part; one that comes again has lost what it held."""
        known = self._lives.get(hello.writer)
        self._lives[hello.writer] = hello.life
        if known is not None and known != hello.life:
            self._restart(f"writer {hello.writer!r} began anew")
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
        """Begin anew, and raise, if a writer gave up or somebody ended an instant."""
        for each in self._open:
            ended = each.heartbeat.ended_by
            failed = next((report for report in each.ordered() if report.error), None)
            if ended is None and failed is None:
                continue
            if failed is not None:
                message = f"writer {failed.writer!r} failed: {failed.error}"
            else:
                message = f"instant {each.turn.instant} was rolled back: it seemed dead"
            self._restart(message)
            raise StreamError(message, hint="its rows are read again from the table's position")

    def _ready(self) -> list[OpenTurn]:
        """Give the oldest turns that have ended and that all writers have reported."""
        found: list[OpenTurn] = []
        for each in self._open[:-1]:
            if not each.complete:
                break
            found.append(each)
        return found

    # --- deciding --------------------------------------------------------------------------

    def _decide(self, ready: list[OpenTurn]) -> CommitResult:
        last = ready[-1]
        reports = [report for each in ready for report in each.ordered()]
        epoch, start = (0, "") if self._position is None else _next(self._position)
        end = offsets_text(follow(self._offsets(), reports))
        token = Token(self._application, epoch, start, end)
        last.heartbeat.stop()
        order = replace(self._order, token=token)
        gathered = gathered_of(ready[:-1], last)
        return decide(self._site, order, last.turn.instant, gathered, after=self._after)

    def _offsets(self) -> dict[str, str]:
        """Give the offsets in the table, by source."""
        if self._position is None:
            return {}
        try:
            return parse_offsets(self._position.end)
        except ValueError:
            message = f"stream {self._application!r} is at {self._position.end[:80]!r}"
            hint = "a stream of several writers needs a name of its own"
            raise EpochUnknownError(message, hint=hint, end=self._position.end) from None

    def _load_position(self) -> Position | None:
        return self._site.cache.refresh().streams.get(self._application)

    def _require_open(self) -> list[OpenTurn]:
        if self._closed or not self._begun or not self._open:
            message = "the coordinator is not open"
            raise TransactionClosedError(message, hint="use it in a with block")
        return self._open


def _next(position: Position) -> tuple[int, str]:
    return position.epoch + 1, position.end
