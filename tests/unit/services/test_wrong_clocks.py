"""Tables that saw a wrong clock, and times that nobody may claim (RFC 0013)."""

from __future__ import annotations

import pytest

from plait import Table
from plait.errors import ClockUnavailableError, CorruptMetadataError, FormatError, TableError
from plait.model.instant import CLOCK_MS_MAX, TIME_MS_MAX, Instant, after, time_ms, time_text
from plait.services.maintenance.ages import current_before
from plait.services.maintenance.clean import clean
from plait.services.verify.checks import verify
from plait.storage.memory import MemoryStore
from plait.storage.port import Store
from plait.testing import SimClock
from plait.timeline import paths
from plait.txn.read_pin import TTL_S, ReadPin, load_read_pins
from tests.support.forge import rewrite
from tests.support.protocol import Work, client, create, live_marks, memory, upsert

HOUR_S, YEAR_MS = 3_600.0, 365 * 24 * 3_600_000
DAY = {"clean.retain.time": "24h", "clean.grace": "0s", "clean.retain.versions": "1"}


def at(store: MemoryStore, clock: SimClock, *, ahead_ms: int) -> Store:
    """Give the same files as a machine sees them that keeps them with a wrong clock."""
    return MemoryStore(store.address.uri, clock=SimClock(clock.now_ms() + ahead_ms))


@pytest.fixture
def daily(clock: SimClock) -> MemoryStore:
    """Give a table that keeps a day, with one version."""
    store = memory(clock)
    create(store, properties=dict(DAY))
    upsert(client(store, clock), mark="0")
    return store


def horizon(store: Store) -> int:
    return client(store).cache.refresh().horizon


def test_one_commit_by_a_clock_a_year_ahead_does_not_stop_cleaning(
    daily: MemoryStore, clock: SimClock
) -> None:
    """For a year nothing was old enough any more; verify notes it."""
    assert verify(client(daily), data=False).notes == ()
    upsert(client(at(daily, clock, ahead_ms=YEAR_MS)), mark="ahead")
    (note,) = verify(client(daily), data=False).notes
    assert note.path == paths.slot(2)
    assert "31536000 s ahead" in note.message
    for number in range(3):
        clock.advance(HOUR_S)
        upsert(client(daily, clock), mark=f"after {number}")
    assert clean(client(daily, clock)).deleted == ()
    clock.advance(24 * HOUR_S - 60)
    report = clean(client(daily, clock))
    assert (horizon(daily), len(report.deleted)) == (4, 3)
    clock.advance(120)
    clean(client(daily, clock))
    assert horizon(daily) >= 5
    assert live_marks(daily) == sorted(["0", "ahead", "after 0", "after 1", "after 2"])
    assert verify(client(daily), data=False).problems == ()


