"""Verify reports each kind of damage by invariant and path, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from plait.state.checkpoint import list_checkpoints
from plait.storage.local import LocalStore
from plait.storage.port import FileInfo, Store
from plait.testing import CountingStore, Fault, FaultStore, SimClock, sim_ports
from plait.timeline import codec, paths
from plait.txn.recovery import roll_back
from tests.support import build
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
def test_verify_finds_nothing_in_a_table_that_is_whole_and_changes_nothing(
    copy: Copy, kind: str
) -> None:
    store = copy(kind)
    before = {path: store.find(path) for path in listed(store)}
    report = verify(client(store))
    assert (report.problems, report.notes, report.clean) == ((), (), True)
    assert (report.checked["versions"], report.checked["checkpoints"]) == (7, 1)
    assert report.checked["keys"] == 20_015
    assert report.checked["rows"] >= 20_015
    assert report.checked["files"] > 2
    assert report.to_dict() == {"problems": [], "notes": [], "checked": report.checked}
    assert {path: store.find(path) for path in listed(store)} == before
    place = store.address.uri.removesuffix(kind).removeprefix("local://")
    with pytest.raises(TableNotFoundError):
        verify(client(LocalStore(place)))


# --- damage by its invariant ----------------------------------------------------------------------


def put(store: LocalStore, path: str, body: bytes | None = b"?") -> str:
    store.put(path, body or b"")
    return path


def lost(store: LocalStore, path: str) -> str:
    store.delete([path])
    return path


def cut(store: LocalStore, path: str, length: int) -> str:
    return put(store, path, (store.find(path) or b"")[:length])


def flipped(store: LocalStore, path: str, *places: int) -> str:
    for at in places:
        flip(store, path, at)
    return path


def forged(store: LocalStore, *, like: int = 2, **values: object) -> str:
    """Forge a decision with these values, which changes nothing unless they say so."""
    whole: dict[str, Any] = {"changes": Changes(), **values}
    return forge(store, lambda decision: replace(decision, **whole), like=like)


def of_instant(store: LocalStore, **values: str) -> str:
    """Forge a commit whose instant has this time or this nonce."""
    return forge(
        store,
        lambda d: replace(d, changes=Changes(), instant=replace(d.instant, **values)),
        like=2,
    )


def rolled_back(store: LocalStore, instant: Instant, nonce: str = "d" * 16) -> str:
    """Forge the rollback of an instant."""
    ended = RolledBack(instant, "forged")

    def change(decision: Decision) -> Decision:
        return replace(
            decision,
            changes=Changes(),
            instant=Instant(decision.instant.time, nonce),
            operation=Operation.ROLLBACK,
            action=Action.ROLLBACK,
            rolled_back=(ended,),
        )

    return forge(store, change, like=2)


def replaced_slot(store: LocalStore) -> str:
    """The next one names the checksum of what was there."""
    reseal(store, 3, lambda decision: replace(decision, client={}))
    return paths.slot(4)


def far_beyond_a_gap(store: LocalStore) -> str:
    """Nobody who looks for the head would find them; a listing does."""
    decision = replace(decision_at(store, 3), changes=Changes(), version=25_000, base=24_999)
    instant = Instant.at(1, "f" * 16)
    put(store, paths.slot(25_000), codec.encode(replace(decision, instant=instant, previous="?")))
    return paths.slot(7)


def rolled_back_twice(store: LocalStore) -> str:
    rolled_back(store, Instant.at(1, "e" * 16), nonce="1" * 16)
    return rolled_back(store, Instant.at(1, "e" * 16))


def committed_after_its_rollback(store: LocalStore) -> str:
    rolled_back(store, Instant.at(1, "e" * 16))
    return of_instant(store, nonce="e" * 16)


def pages_of_a_text(store: LocalStore) -> str:
    """Looking for keys that are there twice would not read them."""
    path = one_live(store)
    text = pq.read_metadata(Path(store.root, path)).row_group(0).column(1)
    assert text.path_in_schema == "text"
    return flipped(store, path, *range(text.data_page_offset + 4, text.data_page_offset + 24))


def pages(store: LocalStore) -> str:
    path = one_live(store)
    body = store.find(path) or b""
    return put(store, path, body[:8] + b"\xff" * 5_000 + body[5_008:])


def removed_twice(store: LocalStore) -> str:
    removed = decision_at(store, 2).changes.removed
    assert removed.num_rows
    return forged(store, changes=Changes(removed=removed))


def one_that_older_versions_need(store: LocalStore) -> str:
    path = str(decision_at(store, 3).changes.removed["path"][0].as_py())
    assert path not in [row["path"] for row in live(store)]
    return lost(store, path)


def add_twin(store: LocalStore, *, remove: bool = False, bucket: int = 0, **values: object) -> str:
    """Forge a decision that adds a copy of a live file, described in another way."""
    row = next(row for row in live(store) if (row["path"] == one_live(store)) or bucket)
    path = str(row["path"])
    twin = path.replace(".parquet", "").rsplit("-", 1)[0] + "-9999.base.parquet"
    put(store, twin, store.find(path))
    other = {"bucket": 1 - int(str(row["bucket"]))} if bucket else {}
    entry = {**{name: row[name] for name in ADDED.names}, "path": twin, **values, **other}
    changes = Changes(
        added=pa.Table.from_pylist([entry], schema=ADDED),
        removed=pa.table({"path": [path] if remove else []}, schema=PATHS),
    )
    forged(store, changes=changes)
    return twin


def vector_file(store: LocalStore) -> dict[str, Any]:
    return next(row for row in live(store) if row["dv_path"] is not None)


def damaged_vector(store: LocalStore) -> str:
    row = vector_file(store)
    return flipped(store, row["dv_path"], row["dv_offset"] + 100)


def other_vector(store: LocalStore, masked: int) -> str:
    """Give a file the vector of another one, which masks other rows, beyond the end of this one."""
    rows = live(store)
    small = str(min(rows, key=lambda row: int(str(row["rows"])))["path"])
    vector = next(row["inline"] for row in rows if isinstance(row["inline"], bytes))
    mask = {"path": small, "rows": masked, "inline": vector}
    forged(store, changes=Changes(masked=pa.Table.from_pylist([mask], schema=MASKED)))
    return small


Damage = Callable[[LocalStore], str]
"""Damages a table; returns the path that must be named."""
DAMAGE: dict[str, Damage] = {
    "INV-01 first slot flipped": lambda s: flipped(s, paths.slot(0), 400),
    "INV-01 slot flipped": lambda s: flipped(s, paths.slot(3), 400),
    "INV-01 newest slot flipped": lambda s: flipped(s, paths.slot(6), 400),
    "INV-01 slot empty": lambda s: cut(s, paths.slot(3), 0),
    "INV-01 slot cut off": lambda s: cut(s, paths.slot(3), 90),
    "INV-01 slot without its end": lambda s: cut(s, paths.slot(3), -1),
    "INV-01 slot replaced": replaced_slot,
    "INV-01 unknown feature": lambda s: rewrite(s, 6, lambda d: d.update(features=["time-2"])),
    "INV-02 first slot missing": lambda s: lost(s, paths.slot(0)),
    "INV-02 slot missing": lambda s: lost(s, paths.slot(5)),
    "INV-02 slots beyond a gap": far_beyond_a_gap,
    "INV-02 another version": lambda s: put(s, paths.slot(7), s.find(paths.slot(3))),
    "INV-02 no number": lambda s: put(s, f"{paths.TIMELINE}/7.json"),
    "INV-02 no name": lambda s: put(s, f"{paths.TIMELINE}/00000000000000000000/x.json"),
    "INV-02 deep name": lambda s: put(s, f"{paths.TIMELINE}/{'1/' * 9}x"),
    "INV-03 nonce again": lambda s: of_instant(s, nonce=decision_at(s, 2).instant.nonce),
    "INV-03 time again": lambda s: of_instant(s, time=decision_at(s, 2).instant.time),
    "INV-03 not later": lambda s: forged(s, completed_ms=decision_at(s, 6).completed_ms),
    "INV-03 commit id again": lambda s: forged(s, commit_id="six", like=6),
    "INV-03 rollback of a commit": lambda s: rolled_back(s, decision_at(s, 5).instant),
    "INV-03 second rollback": rolled_back_twice,
    "INV-03 commit after rollback": committed_after_its_rollback,
    "INV-04 file missing": lambda s: lost(s, one_live(s)),
    "INV-04 file cut off": lambda s: cut(s, one_live(s), 1_000),
    "INV-04 footer": lambda s: flipped(s, one_live(s), -6),
    "INV-04 pages": pages,
    "INV-04 pages of no key": pages_of_a_text,
    "INV-04 other rows than declared": lambda s: add_twin(s, remove=True, rows=7),
    "INV-04 other columns than declared": lambda s: add_twin(s, remove=True, schema_id=9),
    "INV-04 other size than declared": lambda s: add_twin(s, remove=True, bytes=1),
    "INV-04 removal of what is not live": removed_twice,
    "INV-04 checkpoint": lambda s: flipped(s, paths.checkpoint(4), 200),
    "INV-04 lying checkpoint": lambda s: reseal_checkpoint(s, 4, final=1),
    "INV-05 file of older versions": one_that_older_versions_need,
    "INV-06 file among others": lambda s: put(s, "data/stray.parquet"),
    "INV-06 file elsewhere": lambda s: put(s, "elsewhere/deep/file"),
    "INV-06 file of nobody": lambda s: put(s, f"data/00000-{LOST}-0-0001.base.parquet"),
    "INV-06 manifest of nobody": lambda s: put(s, f".meta/manifests/{LOST}/a1-added.parquet"),
    "INV-06 file among checkpoints": lambda s: put(s, ".meta/checkpoints/stray"),
    "INV-06 heartbeat of nobody": lambda s: put(s, f".meta/heartbeats/{LOST}"),
    "INV-06 no record": lambda s: put(s, ".meta/pending/what.requested"),
    "INV-06 other metadata": lambda s: put(s, ".meta/other"),
    "INV-07 conflict in its window": lambda s: forged(s, base=4, changes=TOUCHING),
    "INV-07 base before the first": lambda s: forged(s, base=-2),
    "INV-07 base of its own": lambda s: forged(s, base=7),
    "INV-07 base that is no version yet": lambda s: forged(s, base=99),
    "INV-08 keys again": add_twin,
    "INV-08 keys in the wrong bucket": lambda s: add_twin(s, bucket=1),
}
OF_LOGS: dict[str, Damage] = {
    "INV-04 file of many missing": lambda s: lost(s, one_live(s)),
    "INV-04 vector missing": lambda s: lost(s, vector_file(s)["dv_path"]),
    "INV-04 vector damaged": damaged_vector,
    "INV-04 vector of fewer rows": lambda s: other_vector(s, 1),
    "INV-04 vector of as many rows": lambda s: other_vector(s, 3),
    "INV-04 vector of more rows": lambda s: other_vector(s, 20_001),
    "INV-08 keys again in logs": add_twin,
}
LOST = f"20260101000000000-{'a' * 16}"
TOUCHING = Changes(touched=touched(0, 1))
IN_DATA = ("footer", "pages", "other rows", "other columns", "vector damaged", "vector of", "keys")
"""Damage that is found only where data files are read."""


@pytest.mark.parametrize("damage", [*DAMAGE, *OF_LOGS])
def test_verify_names_each_damage_by_its_invariant_and_path_and_nothing_else(
    copy: Copy, damage: str
) -> None:
    """INV-01 to INV-08: of one flipped bit, or of a lie whose seal fits."""
    store = copy("cow" if damage in DAMAGE else "mor")
    named = (damage[:6], {**DAMAGE, **OF_LOGS}[damage](store))
    assert found(store) == [named]
    in_data = any(word in damage for word in IN_DATA)
    assert found(store, data=False) == ([] if in_data else [named])
    if named[0] == "INV-06":
        assert store.find(named[1]) == b"?", "it is left"


def test_a_report_tells_a_missing_file_in_words(copy: Copy) -> None:
    """INV-04."""
    store = copy("cow")
    path = lost(store, one_live(store))
    report = verify(client(store), data=False)
    (problem,) = report.problems
    assert "missing" in problem.message
    told = {"invariant": "INV-04", "path": path, "message": problem.message}
    assert report.to_dict()["problems"] == [told]


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


# --- INV-04 -------------------------------------------------------------------------------------


def test_verify_reports_a_file_that_goes_while_its_keys_are_looked_for(copy: Copy) -> None:
    """INV-04: the rows were read, and the keys cannot be."""
    store = copy("cow")
    path = one_live(store)
    faults = FaultStore(store, [Fault("error", "open_input", path, nth=2)])
    problems = verify(client(faults)).problems
    assert [(problem.invariant, problem.path) for problem in problems] == [("INV-04", path)]


def test_verify_reports_a_mask_that_brings_rows_back(copy: Copy) -> None:
    """INV-04."""
    store = copy("mor")
    newer = decision_at(store, 4).changes.masked["path"].to_pylist()
    older = decision_at(store, 2).changes.masked
    again = older.filter(pa.array([path in newer for path in older["path"].to_pylist()]))
    assert again.num_rows
    path = forged(store, changes=Changes(masked=again))
    assert ("INV-04", path) in found(store)


def test_verify_reports_a_wrong_count_of_files_in_the_newest_checkpoint() -> None:
    """INV-04; in an older one, the next decision says how many there are."""
    table = build.make(properties={"checkpoint.interval": "1"}, upsert=build.rows(1, v=1))
    store = table._handle.store
    path = reseal_checkpoint(store, list_checkpoints(store)[-1], files=99)
    assert [each.path for each in table.check.verify().problems] == [path]


def test_verify_reports_damaged_checkpoint_parts(copy: Copy) -> None:
    """INV-04: the table goes on without them, but should not have to."""
    store = copy("cow")
    parts = [path for path in listed(store, paths.CHECKPOINTS) if path.endswith(".parquet")]
    for path in parts:
        flip(store, path, 20)
    assert sorted(found(store)) == [("INV-04", path) for path in parts]


# --- INV-05 -------------------------------------------------------------------------------------


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


def told(store: LocalStore, path: str) -> str:
    problems = verify(client(store), data=False).problems
    return next(problem.message for problem in problems if problem.path == path)


@pytest.mark.parametrize(
    "path", [".DS_Store", "data/.DS_Store", ".meta/timeline/.DS_Store", ".meta/leases/.DS_Store"]
)
def test_verify_tells_what_another_program_left(copy: Copy, path: str) -> None:
    """INV-06: nobody has to wonder whose it is."""
    store = copy("cow")
    put(store, path)
    assert "does no harm" in told(store, path)
    assert "move it away" in told(store, path)


def test_verify_tells_a_link_or_a_pipe_from_a_file(copy: Copy, tmp_path: Path) -> None:
    """INV-04, INV-06: files below a linked directory looked lost, and the link like one of them."""
    store = copy("cow")
    path = one_live(store)
    (tmp_path / "cow" / path).rename(tmp_path / "moved file")
    (tmp_path / "cow" / path).symlink_to(tmp_path / "moved file")
    assert "is a symbolic link" in told(store, path)
    (tmp_path / "cow/data").rename(tmp_path / "moved")
    (tmp_path / "cow/data").symlink_to(tmp_path / "moved")
    os.mkfifo(tmp_path / "cow/pipe")
    assert "it is a symbolic link" in told(store, "data")
    assert "put them here themselves" in told(store, "data")
    assert "data is a symbolic link" in told(store, path)
    assert "it is a named pipe" in told(store, "pipe")


def noted(store: Store) -> dict[str, str]:
    """See that nothing is damaged; return what is told of files that do no harm."""
    report = verify(client(store), data=False)
    assert report.problems == ()
    return {note.path: note.message for note in report.notes}


def test_verify_explains_files_of_the_pending_and_notes_late_ones_of_the_rolled_back() -> None:
    """INV-06: a writer at work is no damage; also when no clean looks for late files any more."""
    clock = SimClock()
    store = memory(clock)
    create(store, properties=LITTLE)
    dead = Work.begin(client(store, clock), [((), 0)])
    assert noted(store) == {}
    roll_back(client(store, clock), dead.txn.instant, reason="test")
    (path,) = dead.hand.written
    store.put(path, b"late")
    assert noted(store).keys() == {path}
    for _ in range(2):
        upsert(client(store, clock))
        clock.advance(1)
        clean(client(store, clock))
    assert client(store).cache.refresh().late == ()
    store.put(path, b"late")
    assert noted(store).keys() == {path}


def test_verify_notes_files_that_a_checkpoint_or_a_commit_could_have_named(copy: Copy) -> None:
    """INV-06: of one who died, or a task that ran twice; no reader sees it."""
    store = copy("cow")
    part = put(store, paths.checkpoint(4, f"{'a' * 16}-0-added.parquet"))
    again = put(store, one_live(store).replace(".base.", "-again.base."))
    told = noted(store)
    assert told.keys() == {part, again}
    assert "`tablectl foreign remove` deletes it" in told[again]


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
