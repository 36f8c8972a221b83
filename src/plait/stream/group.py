"""The writers of a stream and its undecided turns, as a coordinator knows them from messages."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from plait.stream.messages import (
    Farewell,
    Hello,
    Message,
    Offsets,
    Progress,
    Report,
    Turn,
    understood,
)
from plait.stream.open_turn import OpenTurn, TurnLoad

_log = logging.getLogger(__name__)

_WRITERS_MAX: Final = 10_000
"""A message has the names of all; who comes when there are so many is not counted in."""
_PARTED_MAX: Final = 10_000


@dataclass(slots=True)
class Group:
    """Who takes part, and what has been reported; one thread uses it."""

    table: str
    """The table's identity: writers of another table do not take part."""
    session: str
    """Of the coordinator: reports to another one do not count."""
    lives: dict[str, str] = field(default_factory=dict)
    """The writers that take part, each with the life that counts."""
    turns: list[OpenTurn] = field(default_factory=list)
    """Oldest first. All but the last have ended."""
    since: dict[str, int] = field(default_factory=dict)
    """By writer, the first turn that a hello must answer: those before were for earlier lives."""
    parted: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Lives that said farewell in the open turn: their writers, and its number."""
    unanswered: frozenset[str] = frozenset()
    """Lives that asked for the turn and have not answered it since."""
    revision: int = 0
    """How often ``lives`` has changed."""
    asked: bool = False
    """Whether a writer must be sent the open turn: it does not know that it is left out, that
    its turn is over, that there is this coordinator or that it is another table's, or what has
    become of its rows. As long as no rows count, nothing else may come for long."""

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
        """What writers hold in the turn that is open, as far as they told."""
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
        self.asked = self.asked or isinstance(message, Hello)
        return None

    def admit(self, hellos: Iterable[Hello]) -> list[str]:
        """Count writers in; return those that were there and have started again.

        A hello that answers no turn of this coordinator, or one from before the writer's present
        life came, counts nobody in: it may have been repeated by the transport.
        """
        number, again = self.turns[-1].turn.number, set[str]()
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

    def asked_twice(self, hellos: Iterable[Hello]) -> bool:
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
        self.asked = False
        return newest.turn

    def take(self, message: Report | Progress) -> None:
        """Note what a writer tells of an undecided turn."""
        if message.session != self.session:
            self.asked = self.asked or message.session < self.session  # the older one has ended
            return
        if not self._knows(message.writer, message.life):
            self.asked = True
            return
        if isinstance(message, Progress):
            gone = message.number < self.turns[0].turn.number
            self.asked = self.asked or gone or not message.moved
        for each in self.turns:
            if each.turn.number != message.number or message.writer not in each.turn.lives:
                continue
            if isinstance(message, Report):
                each.reports.setdefault(message.writer, message)
            else:
                each.progress[message.writer] = message

    def part(self, farewell: Farewell) -> None:
        """Go on without a writer that goes."""
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
