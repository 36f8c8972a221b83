"""The coordinator of a stream: it commits what the writers staged, once per epoch (RFC 0007).

It knows the writers and the turns that are not decided from their messages alone. Of several
coordinators of a stream the newest stays (RFC 0012): each has a session, an instant later than the
sessions of all coordinators that it found, and when it starts it ends the turns of the others by
rollback decisions, so what they staged can never commit. It looks for a successor if its own turn
was ended, if its writers are silent, or if it finds an epoch that it did not decide; if there is
one, it ends. Safety does not depend on that: the table applies each epoch once, whoever decides it
(INV-09).
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, Never, Self

from plait.errors import (
    CommitError,
    CoordinatorFencedError,
    FormatError,
    InstantError,
    OptionError,
    StorageError,
    StreamError,
    TransactionClosedError,
)
from plait.model.decision import CommitResult
from plait.model.instant import Instant, Operation
from plait.model.request import WriteRequest
from plait.model.stream import Position
from plait.state.state import TableState
from plait.stream.messages import (
    TURNS_MAX,
    Acknowledgement,
    Farewell,
    Hello,
    Message,
    Offsets,
    Progress,
    Report,
    Turn,
    encode,
    position_offsets,
    understood,
)
from plait.stream.open_turn import (
    OpenTurn,
    TurnLoad,
    end_idle,
    gathered_of,
    token_of,
)
from plait.stream.transport import Endpoint
from plait.timeline.pending import PendingInstant, load_pending
from plait.txn.recovery import roll_back
from plait.txn.table_handle import TableHandle, require_slots
from plait.txn.transaction import pending_record
from plait.write.group_commit import decide

_log = logging.getLogger(__name__)

_OPERATIONS = (Operation.APPEND, Operation.INSERT, Operation.UPSERT)
_LOOK_S = 0.05
"""The pause between two polls while waiting for reports."""
_AGAIN_S = 1.0
"""The time after which a turn is sent again while reports are awaited."""
_AHEAD_MS = 86_400_000
"""A session that is further ahead of the store's clock than this is ignored."""
_WRITERS_MAX: Final = 10_000
"""Maximum number of writers: a message has the names of all. Further writers are not admitted."""
_PARTED_MAX: Final = 10_000