@pytest.mark.parametrize("ahead_ms", [25 * 3_600_000, YEAR_MS])
def test_what_is_young_is_kept_after_a_commit_by_a_clock_ahead(
    daily: MemoryStore, clock: SimClock, ahead_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-05: versions a second old stay, whether they come before it, are it, or follow it."""
    clock.advance(48 * HOUR_S)
    for number in range(2):
        upsert(client(daily, clock), mark=f"before {number}")
        clock.advance(1)
    upsert(client(at(daily, clock, ahead_ms=ahead_ms)), mark="ahead")
    for number in range(2):
        clock.advance(1)
        upsert(client(daily, clock), mark=f"after {number}")
    handle = client(daily, clock)
    head = handle.cache.refresh()
    assert current_before(handle, head, 24 * 3_600_000) == 1
    for back_s, version in ((0, 6), (1, 5), (2, 3)):
        assert current_before(handle, head, back_s * 1_000) == version
    clean(client(daily, clock))
    assert horizon(daily) <= 1
    clock.advance(48 * HOUR_S)
    with monkeypatch.context() as patch:  # times that a store does not tell count as young
        patch.setattr(daily, "list", lambda prefix: iter(()))
        assert current_before(handle, head, 24 * 3_600_000) == 3


# --- absurd times ------------------------------------------------------------------------------


@pytest.mark.parametrize("absurd_ms", [-1, CLOCK_MS_MAX + 1, 253_402_300_799_999, 1 << 62])
def test_no_writer_claims_an_absurd_time(
    store: MemoryStore, clock: SimClock, absurd_ms: int
) -> None:
    """One commit at 9999-12-31 made every later write a bare OverflowError, for ever."""
    wrong = MemoryStore(store.address.uri, clock=SimClock(absurd_ms))
    begun = Work.begin(client(store, clock), mark="begun")
    wrong_site = client(wrong)
    with pytest.raises(ClockUnavailableError) as caught:
        upsert(wrong_site)
    assert caught.value.found == absurd_ms
    with pytest.raises(ClockUnavailableError):
        Table(wrong_site).alter.set({"lock.wait": "5s"})
    with pytest.raises(ClockUnavailableError):
        create(MemoryStore(f"{store.address.uri}-new", clock=SimClock(absurd_ms)))
    assert begun.commit().version == 1
    assert upsert(client(store, clock), 1).version == 2


def test_a_table_goes_on_after_the_latest_time_that_a_clock_may_tell(store: MemoryStore) -> None:
    latest = SimClock(CLOCK_MS_MAX)
    upsert(client(MemoryStore(store.address.uri, clock=latest), latest), mark="latest")
    for number in range(3):
        upsert(client(store), mark=str(number))
    table = Table(client(store))
    assert table.inspect.timeline().decided[-1].completed_ms == CLOCK_MS_MAX + 3
    assert table.scan(as_of=table.inspect.timeline().decided[-1].instant).version == 4
    assert verify(client(store), data=False).problems == ()


ABSURD: tuple[dict[str, object], ...] = (
    *({"completed_ms": ms} for ms in (-1, 253_402_300_799_999, 1 << 80, 1.5)),
    {"instant": "99991231235959999-0123456789abcdef"},
    {"instant": "00010101000000000-0123456789abcdef"},
)
USED_UP: tuple[dict[str, object], ...] = (
    {"completed_ms": TIME_MS_MAX},
    {"instant": f"{time_text(TIME_MS_MAX)}-0123456789abcdef"},
)


@pytest.mark.parametrize("claims", [*ABSURD, *USED_UP], ids=str)
def test_a_decision_with_an_absurd_time_is_damage_and_named(
    store: MemoryStore, claims: dict[str, object]
) -> None:
    """INV-01: readers, writers and verify name the slot, or that no later time exists."""
    upsert(client(store))
    rewrite(store, 1, lambda document: document.update(claims))
    used_up = claims in USED_UP
    if used_up:
        assert Table(client(store)).scan().version == 1
    else:
        for use in (lambda: Table(client(store)).scan(), lambda: clean(client(store))):
            with pytest.raises(CorruptMetadataError) as caught:
                use()
            assert caught.value.path == paths.slot(1)
        problems = verify(client(store), data=False).problems
        assert paths.slot(1) in {problem.path for problem in problems}
    with pytest.raises(CorruptMetadataError, match="no later time" if used_up else None) as caught:
        upsert(client(store))
    assert caught.value.path == paths.slot(1)


@pytest.mark.parametrize("ms", [-1, TIME_MS_MAX + 1, 1 << 80])
def test_times_beyond_the_bounds_are_errors_of_ours(ms: int) -> None:
    with pytest.raises(FormatError):
        time_text(ms)
    with pytest.raises(FormatError):
        time_ms("99991231000000000")
    with pytest.raises(FormatError):
        Instant.parse("19691231235959999-0123456789abcdef")
    assert time_ms(time_text(TIME_MS_MAX)) == TIME_MS_MAX
    assert after(5, 3, where="x") == 5
    assert after(3, 3, where="x") == 4
    with pytest.raises(TableError):
        after(TIME_MS_MAX, TIME_MS_MAX, where="x")


def test_the_dead_of_a_clock_that_was_ahead_are_ended_in_time_and_the_living_spared(
    daily: MemoryStore, clock: SimClock
) -> None:
    """Their records seemed alive for a year, and kept every file that was live since."""
    ahead = at(daily, clock, ahead_ms=YEAR_MS)
    dead, alive = Work.begin(client(ahead), mark="dead"), Work.begin(client(ahead), [((), 1)])
    lease = ReadPin(client(ahead), 1)
    absurd = [f"{paths.LEASES}/{7:020d}-{digit * 16}" for digit in "abcde"]
    for path, ttl_s in zip(absurd, ("NaN", "1e300", "-1", "0", "Infinity"), strict=True):
        daily.put(path, f'{{"version":7,"ttl_s":{ttl_s},"host":"h","pid":1}}'.encode())
    upsert(client(daily, clock), 2, mark="1")
    first = client(daily, clock)
    assert set(clean(first).rollback.spared) == {dead.txn.instant, alive.txn.instant}
    clock.advance(TTL_S - 1)
    daily.put(paths.heartbeat(alive.txn.instant), b"1")
    pins = [each.version for each in load_read_pins(client(daily))]
    assert sorted(pins) == [*[0] * 5, lease.version], "what cannot be read keeps everything"
    clock.advance(2)
    ended = [each.instant for each in clean(client(daily, clock)).rollback.ended]
    assert ended == [dead.txn.instant]
    assert load_read_pins(client(daily)) == []
    assert alive.commit().version == 4
