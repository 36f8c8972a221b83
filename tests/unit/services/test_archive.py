"""The archive: old decisions leave their slots, and nothing else changes (RFC 0018, 4.9)."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import pytest

from plait.definition import features
from plait.errors import (
    CommitOutcomeUnknownError,
    CorruptMetadataError,
    RetryableConflictError,
    RolledBackError,
)
from plait.model.instant import Operation
from plait.services.maintenance.archive import ArchiveReport, archive, plan_archive
from plait.services.maintenance.clean import clean
from plait.services.maintenance.runner import optimize
from plait.services.verify.checks import verify
from plait.services.verify.foreign import list_foreign
from plait.services.verify.repair import Finding, plan_repair, repair
from plait.state.checkpoint import list_checkpoints, load_checkpoint
from plait.storage.port import Store
from plait.testing import CountingStore, Fault, FaultStore, SimClock, SimulatedCrashError
from plait.timeline import codec, paths
from plait.timeline.archive import load_archive
from plait.timeline.pending import load_pending
from plait.txn.recovery import roll_back_failed
from plait.txn.service import write_record
from plait.txn.tokens import find_result
from plait.txn.transaction import AlreadyCommitted
from tests.support.build import copied
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

OPTIONS: dict[str, object] = {"checkpoint.interval": "4", "archive.keep": "3"}


@cache
def written(writes: int, **options: object) -> Store:
    """Make a table with so many commits, once."""
    store = memory()
    create(store, properties={**OPTIONS, **options})
    write(store, writes)
    return store


def table(writes: int = 20, **options: object) -> Store:
    """Give a table with so many commits."""
    return copied(written(writes, **options), memory())


def write(store: Store, count: int) -> None:
    handle = client(store)
    first = handle.cache.refresh().version + 1
    for number in range(first, first + count):
        upsert(handle, number % 4, mark=f"m{number}", commit_id=f"c{number}")


def slots(store: Store) -> dict[int, bytes]:
    return {n: store.find(path) or b"" for n, path in enumerate(listed(store, paths.TIMELINE))}


def archived(store: Store) -> ArchiveReport:
    report = archive(client(store))
    assert verify(client(store), data=False).problems == ()
    return report


# --- what moves ------------------------------------------------------------------------------


def test_old_decisions_move_with_their_bytes_and_the_names_of_slots_stay() -> None:
    """INV-01: the oldest slot is emptied first; a plan changes nothing, and is not done twice."""
    store = table()
    before, whole = slots(store), {path: store.find(path) for path in listed(store)}
    plan = plan_archive(client(store))
    assert {path: store.find(path) for path in listed(store)} == whole
    counting = CountingStore(store)
    report = archive(client(counting), plan)
    assert (report.version, report.plan.first, report.plan.last, report.emptied) == (21, 0, 16, 17)
    assert archive(client(store), plan).version is None
    assert archive(client(store)).version is None
    after = slots(store)
    assert list(after) == [*before, 21]
    assert [version for version, body in after.items() if not body] == list(range(17))
    puts = [c.path for c in counting.calls if c.operation == "replace"]
    emptied = [path for path in puts if path.startswith(paths.TIMELINE)]
    assert emptied == [paths.slot(version) for version in range(17)]
    (path,) = report.files
    assert load_archive(store, path) == [before[version] for version in range(17)]
    assert {v: after[v] for v in range(17, 21)} == {v: before[v] for v in range(17, 21)}
    assert [file.path for file in client(store).cache.refresh().archive.files] == [path]
    assert verify(client(store), data=False).problems == ()


def test_the_feature_is_named_by_tables_that_use_it_and_who_slept_needs_no_archive() -> None:
    store = table()
    counting = CountingStore(store)
    late = client(counting)
    decisions = late.cache.timeline
    assert all(features.ARCHIVE not in each.features for each in decisions.load_after(-1, limit=99))
    late.cache.refresh()
    archive(client(store))
    write(store, 26)
    newer = client(store).cache.timeline.load_after(20, limit=99)
    assert all(features.ARCHIVE in each.features for each in newer)
    archived(store)
    state = load_checkpoint(store, list_checkpoints(store)[-1])
    assert state is not None
    assert state.archive.last == 16
    counting.reset()
    assert late.cache.refresh().version == 48  # it goes on from a checkpoint
    assert not any(call.path.startswith(paths.ARCHIVE) for call in counting.calls)


@pytest.mark.parametrize(("keep", "last"), [(1, 16), (4, 16), (5, 15), (12, 8), (20, 0), (21, -1)])
def test_only_what_both_kept_checkpoints_cover_moves_and_the_newest_stay(
    keep: int, last: int
) -> None:
    """INV-11: one of the two may get lost."""
    store = table(**{"archive.keep": keep})
    assert list_checkpoints(store)[-2:] == [16, 20]
    assert plan_archive(client(store)).last == last
    assert archived(store).emptied == last + 1


def test_nothing_moves_without_two_whole_checkpoints() -> None:
    """INV-11."""
    assert plan_archive(client(table(7))).decisions == 0
    for lost in (None, b"{}"):
        store, state = table(11), paths.checkpoint(8)
        store.delete([state]) if lost is None else store.put(state, lost)
        assert archive(client(store)).version is None
        assert len(store.find(paths.slot(0)) or b"") > 0


# --- what works as before --------------------------------------------------------------------


def test_history_and_state_are_the_same_across_the_boundary() -> None:
    """INV-04."""
    store, other = table(), table()
    archived(store)
    before, after = client(other).cache.refresh(), client(store).cache.refresh()
    rows = after.commits(store).slice(0, 21).drop_columns(["instant", "client"])
    assert rows.equals(before.commits(other).drop_columns(["instant", "client"]))
    for version in (0, 5, 16, 20):
        one = client(store).cache.snapshot(version=version).files
        two = client(other).cache.snapshot(version=version).files
        assert one.num_rows == two.num_rows
    assert live_marks(store) == live_marks(other)


def test_a_commit_that_is_repeated_gets_its_first_result() -> None:
    """INV-09: from the commits, so that a damaged archive does not matter."""
    store = table()
    first = find_result(client(store), "c3")
    archived(store)
    store.delete(listed(store, paths.ARCHIVE))
    assert find_result(client(store), "c3") == first
    assert first is not None
    assert (first.version, first.stats.rows_in) == (3, 1)


@pytest.mark.parametrize("sleeper", ["compatible", "conflict", "repeated", "rolled back"])
def test_a_writer_that_slept_finds_its_window_in_the_archive(sleeper: str) -> None:
    """INV-03, INV-07, INV-15: an instant that is pending does not hold the archive back."""
    store = table(2)
    bucket = 3 if sleeper == "compatible" else 0
    commit_id = "again" if sleeper == "repeated" else None
    late = client(store)
    work = Work.begin(late, [((), bucket)], mark="late", commit_id=commit_id)
    if sleeper == "rolled back":
        roll_back_failed(client(store), reason="slept", everything=True)
    for number in range(20):
        upsert(client(store), number % 3, mark=f"n{number}", on_conflict="retry")
        if number == 4 and sleeper == "repeated":
            upsert(client(store), 1, mark="first", commit_id="again")
    assert archived(store).plan.last > 15
    if sleeper == "compatible":
        assert work.commit().version == late.cache.known().version
    elif sleeper == "conflict":
        with pytest.raises(RetryableConflictError):
            work.commit()
    elif sleeper == "repeated":
        with pytest.raises(AlreadyCommitted):
            work.commit()
    else:
        with pytest.raises(RolledBackError):
            work.commit()
    assert ("late" in live_marks(store)) is (sleeper == "compatible")
    assert verify(client(store), data=False).problems == ()


@pytest.mark.parametrize("whole", [True, False], ids=["checkpoints", "parts"])
def test_checkpoints_that_are_lost_are_made_again_from_the_archive(whole: bool) -> None:
    """INV-11."""
    store = table()
    marks = live_marks(store)
    archived(store)
    lost = [p for p in listed(store, paths.CHECKPOINTS) if whole or p.endswith(".parquet")]
    store.delete([*lost, paths.CHECKPOINT_HINT] if whole else lost)
    assert client(store).cache.refresh().version == 21
    assert live_marks(store) == marks
    assert not whole or verify(client(store), data=False).problems == ()


# --- twice, killed, taken for dead -----------------------------------------------------------


@pytest.mark.parametrize("moment", ["publish", "empty"])
def test_two_archives_at_once_do_no_harm(moment: str) -> None:
    """INV-01."""
    store = table()
    between = Phases(on={moment: lambda: archive(client(store))})
    first = archive(client(store, observer=between))
    assert (first.version is None) is (moment == "publish")
    assert len(listed(store, paths.ARCHIVE)) == 1
    assert load_pending(store) == []
    assert verify(client(store), data=False).problems == ()
    assert not any(slots(store)[version] for version in range(17))


def test_an_archive_is_no_rival_of_a_single_writer() -> None:
    """INV-15."""
    store = memory()
    create(store, properties=OPTIONS, concurrency="single_writer")
    write(store, 12)
    during = Phases(on={"publish": lambda: upsert(client(store), 1)})
    assert archive(client(store, observer=during)).version == 14
    assert verify(client(store), data=False).problems == ()


@pytest.mark.slow
def test_an_archive_that_is_killed_anywhere_is_finished_or_taken_back_by_the_next() -> None:
    """INV-01, INV-06: whatever it left."""
    whole = table(5, **{"checkpoint.interval": 1, "archive.keep": 2})
    archived(whole)
    write(whole, 4)
    calls = FaultStore(copied(whole))
    archive(client(calls))
    for number in range(1, calls.calls + 1):
        clock = SimClock()
        store = copied(whole, memory(clock))
        dying = FaultStore(store, [Fault("crash_before", nth=number)])
        with pytest.raises(SimulatedCrashError):
            archive(client(dying, clock))
        clock.advance(1_000)
        roll_back_failed(client(store, clock), reason="dead")
        archive(client(store, clock))
        assert not any(slots(store)[version] for version in range(9))
        clean(client(store, clock))
        named = [file.path for file in client(store).cache.refresh().archive.files]
        assert listed(store, paths.ARCHIVE) == named
        assert load_pending(store) == []
        report = verify(client(store, clock), data=False)
        assert (report.problems, list_foreign(client(store, clock))) == ((), ())


def test_an_archive_that_was_taken_for_dead_empties_nothing() -> None:
    """INV-03: its rollback was published first, and its files are gone."""
    store = table()

    def recover() -> None:
        roll_back_failed(client(store), reason="taken for dead", everything=True)

    with pytest.raises(RolledBackError):
        archive(client(store, observer=Phases(on={"publish": recover})))
    assert listed(store, paths.ARCHIVE) == []
    assert all(slots(store).values())
    assert archived(store).version is not None


def test_an_archive_that_does_not_know_whether_it_decided_empties_nothing() -> None:
    """INV-10."""
    store = table()
    script = [
        Fault("lost_reply", "put_if_absent", path=paths.slot(21), times=99),
        Fault("error", "find", path=paths.slot(21), nth=4, times=99),
    ]
    with pytest.raises(CommitOutcomeUnknownError):
        archive(client(FaultStore(store, script)))
    assert all(slots(store).values())
    roll_back_failed(client(store), reason="dead", everything=True)
    assert load_pending(store) == []
    assert archive(client(store)).emptied == 17, "it had decided: the next one goes on"
    assert verify(client(store), data=False).problems == ()


def test_a_late_file_of_an_archive_that_was_rolled_back_is_deleted_by_a_clean() -> None:
    """INV-06."""
    store = table()
    instant = client(store).new_instant(client(store).cache.refresh())
    handle = client(store)
    write_record(handle, handle.cache.refresh(), instant, Operation.ARCHIVE)
    roll_back_failed(client(store), reason="dead", everything=True)
    store.put(paths.archive(0, 5, instant), b"late")
    (foreign,) = list_foreign(client(store))
    assert (foreign.owner, foreign.path) == ("rolled_back", paths.archive(0, 5, instant))
    clean(client(store))
    assert listed(store, paths.ARCHIVE) == []


# --- files -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_number_of_files_stays_bounded_and_each_decision_is_copied_a_few_times() -> None:
    store = table(8)
    written = 0
    rounds = 30
    for _ in range(rounds):
        write(store, 4)
        report = archive(client(store))
        rows = [paths.archive_of(path) for path in report.files]
        written += sum(name.last - name.first + 1 for name in rows if name is not None)
        clean(client(store))
    files = client(store).cache.refresh().archive.files
    assert len(files) <= 1 + math.log2(rounds)
    assert written <= files[-1].last * (1 + math.log2(rounds))
    assert listed(store, paths.ARCHIVE) == [file.path for file in files]
    assert verify(client(store), data=False).problems == ()


def test_a_long_history_moves_in_several_archives_and_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that is killed reads little again; the next one goes on where it ended."""
    monkeypatch.setattr("plait.services.maintenance.archive._DECISIONS_MAX", 7)
    monkeypatch.setattr("plait.services.maintenance.archive.BYTES_MAX", 5_000)
    store, lasts = table(28), list[int]()
    before = slots(store)
    while (plan := plan_archive(client(store))).decisions:
        assert plan.decisions <= 7
        assert archive(client(store), plan).version is not None
        lasts.append(plan.last)
    assert lasts[:3] == [6, 13, 20]
    files = client(store).cache.refresh().archive.files
    assert len(files) > 3
    moved = [body for file in files for body in load_archive(store, file.path)]
    assert moved == [before[version] for version in range(lasts[-1] + 1)]
    assert verify(client(store), data=False).problems == ()


