"""Writers of one stream, in every order of their calls to the store (INV-09)."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from plait import (
    CoordinatorFencedError,
    InstantNotFoundError,
    RestoreRefusedError,
    RolledBackError,
    StreamError,
    Table,
    UndoneError,
)
from plait.model.bucket import UNKEYED
from plait.model.changes import Digest, WriteStatus
from plait.model.decision import CommitResult, Token
from plait.stream.audit import break_of
from plait.stream.messages import Hello, Turn, decode, encode
from plait.stream.messages import Report as Told
from plait.stream.transport import Endpoint, Hub
from plait.txn.table_handle import TableHandle
from plait.txn.tokens import find_epoch
from plait.txn.transaction import AlreadyCommitted
from tests.interleave.actors import Check, RestoreCheck, Writer, lineage_of, oracle, recover, start
from tests.scheduler import Act, End, Report, Scenario, each_schedule
from tests.support.effort import MORE
from tests.support.protocol import Hand

FIRST = Token("app", 0, "", "1")
OTHER = Token("app", 0, "", "2")
SECOND = Token("app", 1, "1", "2")
ROWS = {"a": Digest(1, 7), "b": Digest(1, 7), "c": Digest(1, 8)}
"""By the mark of a writer: two have the same rows."""


class Epoch(Writer):
    """Writes one epoch; where it was applied before with the same rows, that is its result."""

    def __call__(self, handle: TableHandle) -> CommitResult | int:  # type: ignore[override]
        try:
            return super().__call__(handle)
        except AlreadyCommitted:
            found = find_epoch(handle, replace(self.token, digest=ROWS[self.mark]))
            if found is None:  # undone since, and let through again
                message = "undone"
                raise UndoneError(message) from None
            return found.version


class Summed(Hand):
    """Tells the digest of its rows once they are staged, as writers do."""

    def _status(self) -> WriteStatus:
        return replace(super()._status(), digest=ROWS[self._mark])


def epoch(mark: str, token: Token, *, keyed: bool) -> Epoch:
    return Epoch(mark, (0,) if keyed else (UNKEYED,), "retry", hand=Summed, token=token)


def coordinate(end: str) -> Act:
    """Be a coordinator with one writer, who has one epoch's rows; no file of them is needed."""

    def report(writer: Endpoint) -> None:
        while (body := writer.receive(0)) is not None:
            turn = decode(body)
        assert isinstance(turn, Turn)
        start = turn.offsets.get("s", "")
        about = Told(
            turn.table, turn.session, "w", "life", turn.number, {"s": start}, {"s": start + end}
        )
        status = WriteStatus(digest=ROWS["a"]).to_bytes()
        writer.send(encode(replace(about, rows=1, hash=7, status=status)))

    def act(handle: TableHandle) -> CommitResult | None:
        hub = Hub()
        writer = hub.writer()
        with Table(handle).stream("app").coordinator(hub.coordinator()) as coordinator:
            first = decode(writer.receive(0) or b"")
            assert isinstance(first, Turn)
            writer.send(encode(Hello(first.table, "w", "life", first.session, first.number)))
            coordinator.poll()
            report(writer)
            try:
                return coordinator.commit(wait_s=0)
            except RolledBackError:  # by one that has come and gone: this one has begun anew
                report(writer)
                return coordinator.commit(wait_s=0)

    return act


def version_of(result: object) -> int:
    return result if isinstance(result, int) else result.version  # type: ignore[union-attr]


def take_back(handle: TableHandle) -> str:
    """Undo the newest epoch, if there is one and no other comes meanwhile."""
    try:
        Table(handle).versions.undo()
    except (InstantNotFoundError, RestoreRefusedError):
        return "nothing"
    return "undone"


def replay(handle: TableHandle) -> str:
    """Let what is undone be applied again."""
    Table(handle).versions.replay()
    return "replayed"


def run(
    acts: dict[str, object],
    *,
    keyed: bool,
    switches: int = 2 + MORE,
    check: type[Check | RestoreCheck] = Check,
) -> list[End]:
    judge = oracle(keyed=keyed)
    scenario = Scenario(
        ", ".join(acts),
        start(keyed=keyed),
        acts,  # type: ignore[arg-type]
        check=check(acts, 0),  # type: ignore[arg-type]
        # A token that does not fit is refused before a file is written, so no decision says so.
        oracle=replace(judge, natural=(*judge.natural, StreamError, UndoneError)),
    )
    report = Report(scenario.name)
    ends = list(each_schedule(scenario, report, switches=switches))
    assert report.failure is None, str(report.failure)
    assert report.complete
    return ends


