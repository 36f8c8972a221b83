"""Writers of one stream, in every order of their calls to the store (INV-09)."""

from __future__ import annotations

import os

import pytest

from plait.model.bucket import UNKEYED
from plait.model.decision import CommitResult, Token
from plait.testing.scheduler import End, Report, Scenario, each_schedule
from plait.txn.site import Site
from plait.txn.transaction import AlreadyCommitted
from tests.interleave.actors import Check, Writer, oracle, recover, start

MORE = 1 if os.environ.get("HYPOTHESIS_PROFILE") == "soak" else 0
FIRST = Token("app", 0, "", "1")
OTHER = Token("app", 0, "", "2")
SECOND = Token("app", 1, "1", "2")


class Epoch(Writer):
    """Writes one epoch; where it was applied before, that is its result."""

    def __call__(self, site: Site) -> CommitResult | int:  # type: ignore[override]
        try:
            return super().__call__(site)
        except AlreadyCommitted as found:
            return found.version


def epoch(mark: str, token: Token, *, keyed: bool) -> Epoch:
    return Epoch(mark, (0,) if keyed else (UNKEYED,), "retry", tokens=(token,))


def version_of(result: object) -> int:
    return result if isinstance(result, int) else result.version  # type: ignore[union-attr]


def run(acts: dict[str, object], *, keyed: bool, switches: int = 2 + MORE) -> list[End]:
    scenario = Scenario(
        ", ".join(acts),
        start(keyed=keyed),
        acts,  # type: ignore[arg-type]
        check=Check(acts, 0),  # type: ignore[arg-type]
        oracle=oracle(keyed=keyed),
    )
    report = Report(scenario.name)
    ends = list(each_schedule(scenario, report, switches=switches))
    assert report.failure is None, str(report.failure)
    assert report.complete
    return ends


def applied(end: End) -> list[Token]:
    timeline = end.site().cache.timeline
    return [token for each in timeline.load_after(-1, limit=1000) for token in each.tokens]


@pytest.mark.parametrize("keyed", [False, True])
def test_of_two_with_one_token_one_applies_it_and_both_get_its_version(*, keyed: bool) -> None:
    acts = {name: epoch(name, FIRST, keyed=keyed) for name in "ab"}
    for end in run(acts, keyed=keyed):
        assert applied(end) == [FIRST]
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
