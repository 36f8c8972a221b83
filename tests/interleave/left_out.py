"""Rules that are left out, one each, in the real code while a scenario runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest

from plait.arrow import restage
from plait.definition import evolving
from plait.model.decision import Cleaned
from plait.model.evolution import Evolution
from plait.model.instant import Operation
from plait.model.schema import ids_in
from plait.repush import swap
from plait.repush import undo as repush_undo
from plait.services.definition import alter
from plait.services.definition.validate import Validation
from plait.services.maintenance import archive, restore
from plait.services.maintenance import clean as cleaning
from plait.stream.coordinator import Coordinator, Group
from plait.stream.messages import Turn
from plait.stream.participant import Participant
from plait.timeline import paths
from plait.txn import conflict_checker, rollback, transaction
from plait.txn.conflict import Judge
from plait.txn.rollback import Outcome
from plait.write import request
from tests.interleave.actors import give_up, recover
from tests.interleave.altering import altering
from tests.interleave.scenarios import plain, scenario, scenarios, short_scenarios
from tests.interleave.sinking import sinking
from tests.interleave.sourcing import sourcing
from tests.scheduler import Scenario
from tests.support.left_out import instead, overlooks

CHECK = frozenset({"check"})
LIVELY = CHECK | {"liveness"}
IMPATIENT = "a coordinator that does not wait"


@dataclass(frozen=True)
class LeftOut:
    """One rule: where it is, what stands there instead, and where that shows."""

    owner: Any
    name: str
    make: Callable[[Any], Any]
    """Makes the broken one out of the real one."""
    scenario: Callable[[], Scenario]
    """Makes it anew: nothing that was remembered is of other code."""
    promises: frozenset[str] = CHECK
    seeds: Sequence[int] = ()
    """Of a long scenario, the first that found it before the others; none: every order."""
    switches: int = 1
    """So many switches has an order."""

    @contextlib.contextmanager
    def put_in(self) -> Iterator[None]:
        """Leave the rule out for a while."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.owner, self.name, self.make(vars(self.owner)[self.name]))
            yield


def _drafts_once(real: Any) -> Any:
    """Restore by what was known when it began, on whatever head."""
    first: dict[int, Any] = {}

    def of(cls: Any, handle: Any, state: Any, to: int) -> Any:
        made = first.setdefault(id(handle), real.__func__(cls, handle, state, to))
        return replace(made, state=state)

    return classmethod(of)


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


def _of_today(real: Any) -> Any:
    def made(schema: Any, _last: int, uses: Any) -> Evolution:
        return real(schema, max(ids_in(schema.arrow)), uses)  # type: ignore[no-any-return]

    return made


def _once(real: Any) -> Any:
    """Alter the columns that were there first, on whatever head."""
    first: dict[int, Any] = {}

    def altered(state: Any, steps: Any) -> Any:
        if id(steps) not in first:
            first[id(steps)] = steps, real(state, steps)
        return first[id(steps)][1]

    return altered


def _looks_once(real: Any) -> Any:
    looked: dict[int, Any] = {}

    def require(self: Any, state: Any, table: Any) -> None:
        if id(self) not in looked:
            looked[id(self)] = self
            real(self, state, table)

    return require


def _by_name(_: Any) -> Any:
    def with_columns(rows: pa.Table, _old: Any, new: Any, *, whole: bool) -> pa.Table:
        names = [name for name in new.names if name in rows.column_names]
        if not whole:
            return rows.select(names)
        columns = {
            each.name: rows[each.name].cast(each.type)
            if each.name in names
            else pa.nulls(rows.num_rows, each.type)
            for each in new.arrow
        }
        return pa.table(columns)

    return with_columns


def _no_open_repush(real: Any) -> Any:
    """Clean as if no repush were open."""

    def horizon_of(handle: Any, state: Any) -> int:
        return real(handle, replace(state, table=replace(state.table, repush=None)))  # type: ignore[no-any-return]

    return horizon_of


def _deletes_slots(real: Any) -> Any:
    """Take the slots of archived decisions away, instead of emptying them."""

    def empty_slots(handle: Any) -> int:
        count = real(handle)
        archived = range(handle.cache.known().archive.last + 1)
        handle.store.delete([paths.slot(version) for version in archived])
        return count  # type: ignore[no-any-return]

    return empty_slots


def _decides_nothing(_: Any) -> Any:
    """Take pending instants for rolled back, and say so nowhere."""
    return lambda _handle, pending, _reason: {each.instant: Outcome.ROLLED_BACK for each in pending}


def _forgets_files(real: Any) -> Any:
    """End without a decision, as if no file had been staged."""
    return lambda self, reason, **how: real(self, reason, **{**how, "wrote": False})


def _asks_once(real: Any) -> Any:
    """Believe for ever what was needed before a clean decided."""
    known: list[tuple[Any, Any]] = []

    def needed_from(handle: Any) -> Any:
        for asked, answer in known:
            if asked is handle:
                return answer
        known.append((handle, real(handle)))
        return known[-1][1]

    return needed_from


def _plans_once(_: Any) -> Any:
    """Clean by the first plan, whatever was decided since: an undo too."""

    def draft(self: Any, state: Any, _gone: Any) -> Any:
        plan = self.plan
        cleaned = Cleaned(plan.horizon, plan.final, plan.condemned)
        return cleaning._clean_draft(self.handle, state, cleaned)

    return draft


def _short(name: str) -> Callable[[], Scenario]:
    return lambda: short_scenarios()[name]


def _long(name: str) -> Callable[[], Scenario]:
    return lambda: scenarios()[name]


def _alters(*actors: str) -> Callable[[], Scenario]:
    return lambda: altering("cow", *actors)


