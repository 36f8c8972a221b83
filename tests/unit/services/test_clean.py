"""Clean: what no readable version needs goes, once nobody may need it (INV-05, INV-06)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plait.errors import InstantExpiredError
from plait.model.decision import Cleaned, ReadSet
from plait.model.instant import Instant, Operation
from plait.model.request import WriteRequest
from plait.services.maintenance.clean import clean, plan_clean, undo_clean
from plait.services.verify.checks import verify
from plait.state.checkpoint import list_checkpoints
from plait.state.state import TableState
from plait.storage.memory import MemoryStore
from plait.storage.port import Store
from plait.testing import SimClock
from plait.timeline import paths
from plait.timeline.pending import load_pending
from plait.txn.read_pin import TTL_S, ReadPin
from plait.txn.recovery import roll_back, roll_back_failed
from plait.txn.table_decisions import set_properties
from plait.txn.transaction import OptimisticTransaction
from tests.support.build import LITTLE
from tests.support.forge import forge
from tests.support.protocol import (
    Phases,
    Work,
    client,
    create,
    listed,
    live_marks,
    memory,
    upsert,
)


@pytest.fixture
def store(clock: SimClock) -> MemoryStore:
    """Give a table of one bucket, written four times: three files are of the past."""
    made = memory(clock)
    create(made, properties=LITTLE)
    for number in range(4):
        upsert(client(made, clock), mark=str(number))
    clock.advance(1)
    return made


def files(store: Store) -> list[str]:
    return listed(store, "data")


def sound(store: Store) -> None:
    report = verify(client(store), data=False)
    assert report.problems == ()


def test_files_of_the_past_are_condemned_and_deleted(store: MemoryStore, clock: SimClock) -> None:
    """INV-05."""
    report = clean(client(store, clock))
    assert (report.version, len(report.deleted), report.spared) == (5, 3, ())
    assert len(files(store)) == 1
    assert live_marks(store) == ["0", "1", "2", "3"]
    assert client(store).cache.refresh().horizon == 4
    assert set(report.to_dict()) >= {"deleted", "spared", "late", "plan"}
    sound(store)


def test_nothing_is_deleted_before_its_decision(store: MemoryStore, clock: SimClock) -> None:
    """INV-05: the phase `delete` comes after the decision and before the first deletion."""
    seen: list[tuple[int, int]] = []

    def look() -> None:
        seen.append((client(store).cache.refresh().horizon, len(files(store))))

    clean(client(store, clock, observer=Phases(on={"delete": look})))
    assert seen == [(4, 4)]
    assert len(files(store)) == 1


def test_a_clean_with_nothing_to_do_decides_nothing(store: MemoryStore, clock: SimClock) -> None:
    for _ in range(3):
        report = clean(client(store, clock))
    assert report.version is None
    assert client(store).cache.refresh().version == 6  # the second recorded what the first deleted
    sound(store)


def test_a_plan_is_what_is_executed(store: MemoryStore, clock: SimClock) -> None:
    """INV-05: nothing is condemned that the plan does not name."""
    plan = plan_clean(client(store, clock))
    before = listed(store)
    assert len(plan.condemned) == 3
    assert listed(store) == before
    upsert(client(store, clock), mark="later")
    clock.advance(1)
    report = clean(client(store, clock), plan)
    assert sorted(report.deleted) == [path for path, _ in plan.condemned]
    assert len(files(store)) == 2
    assert plan.to_dict()["condemn"] == [path for path, _ in plan.condemned]
    sound(store)


def test_versions_and_times_that_are_retained_stay_readable(
    store: MemoryStore, clock: SimClock
) -> None:
    """INV-05: whichever keeps more."""
    set_properties(client(store, clock), {"clean.retain.versions": "3"})
    clean(client(store, clock))
    assert client(store).cache.refresh().horizon == 3
    set_properties(client(store, clock), {"clean.retain.versions": "1", "clean.retain.time": "1h"})
    clock.advance(1_800)
    clean(client(store, clock))
    assert client(store).cache.refresh().horizon == 3
    clock.advance(1_801)
    clean(client(store, clock))
    assert client(store).cache.refresh().horizon > 3
    sound(store)


def test_what_a_writer_may_need_is_spared_until_it_is_done(
    store: MemoryStore, clock: SimClock
) -> None:
    """INV-05."""
    slow = client(store, clock)
    slow.cache.refresh()
    work = Work.begin(slow, [((), 1)])
    upsert(client(store, clock), mark="later")
    clock.advance(1)
    report = clean(client(store, clock))
    assert len(report.spared) == 1
    assert len(report.deleted) == 3
    work.commit()
    assert set(report.spared) <= set(clean(client(store, clock)).deleted)
    sound(store)


def test_a_write_keeps_what_its_older_read_is_compared_with(
    store: MemoryStore, clock: SimClock
) -> None:
    """INV-05: it names the version that was read, not only the head, before it is staged."""
    request = WriteRequest(Operation.UPSERT, read_set=ReadSet(2, (None,)))
    txn = OptimisticTransaction.begin(client(store, clock), request)
    report = clean(client(store, clock))
    assert (len(report.deleted), len(report.spared)) == (1, 2)
    txn.abort("a test", wrote=False)
    assert set(report.spared) <= set(clean(client(store, clock)).deleted)


def test_what_a_reader_may_need_is_spared_until_its_lease_ends(
    store: MemoryStore, clock: SimClock
) -> None:
    """INV-05."""
    lease = ReadPin(client(store, clock), 2)
    report = clean(client(store, clock))
    assert (len(report.deleted), len(report.spared)) == (1, 2)
    lease.release()
    assert set(report.spared) <= set(clean(client(store, clock)).deleted)
    assert len(files(store)) == 1
    sound(store)


@pytest.mark.parametrize("body", [b"rubbish", b""])
def test_a_damaged_record_makes_cleaning_wait(
    store: MemoryStore, clock: SimClock, body: bytes
) -> None:
    """INV-05: it protects everything, until it is rolled back as dead."""
    work = Work.begin(client(store, clock), [((), 1)])
    store.put(paths.requested(work.txn.instant), body)
    report = clean(client(store, clock))
    assert report.deleted == ()
    assert len(report.spared) == 3
    clock.advance(130)
    report = clean(client(store, clock))
    assert len(report.rollback.ended) == 1
    assert len(report.deleted) == 3
    sound(store)


def test_a_damaged_lease_makes_cleaning_wait(store: MemoryStore, clock: SimClock) -> None:
    """INV-05."""
    store.put(f"{paths.LEASES}/{7:020d}-{'a' * 16}", b"[" * 100_000)
    assert clean(client(store, clock)).deleted == ()
    clock.advance(TTL_S + 1)
    assert len(clean(client(store, clock)).deleted) == 3


def test_unknown_files_and_those_of_the_living_stay(store: MemoryStore, clock: SimClock) -> None:
    """INV-06."""
    work = Work.begin(client(store, clock), [((), 1)])
    store.put("data/stray.parquet", b"?")
    store.put("elsewhere", b"?")
    clean(client(store, clock))
    assert {*work.hand.written, "data/stray.parquet", "elsewhere"} <= set(listed(store))


def test_late_files_of_the_rolled_back_go(store: MemoryStore, clock: SimClock) -> None:
    """INV-06: they carry the nonce of an instant that was ended."""
    work = Work.begin(client(store, clock), [((), 1)])
    roll_back(client(store, clock), work.txn.instant, reason="test")
    for path in work.hand.written:
        store.put(path, b"late")
    report = clean(client(store, clock))
    assert list(report.late) == work.hand.written
    assert not set(work.hand.written) & set(files(store))


def test_what_a_late_attempt_left_of_a_committed_instant_goes(
    store: MemoryStore, clock: SimClock
) -> None:
    """INV-06: its record leads to it, the decision does not name it, and nothing else goes."""
    work = Work.begin(client(store, clock), [((), 0), ((), 1)])
    body = store.find(paths.requested(work.txn.instant))
    work.commit()
    upsert(client(store, clock), 0)  # what it wrote there is kept for older versions only
    before = files(store)
    late = [path.replace(".base.", "-again.base.") for path in work.hand.written]
    foreign = late[0].replace(work.txn.instant.nonce, "e" * 16)
    for path in (*late, foreign):
        store.put(path, b"late")
    store.put(paths.requested(work.txn.instant), body or b"")  # as each task of Spark does
    report = roll_back_failed(client(store, clock), reason="test")
    assert [(each.outcome, each.files_deleted) for each in report.ended] == [("committed", 2)]
    assert files(store) == sorted([*before, foreign])
    assert load_pending(store) == []
    store.delete([foreign])
    sound(store)


def test_late_manifests_of_the_rolled_back_go(store: MemoryStore, clock: SimClock) -> None:
    """They lie in a directory of their instant; those of others stay."""
    work = Work.begin(client(store, clock))
    roll_back(client(store, clock), work.txn.instant, reason="test")
    late = paths.manifest(work.txn.instant, "a1", "added")
    other = paths.manifest(Instant.at(1, "e" * 16), "a1", "added")
    for path in (late, other):
        store.put(path, b"late")
    report = clean(client(store, clock))
    assert list(report.late) == [late]
    assert store.find(other) is not None


# --- checkpoints ------------------------------------------------------------------------------


@pytest.fixture
def many(clock: SimClock) -> MemoryStore:
    """Give a table with a checkpoint a version, 1 to 6."""
    made = memory(clock)
    create(made, properties={**LITTLE, "checkpoint.interval": "1"})
    handle = client(made, clock)
    for number in range(6):
        upsert(handle, number % 4)
    clock.advance(1)
    assert list_checkpoints(made) == [1, 2, 3, 4, 5, 6]
    return made


def test_the_two_newest_checkpoints_stay(many: MemoryStore, clock: SimClock) -> None:
    """INV-11."""
    clean(client(many, clock))
    clean(client(many, clock))
    assert list_checkpoints(many) == [5, 6]
    assert client(many).cache.snapshot().files.num_rows == 4
    sound(many)


def test_a_checkpoint_goes_before_its_parts(many: MemoryStore, clock: SimClock) -> None:
    """INV-11: whatever a clean leaves for the next one, no checkpoint names a part that is gone."""
    plan = plan_clean(client(many, clock))
    assert len(plan.condemned) > 8
    names = [path for path, _ in plan.condemned]
    ends = [at for at, name in enumerate(names) if name.endswith("/state.json")]
    assert ends == list(range(len(ends))), names
    beside = Phases(on={"publish": lambda: upsert(client(many, clock), mark="beside")})
    report = clean(client(many, clock, observer=beside), plan)
    assert beside.on == {}
    ends = [at for at, name in enumerate(report.deleted) if name.endswith("/state.json")]
    assert ends == list(range(len(ends)))
    waiting = [path for path, _ in plan_clean(client(many, clock)).waiting]
    ends = [at for at, name in enumerate(waiting) if name.endswith("/state.json")]
    assert ends == list(range(len(ends)))


def test_a_damaged_checkpoint_does_not_stop_cleaning(many: MemoryStore, clock: SimClock) -> None:
    """INV-11: checkpoints are collected once there are two whole ones again."""
    many.put(paths.checkpoint(6), b"rubbish")
    report = clean(client(many, clock))
    assert report.deleted
    assert set(list_checkpoints(many)) == {1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize("name", ["stray", "x/stray", "1/2/stray", "state.json"])
def test_strange_files_among_checkpoints_do_not_stop_cleaning(
    many: MemoryStore, clock: SimClock, name: str
) -> None:
    """INV-06: they stay."""
    path = f"{paths.CHECKPOINTS}/{name}"
    many.put(path, b"?")
    assert clean(client(many, clock)).deleted
    assert many.find(path) == b"?"


def test_a_clean_brings_the_dead_to_their_end_first(store: MemoryStore, clock: SimClock) -> None:
    """INV-03."""
    work = Work.begin(client(store, clock), [((), 1)])
    clock.advance(1_000)
    report = clean(client(store, clock))
    assert [entry.instant for entry in report.rollback.ended] == [work.txn.instant]
    assert load_pending(store) == []
    sound(store)


# --- grace and undo ---------------------------------------------------------------------------

GRACE: dict[str, object] = {**LITTLE, "clean.grace": "1h"}


@pytest.fixture
def kept(store: MemoryStore, clock: SimClock) -> MemoryStore:
    """Give the same table, whose cleans can be undone for an hour."""
    set_properties(client(store, clock), GRACE)
    clock.advance(1)
    return store


def state(store: Store) -> TableState:
    return client(store).cache.refresh()


def test_a_clean_with_grace_deletes_nothing_before_the_grace_is_over(
    kept: MemoryStore, clock: SimClock
) -> None:
    """INV-05: the first decision raises the horizon, the second condemns."""
    report = clean(client(kept, clock))
    assert (report.deleted, report.plan.condemned, report.plan.held) == ((), (), 3)
    assert (state(kept).horizon, state(kept).horizons.final) == (5, 0)
    clock.advance(3_599)
    assert clean(client(kept, clock)).deleted == ()
    clock.advance(2)
    assert len(clean(client(kept, clock)).deleted) == 3
    assert state(kept).horizons.final == 5
    sound(kept)


def test_an_undo_makes_every_version_of_the_grace_readable(
    kept: MemoryStore, clock: SimClock
) -> None:
    """INV-05."""
    clean(client(kept, clock))
    assert len(files(kept)) == 4
    with pytest.raises(InstantExpiredError) as expired:
        client(kept).cache.snapshot(version=1)
    assert "clean --undo" in expired.value.hint
    undone = undo_clean(client(kept, clock))
    assert (undone.reverted, undone.horizon) == ((6,), 0)
    for version in range(1, 5):
        needed = client(kept).cache.snapshot(version=version).files["path"].to_pylist()
        assert set(needed) <= set(files(kept))
    sound(kept)


def test_an_undo_survives_a_checkpoint_of_the_horizon_that_it_takes_back(
    store: MemoryStore, clock: SimClock
) -> None:
    """INV-04: a checkpoint keeps what an undo can make readable again."""
    set_properties(client(store, clock), {**GRACE, "checkpoint.interval": "1"})
    before = client(store).cache.snapshot(version=2).files
    clean(client(store, clock))
    upsert(client(store, clock), mark="writes a checkpoint")
    assert list_checkpoints(store)[-1] == 7
    undo_clean(client(store, clock))
    assert client(store).cache.snapshot(version=2).files.equals(before)
    sound(store)


def test_an_undo_takes_back_only_the_cleans_that_it_names(
    kept: MemoryStore, clock: SimClock
) -> None:
    clean(client(kept, clock))
    upsert(client(kept, clock), mark="later")
    clock.advance(1)
    clean(client(kept, clock))
    assert state(kept).horizons.raised == ((6, 5), (8, 7))
    assert undo_clean(client(kept, clock), since=8).horizon == 5
    assert undo_clean(client(kept, clock), since=8).version is None
    assert undo_clean(client(kept, clock)).horizon == 0
    sound(kept)


def test_what_is_final_cannot_be_undone(kept: MemoryStore, clock: SimClock) -> None:
    """INV-05: its files may be deleted already."""
    clean(client(kept, clock))
    clock.advance(3_601)
    clean(client(kept, clock))
    undone = undo_clean(client(kept, clock))
    assert (undone.version, undone.reverted, undone.horizon) == (None, (), 5)
    with pytest.raises(InstantExpiredError) as expired:
        client(kept).cache.snapshot(version=1)
    assert "undo" not in expired.value.hint


def test_a_clean_that_was_planned_before_an_undo_does_not_repeat_what_was_undone(
    kept: MemoryStore, clock: SimClock
) -> None:
    clean(client(kept, clock))
    upsert(client(kept, clock), mark="later")
    clock.advance(3_601)
    plan = plan_clean(client(kept, clock))
    assert len(plan.condemned) == 3
    undo_clean(client(kept, clock))
    assert clean(client(kept, clock), plan).version is None
    assert (state(kept).horizon, len(files(kept))) == (0, 5)


def test_an_undo_that_comes_first_saves_the_files_from_a_clean_that_has_listed_them(
    kept: MemoryStore, clock: SimClock
) -> None:
    """INV-05: both take slots; a clean that lost plans again."""
    clean(client(kept, clock))
    clock.advance(3_601)
    late = client(kept, clock, observer=Phases(on={"publish": lambda: undo_clean(client(kept))}))
    assert clean(late).deleted == ()
    assert len(files(kept)) == 4
    sound(kept)


def test_a_clean_without_grace_ends_the_grace_of_earlier_ones(
    kept: MemoryStore, clock: SimClock
) -> None:
    clean(client(kept, clock))
    report = clean(client(kept, clock), plan_clean(client(kept, clock), now=True))
    assert len(report.deleted) == 3
    assert state(kept).horizons.raised == ()
    sound(kept)


def test_versions_of_files_are_kept_for_the_bucket_that_changed_most(clock: SimClock) -> None:
    """The oldest version since which no bucket has more than so many versions of its files."""
    made = memory(clock)
    create(made, properties={**LITTLE, "clean.retain.file_versions": "2"})
    for bucket in (0, 1, 0, 2, 0, 0, 1):
        upsert(client(made, clock), bucket, mark=str(bucket))
    clock.advance(1)
    assert plan_clean(client(made, clock)).horizon == 5  # bucket 0 changed in 3, 5 and 6
    set_properties(client(made, clock), {"clean.retain.file_versions": "3"})
    assert plan_clean(client(made, clock)).horizon == 3
    set_properties(client(made, clock), {"clean.retain.file_versions": "4"})
    assert plan_clean(client(made, clock)).horizon == 0
    set_properties(client(made, clock), {"clean.retain.file_versions": "0"})
    clock.advance(1)
    assert plan_clean(client(made, clock)).horizon == 10


@pytest.mark.parametrize("lie", ["live", "too young"])
def test_verify_reports_a_clean_that_condemns_what_a_version_needs(
    kept: MemoryStore, clock: SimClock, lie: str
) -> None:
    """INV-05."""
    handle = client(kept, clock)
    clean(handle)
    path = handle.cache.snapshot().files["path"][0].as_py()
    if lie == "too young":
        upsert(client(kept, clock), mark="ends it")
    cleaned = Cleaned(5, 0, ((path, 0 if lie == "live" else 7),))
    slot = forge(kept, lambda decision: replace(decision, cleaned=cleaned), like=6)
    problems = verify(client(kept), data=False).problems
    assert ("INV-05", slot) in [(each.invariant, each.path) for each in problems]