@dataclass(slots=True)
class Group:
    """The writers that take part, and their reports; only one thread uses it."""

    table: str
    """The table's identity: writers of another table do not take part."""
    session: str
    """Session of the coordinator; reports to another session do not count."""
    lives: dict[str, str] = field(default_factory=dict)
    """The writers that take part, each with the life that counts."""
    turns: list[OpenTurn] = field(default_factory=list)
    """Undecided turns, oldest first. All but the last have ended."""
    since: dict[str, int] = field(default_factory=dict)
    """By writer, the first turn that a hello may answer; earlier turns were for earlier lives."""
    parted: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By life that said farewell in the open turn: its writer, and the turn's number."""
    unanswered: frozenset[str] = frozenset()
    """Lives that asked for the turn and have not answered it since."""
    revision: int = 0
    """How often ``lives`` has changed."""
    must_resend: bool = False
    """Whether the open turn must be sent again. Some writer does not know that it was left out,
    that its turn is over, who coordinates, that the table is another one, or what became of its
    rows. No other message may be due for a long time."""

    @property
    def ended(self) -> list[OpenTurn]:
        """The turns whose reports are due."""
        return self.turns[:-1]

    @property
    def ready(self) -> list[OpenTurn]:
        """The oldest turns that have ended and that all their writers have reported."""
        return list(itertools.takewhile(lambda each: each.complete, self.ended))

    @property
    def awaited(self) -> tuple[str, ...]:
        """The writers whose reports are due."""
        return tuple(sorted({name for each in self.ended for name in each.missing}))

    @property
    def held(self) -> TurnLoad:
        """What writers hold in the turn that is open, as last reported."""
        return self.turns[-1].held

    def understand(self, body: bytes) -> Message | None:
        """Read a message; return None for one that is not of this table's stream.

        Nothing of another table counts. If its writer asks for the turn, it is sent this one, which
        it refuses: so it ends with an error instead of waiting.
        """
        message = understood(body)
        if message is None or message.table == self.table:
            return message
        _log.warning("ignored a message of table %s, which uses the same name", message.table)
        self.must_resend = self.must_resend or isinstance(message, Hello)
        return None

    def admit(self, hellos: Iterable[Hello]) -> list[str]:
        """Count writers in; return those that were there and have started again.

        A hello that answers no turn of this coordinator, or one from before the writer's present
        life came, counts nobody in: it may have been repeated by the transport.
        """
        number, again = self.turns[-1].turn.number, set[str]()
        # A hello that was said before the farewell may arrive after it. While the turn is open in
        # which the life ended, `parted` tells; afterwards a hello has to answer a later turn.
        for life, (name, parted_in) in list(self.parted.items()):
            if parted_in < number:
                self.since[name] = max(self.since.get(name, 0), parted_in + 1)
                del self.parted[life]
        for each in hellos:
            known = self.lives.get(each.writer)
            if known == each.life or not self._counts(each):
                continue
            if known is None and len(self.lives) >= _WRITERS_MAX:
                _log.warning("writer %r is left out: there are %d", each.writer, len(self.lives))
                continue
            if known is not None:
                again.add(each.writer)
            self.lives[each.writer] = each.life
            self.revision += 1
            # Who started again has a turn begun anew, which later hellos must answer.
            self.since[each.writer] = number + (known is not None)
        return sorted(again)

    def asked_again(self, hellos: Iterable[Hello]) -> bool:
        """Tell whether a writer asks for the turn again that it was sent, and did not answer it.

        It does not believe a turn whose instant is not pending any more. Several may ask in turn,
        so each is remembered until it answers. One look serves them all, so after it they begin
        anew.
        """
        asking = {each.life for each in hellos if not each.session}
        answered = {each.life for each in hellos if each.session}
        waiting = self.unanswered - answered
        twice = not asking.isdisjoint(waiting)
        kept = waiting if len(waiting) < _WRITERS_MAX and not twice else frozenset[str]()
        self.unanswered = frozenset(kept | asking)
        return twice

    def _counts(self, hello: Hello) -> bool:
        """Whether a hello was said now, by a writer that has not left."""
        answers = hello.session == self.session and hello.number >= self.since.get(hello.writer, 0)
        return answers and hello.life not in self.parted

    def renew(self, decided: int, offsets: Offsets) -> Turn:
        """Return the open turn as it is now, for writers that do not know it."""
        newest = self.turns[-1]
        newest.turn = replace(
            newest.turn,
            decided=decided,
            offsets=offsets,
            lives=dict(self.lives),
            revision=self.revision,
        )
        self.must_resend = False
        return newest.turn

    def take(self, message: Report | Progress) -> None:
        """Note what a writer tells of an undecided turn."""
        if message.session != self.session:
            self.must_resend = (
                self.must_resend or message.session < self.session
            )  # the older one has ended
            return
        # Only the newest life of a name counts. An older one may be a paused process that goes on:
        # its rows are read again by its successor, and must not be committed twice (INV-09).
        if not self._knows(message.writer, message.life):
            self.must_resend = True
            return
        if isinstance(message, Progress):
            gone = message.number < self.turns[0].turn.number
            self.must_resend = self.must_resend or gone or not message.moved
        for each in self.turns:
            if each.turn.number != message.number or message.writer not in each.turn.lives:
                continue
            if isinstance(message, Report):
                # The first report of a turn counts: a transport may repeat it.
                each.reports.setdefault(message.writer, message)
            else:
                each.progress[message.writer] = message

    def part(self, farewell: Farewell) -> None:
        """Continue without a writer that leaves."""
        if len(self.parted) >= _PARTED_MAX:
            del self.parted[next(iter(self.parted))]
        self.parted[farewell.life] = farewell.writer, self.turns[-1].turn.number
        if self._knows(farewell.writer, farewell.life):
            self.leave_out(farewell.writer)

    def leave_out(self, writer: str) -> None:
        """Go on without a writer, and without what it reported in undecided turns.

        Who reads its sources next begins at the offsets in the table.
        """
        if self.lives.pop(writer, None) is not None:
            self.revision += 1
            for each in self.turns:
                each.leave_out(writer)

    def _knows(self, writer: str, life: str) -> bool:
        return self.lives.get(writer) == life


