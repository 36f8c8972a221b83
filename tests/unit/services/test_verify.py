"""Verify reports each kind of damage by invariant and path, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plait import Table
from plait.errors import TableNotFoundError
from plait.files.hash import encode_hashes
from plait.model.changes import ADDED, KEYS_ALL, KEYS_INLINE, MASKED, PATHS, TOUCHED, Changes
from plait.model.decision import Decision, ReadSet, RolledBack
from plait.model.instant import Action, Instant, Operation
from plait.services.maintenance.clean import clean
from plait.services.verify.checks import verify
from plait.state.cache import StateCache
from plait.storage.local import LocalStore
from plait.storage.port import FileInfo
from plait.testing import CountingStore, Fault, FaultStore, SimClock, sim_ports
from plait.timeline import codec, paths
from plait.txn.recovery import roll_back
from tests.support.build import LITTLE
from tests.support.forge import decision_at, flip, forge, reseal, reseal_checkpoint, rewrite
from tests.support.protocol import Work, client, create, listed, memory, upsert
from tests.unit.services.conftest import Copy


def found(store: LocalStore, *, data: bool = True) -> list[tuple[str, str]]:
    report = verify(client(store), data=data)
    return [(problem.invariant, problem.path) for problem in report.problems]


def live(store: LocalStore) -> list[dict[str, object]]:
    return StateCache(store, sim_ports()).snapshot().files.to_pylist()  # type: ignore[no-any-return]  # pyarrow


def one_live(store: LocalStore) -> str:
    return str(max(live(store), key=lambda row: int(str(row["rows"])))["path"])


def touched(*buckets: int) -> pa.Table:
    row = {"partition": "[]", "keys": KEYS_ALL, "key_count": 0}
    return pa.Table.from_pylist([{**row, "bucket": each} for each in buckets], schema=TOUCHED)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_verify_finds_nothing_in_a_table_that_is_whole(copy: Copy, kind: str) -> None:
    report = verify(client(copy(kind)))
    assert report.problems == ()
    assert report.clean
    assert report.notes == ()
    assert report.checked["versions"] == 7
    assert report.checked["checkpoints"] == 1
    assert report.checked["keys"] == 20_015
    assert report.checked["rows"] >= 20_015
    assert report.checked["files"] > 2
    assert report.to_dict() == {"problems": [], "notes": [], "checked": report.checked}


def test_verify_changes_nothing(copy: Copy) -> None:
    store = copy("mor")
    before = {path: store.find(path) for path in listed(store)}
    verify(client(store))
    assert {path: store.find(path) for path in listed(store)} == before


def test_verify_refuses_a_place_without_a_table(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        verify(client(LocalStore(str(tmp_path))))


# --- INV-01 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
def test_verify_reports_a_slot_with_a_flipped_bit(copy: Copy, version: int) -> None:
    """INV-01."""
    store = copy("cow")
    flip(store, paths.slot(version), 400)
    assert found(store) == [("INV-01", paths.slot(version))]


@pytest.mark.parametrize("length", [0, 1, 90, -1])
def test_verify_reports_a_slot_that_was_cut_off(copy: Copy, length: int) -> None:
    """INV-01."""
    store = copy("cow")
    file = Path(store.root, paths.slot(3))
    file.write_bytes(file.read_bytes()[:length])
    assert found(store) == [("INV-01", paths.slot(3))]


def test_verify_reports_a_slot_that_was_replaced_by_another_decision(copy: Copy) -> None:
    """INV-01: the next one names the checksum of what was there."""
    store = copy("cow")
    reseal(store, 3, lambda decision: replace(decision, client={}))
    assert found(store) == [("INV-01", paths.slot(4))]


def test_verify_reports_damaged_manifests() -> None:
    """INV-01."""
    store = memory()
    create(store, buckets=300)
    upsert(client(store), *range(300))
    (manifest, other) = listed(store, paths.MANIFESTS)
    store.put(manifest, b"rubbish")
    store.delete([other])
    report = verify(client(store))
    assert [(p.invariant, p.path) for p in report.problems] == [("INV-01", manifest)]
    assert paths.TIMELINE in [note.path for note in report.notes]  # nothing rests on it


def test_verify_reports_features_of_a_newer_version(copy: Copy) -> None:
    """INV-01: what cannot be understood cannot be vouched for."""
    store = copy("cow")
    path = rewrite(store, 6, lambda document: document.update(features=["time-travel-2"]))
    assert found(store) == [("INV-01", path)]


# --- INV-02 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 3, 5])
def test_verify_reports_a_gap_by_the_name_of_the_missing_slot(copy: Copy, version: int) -> None:
    """INV-02."""
    store = copy("cow")
    store.delete([paths.slot(version)])
    assert found(store) == [("INV-02", paths.slot(version))]


def test_verify_reports_slots_far_beyond_a_gap(copy: Copy) -> None:
    """INV-02: nobody who looks for the head would find them; a listing does."""
    store = copy("cow")
    decision = replace(nothing(decision_at(store, 3)), version=25_000, base=24_999, previous="?")
    instant = Instant.at(1, "f" * 16)
    store.put(paths.slot(25_000), codec.encode(replace(decision, instant=instant)))
    assert found(store) == [("INV-02", paths.slot(7))]


def test_verify_reports_a_slot_that_holds_another_version(copy: Copy) -> None:
    """INV-02."""
    store = copy("cow")
    store.put(paths.slot(7), store.find(paths.slot(3)) or b"")
    assert found(store) == [("INV-02", paths.slot(7))]


class Listed(CountingStore):
    """Lists slots that are gone when they are read, and all of them twice, in no order."""

    gone: tuple[int, ...] = ()

    def list(self, prefix: str) -> Iterator[FileInfo]:
        infos = [*super().list(prefix)]
        if prefix == paths.TIMELINE:
            infos = [*infos[::-1], *infos, *(FileInfo(paths.slot(v), 1, None) for v in self.gone)]
        return iter(infos)


@pytest.mark.parametrize(
    ("gone", "reported"), [((), []), ((3,), [3]), ((9, 10), [3, 9, 10])], ids=str
)
def test_verify_goes_by_the_slots_and_not_by_their_listing(
    gone: tuple[int, ...], reported: list[int]
) -> None:
    """INV-02: one that goes meanwhile is reported, and no state is made without it."""
    inner = memory()
    create(inner)
    for _ in range(2):
        upsert(client(inner))
    store = Listed(inner)
    store.gone = gone
    report = verify(client(store), data=False)
    expected = [("INV-02", paths.slot(version)) for version in reported]
    assert [(problem.invariant, problem.path) for problem in report.problems] == expected
    assert report.checked["versions"] == 3
    assert [note.path for note in report.notes] == ([paths.TIMELINE] if gone else [])


@pytest.mark.parametrize(
    "name", ["7.json", "00000000000000000000/x.json", "readme", "1/" * 9 + "x"]
)
def test_verify_reports_files_among_the_slots_that_are_none(copy: Copy, name: str) -> None:
    """INV-02."""
    store = copy("cow")
    store.put(f"{paths.TIMELINE}/{name}", b"?")
    assert found(store) == [("INV-02", f"{paths.TIMELINE}/{name}")]


# --- INV-03 -------------------------------------------------------------------------------------


def nothing(decision: Decision) -> Decision:
    return replace(decision, changes=Changes())


def test_verify_reports_an_instant_that_committed_twice(copy: Copy) -> None:
    """INV-03."""
    store = copy("cow")
    nonce = decision_at(store, 2).instant.nonce
    path = forge(
        store, lambda d: nothing(replace(d, instant=Instant(d.instant.time, nonce))), like=2
    )
    assert found(store) == [("INV-03", path)]


def test_verify_reports_two_instants_of_the_same_time(copy: Copy) -> None:
    """INV-03."""
    store = copy("cow")
    time = decision_at(store, 2).instant.time
    path = forge(
        store, lambda d: nothing(replace(d, instant=Instant(time, d.instant.nonce))), like=2
    )
    assert found(store) == [("INV-03", path)]


def test_verify_reports_a_completion_that_is_not_later_than_the_one_before(copy: Copy) -> None:
    """INV-03."""
    store = copy("cow")
    path = forge(store, lambda d: nothing(replace(d, completed_ms=d.completed_ms - 1)), like=2)
    assert found(store) == [("INV-03", path)]


def test_verify_reports_a_commit_id_that_was_applied_twice(copy: Copy) -> None:
    """INV-03."""
    store = copy("cow")
    path = forge(store, lambda d: nothing(replace(d, commit_id="six")), like=6)
    assert found(store) == [("INV-03", path)]


def test_verify_reports_a_rollback_of_what_is_committed(copy: Copy) -> None:
    """INV-03."""
    store = copy("cow")
    ended = RolledBack(decision_at(store, 5).instant, "forged")
    path = forge(store, lambda d: rollback(d, ended), like=2)
    assert found(store) == [("INV-03", path)]


def test_verify_reports_a_second_rollback_of_one_instant(copy: Copy) -> None:
    """INV-03."""
    store = copy("cow")
    ended = RolledBack(Instant.at(1, "e" * 16), "forged")
    forge(store, lambda d: rollback(d, ended, nonce="1" * 16), like=2)
    path = forge(store, lambda d: rollback(d, ended), like=2)
    assert found(store) == [("INV-03", path)]


def test_verify_reports_a_commit_of_what_is_rolled_back(copy: Copy) -> None:
    """INV-03."""
    store = copy("cow")
    ended = RolledBack(Instant.at(1, "e" * 16), "forged")
    forge(store, lambda d: rollback(d, ended), like=2)
    path = forge(
        store, lambda d: nothing(replace(d, instant=Instant(d.instant.time, "e" * 16))), like=2
    )
    assert found(store) == [("INV-03", path)]


def rollback(decision: Decision, ended: RolledBack, *, nonce: str = "d" * 16) -> Decision:
    return replace(
        nothing(decision),
        instant=Instant(decision.instant.time, nonce),
        operation=Operation.ROLLBACK,
        action=Action.ROLLBACK,
        rolled_back=(ended,),
    )


# --- INV-04 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [True, False])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_verify_reports_a_live_file_that_is_missing(copy: Copy, kind: str, *, data: bool) -> None:
    """INV-04."""
    store = copy(kind)
    path = one_live(store)
    store.delete([path])
    report = verify(client(store), data=data)
    (problem,) = report.problems
    assert (problem.invariant, problem.path) == ("INV-04", path)
    assert "missing" in problem.message
    told = {"invariant": "INV-04", "path": path, "message": problem.message}
    assert report.to_dict()["problems"] == [told]


@pytest.mark.parametrize("data", [True, False])
def test_verify_reports_a_live_file_that_was_cut_off(copy: Copy, *, data: bool) -> None:
    """INV-04."""
    store = copy("cow")
    path = one_live(store)
    os.truncate(Path(store.root, path), 1_000)
    assert found(store, data=data) == [("INV-04", path)]


def test_verify_reports_a_live_file_with_a_damaged_footer(copy: Copy) -> None:
    """INV-04."""
    store = copy("cow")
    path = one_live(store)
    flip(store, path, -6)  # the length of the footer
    assert found(store) == [("INV-04", path)]
    assert found(store, data=False) == []


def test_verify_reports_a_live_file_with_damaged_pages(copy: Copy) -> None:
    """INV-04: every page is read."""
    store = copy("cow")
    path = one_live(store)
    with open(Path(store.root, path), "r+b") as file:
        file.seek(8)
        file.write(b"\xff" * 5_000)
    assert found(store) == [("INV-04", path)]


def test_verify_reports_damaged_pages_of_a_column_that_is_no_key(copy: Copy) -> None:
    """INV-04: looking for keys that are there twice would not read them."""
    store = copy("cow")
    path = one_live(store)
    text = pq.read_metadata(Path(store.root, path)).row_group(0).column(1)
    assert text.path_in_schema == "text"
    for at in range(4, 24):
        flip(store, path, text.data_page_offset + at)
    assert found(store) == [("INV-04", path)]


def test_verify_reports_a_file_that_goes_while_its_keys_are_looked_for(copy: Copy) -> None:
    """INV-04: the rows were read, and the keys cannot be."""
    store = copy("cow")
    path = one_live(store)
    faults = FaultStore(store, [Fault("error", "open_input", path, nth=2)])
    problems = verify(client(faults)).problems
    assert [(problem.invariant, problem.path) for problem in problems] == [("INV-04", path)]


@pytest.mark.parametrize(("column", "value"), [("rows", 7), ("schema_id", 9), ("bytes", 1)])
def test_verify_reports_a_file_that_is_not_as_declared(
    copy: Copy, column: str, value: object
) -> None:
    """INV-04: rows and columns are compared with the footer, the size with the listing."""
    store = copy("cow")
    path = one_live(store)
    twin = add_twin(store, path, remove=True, **{column: value})
    assert found(store) == [("INV-04", twin)]


def vector_file(store: LocalStore) -> dict[str, object]:
    return next(row for row in live(store) if row["dv_path"] is not None)


def test_verify_reports_a_missing_deletion_vector(copy: Copy) -> None:
    """INV-04."""
    store = copy("mor")
    path = str(vector_file(store)["dv_path"])
    store.delete([path])
    assert found(store) == [("INV-04", path)]
    assert found(store, data=False) == [("INV-04", path)]


def test_verify_reports_a_damaged_deletion_vector(copy: Copy) -> None:
    """INV-04."""
    store = copy("mor")
    row = vector_file(store)
    flip(store, str(row["dv_path"]), int(str(row["dv_offset"])) + 100)
    assert found(store) == [("INV-04", str(row["dv_path"]))]


@pytest.mark.parametrize("masked", [1, 3, 20_001])
def test_verify_reports_a_deletion_vector_of_another_cardinality(copy: Copy, masked: int) -> None:
    """INV-04: the vector of another file masks other rows, beyond the end of this one."""
    store = copy("mor")
    rows = live(store)
    small = min(rows, key=lambda row: int(str(row["rows"])))
    inline = pa.table({"path": [small["path"]], "rows": [masked], "inline": [other_vector(rows)]})
    full = Changes(masked=pa.Table.from_pylist(inline.to_pylist(), schema=Changes().masked.schema))
    forge(store, lambda decision: replace(decision, changes=full), like=2)
    assert found(store) == [("INV-04", str(small["path"]))]


def other_vector(rows: list[dict[str, object]]) -> bytes:
    return next(row["inline"] for row in rows if isinstance(row["inline"], bytes))


def test_verify_reports_a_decision_that_removes_what_is_not_live(copy: Copy) -> None:
    """INV-04."""
    store = copy("cow")
    removed = decision_at(store, 2).changes.removed
    assert removed.num_rows
    path = forge(store, lambda d: replace(d, changes=Changes(removed=removed)), like=2)
    assert found(store) == [("INV-04", path)]


def test_verify_reports_a_mask_that_brings_rows_back(copy: Copy) -> None:
    """INV-04."""
    store = copy("mor")
    newer = decision_at(store, 4).changes.masked["path"].to_pylist()
    older = decision_at(store, 2).changes.masked
    again = older.filter(pa.array([path in newer for path in older["path"].to_pylist()]))
    assert again.num_rows
    path = forge(store, lambda d: replace(d, changes=Changes(masked=again)), like=2)
    assert ("INV-04", path) in found(store)


def test_verify_reports_damaged_checkpoint_parts(copy: Copy) -> None:
    """INV-04: the table goes on without them, but should not have to."""
    store = copy("cow")
    parts = [path for path in listed(store, paths.CHECKPOINTS) if path.endswith(".parquet")]
    for path in parts:
        flip(store, path, 20)
    assert sorted(found(store)) == [("INV-04", path) for path in parts]


def test_verify_reports_a_damaged_checkpoint(copy: Copy) -> None:
    """INV-04."""
    store = copy("cow")
    flip(store, paths.checkpoint(4), 200)
    assert found(store) == [("INV-04", paths.checkpoint(4))]


def test_verify_reports_a_checkpoint_that_says_other_than_the_decisions(copy: Copy) -> None:
    """INV-04: its own seal fits, so every client would believe it."""
    store = copy("cow")
    path = reseal_checkpoint(store, 4, final=1)
    assert found(store) == [("INV-04", path)]


# --- INV-05 -------------------------------------------------------------------------------------


def test_verify_reports_a_missing_file_that_only_older_versions_need(copy: Copy) -> None:
    """INV-05."""
    store = copy("cow")
    path = str(decision_at(store, 3).changes.removed["path"][0].as_py())
    assert path not in [row["path"] for row in live(store)]
    store.delete([path])
    assert found(store) == [("INV-05", path)]


def test_verify_does_not_miss_files_that_a_clean_condemned(copy: Copy) -> None:
    """INV-05: what no version needs may be there or not."""
    store = copy("mor")
    forge(store, retain_little, like=0)
    reader = client(store)
    report = clean(client(store, SimClock(reader.cache.refresh().completed_ms + 10_000_000)))
    assert report.deleted
    assert found(store) == []


def retain_little(decision: Decision) -> Decision:
    table = dict(decision.table or {})
    table["properties"] = LITTLE
    return replace(decision, table=table, operation=Operation.PROPERTY, action=Action.PROPERTY)


# --- INV-06 -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "data/stray.parquet",
        "elsewhere/deep/file",
        "file",
        "data/00000-20260101000000000-aaaaaaaaaaaaaaaa-0-0001.base.parquet",
        ".meta/manifests/20260101000000000-aaaaaaaaaaaaaaaa/a1-added.parquet",
        ".meta/checkpoints/stray",
        ".meta/heartbeats/20260101000000000-aaaaaaaaaaaaaaaa",
        ".meta/pending/what.requested",
        ".meta/other",
    ],
)
def test_verify_reports_unknown_files_and_leaves_them(copy: Copy, path: str) -> None:
    """INV-06."""
    store = copy("cow")
    store.put(path, b"?")
    assert found(store) == [("INV-06", path)]
    assert store.find(path) == b"?"


def told(store: LocalStore, path: str) -> str:
    problems = verify(client(store), data=False).problems
    return next(problem.message for problem in problems if problem.path == path)


@pytest.mark.parametrize(
    "path", [".DS_Store", "data/.DS_Store", ".meta/timeline/.DS_Store", ".meta/leases/.DS_Store"]
)
def test_verify_tells_what_another_program_left(copy: Copy, path: str) -> None:
    """INV-06: nobody has to wonder whose it is."""
    store = copy("cow")
    store.put(path, b"?")
    assert "does no harm" in told(store, path)
    assert "move it away" in told(store, path)


def test_verify_tells_a_link_or_a_pipe_from_a_file(copy: Copy, tmp_path: Path) -> None:
    """INV-06: files below a linked directory looked lost, and the link like one of them."""
    store = copy("cow")
    path = one_live(store)
    (tmp_path / "cow/data").rename(tmp_path / "moved")
    (tmp_path / "cow/data").symlink_to(tmp_path / "moved")
    os.mkfifo(tmp_path / "cow/pipe")
    assert "it is a symbolic link" in told(store, "data")
    assert "put them here themselves" in told(store, "data")
    assert "data is a symbolic link" in told(store, path)
    assert "it is a named pipe" in told(store, "pipe")


def test_verify_tells_a_file_from_a_link_in_its_place(copy: Copy, tmp_path: Path) -> None:
    """INV-04."""
    store = copy("cow")
    path = one_live(store)
    (tmp_path / "cow" / path).rename(tmp_path / "moved")
    (tmp_path / "cow" / path).symlink_to(tmp_path / "moved")
    assert "is a symbolic link" in told(store, path)


def test_verify_explains_files_of_pending_instants() -> None:
    """INV-06: a writer at work is no damage."""
    store = memory()
    create(store)
    upsert(client(store), 0)
    Work.begin(client(store), [((), 0)])
    report = verify(client(store), data=False)
    assert report.problems == ()
    assert report.notes == ()


def test_verify_notes_late_files_of_rolled_back_instants() -> None:
    """INV-06: they are provably garbage."""
    store = memory()
    create(store)
    dead = Work.begin(client(store), [((), 0)])
    roll_back(client(store), dead.txn.instant, reason="test")
    (path,) = dead.hand.written
    store.put(path, b"late")
    report = verify(client(store), data=False)
    assert report.problems == ()
    assert [note.path for note in report.notes] == [path]


def test_verify_notes_late_files_of_those_that_were_rolled_back_long_ago() -> None:
    """INV-06: also when no clean looks for them any more."""
    clock = SimClock()
    store = memory(clock)
    create(
        store,
        properties=LITTLE,
    )
    dead = Work.begin(client(store, clock), [((), 0)])
    roll_back(client(store, clock), dead.txn.instant, reason="test")
    for _ in range(2):
        upsert(client(store, clock))
        clock.advance(1)
        clean(client(store, clock))
    assert client(store).cache.refresh().late == ()
    (path,) = dead.hand.written
    store.put(path, b"late")
    report = verify(client(store), data=False)
    assert report.problems == ()
    assert [note.path for note in report.notes] == [path]


def test_verify_notes_parts_that_no_checkpoint_names(copy: Copy) -> None:
    """INV-06: whoever wrote them died before the checkpoint, or another was first."""
    store = copy("cow")
    path = paths.checkpoint(4, f"{'a' * 16}-0-added.parquet")
    store.put(path, b"?")
    report = verify(client(store))
    assert report.problems == ()
    assert [note.path for note in report.notes] == [path]


def test_verify_notes_files_that_a_committed_instant_does_not_name(copy: Copy) -> None:
    """INV-06: a task that ran twice may leave one; no reader sees it."""
    store = copy("cow")
    path = one_live(store).replace(".base.", "-again.base.")
    store.put(path, b"?")
    report = verify(client(store))
    assert report.problems == ()
    assert [note.path for note in report.notes] == [path]
    assert "`tablectl foreign remove` deletes it" in report.notes[0].message


# --- INV-07 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["fewer rows", "unnamed source", "unnamed target"])
def test_verify_reports_a_rewrite_that_changed_rows(copy: Copy, fault: str) -> None:
    """INV-14: what it takes away is what it brings."""
    store = copy("mor")
    Table.open(store.address.uri).maintenance.compact(full=True)
    newest = StateCache(store, sim_ports()).refresh().version
    assert not verify(client(store)).problems

    def change(decision: Decision) -> Decision:
        changes = decision.changes
        if fault == "unnamed source":
            changes = replace(changes, moved=changes.moved.slice(1))
        elif fault == "unnamed target":
            changes = replace(changes, placed=changes.placed.slice(1))
        else:
            mask = {"path": changes.added["path"][0].as_py(), "rows": 1, "inline": b"x"}
            changes = replace(changes, masked=pa.Table.from_pylist([mask], schema=MASKED))
        return replace(decision, changes=changes)

    path = reseal(store, newest, change)
    assert [place for invariant, place in found(store) if invariant == "INV-14"] == [path]


def test_verify_reports_a_commit_with_a_conflicting_decision_in_its_window(copy: Copy) -> None:
    """INV-07."""
    store = copy("cow")
    changes = Changes(touched=touched(0, 1))
    path = forge(store, lambda d: replace(d, base=4, changes=changes), like=2)
    assert found(store) == [("INV-07", path)]


def test_verify_accepts_a_commit_with_other_buckets_in_its_window(copy: Copy) -> None:
    """INV-07."""
    store = copy("cow")
    forge(store, lambda d: replace(d, base=0, changes=Changes(touched=touched(7))), like=2)
    assert found(store) == []


def lost_update(store: LocalStore) -> str:
    """Forge a commit whose rows rest on version 4 and repeat keys that version 5 wrote."""
    row = touched(7).set_column(2, "keys", pa.array([KEYS_INLINE]))
    keys = pa.array([encode_hashes(np.array([7], dtype=np.uint64))], pa.binary())
    changes = Changes(touched=row.set_column(4, "key_inline", keys).cast(TOUCHED))
    first = Instant.at(1, "e" * 16)
    forge(store, lambda d: replace(d, changes=changes, instant=first), like=2)
    read_set = ReadSet(6, (None,))
    return forge(store, lambda d: replace(d, changes=changes, read_set=read_set), like=2)


def test_verify_reports_an_update_that_was_lost(copy: Copy) -> None:
    """INV-07: the same key was written between the read and the base."""
    store = copy("cow")
    path = lost_update(store)
    assert found(store) == [("INV-07", path)]
    report = verify(client(store), history=True)
    (problem,) = report.problems
    assert "lost the update of version 7" in problem.message
    assert report.checked["read sets"] == 1


def test_the_history_alone_tells_of_windows_instants_and_chains(copy: Copy) -> None:
    """INV-01, INV-03, INV-07: no data file is opened, no directory but the timeline's listed."""
    store = copy("mor")
    assert verify(client(store), history=True).problems == ()
    assert set(verify(client(store), history=True).checked) <= {"versions", "windows", "manifests"}
    changes = Changes(touched=touched(0, 1))
    forge(store, lambda d: replace(d, base=4, changes=changes), like=2)
    (problem,) = verify(client(store), history=True).problems
    assert problem.invariant == "INV-07"