def test_an_archive_goes_on_when_its_file_was_merged_and_cleaned_meanwhile() -> None:
    """INV-01: nothing is damaged, and it is told so."""
    store = table()

    def others() -> None:
        write(store, 40)
        assert archive(client(store)).plan.merged
        clean(client(store))

    report = archive(client(store, observer=Phases(on={"empty": others})))
    (path,) = report.files
    assert path not in listed(store, paths.ARCHIVE), "it is gone, so the test sees what it is for"
    assert verify(client(store), data=False).problems == ()


def test_a_reader_that_knows_a_file_which_was_merged_finds_the_decision_in_the_new_one() -> None:
    store = table(12)
    archived(store)
    late = client(store)
    expected = late.cache.timeline.find(2)
    write(store, 8)
    archived(store)
    clean(client(store))
    late.cache.timeline._archive._held = (0, [])
    assert late.cache.timeline.find(2) == expected


def test_a_clean_never_deletes_a_file_of_the_archive_that_the_table_has() -> None:
    """INV-06: whatever a decision says."""
    store = table(**{"clean.retain.time": "0s", "clean.grace": "0s"})
    archived(store)
    clean(client(store))
    (path,) = listed(store, paths.ARCHIVE)
    last = client(store).cache.refresh().version

    def condemn(decision: codec.Decision) -> codec.Decision:
        assert decision.cleaned is not None
        return replace(decision, cleaned=replace(decision.cleaned, condemned=((path, 1),)))

    forge(store, condemn, like=last)
    with pytest.raises(CorruptMetadataError):
        clean(client(store))
    assert listed(store, paths.ARCHIVE) == [path]