@dataclass(frozen=True, slots=True)
class Fence:
    """One coordinator's place among those of its application."""

    handle: TableHandle
    application: str
    session: Instant

    @classmethod
    def newest(cls, handle: TableHandle, application: str) -> Fence:
        """Choose a session after those of all others that have begun turns."""
        fresh = handle.new_instant(handle.cache.refresh())
        bound = handle.store.now_ms() + _AHEAD_MS
        sessions_ms = [session.time_ms for _, session in _turns_of(handle, application)]
        ms = max([fresh.time_ms, *(time + 1 for time in sessions_ms if time < bound)])
        return cls(handle, application, Instant.at(ms, fresh.nonce))

    def end_older(self) -> None:
        """End the turns that older coordinators have begun.

        Call it once this coordinator's own turn is on storage: an ended one finds the turn there.
        A turn that cannot be ended now is left for recovery. Its coordinator still finds this
        one, so this one may begin.

        Raises:
            ContractError: this client was opened under another contract; no turn was ended.
        """
        for entry, session in _turns_of(self.handle, self.application):
            # A newer coordinator is left alone: we find its turn in `_require_newest`, and end.
            if session >= self.session:
                continue
            try:
                reason = f"coordinator {self.session} took over"
                roll_back(self.handle, entry.instant, reason=reason)
            except InstantError:
                continue  # it is decided already
            except (CommitError, StorageError):
                _log.warning("instant %s is left for recovery", entry.instant, exc_info=True)

    def find_successor(self) -> str | None:
        """Find the turns of a newer coordinator; return a message, or None if there are none."""
        for entry, session in _turns_of(self.handle, self.application):
            if session > self.session:
                return f"coordinator {session} has begun turn {entry.instant}"
        return None

    def find_epoch_of_another(
        self, state: TableState, known: Position | None, ours: Collection[str]
    ) -> str | None:
        """Find a new epoch of another coordinator; return a message, or None if there is none.

        Args:
            state: the state to search.
            known: the last epoch that this coordinator knows.
            ours: the nonces of its instants: a commit may have landed although its reply was lost.
        """
        at = state.streams.get(self.application)
        if at is None or at.version <= (-1 if known is None else known.version):
            return None
        decision = self.handle.cache.timeline.find(at.version)
        # A commit of ours whose reply was lost looks like a foreign epoch. The instant's nonce
        # tells.
        if decision is not None and decision.instant.nonce in ours:
            return None
        return f"version {at.version} is epoch {at.epoch}, and another one decided it"

    def error(self, why: str, position: Position | None) -> CoordinatorFencedError:
        """Return the error to end with."""
        message = f"stream {self.application!r} has another coordinator: {why}"
        hint = "stop this one; starting it again would take the stream back"
        known = None if position is None else position.to_dict()
        return CoordinatorFencedError(message, hint=hint, position=known)