def test_verify_reports_a_first_commit_that_rests_on_itself() -> None:
    """INV-07."""
    store = memory()
    create(store)
    upsert(client(store))
    path = reseal(store, 1, lambda decision: replace(decision, base=1))
    problems = verify(client(store), data=False).problems
    assert [(p.invariant, p.path) for p in problems] == [("INV-07", path)]


@pytest.mark.parametrize("base", [-2, 7, 99])
def test_verify_reports_a_base_that_does_not_lie_before(copy: Copy, base: int) -> None:
    """INV-07."""
    store = copy("cow")
    path = forge(store, lambda d: replace(nothing(d), base=base), like=2)
    assert found(store) == [("INV-07", path)]


# --- INV-08 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_verify_reports_the_file_that_repeats_live_keys(copy: Copy, kind: str) -> None:
    """INV-08."""
    store = copy(kind)
    twin = add_twin(store, one_live(store))
    assert found(store) == [("INV-08", twin)]
    assert found(store, data=False) == []


def test_verify_reports_keys_that_lie_in_the_wrong_bucket(copy: Copy) -> None:
    """INV-08: an upsert would not find them, and would add them again."""
    store = copy("cow")
    rows = {row["bucket"]: row for row in live(store)}
    twin = add_twin(store, str(rows[0]["path"]), bucket=1)
    assert found(store) == [("INV-08", twin)]


def add_twin(store: LocalStore, path: str, *, remove: bool = False, **values: object) -> str:
    """Forge a decision that adds a copy of a live file, described in another way."""
    row = next(row for row in live(store) if row["path"] == path)
    twin = path.replace(".parquet", "").rsplit("-", 1)[0] + "-9999.base.parquet"
    store.put(twin, Path(store.root, path).read_bytes())
    entry = {**{name: row[name] for name in ADDED.names}, "path": twin, **values}
    changes = Changes(
        added=pa.Table.from_pylist([entry], schema=ADDED),
        removed=pa.table({"path": [path] if remove else []}, schema=PATHS),
    )
    forge(store, lambda decision: replace(decision, changes=changes), like=2)
    return twin
