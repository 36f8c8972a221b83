"""The scheduler itself: every order, each once; events; replay; small failures."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from math import comb

import pytest

from plait.errors import ConflictError, StorageError
from plait.testing import SimClock
from plait.txn.table_handle import TableHandle
from tests.interleave.actors import start
from tests.scheduler import (
    CALL_EVENTS,
    Act,
    End,
    Oracle,
    Report,
    Scenario,
    Start,
    each_schedule,
    each_seed,
    explore,
    explore_all,
    replay,
)
from tests.scheduler.run import ForeignThreadError
from tests.support.protocol import client, create, memory, upsert

LATER = ("crash_before", "crash_after", "error", "lost_reply", "delay", "vanish")


class Silent(Oracle):
    """Finds nothing: for actors that are no clients of a table."""

    def judge(self, end: End, watch: object, check: object) -> list[object]:  # type: ignore[override]
        return []


def scenario(actors: Mapping[str, Act], **options: object) -> Scenario:
    return Scenario("of tests", start(), actors, oracle=Silent(), **options)  # type: ignore[arg-type]


def puts(name: str, count: int, *, same: bool = False) -> Act:
    def act(handle: TableHandle) -> list[None]:
        return [handle.store.put("all" if same else f"{name}{n}", b"") for n in range(count)]

    return act


def orders(lengths: Mapping[str, int], switches: int) -> list[str]:
    actors = {name: puts(name, length) for name, length in lengths.items()}
    ends = each_schedule(scenario(actors), Report(""), switches=switches)
    return ["".join(end.order) for end in ends]


@pytest.mark.parametrize(
    ("lengths", "count"),
    [({"a": 3, "b": 4}, comb(7, 3)), ({"a": 2, "b": 2, "c": 2}, comb(6, 2) * comb(4, 2))],
    ids=["two", "three"],
)
def test_every_order_of_actors_comes_once(lengths: Mapping[str, int], count: int) -> None:
    found = orders(lengths, switches=99)
    assert len(found) == len(set(found)) == count


def test_switches_are_bounded() -> None:
    assert orders({"a": 2, "b": 2}, switches=0) == ["aabb", "bbaa"]
    assert set(orders({"a": 2, "b": 2}, switches=1)) == {"aabb", "abba", "bbaa", "baab"}


def test_an_actor_that_raises_is_an_outcome() -> None:
    actors: dict[str, Act] = {"a": lambda handle: handle.store.find("../b"), "b": lambda _: 7}
    for end in each_schedule(scenario(actors), Report(""), switches=9):
        assert end.results == {"b": 7}
        assert set(end.errors) == {"a"}


def test_of_orders_that_differ_in_nothing_one_is_run_and_others_all() -> None:
    alike = explore_all(scenario({name: puts(name, 3) for name in "abc"}))
    assert (alike.complete, alike.schedules) == (True, 1)
    report = Report("")
    unlike = scenario({name: puts(name, 2, same=True) for name in "abc"})
    found = {"".join(end.order) for end in each_schedule(unlike, report)}
    assert report.complete
    assert len(found) == report.schedules == comb(6, 2) * comb(4, 2)


def test_leaving_out_what_is_the_same_leaves_out_no_result() -> None:
    """Against all orders: what actors read and what is left."""

    def act(name: str, other: str) -> Act:
        def run(handle: TableHandle) -> tuple[object, ...]:
            handle.store.put(f"d/{name}", b"")
            seen = [info.path for info in handle.store.list("d")]
            return (
                handle.store.find(f"d/{other}"),
                seen,
                handle.store.put_if_absent("x", name.encode()),
            )

        return run

    actors = {"a": act("a", "b"), "b": act("b", "a"), "c": puts("c", 1)}
    few = Report("")
    reduced = {str(end.results) for end in each_schedule(scenario(actors), few)}
    every = Report("")
    full = {str(end.results) for end in each_schedule(scenario(actors), every, switches=99)}
    assert reduced == full
    assert few.schedules < every.schedules / 4


def test_a_seed_is_the_same_schedule_each_time() -> None:
    actors = {name: puts(name, 5, same=True) for name in "abc"}
    here = scenario(actors, events=CALL_EVENTS, jumps=(1.0,), events_max=3)
    one = [(end.lines, end.moves) for end in each_seed(here, range(50), Report(""))]
    two = [(end.lines, end.moves) for end in each_seed(here, range(50), Report(""))]
    assert one == two
    assert len({str(moves) for _, moves in one}) > 25


@pytest.mark.parametrize("event", LATER)
def test_an_event_happens_to_the_call_that_it_is_meant_for(event: str) -> None:
    """What the caller hears, what is there at once, and what is there in the end."""
    seen: list[bool] = []

    def act(handle: TableHandle) -> str:
        try:
            handle.store.put("mine", b"")
        except StorageError:
            seen.append(handle.store.find("mine") is not None)
            return "failed"
        return "done"

    here = scenario({"a": act}, events=(event,))
    ends = list(each_schedule(here, Report(""), switches=0, events=1))
    (end,) = [each for each in ends if any(line.event == event for line in each.lines)]
    crashes = event in ("crash_before", "crash_after", "vanish")
    assert end.outcomes["a"].crashed == crashes
    assert crashes or end.results == {"a": "failed"}
    assert seen == ([] if crashes else [event == "lost_reply"])


@pytest.mark.parametrize("event", ["cut_before", "cut_after"])
def test_a_process_that_is_cut_off_reaches_nothing_more(event: str) -> None:
    def act(handle: TableHandle) -> list[bool]:
        answers = []
        for name in "xyz":
            try:
                handle.store.put(name, b"")
                answers.append(True)
            except StorageError:
                answers.append(False)
        return answers

    here = scenario({"a": act}, events=(event,))
    ends = list(each_schedule(here, Report(""), switches=0, events=1))
    assert {str(end.results["a"]) for end in ends} == {
        str([number < cut for number in range(3)]) for cut in range(4)
    }
    for end in ends:
        there = sum(end.store.find(name) is not None for name in "xyz")
        told = sum(end.results["a"])  # type: ignore[call-overload]
        assert there - told == (event == "cut_after" and told < 3)


@pytest.mark.parametrize("event", ["delay", "vanish"])
def test_a_write_under_way_lands_after_others(event: str) -> None:
    def first(handle: TableHandle) -> None:
        handle.store.put_if_absent("x", b"a")

    here = scenario({"a": first, "b": lambda handle: handle.store.put_if_absent("x", b"b")})
    here = replace(here, events=(event,))
    ends = list(each_schedule(here, Report(""), switches=1, events=1))
    late = [end for end in ends if any(line.lane == "~a1" for line in end.lines)]
    assert {end.results.get("b") for end in late} == {True, False}


@pytest.mark.parametrize("event", ["early", "torn"])
def test_a_listing_is_never_older_than_its_call(event: str) -> None:
    """What is written meanwhile may be missing; what was there before never is."""

    def lister(handle: TableHandle) -> list[str]:
        handle.store.put("d/1", b"")
        return [info.path for info in handle.store.list("d")]

    def writer(handle: TableHandle) -> None:
        for name in "023":
            handle.store.put(f"d/{name}", b"")

    here = scenario({"a": lister, "b": writer}, events=(event,))
    ends = list(each_schedule(here, Report(""), switches=2, events=1))
    listings = [end.results["a"] for end in ends]
    assert all("d/1" in listing for listing in listings)  # type: ignore[operator]
    torn = [listing for listing in listings if "d/3" in listing and "d/0" not in listing]  # type: ignore[operator]
    assert bool(torn) == (event == "torn")


def test_time_passes_only_by_leaps_and_machines_may_differ_by_a_day() -> None:
    def act(handle: TableHandle) -> int:
        began = handle.store.now_ms()
        handle.ports.clock.sleep(3.0)
        handle.store.find("x")
        return handle.store.now_ms() - began

    here = scenario({"a": act, "b": puts("b", 1)}, jumps=(121.0,))
    ends = list(each_schedule(here, Report(""), switches=1, events=1))
    assert {end.results["a"] for end in ends} == {0, 121_000}
    clocks: dict[str, Act] = {n: lambda handle: handle.ports.clock.now_ms() for n in "ab"}
    end = next(each_schedule(scenario(clocks, skew_ms={"a": 86_400_000}), Report(""), switches=0))
    assert end.results["a"] - end.results["b"] == 86_400_000  # type: ignore[operator]


def beating(handle: TableHandle) -> int:
    """Work while a background step counts in a file."""
    store = handle.store

    def step() -> None:
        store.put("beat", (store.find("beat") or b"") + b"1")

    cancel = handle.ports.background.every(1.0, step)
    store.put("x", b"")
    cancel()
    before = len(store.find("beat") or b"")
    store.put("y", b"")
    assert len(store.find("beat") or b"") == before, "a step went on after it was cancelled"
    return before


def test_background_steps_run_beside_their_actor_and_end_when_cancelled() -> None:
    here = scenario({"a": beating}, beats=2)
    ends = list(each_schedule(here, Report(""), switches=3, events=2))
    assert all(end.errors == {} for end in ends)
    assert {end.results["a"] for end in ends} == {0, 1, 2}
    assert any(end.order.index("a^1") < end.order.index("a") for end in ends if "a^1" in end.order)


def holding(handle: TableHandle) -> int:
    """Count the holders of the lock in a file, badly."""
    with handle.lock.acquire(wait_s=1.0, owner="me"):
        body = (handle.store.find("holders") or b"") + b"1"
        handle.store.put("holders", body)
    return len(body)


def test_the_lock_is_held_by_one_until_it_is_lost_or_its_holder_dies() -> None:
    actors: dict[str, Act] = {"a": holding, "b": holding}
    ends = each_schedule(scenario(actors), Report(""), switches=9)
    assert {frozenset(end.results.values()) for end in ends} == {frozenset({1, 2})}
    lossy = scenario(actors, lock_lost=True)
    ends = each_schedule(lossy, Report(""), switches=9, events=1)
    assert frozenset({1}) in {frozenset(end.results.values()) for end in ends}
    deadly = scenario(actors, events=("crash_before",))
    for end in each_schedule(deadly, Report(""), switches=1, events=1):
        assert all(each.crashed or each.error is None for each in end.outcomes.values())


def losing(handle: TableHandle) -> None:
    """Increase a number without care."""
    value = int(handle.store.find("n") or b"0")
    handle.store.find("elsewhere")
    handle.store.put("n", str(value + 1).encode())


class Counts(Silent):
    def judge(self, end: End, watch: object, check: object) -> list[object]:  # type: ignore[override]
        from tests.scheduler import Problem

        found = int(end.store.find("n") or b"0")
        return [] if found == 3 else [Problem("count", f"{found}, not 3")]


def test_a_failure_is_small_and_replays_by_seed_and_by_text() -> None:
    actors = {"a": losing, "b": losing, "c": losing}
    here = Scenario("count", start(), actors, events=("error",), jumps=(1.0,), oracle=Counts())  # type: ignore[arg-type]
    report = explore(here, range(1_000))
    failure = report.failure
    assert failure is not None
    assert len(failure.moves) <= 2, str(failure)
    assert failure.problems == replay(here, failure.schedule).problems  # type: ignore[union-attr]
    assert failure.seed is not None
    assert replay(here, failure.seed) is not None
    assert replay(here, "") is None
    assert failure.schedule in str(failure)
    assert "find elsewhere -> nothing" in str(failure)


def test_words_that_are_no_schedule_are_refused() -> None:
    here = scenario({"a": puts("a", 1)})
    for text in ("a>b", "a:1", "a:1?b", "a:x>b"):
        with pytest.raises(ValueError, match="not a choice"):
            replay(here, text)


def test_a_schedule_that_does_not_end_is_an_error() -> None:
    def forever(handle: TableHandle) -> None:
        while True:
            handle.store.find("x")

    with pytest.raises(Exception, match="still going"):
        explore(scenario({"a": forever}), range(1))


def test_a_start_holds_what_each_version_was() -> None:
    made = start(2)
    assert [state.version for state in made.states] == [0, 1, 2]
    store = memory(SimClock())
    with pytest.raises(ValueError, match="no table"):
        Start.of(store)
    create(store)
    assert [state.version for state in Start.of(store).states] == [0]


def test_what_outlives_its_schedule_touches_nothing() -> None:
    """A finaliser may come at any time; the store says that it failed."""
    kept: list[TableHandle] = []
    here = scenario({"a": kept.append})
    end = next(each_schedule(here, Report(""), switches=0))
    with pytest.raises(StorageError):
        kept[0].store.put("late", b"")
    assert end.store.find("late") is None


def test_a_finaliser_that_dies_with_its_process_is_no_news(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Held:
        """Dropped at the end of its actor, as a scan is."""

    def act(handle: TableHandle) -> None:
        def drop() -> None:
            with suppress(StorageError):
                handle.store.delete(["lease"])

        held = Held()
        weakref.finalize(held, drop)
        handle.store.put("lease", b"")

    here = scenario({"a": act}, events=("crash_before",))
    ends = list(each_schedule(here, Report(""), switches=0, events=1))
    assert sum(end.outcomes["a"].crashed for end in ends) == 2
    assert capsys.readouterr().err == ""


def test_calls_in_threads_of_an_actor_are_refused() -> None:
    """Their order would be luck."""

    def act(handle: TableHandle) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(handle.store.find, "x").result()

    end = next(each_schedule(scenario({"a": act}), Report(""), switches=0))
    assert isinstance(end.errors["a"], ForeignThreadError)


def test_older_decisions_are_nobodys_whatever_their_nonces() -> None:
    """Nonces of a real table are random, and some begin as an actor's do."""
    clock = SimClock()
    store = memory(clock)
    create(store)
    upsert(client(store, clock, nonces="a0"), 0)

    def refused(handle: TableHandle) -> None:
        handle.store.find("x")
        message = "refused"
        raise ConflictError(message)

    here = Scenario("older", Start.of(store), {"a": refused})
    assert replay(here, "") is None
