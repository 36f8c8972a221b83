"""Writers of one stream, in every order of their calls to the store (INV-09).

Coordinators are in test_seeds.py; undone epochs in the histories of tests/differential.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from plait import StreamError
from plait.model.bucket import UNKEYED
from plait.model.changes import Digest, WriteStatus
from plait.model.decision import CommitResult, Token
from plait.txn.table_handle import TableHandle
from plait.txn.tokens import find_epoch
from plait.txn.transaction import AlreadyCommitted
from tests.interleave.actors import Check, Writer, oracle, recover, start
from tests.scheduler import End, Report, Scenario, each_schedule
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
            assert found is not None
            return found.version


class Summed(Hand):
    """Tells the digest of its rows once they are staged, as writers do."""

    def _status(self) -> WriteStatus:
        return replace(super()._status(), digest=ROWS[self._mark])


def epoch(mark: str, token: Token, *, keyed: bool) -> Epoch:
    return Epoch(mark, (0,) if keyed else (UNKEYED,), "retry", hand=Summed, token=token)


def version_of(result: object) -> int:
    return result if isinstance(result, int) else result.version  # type: ignore[union-attr]


def run(acts: dict[str, object], *, keyed: bool) -> list[End]:
    judge = oracle(keyed=keyed)
    scenario = Scenario(
        ", ".join(acts),
        start(keyed=keyed),
        acts,  # type: ignore[arg-type]
        check=Check(acts, 0),  # type: ignore[arg-type]
        # A token that does not fit is refused before a file is written, so no decision says so.
        oracle=replace(judge, natural=(*judge.natural, StreamError)),
    )
    report = Report(scenario.name)
    ends = list(each_schedule(scenario, report, switches=2 + MORE))
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