def _turns_of(handle: TableHandle, application: str) -> list[tuple[PendingInstant, Instant]]:
    """Return the turns of an application that are begun, each with its coordinator's session."""
    mine = (entry for entry in load_pending(handle.store) if entry.stream == application)
    turns: list[tuple[PendingInstant, Instant]] = []
    for entry in mine:
        with contextlib.suppress(FormatError):  # a record that is damaged names no session
            turns.append((entry, Instant.parse(entry.writer)))
    return turns


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
        self._next = 0
        self._decided = -1
        self._position: Position | None = None
        self._begun = self._closed = False
        self._fence = Fence(handle, application, handle.new_instant(handle.cache.known()))
        self._group = Group(handle.identity, self._session)
        self._fenced: CoordinatorFencedError | None = None
        self._looked: float | None = None
        """When the table was last asked whether a message of a newer coordinator is true."""

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
        return tuple(sorted(self._group.lives))

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
            raise TransactionClosedError("the coordinator is closed", hint="create a new one")
        self._begun = True
        self._drop("its coordinator starts again")
        self._fence = Fence.newest(self._handle, self._application)
        self._group.session = self._session
        self._position = self._load_position()
        # Our turn is put on storage before the turns of others are ended. A coordinator that we end
        # looks there for the reason, finds our newer session, and gives up instead of starting
        # again.
        first = self._request_turn(self._handle.cache.known(), reset=True)
        try:
            self._fence.end_older()
            self._require_newest()
            self._position = self._load_position()
            # An older coordinator may have committed until `end_older` was through, so the position
            # is read again. Offsets from before would make writers read rows twice.
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
        came: list[Hello] = []
        later: list[str] = []
        while (body := self._endpoint.receive(wait_s)) is not None:
            wait_s = 0
            message = self._group.understand(body)
            if isinstance(message, Hello):
                came.append(message)
            elif isinstance(message, Report | Progress):
                self._group.take(message)
            elif isinstance(message, Farewell):
                self._group.part(message)
            elif isinstance(message, Turn) and message.session > self._session:
                later.append(message.session)
        if later:
            self._look_for_successor(max(later))
        if came:
            self._admit_writers(came)
        if self._group.must_resend:
            self._send_again()
        # Last, so that a report that has just come with an error is handled in this very poll.
        self._require_sound()

    def checkpoint(self, *, wait_s: float = 60) -> bool:
        """End the turn; return whether every writer reported all its rows in time.

        Late rows are not lost: they go into the next commit.

        Raises:
            StreamError, CoordinatorFencedError: as ``poll``.
        """
        self.poll()
        # The next turn begins before reports of this one are awaited, so writers go on buffering
        # under its instant. Without the bound, a writer that never reports would open turns for
        # ever.
        if len(self._group.turns) < TURNS_MAX:
            self._begin_turn(reset=False)
        clock = self._handle.ports.clock
        sent = clock.monotonic()
        until = sent + wait_s
        while True:
            self.poll()
            if not self._group.awaited:
                return True
            now = clock.monotonic()
            if now >= until:
                self._require_newest()
                return False
            if now >= sent + _AGAIN_S:  # it may have been lost, or a report was
                sent = now
                self._send_again()
            self.poll(min(_LOOK_S, until - now))

    def complete(self) -> CommitResult | None:
        """Commit all turns that every writer has reported; return None if there is nothing new.

        Raises:
            StreamError: as ``poll``, or the reports contradict each other.
            CommitError: as a writer. In each case the writers continue from the table's offsets.
            CoordinatorFencedError: a newer coordinator took the stream over; this one ended.
        """
        self.poll()
        ready = self._group.ready
        if not ready:
            return None
        # No rows and no offsets: an epoch would say nothing, so the turns end without a decision.
        if all(report.idle for each in ready for report in each.ordered()):
            self._withdraw(ready)
            return None
        try:
            # On any error the writers start again from the offsets in the table. If the commit
            # landed and only its reply was lost, those offsets include it: no row is lost or
            # written twice.
            result = self._decide(ready)
        except Exception as error:
            self._begin_anew(error)
            raise
        # The token was applied already, by an instant that is not ours.
        if result.instant.nonce != ready[-1].turn.instant.nonce:
            self._end_fenced(f"version {result.version} is this epoch, by another coordinator")
        self._decided = ready[-1].turn.number
        self._group.turns = self._group.turns[len(ready) :]
        # As of the commit: a store that fails now must not make the commit seem another one's.
        self._position = self._handle.cache.known().streams.get(self._application)
        message = Acknowledgement(self._group.table, self._session, self._decided, self._offsets())
        self._endpoint.send(encode(message))
        # Rows of earlier turns were rewritten under the last instant, and the decision names those
        # files. Only now the earlier instants, and with them their own files, may be rolled back.
        for each in ready[:-1]:
            each.roll_back(self._handle, "its rows were carried into a later epoch")
        return result

    def commit(self, *, wait_s: float = 60) -> CommitResult | None:
        """Call ``checkpoint``, then ``complete``."""
        self.checkpoint(wait_s=wait_s)
        return self.complete()

    @property
    def held(self) -> TurnLoad:
        """What the writers hold in the turn that is open, as last reported."""
        self._require_open()
        return self._group.held

    @property
    def awaited(self) -> tuple[str, ...]:
        """The writers without whose reports no ended turn can be committed."""
        return self._group.awaited

    def dismiss(self, writer: str) -> None:
        """Go on without a writer that is silent.

        Turns that it has not reported are committed without it. Its rows are not lost: its
        offsets stay where they are. If it lives, it finds that it is not known any more, and reads
        on from there. What it staged belongs to a decided instant that does not name it.
        """
        self._require_open()
        self._group.leave_out(writer)

    def close(self) -> None:
        """Roll back what is undecided, and end; idempotent."""
        if self._closed:
            return
        self._closed = True
        self._drop("its coordinator ended")

    # --- turns -----------------------------------------------------------------------------

    def _restart(self, reason: str) -> None:
        """Roll back what is undecided, and continue from the offsets in the table."""
        # If another coordinator has committed an epoch, end here: a new turn of ours would compete
        # with its turns.
        self._require_first(self._handle.cache.refresh())
        self._drop(reason)
        self._position = self._load_position()
        self._begin_turn(reset=True)

    def _begin_anew(self, error: Exception) -> None:
        """Start again after a commit that failed, unless the store still fails."""
        try:
            self._require_first(self._handle.cache.refresh(), error)
            self._require_newest(error)
            self._restart(f"{type(error).__name__} while an epoch was decided")
        except StorageError:
            _log.warning("the stream cannot begin anew now", exc_info=True)

    def _drop(self, reason: str) -> None:
        doomed, self._group.turns = self._group.turns, []
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
            self._group.table,
            self._session,
            self._next,
            record.instant,
            self._request.operation.value,
            table.spec.schema.id,
            table.spec.layout.buckets.id,
            self._decided,
            self._offsets(),
            reset,
            dict(self._group.lives),
            self._group.revision,
        )
        self._next += 1
        self._group.turns.append(OpenTurn.begin(handle, turn, record, state))
        return self._group.turns[-1]

    def _withdraw(self, idle: list[OpenTurn]) -> None:
        """End turns without rows."""
        end_idle(self._handle, idle)
        self._decided = idle[-1].turn.number
        self._group.turns = self._group.turns[len(idle) :]

    def _admit_writers(self, hellos: Collection[Hello]) -> None:
        """Admit writers, and tell them the turn: those that are not admitted answer it.

        One that returns has lost what it held; one restart serves them all. One that asks again
        for what it has just been sent may have found the turn's record gone. So look whether the
        instant was rolled back, and do not wait for the next heartbeat: until then this would send
        the dead turn again and again.
        """
        again = self._group.admit(hellos)
        if again:
            self._restart(f"writers started again: {', '.join(again)}")
            return
        if self._group.asked_again(hellos):
            with suppress(StorageError):  # the next hello looks again
                self._group.turns[-1].heartbeat.watch.look()
        self._send_again()

    def _send_again(self) -> None:
        """Send the open turn as it is now."""
        self._endpoint.send(encode(self._group.renew(self._decided, self._offsets())))

    def _require_sound(self) -> None:
        """Start again and raise if a writer gave up or another client ended an instant."""
        for each in self._group.turns:
            message = each.failure
            if message is None:
                continue
            if each.heartbeat.watch.ended_by is not None:
                self._require_newest()
            self._restart(message)
            raise StreamError(message, hint="read its rows again from the table's position")

    # --- deciding --------------------------------------------------------------------------

    def _decide(self, ready: list[OpenTurn]) -> CommitResult:
        last = ready[-1]
        reports = [report for each in ready for report in each.ordered()]
        token = token_of(self._application, self._position, reports)
        # The transaction that resumes this instant beats for it from here on.
        last.heartbeat.stop()
        request = replace(self._request, token=token)
        gathered = gathered_of(self._handle.store, ready[:-1], last)
        return decide(self._handle, request, last.turn.instant, gathered)

    def _offsets(self) -> dict[str, str]:
        """Return the offsets in the table, by source."""
        return position_offsets(self._application, self._position)

    @property
    def _session(self) -> str:
        return str(self._fence.session)

    def _load_position(self) -> Position | None:
        return self._handle.cache.refresh().streams.get(self._application)

    def _require_first(self, state: TableState, cause: Exception | None = None) -> None:
        """Raise if another coordinator decided an epoch of this stream."""
        ours = {each.turn.instant.nonce for each in self._group.turns}
        why = self._fence.find_epoch_of_another(state, self._position, ours)
        if why is not None:
            self._end_fenced(why, cause)

    def _look_for_successor(self, session: str) -> None:
        """End if the table has a turn of a newer coordinator, as a message says.

        A message alone ends nobody: its coordinator would have begun a turn. The table is asked
        at most once a second, however many of them come.
        """
        now = self._handle.ports.clock.monotonic()
        if self._looked is not None and now < self._looked + _AGAIN_S:
            return
        self._looked = now
        self._require_newest()
        _log.warning("coordinator %s sends turns, but the table has none of it", session)

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
        if self._closed or not self._begun or not self._group.turns:
            message = "the coordinator is not open"
            raise TransactionClosedError(message, hint="use it in a with block")
        return self._group.turns
