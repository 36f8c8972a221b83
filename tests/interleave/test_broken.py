"""The scheduler finds what it is there for: every rule of the protocol that is left out."""

from __future__ import annotations

import pytest

from plait.txn import publish as publishing
from tests.interleave.actors import Writer, start
from tests.interleave.left_out import LEFT_OUT, LeftOut
from tests.scheduler import Scenario, explore, explore_all, replay


@pytest.mark.long(14)
@pytest.mark.parametrize("rule", LEFT_OUT.values(), ids=LEFT_OUT.keys())
def test_a_rule_left_out_is_found_and_the_sound_code_passes_the_same(rule: LeftOut) -> None:
    with rule.put_in():
        broken, switches = rule.scenario(), rule.switches
        report = (
            explore(broken, rule.seeds) if rule.seeds else explore_all(broken, switches=switches)
        )
        failure = report.failure
    assert failure is not None, f"nothing in {report.schedules} schedules"
    print(report.schedules, failure)  # noqa: T201 - for whoever asks pytest for it
    assert rule.promises & {problem.promise for problem in failure.problems}, str(failure)
    sound = rule.scenario()
    assert replay(sound, failure.schedule) is None
    if failure.seed is not None:
        assert replay(sound, failure.seed) is None


def test_decisions_completed_by_a_clock_alone_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose idea of the store's clock lies a day behind (RFC 0013)."""
    scenario = Scenario(
        "completed by a clock alone",
        start(1),
        {"a": Writer("a", (0,)), "b": Writer("b", (1,))},
        store_skew_ms={"a": -86_400_000},
    )
    assert explore(scenario, range(5)).failure is None
    monkeypatch.setattr(publishing, "after", lambda now_ms, before_ms, where: now_ms)
    failure = explore(scenario, range(5)).failure
    assert failure is not None
    assert {problem.promise for problem in failure.problems} == {"bounds stay true"}
