"""What the real commit code does to a store is what docs/spec/commit.tla allows, and no more.

TLC judges. Traces are of the code as it is, in every order of its calls with few switches, with
crashes and lost replies; and, to know that the judge can say no, of the same with one lie each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from plait.testing import Fault
from plait.timeline import paths
from plait.txn.read_pin import ReadPin
from tests.support.effort import MORE
from tests.support.judge import judge, require_tlc
from tests.support.recorded import (
    Act,
    Leaving,
    Recorded,
    Writing,
    cleaning,
    crashed,
    reading,
    recovering,
    silenced,
    stepped,
)
from tests.support.trace import Event, Fact

SLOT = paths.slot(1)
RETRYING = Writing(on_conflict="retry")
PLAYS: dict[str, tuple[dict[str, Act], int, int]] = {
    "two writers of one bucket": ({"w1": Writing(), "w2": Writing()}, 2, 0),
    "two writers that retry": ({"w1": RETRYING, "w2": Writing((0, 1), "retry")}, 1, 1),
    "a writer taken for dead": ({"w1": Writing(), "r": recovering}, 2, 0),
    "two recoverers and a writer": ({"w1": Writing(), "r": recovering, "q": recovering}, 1, 0),
    "a writer with nothing to do": ({"w1": Leaving(), "r": recovering, "c": cleaning}, 1, 0),
    "a refused writer": ({"w1": Leaving(refused=True), "w2": Writing(), "r": recovering}, 1, 0),
    "a clean beside a writer": ({"w1": Writing(), "c": cleaning}, 1, 2),
    "a clean beside a reader": ({"d": reading, "c": cleaning}, 2, 2),
}
"""Who plays, switches between them, and versions that are there before."""

pytestmark = pytest.mark.usefixtures("tlc")


@pytest.fixture(scope="module")
def tlc() -> None:
    require_tlc()


def different(traces: Iterable[list[Event]]) -> list[list[Event]]:
    return list({repr(trace): trace for trace in traces}.values())


@pytest.mark.long(2)
@pytest.mark.parametrize("play", PLAYS)
def test_real_traces_are_behaviours_of_the_specification(play: str) -> None:
    acts, switches, past = PLAYS[play]
    traces = different(stepped(acts, switches=switches + MORE, past=past))
    assert len(traces) > 5
    assert [each.refused for each in judge(traces)] == [None] * len(traces)


def test_traces_of_writers_killed_anywhere_are_behaviours_of_the_specification() -> None:
    """INV-03, INV-06: recovery and clean come after, and end what was left."""
    traces = different([*crashed(), *crashed(Leaving(refused=True))])
    assert len(traces) > 5
    assert [each.refused for each in judge(traces)] == [None] * len(traces)


def test_a_commit_without_answer_is_told_as_the_specification_allows() -> None:
    """INV-10."""
    once = silenced(Fault("lost_reply", "put_if_absent", SLOT))
    landed = silenced(
        Fault("lost_reply", "put_if_absent", SLOT, times=6), Fault("error", "find", SLOT, 3, 6)
    )
    never = silenced(Fault("error", "put_if_absent", SLOT, times=6))
    assert [
        [e.facts["what"] for e in trace if e.do == "told"] for trace in (once, landed, never)
    ] == [
        ["committed"],
        ["unknown"],
        ["unknown"],
    ]
    assert [each.refused for each in judge([once, landed, never])] == [None, None, None]


def conflicting() -> list[Event]:
    """Two writers of one bucket: w1 commits, w2 gives up."""
    acts: dict[str, Act] = {"w1": Writing(), "w2": Writing()}
    for trace in stepped(acts, switches=1):
        told = [(e.who, e.facts["what"]) for e in trace if e.do == "told"]
        if told == [("w1", "committed"), ("w2", "failed")]:
            return trace
    raise AssertionError


def cleaned() -> list[Event]:
    """A reader holds a version; a clean spares its file, and a later one deletes it."""
    table = Recorded()
    table.write("w1")
    table.write("w2")
    reader = table.handle("d")
    lease = ReadPin(reader, reader.cache.known().version)
    table.write("w3")
    table.later()
    cleaning(table.handle("c"), table.trace, "c")
    lease.release()
    cleaning(table.handle("c"), table.trace, "c")
    return table.events


def left() -> list[Event]:
    """A writer commits; then another one finds nothing to do."""
    table = Recorded()
    table.write("w1")
    Leaving()(table.handle("w2"), table.trace, "w2")
    assert [e.do for e in table.events if e.who == "w2" and e.do != "list"] == [
        *("begin", "forget", "told")
    ]
    return table.events


def find(trace: list[Event], do: str, who: str, nth: int = 0) -> int:
    return [at for at, event in enumerate(trace) if (event.do, event.who) == (do, who)][nth]


def moved(trace: list[Event], event: int, before: int) -> list[Event]:
    rest = [*trace[:event], *trace[event + 1 :]]
    return [*rest[:before], trace[event], *rest[before:]]


def told(trace: list[Event], at: int, **lie: Fact) -> list[Event]:
    event = replace(trace[at], facts={**trace[at].facts, **lie})
    return [*trace[:at], event, *trace[at + 1 :]]


def lies_of_a_conflict(true: list[Event]) -> dict[str, list[Event]]:
    won, lost = find(true, "publish", "w1"), find(true, "publish", "w2")
    gone, forgot = find(true, "unlink", "w2"), find(true, "forget", "w2")
    base = dict.fromkeys(("base", "version"), true[won].facts["base"])
    commit = {**true[won].facts, "version": true[lost].facts["version"]}
    return {
        "the two decisions change places": moved(true, lost, won),
        "the two change versions": told(told(true, won, version=3), lost, version=2),
        "a version is left out": told(true, lost, version=4),
        "both commit": told(true, lost, **commit),
        "the loser says that it saw the winner": told(true, lost, **{**commit, "base": 2}),
        "one commits twice": [*true, replace(true[won], facts={**commit, "version": 4})],
        "a file of the loser is left undecided, without a record": [
            e for e in true if e.who != "w2" or e.do not in ("publish", "unlink")
        ],
        "a rollback outside the slots": [*true[:lost], *true[lost + 1 :]],
        "a file deleted before its decision": moved(true, gone, lost),
        "a record removed before its decision": moved(true, forgot, lost),
        "the winner's file deleted": told(true, gone, of="w1"),
        "a file before its record": moved(true, find(true, "stage", "w1"), 0),
        "a base that nobody had": told(true, won, **{**base, "version": 2, "base": 2}),
        "the loser told that it won": told(true, find(true, "told", "w2"), what="committed"),
        "the winner told that it lost": told(true, find(true, "told", "w1"), what="failed"),
    }


def lies_of_nothing(true: list[Event]) -> dict[str, list[Event]]:
    forgot, stage = find(true, "forget", "w2"), true[find(true, "stage", "w1")]
    theirs = replace(stage, who="w2")
    won = true[find(true, "publish", "w1")]
    commit = replace(won, who="w2", facts={**won.facts, "version": 3, "base": 2})
    return {
        "it staged a file and removed its records": [*true[:forgot], theirs, *true[forgot:]],
        "it staged a file after that": [*true, theirs],
        "it committed after that": [*true, commit],
        "it was told that it committed": told(true, find(true, "told", "w2"), what="committed"),
        "the winner was told that there was nothing": told(
            true, find(true, "told", "w1"), what="nothing"
        ),
    }


def lies_of_a_clean(true: list[Event]) -> dict[str, list[Event]]:
    decided, released = find(true, "publish", "c"), find(true, "release", "d")
    first, listings, second = (find(true, "unlink", "c"), decided + 1, find(true, "unlink", "c", 1))
    assert [each.do for each in true[listings : listings + 3]] == ["list", "list", "unlink"]
    return {
        "leases and records listed before the decision": moved(true, decided, listings + 1),
        "nothing listed after the decision": [*true[:listings], *true[first:]],
        "a file deleted that a lease needs": moved(true, second, released),
        "a file deleted before its decision": moved(true, first, decided),
        "a live file condemned": told(true, decided, condemns=frozenset({("w3", "data/0")})),
        "a live file deleted": told(true, first, of="w3"),
        "a reader without a lease": [e for e in true if e.do != "lease"],
    }


@pytest.mark.long(1)
@pytest.mark.parametrize(
    ("record", "lie"),
    [
        (conflicting, lies_of_a_conflict),
        (cleaned, lies_of_a_clean),
        (left, lies_of_nothing),
    ],
)
def test_a_trace_with_one_lie_is_refused(
    record: Callable[[], list[Event]], lie: Callable[[list[Event]], dict[str, list[Event]]]
) -> None:
    """INV-01 to INV-07, INV-10: what the code must not do, the judge does not accept."""
    true = record()
    lies = lie(true)
    first, *others = judge([true, *lies.values()])
    assert first.refused is None
    assert [name for name, each in zip(lies, others, strict=True) if each.accepted] == []
