"""Services that leave out one rule each, put into the real code while a scenario runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from plait.definition.policy import Verdict
from plait.model.changes import MASKED
from plait.model.instant import Operation
from plait.services.maintenance import archive, restore
from plait.services.maintenance.expiry import HideExpired
from plait.stream.coordinator import Coordinator, Group
from plait.stream.messages import Turn
from plait.stream.participant import Participant
from plait.txn import conflict
from plait.txn.carry import HiddenRows
from plait.txn.conflict import Judge
from plait.txn.matrix import Cell, Meets
from tests.interleave.scenarios import scenarios, short_scenarios
from tests.scheduler import Scenario

_HARMLESS = Cell(Meets.NEVER, Verdict.COMPATIBLE, Verdict.COMPATIBLE)


@dataclass(frozen=True)
class Fault:
    """One rule left out: where, what stands there instead, and where it shows."""

    owner: Any
    name: str
    make: Callable[[Any], Any]
    """Makes the broken one out of the real one."""
    scenario: str
    promises: frozenset[str]
    within: int = 0
    """So many seeds of a long scenario; none: every order with two switches of a short one."""

    def made(self) -> Scenario:
        """Make the scenario anew: nothing that was remembered is of other code."""
        return (scenarios() if self.within else short_scenarios())[self.scenario]

    @contextlib.contextmanager
    def put_in(self) -> Iterator[None]:
        """Put the fault in for a while."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.owner, self.name, self.make(vars(self.owner)[self.name]))
            yield


def _never_refuses(_: Any) -> Any:
    return lambda *_args: None


def _goes_on(real: Any) -> Any:
    def cell(self: Any, theirs: Any) -> Any:
        return _HARMLESS if theirs.operation is Operation.RESTORE else real(self, theirs)

    return cell


def _drafts_once(real: Any) -> Any:
    """Restore by what was known when it began, on whatever head."""
    first: dict[int, Any] = {}

    def of(cls: Any, handle: Any, state: Any, to: int) -> Any:
        made = first.setdefault(id(handle), real.__func__(cls, handle, state, to))
        return replace(made, state=state)

    return classmethod(of)


def _forgets_masks(real: Any) -> Any:
    return lambda *args: replace(real(*args), masked=MASKED.empty_table())


def _as_drafted(_: Any) -> Any:
    return lambda _self, staged, _head, _services: staged


def _joins_nothing(_: Any) -> Any:
    return lambda _self, _expiry: None


def _for_nobody(_: Any) -> Any:
    return lambda *_args: None


def _goes_on_beside(_: Any) -> Any:
    return lambda _self, _why, _cause=None: None


def _never_resets(real: Any) -> Any:
    return lambda self, turn: real(self, replace(turn, reset=False))


def _reports_nothing(real: Any) -> Any:
    return lambda self, session, number, *, begun: real(
        self, session, number, begun=begun and False
    )


def _of_any_coordinator(_: Any) -> Any:
    return lambda self, _message: self._turn


def _of_any_turn(real: Any) -> Any:
    return lambda self, message: real(self, replace(message, number=self.turns[0].turn.number))


def _number_alone(_: Any) -> Any:
    return property(lambda self: (self.number, 0))


def _tells_nobody(_: Any) -> Any:
    def keep_quiet(self: Any) -> None:
        self._group.asked = False

    return keep_quiet


FAULTS = {
    "a restore does not look for what landed since its plan": Fault(
        restore, "_require_shown", _never_refuses, "a writer and a restorer", frozenset({"check"})
    ),
    "a writer goes on over a restore": Fault(
        Judge, "_cell", _goes_on, "a writer and a restorer", frozenset({"INV-07", "check"})
    ),
    "a restore is drafted once and not anew": Fault(
        restore._Work,
        "of",
        _drafts_once,
        "restores beside writers and a compaction",
        frozenset({"INV-05", "INV-07", "check"}),
        within=450,
    ),
    "a restore forgets which rows were hidden": Fault(
        restore,
        "changes_between",
        _forgets_masks,
        "restores beside writers and a compaction",
        frozenset({"check"}),
        within=100,
    ),
    "an expiry is drafted once and not anew": Fault(
        HideExpired, "carry", _as_drafted, "a mor writer and an expiry", frozenset({"check"})
    ),
    "a writer does not join its masks with those of an expiry": Fault(
        HiddenRows, "join", _joins_nothing, "a mor writer and an expiry", frozenset({"check"})
    ),
    "a writer that copied rows does nothing again": Fault(
        conflict, "COW", lambda _: "none", "a cow writer and an expiry", frozenset({"check"})
    ),
    "an archive does not ask who took it for dead": Fault(
        archive,
        "find_outcome",
        _for_nobody,
        "two writers, a recoverer, a cleaner, an archive",
        frozenset({"INV-03"}),
        within=400,
    ),
    "a coordinator goes on beside a newer one": Fault(
        Coordinator,
        "_end_fenced",
        _goes_on_beside,
        "two coordinators",
        frozenset({"check"}),
        within=60,
    ),
    "a writer goes on when turns begin anew": Fault(
        Participant,
        "_receive_turn",
        _never_resets,
        "a coordinator that does not wait",
        frozenset({"check"}),
        within=60,
    ),
    "a writer reports a turn that it gave up as empty": Fault(
        Participant,
        "_given_up",
        _reports_nothing,
        "a coordinator that does not wait",
        frozenset({"check"}),
        within=60,
    ),
    "a writer believes every coordinator": Fault(
        Participant,
        "_holds",
        _of_any_coordinator,
        "two coordinators on a rough topic",
        frozenset({"check"}),
        within=60,
    ),
    "a report counts for whichever turn": Fault(
        Group,
        "take",
        _of_any_turn,
        "a stream on a rough topic",
        frozenset({"INV-05", "check"}),
        within=60,
    ),
    "a copy of a turn is no dismissal, whoever takes part": Fault(
        Turn,
        "age",
        _number_alone,
        "a coordinator that does not wait",
        frozenset({"check"}),
        within=60,
    ),
    "who does not know the open turn is not told": Fault(
        Coordinator,
        "_send_again",
        _tells_nobody,
        "a coordinator that does not wait",
        frozenset({"check"}),
        within=60,
    ),
}
