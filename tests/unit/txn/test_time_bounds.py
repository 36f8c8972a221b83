"""What a bound means, and that one that was handed out stays true whatever clocks do (RFC 0013)."""

from __future__ import annotations

import datetime as dt
import itertools

import numpy as np
import pytest

from plait import Table
from plait.errors import ClockUnavailableError, InstantNotFoundError, OptionError
from plait.model.instant import AHEAD_MS_MAX, Instant
from plait.storage.memory import MemoryStore
from plait.testing import Fault, FaultStore, SimClock
from tests.support.protocol import Work, client, upsert

YEAR_S = 365 * 24 * 3600.0


@pytest.fixture
def table(store: MemoryStore, clock: SimClock) -> Table:
    return Table(client(store, clock))


def moment(ms: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=ms)


# --- instants ----------------------------------------------------------------------------------


def test_an_instant_means_its_own_version_however_long_it_took(
    store: MemoryStore, clock: SimClock, table: Table
) -> None:
    """A commit is completed later than it began, and others are completed in between."""
    upsert(client(store, clock), mark="first")
    early = Work.begin(client(store, clock), [((), 1)], mark="early")
    clock.advance(60)
    upsert(client(store, clock), 2, mark="between")
    clock.advance(60)
    result = early.commit()
    clock.advance(60)
    upsert(client(store, clock), 3, mark="after")
    for name in (result.instant, str(result.instant)):
        assert table.scan(as_of=name).version == result.version == 3
        assert table.snapshot(as_of=name).version == 3
        assert table.changes(since=name).since == 3
        assert table.changes(since=0, until=name).until == 3
    for entry in table.inspect.timeline().decided:
        assert table.scan(as_of=entry.instant).version == entry.version
        assert table.scan(as_of=moment(entry.completed_ms)).version == entry.version


def test_an_instant_is_found_by_its_name_at_begin_too(
    store: MemoryStore, clock: SimClock, table: Table
) -> None:
    """Two began at one time: the later commit gets the next time that is free."""
    one, other = (Work.begin(client(store, clock), [((), bucket)], mark="x") for bucket in (0, 1))
    one.commit()
    result = other.commit()
    assert result.instant != other.txn.instant
    assert table.scan(as_of=other.txn.instant).version == result.version


def test_an_instant_without_a_version_is_refused_saying_why(
    store: MemoryStore, clock: SimClock, table: Table
) -> None:
    pending = Work.begin(client(store, clock), [((), 0)], mark="pending").txn.instant
    ended = Work.begin(client(store, clock), [((), 1)], mark="ended").txn
    ended.abort("test")
    unknown = Instant.at(clock.now_ms(), "f" * 16)
    reasons = {pending: "pending", ended.instant: "rolled back by version 1", unknown: "no such"}
    for instant, reason in reasons.items():
        for read in (
            lambda name: table.scan(as_of=name),
            lambda name: table.changes(since=name),
            lambda name: table.changes(since=0, until=name),
        ):
            with pytest.raises(InstantNotFoundError, match=reason) as caught:
                read(str(instant))
            assert caught.value.instant == str(instant)


# --- times -------------------------------------------------------------------------------------


@pytest.mark.long(15)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_what_one_read_ends_with_the_next_begins_with_whatever_clocks_do(
    store: MemoryStore, table: Table, seed: int
) -> None:
    """INV-04: writers whose clocks lie behind or ahead, and ends of which some are refused."""
    steps = itertools.cycle([(seed * 7919 + 13 * n) % 11 - 5 for n in range(11)])
    seen: list[int] = []
    last: dt.datetime | int = 0
    refused = 0
    for number in range(12):
        wrong = SimClock(SimClock.START_MS + 1_000 * (number + next(steps)))
        upsert(client(MemoryStore(store.address.uri, clock=wrong), wrong), mark=str(number))
        end = moment(SimClock.START_MS + 1_000 * (number + next(steps)))
        try:
            read = table.changes(since=last, until=end)
        except (InstantNotFoundError, OptionError):
            refused += 1
            continue
        seen += range(read.since + 1, read.until + 1)
        last = end
    rest = table.changes(since=last)
    seen += range(rest.since + 1, rest.until + 1)
    assert seen == list(range(1, 13))


def test_an_end_after_the_newest_commit_is_refused_and_one_at_it_is_not(
    store: MemoryStore, clock: SimClock, table: Table
) -> None:
    """The commit after it was made by a clock behind, was completed before it, and was lost."""
    upsert(client(store, clock))
    newest_ms = table.inspect.timeline().decided[-1].completed_ms
    clock.advance(3_600)
    assert table.changes(since=0, until=moment(newest_ms)).until == 1
    for end in (moment(newest_ms + 1), moment(clock.now_ms()), "2999-01-01T00:00:00Z"):
        with pytest.raises(InstantNotFoundError, match="not settled") as caught:
            table.changes(since=0, until=end)
        assert caught.value.version == 1
    behind = SimClock(newest_ms)
    late = upsert(client(MemoryStore(store.address.uri, clock=behind), behind))
    assert table.changes(since=moment(newest_ms)).until == late.version


def test_a_time_that_has_not_come_is_refused(
    store: MemoryStore, clock: SimClock, table: Table
) -> None:
    upsert(client(store, clock))
    clock.advance(3_600)
    now = clock.now_ms()
    for time in (moment(now), moment(now + AHEAD_MS_MAX), now):
        assert table.scan(as_of=time).version == 1
    assert table.changes(since=moment(now)).since == 1
    for time in (moment(now + AHEAD_MS_MAX + 1), "9999-12-31T23:59:59Z"):
        with pytest.raises(InstantNotFoundError, match="future"):
            table.scan(as_of=time)
        with pytest.raises(InstantNotFoundError, match="future"):
            table.changes(since=time)
    with pytest.raises(InstantNotFoundError, match="did not exist"):
        table.scan(as_of="1999-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("bound", "bad"),
    [
        *(("as_of", bad) for bad in (10**30, -(10**30), True, "soon", dt.datetime(2026, 1, 1))),  # noqa: DTZ001 - what is refused
        *(("version", bad) for bad in (True, 1.0, "1", "9" * 5_000, [], moment(0))),
        ("since", "9" * 5_000),
    ],
)
def test_what_is_no_bound_is_refused_by_name(table: Table, bound: str, bad: object) -> None:
    read = table.changes if bound == "since" else table.scan
    with pytest.raises(OptionError) as caught:
        read(**{bound: bad})  # type: ignore[arg-type]  # what is refused
    assert caught.value.key == bound


def test_a_version_may_be_an_integer_of_any_library(table: Table) -> None:
    """What is taken from a column of versions is one of NumPy's."""
    zero = np.int64(0)
    assert table.scan(version=zero).version == 0  # type: ignore[arg-type]  # as callers have it
    assert table.changes(since=zero, until=zero).to_arrow().num_rows == 0  # type: ignore[arg-type]


def test_the_clock_is_asked_only_for_times_that_the_table_does_not_settle(
    store: MemoryStore, clock: SimClock
) -> None:
    silent = FaultStore(store, [Fault("error", "now", times=99)])
    table = Table(client(silent, clock))
    assert table.scan(as_of=moment(clock.now_ms())).version == 0
    with pytest.raises(ClockUnavailableError):
        table.scan(as_of=moment(clock.now_ms() + 10 * AHEAD_MS_MAX))