LEFT_OUT = {
    "a rollback is not decided": LeftOut(
        rollback,
        "rollback_instants",
        _decides_nothing,
        _short("a writer and a recoverer"),
        frozenset({"INV-05", "INV-06", "liveness"}),
        switches=2,
    ),
    "a writer does not look for its own rollback from v0 on": LeftOut(
        transaction.OptimisticTransaction,
        "_look_back",
        instead(None),
        _short("a stale writer and a recoverer"),
        frozenset({"INV-03"}),
        switches=2,
    ),
    "an instant with a file is forgotten": LeftOut(
        transaction.OptimisticTransaction,
        "abort",
        _forgets_files,
        lambda: plain(scenario("one that gives up, a recoverer", {"a": give_up, "d": recover})),
        frozenset({"nothing left behind"}),
        switches=2,
    ),
    "read pins are listed before the decision of a clean": LeftOut(
        cleaning,
        "_needed_from",
        _asks_once,
        _short("a reader of an old version and a cleaner"),
        frozenset({"no surprise"}),
        switches=2,
    ),
    "a clean does not plan again after an undo": LeftOut(
        cleaning._Drafts, "draft", _plans_once, _short("a cleaner and an undo"), switches=2
    ),
    "an archive takes slots away": LeftOut(
        archive,
        "empty_slots",
        _deletes_slots,
        _long("a stale writer, a recoverer, two archives"),
        frozenset({"INV-01", "INV-02", "check", "no surprise"}),
        (0, *range(400)),
    ),
    "a restore is drafted once and not anew": LeftOut(
        restore._Work,
        "of",
        _drafts_once,
        _long("restores beside writers and a compaction"),
        frozenset({"INV-05", "INV-07", "check"}),
        (413, *range(450)),
    ),
    "an archive does not ask who took it for dead": LeftOut(
        archive,
        "find_outcome",
        instead(None),
        _long("two writers, a recoverer, a cleaner, an archive"),
        frozenset({"INV-03"}),
        (9, *range(400)),
    ),
    "a coordinator goes on beside a newer one": LeftOut(
        Coordinator, "_end_fenced", instead(None), _long("two coordinators"), seeds=(3, *range(60))
    ),
    "a writer goes on when turns begin anew": LeftOut(
        Participant, "_receive_turn", _never_resets, _long(IMPATIENT), seeds=(8, *range(60))
    ),
    "a writer reports a turn that it gave up as empty": LeftOut(
        Participant, "_given_up", _reports_nothing, _long(IMPATIENT), seeds=(0, *range(60))
    ),
    "a writer believes every coordinator": LeftOut(
        Participant,
        "_holds",
        _of_any_coordinator,
        _long("two coordinators on a rough topic"),
        seeds=(10, *range(60)),
    ),
    "a report counts for whichever turn": LeftOut(
        Group,
        "take",
        _of_any_turn,
        _long("a stream on a rough topic"),
        frozenset({"INV-05", "check"}),
        (23, *range(60)),
    ),
    "a copy of a turn is no dismissal, whoever takes part": LeftOut(
        Turn, "age", _number_alone, _long(IMPATIENT), seeds=(0, *range(60))
    ),
    "who does not know the open turn is not told": LeftOut(
        Coordinator, "_send_again", _tells_nobody, _long(IMPATIENT), seeds=(0, *range(60))
    ),
    "a writer does not stage again after a change of columns": LeftOut(
        Judge, "_cell", overlooks(Operation.SCHEMA), _alters("check", "put bad"), LIVELY
    ),
    "a writer does not stage again when rows brought columns": LeftOut(
        conflict_checker, "_evolved", instead(value=False), _alters("bring", "bring other"), LIVELY
    ),
    "rows are staged again by names and not by ids": LeftOut(
        restage, "with_columns", _by_name, _alters("rename", "put"), LIVELY
    ),
    "an expression is taken under other names": LeftOut(
        request,
        "_by_columns",
        lambda _: lambda asked, _schema: asked,
        _alters("rename and add", "update"),
        LIVELY,
    ),
    "an alteration is taken from the first head": LeftOut(
        alter, "_altered", _once, _alters("add", "add other"), LIVELY
    ),
    "ids follow those of the columns of today": LeftOut(
        evolving, "Evolution", _of_today, _alters("drop", "add"), LIVELY
    ),
    "rows are looked at from the first head": LeftOut(
        Validation, "require", _looks_once, _alters("check", "put bad"), LIVELY
    ),
    "what was staged under the old layout is published": LeftOut(
        Judge,
        "_cell",
        overlooks(Operation.REPUSH),
        lambda: sourcing("cow", "ap"),
        frozenset({"check", "no surprise", "liveness"}),
    ),
    "a clean takes the base of an open repush": LeftOut(
        cleaning,
        "horizon_of",
        _no_open_repush,
        lambda: sourcing("cow", "akp"),
        frozenset({"check", "no surprise"}),
        (22, *range(40)),
    ),
    "a repush swaps whatever was committed since the last round": LeftOut(
        swap, "changing_operations", instead(frozenset()), lambda: sourcing("cow", "as")
    ),
    "an undo brings old files back whatever was committed since the swap": LeftOut(
        repush_undo,
        "changing_operations",
        instead(frozenset()),
        lambda: sourcing("cow", "au", swapped="s"),
    ),
    "an undo leaves the table the rows of the source": LeftOut(
        repush_undo,
        "_replaced_rows",
        instead(value=False),
        lambda: sourcing("cow", "au", swapped="s"),
    ),
    "rows go to the sinks that a writer found when it began": LeftOut(
        transaction, "require_held", lambda _: lambda *given: given[-1], lambda: sinking("ar")
    ),
}