def run_coordinators(acts: dict[str, Act]) -> list[End]:
    judge = oracle(keyed=False)
    judge = replace(judge, natural=(*judge.natural, CoordinatorFencedError))
    scenario = Scenario("coordinators", start(keyed=False), acts, oracle=judge)
    report = Report(scenario.name)
    ends = list(each_schedule(scenario, report, switches=1 + MORE))
    assert report.failure is None, str(report.failure)
    assert report.complete
    return ends


def applied(end: End) -> list[Token]:
    timeline = end.handle().cache.timeline
    return [token for each in timeline.load_after(-1, limit=1000) for token in each.tokens]


@pytest.mark.parametrize("keyed", [False, True])
def test_of_two_with_one_token_one_applies_it_and_both_get_its_version(*, keyed: bool) -> None:
    acts = {name: epoch(name, FIRST, keyed=keyed) for name in "ab"}
    for end in run(acts, keyed=keyed):
        assert applied(end) == [replace(FIRST, digest=ROWS["a"])]
        assert len({version_of(result) for result in end.results.values()}) == 1
        assert len(end.results) == 2


@pytest.mark.parametrize("keyed", [False, True])
def test_of_two_with_other_offsets_one_is_refused(*, keyed: bool) -> None:
    acts = {"a": epoch("a", FIRST, keyed=keyed), "b": epoch("b", OTHER, keyed=keyed)}
    winners = set()
    for end in run(acts, keyed=keyed):
        assert len(applied(end)) == len(end.results) == 1
        winners |= end.results.keys()
    assert winners == {"a", "b"}


def test_the_next_epoch_never_comes_before_its_own() -> None:
    acts = {"a": epoch("a", FIRST, keyed=False), "b": epoch("b", SECOND, keyed=False)}
    found = {tuple(token.epoch for token in applied(end)) for end in run(acts, keyed=False)}
    assert found == {(0,), (0, 1)}


def test_a_recoverer_ends_an_epoch_or_not_never_both() -> None:
    acts = {"a": epoch("a", FIRST, keyed=False), "d": recover}
    for end in run(acts, keyed=False):
        assert len(applied(end)) == ("a" in end.results)


@pytest.mark.parametrize("keyed", [False, True])
def test_of_two_with_other_rows_under_one_epoch_one_is_refused(*, keyed: bool) -> None:
    """Whoever looked before the other had decided, too: their rows are compared in the window."""
    acts = {name: epoch(name, FIRST, keyed=keyed) for name in "ac"}
    winners = set()
    for end in run(acts, keyed=keyed):
        found = applied(end)
        assert len(found) == len(end.results) == 1
        (name,) = end.results
        assert found[0].digest == ROWS[name]
        winners |= {name}
    assert winners == {"a", "c"}


def test_of_two_coordinators_one_stays_whatever_comes_in_between() -> None:
    """Each epoch once; who is overtaken is told so and ends; never are both."""
    acts = {"a": coordinate("1"), "b": coordinate("2")}
    fenced = set()
    for end in run_coordinators(acts):
        tokens = applied(end)
        assert [token.epoch for token in tokens] == list(range(len(end.results)))
        assert None not in end.results.values()
        assert end.results, "one of them stays"
        assert break_of(None, tokens[0]) is None
        assert all(break_of(one, two) is None for one, two in itertools.pairwise(tokens))
        for name, outcome in end.outcomes.items():
            if name not in end.results:
                assert isinstance(outcome.error, CoordinatorFencedError), repr(outcome.error)
                fenced |= {name}
    assert fenced == {"a", "b"}


def test_an_epoch_is_applied_again_only_after_a_replay_of_what_was_undone() -> None:
    """INV-09, INV-16: as ``AppliedAgain`` and ``OnceInOrder`` of docs/spec/lineage.tla say it."""
    acts = {name: epoch(name, FIRST, keyed=False) for name in "ab"}
    seen = set()
    actors = {**acts, "u": take_back, "p": replay}
    for end in run(actors, keyed=False, switches=1 + MORE, check=RestoreCheck):
        decisions = list(end.handle().cache.timeline.load_after(-1, limit=1_000))
        applied_in = [each.version for each in decisions if each.tokens]
        contained = lineage_of(decisions)
        assert len(contained & set(applied_in)) <= 1
        for first, again in itertools.pairwise(applied_in):
            replays = [each.version for each in decisions[first:again] if each.replayed]
            assert any(first not in lineage_of(decisions[: at + 1]) for at in replays)
        undone = [isinstance(each.error, UndoneError) for each in end.outcomes.values()]
        seen |= {(len(applied_in), any(undone))}
    assert seen >= {(1, False), (1, True), (2, False)}