# --- damage ----------------------------------------------------------------------------------


def damage(store: Store, kind: str) -> str:
    (path,) = listed(store, paths.ARCHIVE)
    body = store.find(path) or b""
    if kind == "missing":
        store.delete([path])
    else:
        at = len(body) // 2
        store.put(
            path, body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :] if kind == "flip" else b""
        )
    return path


@pytest.mark.parametrize("kind", ["missing", "flip", "empty"])
def test_a_lost_archive_is_an_error_where_it_is_needed_and_nowhere_else(kind: str) -> None:
    store = table()
    marks = live_marks(store)
    archived(store)
    path = damage(store, kind)
    assert live_marks(store) == marks
    assert upsert(client(store), 1).version == 22
    assert client(store).cache.refresh().commits(store).num_rows == 23
    with pytest.raises(CorruptMetadataError) as caught:
        client(store).cache.timeline.find(3)
    assert caught.value.path == (paths.slot(3) if kind == "missing" else path)
    report = verify(client(store), data=False)
    assert ("INV-01", path) in [(each.invariant, each.path) for each in report.problems]


def test_slots_are_not_emptied_for_a_file_that_is_damaged() -> None:
    """INV-01."""
    store = table()
    dying = FaultStore(store, [Fault("crash_before", "replace", path=paths.slot(3))])
    with pytest.raises(SimulatedCrashError):
        archive(client(dying))
    damage(store, "flip")
    with pytest.raises(CorruptMetadataError):
        archive(client(store))
    assert [version for version, body in slots(store).items() if not body] == [0, 1, 2]


