"""Clean: what no readable version needs goes, once nobody may need it (INV-05, INV-06)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from plait.errors import InstantExpiredError
from plait.model.decision import Cleaned, ReadSet
from plait.model.instant import Instant, Operation
from plait.model.request import WriteRequest
from plait.services.maintenance.clean import clean, plan_clean, undo_clean
from plait.services.maintenance.restore import plan_restore, restore
from plait.services.maintenance.retention import unneeded
from plait.services.maintenance.savepoint import set_savepoint
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
from tests.support.build import LITTLE, make
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
    """INV-05: the phase `delete` comes after the decision and before the first deletion."""
    seen: list[tuple[int, int]] = []

    def look() -> None:
        seen.append((client(store).cache.refresh().horizon, len(files(store))))

    report = clean(client(store, clock, observer=Phases(on={"delete": look})))
    assert seen == [(4, 4)]
    assert (report.version, len(report.deleted), report.spared) == (5, 3, ())
    assert len(files(store)) == 1
    assert live_marks(store) == ["0", "1", "2", "3"]
    assert client(store).cache.refresh().horizon == 4
    assert set(report.to_dict()) >= {"deleted", "spared", "late", "plan"}
    assert clean(client(store, clock)).version == 6  # it records what the first one deleted
    assert clean(client(store, clock)).version is None
    assert client(store).cache.refresh().version == 6
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


def older_read(store: Store, clock: SimClock) -> Callable[[], object]:
    """Begin a write that names the version that was read, not only the head."""
    request = WriteRequest(Operation.UPSERT, read_set=ReadSet(2, (None,)))
    txn = OptimisticTransaction.begin(client(store, clock), request)
    return lambda: txn.abort("a test", wrote=False)


@pytest.mark.parametrize("by", [older_read, lambda store, clock: ReadPin(client(store, clock), 2)])
def test_what_a_reader_may_need_is_spared_until_it_is_done(
    store: MemoryStore, clock: SimClock, by: Callable[[Store, SimClock], Any]
) -> None:
    """INV-05."""
    held = by(store, clock)
    report = clean(client(store, clock))
    assert (len(report.deleted), len(report.spared)) == (1, 2)
    held.release() if isinstance(held, ReadPin) else held()
    assert set(report.spared) <= set(clean(client(store, clock)).deleted)
    assert len(files(store)) == 1
    sound(store)


@pytest.mark.parametrize("damaged", ["record", "empty record", "lease"])
def test_a_damaged_record_makes_cleaning_wait(
    store: MemoryStore, clock: SimClock, damaged: str
) -> None:
    """INV-03, INV-05: it protects everything, until it is rolled back as dead or has expired."""
    if damaged == "lease":
        store.put(f"{paths.LEASES}/{7:020d}-{'a' * 16}", b"[" * 100_000)
    else:
        work = Work.begin(client(store, clock), [((), 1)])
        body = b"rubbish" if damaged == "record" else b""
        store.put(paths.requested(work.txn.instant), body)
    report = clean(client(store, clock))
    assert (report.deleted, len(report.spared)) == ((), 3)
    clock.advance(max(TTL_S, 130) + 1)
    report = clean(client(store, clock))
    ended = [] if damaged == "lease" else [work.txn.instant]
    assert [each.instant for each in report.rollback.ended] == ended
    assert len(report.deleted) == 3
    assert load_pending(store) == []
    sound(store)


def test_late_files_of_the_rolled_back_go_and_those_of_others_stay(
    store: MemoryStore, clock: SimClock
) -> None:
    """INV-06: late ones carry the nonce of an instant that was ended, in the name or directory."""
    ended, living = (Work.begin(client(store, clock), [((), at)]) for at in (1, 2))
    roll_back(client(store, clock), ended.txn.instant, reason="test")
    manifest = paths.manifest(ended.txn.instant, "a1", "added")
    late = [*ended.hand.written, manifest]
    other = paths.manifest(Instant.at(1, "e" * 16), "a1", "added")
    strange = [other, "data/stray.parquet", "elsewhere"]
    for path in (*late, *strange):
        store.put(path, b"late")
    report = clean(client(store, clock))
    assert sorted(report.late) == sorted(late)
    assert not set(late) & set(listed(store))
    assert {*living.hand.written, *strange} <= set(listed(store))


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


def test_the_two_newest_checkpoints_stay_and_what_is_strange_among_them(
    many: MemoryStore, clock: SimClock
) -> None:
    """INV-06, INV-11."""
    strange = [f"{paths.CHECKPOINTS}/{name}" for name in ("stray", "x/y", "1/2/y", "state.json")]
    for path in strange:
        many.put(path, b"?")
    clean(client(many, clock))
    clean(client(many, clock))
    assert list_checkpoints(many) == [5, 6]
    assert client(many).cache.snapshot().files.num_rows == 4
    assert [many.find(path) for path in strange] == [b"?"] * 4
    many.delete(strange)
    sound(many)


def test_a_damaged_checkpoint_does_not_stop_cleaning(many: MemoryStore, clock: SimClock) -> None:
    """INV-11: checkpoints are collected once there are two whole ones again."""
    many.put(paths.checkpoint(6), b"rubbish")
    assert clean(client(many, clock)).deleted
    assert set(list_checkpoints(many)) == {1, 2, 3, 4, 5, 6}


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


def test_an_undo_takes_back_only_the_cleans_that_it_names_and_a_clean_without_grace_all(
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
    report = clean(client(kept, clock), plan_clean(client(kept, clock), now=True))
    assert len(report.deleted) == 4
    assert state(kept).horizons.raised == ()
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


@pytest.mark.parametrize("moment", ["planned", "listed"])
def test_a_clean_that_was_planned_before_an_undo_does_not_repeat_what_was_undone(
    kept: MemoryStore, clock: SimClock, moment: str
) -> None:
    """INV-05: both take slots; a clean that lost plans again."""
    clean(client(kept, clock))
    upsert(client(kept, clock), mark="later")
    clock.advance(3_601)
    plan = plan_clean(client(kept, clock))
    assert len(plan.condemned) == 3
    if moment == "planned":
        undo_clean(client(kept, clock))
        assert clean(client(kept, clock), plan).version is None
        assert state(kept).horizon == 0
    else:
        undo = Phases(on={"publish": lambda: undo_clean(client(kept))})
        assert clean(client(kept, clock, observer=undo)).deleted == ()
    assert len(files(kept)) == 5
    sound(kept)


def test_versions_of_files_are_kept_for_the_bucket_that_changed_most(clock: SimClock) -> None:
    """The oldest version since which no bucket has more than so many versions of its files."""
    made = memory(clock)
    create(made, properties={**LITTLE, "clean.retain.file_versions": "2"})
    for bucket in (0, 1, 0, 2, 0, 0, 1):
        upsert(client(made, clock), bucket, mark=str(bucket))
    clock.advance(1)
    for count, horizon in (("2", 5), ("3", 3), ("4", 0), ("0", 11)):  # bucket 0: in 3, 5 and 6
        set_properties(client(made, clock), {"clean.retain.file_versions": count})
        clock.advance(1)
        assert plan_clean(client(made, clock)).horizon == horizon


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


# --- many files, and others that write all the time -----------------------------------------------


class Path(str):
    """A path that counts how often it is looked for."""

    __slots__ = ()
    looks = 0

    def __hash__(self) -> int:
        """Count one look."""
        Path.looks += 1
        return super().__hash__()


def test_the_work_of_a_clean_grows_with_the_files_and_not_with_their_square(
    clock: SimClock,
) -> None:
    """Each path is looked for a few times: a clean may condemn 100,000 files."""
    made = memory(clock)
    create(made, properties=LITTLE)
    for number in range(25):
        upsert(client(made, clock), mark=str(number))
    clock.advance(1)
    plan = plan_clean(client(made, clock))
    assert len(plan.condemned) >= 24
    named = tuple((Path(path), ended) for path, ended in plan.condemned)
    Path.looks = 0
    assert len(clean(client(made, clock), replace(plan, condemned=named)).deleted) >= 24
    assert Path.looks <= 4 * len(named)


ROUNDS = 6


def busy(store: MemoryStore, clock: SimClock) -> Phases:
    """Let a writer commit each time when the clean is about to publish, so that it loses."""
    phases, left = Phases(), list(range(ROUNDS))

    def act() -> None:
        if left:
            phases.on["publish"] = act
            upsert(client(store, clock), 1, mark=f"late {left.pop()}")

    phases.on["publish"] = act
    return phases


@pytest.mark.parametrize("planned", [True, False])
def test_a_clean_that_loses_slots_to_writers_does_not_plan_again(
    store: MemoryStore, clock: SimClock, monkeypatch: pytest.MonkeyPatch, planned: bool
) -> None:
    """Else a large table, where planning takes longer than a commit, would never be cleaned."""
    plan, plans = plan_clean(client(store, clock)) if planned else None, []

    def counted(*args: object) -> list[tuple[str, int]]:
        plans.append(args)
        return unneeded(*args)  # type: ignore[arg-type]

    monkeypatch.setattr("plait.services.maintenance.clean.unneeded", counted)
    report = clean(client(store, clock, observer=busy(store, clock)), plan)
    assert report.version == 5 + ROUNDS
    assert len(report.deleted) == 3
    assert len(plans) == 1
    sound(store)


ENDS = {
    "restore": lambda handle: restore(handle, plan_restore(handle, 2)),
    "savepoint": lambda handle: set_savepoint(handle, "late", version=2),
    "retention": lambda handle: set_properties(handle, {"clean.retain.versions": "100"}),
    "clean": clean,
}


@pytest.mark.parametrize("other", ENDS)
def test_a_clean_plans_again_when_files_may_be_needed_again(
    store: MemoryStore, clock: SimClock, other: str
) -> None:
    """INV-05: the other decision comes between its plan and its own."""
    needed = client(store).cache.snapshot(version=2).files["path"].to_pylist()
    between = Phases(on={"publish": lambda: ENDS[other](client(store, clock))})
    report = clean(client(store, clock, observer=between))
    sound(store)
    if other == "clean":
        return
    assert set(needed) <= set(listed(store, "data"))
    assert not set(needed) & set(report.deleted)
    version = None if other == "restore" else 2
    assert client(store).cache.snapshot(version=version).files["path"].to_pylist() == needed


def test_a_clean_tells_how_many_bytes_it_frees() -> None:
    table = make("id bigint", buckets=1, properties=LITTLE)
    for number in range(3):
        table.upsert(pa.table({"id": [number]}))
    sizes = {
        file["path"]: file["bytes"]
        for version in (1, 2)
        for file in table._handle.cache.snapshot(version=version).files.to_pylist()
    }
    plan = table.maintenance.clean(now=True, dry_run=True)
    assert sum(plan.sizes.values()) == sum(sizes.values())
    report = table.maintenance.clean(plan)
    assert report.bytes_freed == sum(sizes.values())
    assert report.to_dict()["bytes_freed"] == report.bytes_freed
    assert [e.operation for e in table.inspect.history(1)] == [Operation.CLEAN.value]


def test_a_file_that_ended_again_after_the_plan_is_not_condemned_by_it(
    store: MemoryStore, clock: SimClock
) -> None:
    """INV-05: the horizon is that of the plan, and a version behind it shows the file once more."""
    plan = plan_clean(client(store, clock))
    first, second = (restore(client(store, clock), plan_restore(client(store), v)) for v in (3, 4))
    shown = client(store).cache.snapshot(version=first.version).files["path"].to_pylist()
    assert set(shown) & {path for path, _ in plan.condemned}
    clock.advance(1)
    report = clean(client(store, clock), plan)
    assert second.version == 6
    assert client(store).cache.refresh().horizon == plan.horizon == 4
    assert not set(shown) & set(report.deleted)
    assert set(shown) <= set(listed(store, "data"))
    sound(store)