def test_a_damaged_slot_is_not_archived() -> None:
    """INV-01: what is damaged stays where it is found."""
    store = table()
    body = store.find(paths.slot(5)) or b""
    store.put(paths.slot(5), body.replace(b"upsert", b"insert"))
    with pytest.raises(CorruptMetadataError) as caught:
        archive(client(store))
    assert caught.value.path == paths.slot(5)
    assert (listed(store, paths.ARCHIVE), load_pending(store)) == ([], [])


def test_slots_that_no_decision_archived_are_damage() -> None:
    """INV-01."""
    store = table()
    archived(store)
    store.put(paths.slot(17), b"")
    problems = verify(client(store), data=False).problems
    assert ("INV-01", paths.slot(17)) in [(each.invariant, each.path) for each in problems]


def findings(store: Store, backup: Store | None = None) -> list[Finding]:
    """Return what is wrong with the metadata: the data files here are no Parquet."""
    plan = plan_repair(client(store), backup)
    return [each for each in plan.findings if each.kind in ("slot", "archive")]


@pytest.mark.parametrize("kind", ["missing", "damaged"])
def test_a_lost_slot_is_taken_from_the_archive(kind: str) -> None:
    """INV-01: also one that was emptied, since its name must be there."""
    store = table()
    before = slots(store)
    archived(store)
    for version in (3, 16):
        path = paths.slot(version)
        store.delete([path]) if kind == "missing" else store.put(path, b"damaged")
        report = repair(client(store), plan_repair(client(store)))
        assert [finding.id for finding in report.mended] == [f"slot:{path}"]
        assert findings(store) == []
        assert store.find(path) == before[version]


def test_a_file_of_the_archive_is_taken_from_a_copy_and_from_nowhere_else() -> None:
    store = table()
    archived(store)
    backup = copied(store)
    path = damage(store, "flip")
    (finding,) = findings(store)
    assert (finding.id, finding.answer) == (f"archive:{path}", "lost")
    other = copied(backup)
    other.put(path, b"not the same")
    assert findings(store, other)[0].answer == "lost"
    repair(client(store), plan_repair(client(store), backup), backup)
    assert findings(store) == []
    assert store.find(path) == backup.find(path)


# --- what it costs ---------------------------------------------------------------------------


@pytest.mark.slow
def test_optimize_archives_when_a_tenth_of_what_stays_would_move() -> None:
    store = table(58, **{"archive.keep": 50, "checkpoint.interval": "1", "clean.grace": "0s"})
    assert plan_archive(client(store)).decisions == 9
    report = optimize(client(store))
    assert report.archive is not None
    assert not optimize(client(store)).archive
    assert report.to_dict()["archive"] == report.archive.to_dict()


@pytest.mark.slow
def test_calls_of_a_commit_and_of_history_do_not_grow_with_the_archive() -> None:
    def calls(store: Store) -> list[dict[str, int]]:
        counting = CountingStore(store)
        handle = client(counting)
        handle.cache.refresh()
        found = [counting.counts()]
        for act in (lambda: upsert(handle, 1), lambda: handle.cache.refresh().commits(counting)):
            counting.reset()
            act()
            found.append(counting.counts())
        return found

    plain, large = table(65), table(61)
    archived(large)
    for _ in range(3):
        upsert(client(large), 0)
    assert client(large).cache.refresh().version == client(plain).cache.refresh().version
    assert calls(large) == calls(plain)
