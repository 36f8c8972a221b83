"""Repair mends what is provably right, says what it cannot mend, and never guesses (RFC 0018)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from plait import Table
from plait.errors import OptionError, RetryableConflictError
from plait.services.verify.checks import verify
from plait.services.verify.repair import Finding, RepairPlan, plan_repair, repair
from plait.state.cache import StateCache
from plait.state.checkpoint import list_checkpoints
from plait.storage.local import LocalStore
from plait.storage.port import Store
from plait.testing import sim_ports
from plait.timeline import paths
from tests.support.forge import flip, reseal, reseal_checkpoint
from tests.support.protocol import beside, client, create, listed, memory
from tests.unit.services.conftest import Copy, rows


@pytest.fixture(params=["cow", "mor"])
def store(request: pytest.FixtureRequest, copy: Copy) -> LocalStore:
    return copy(request.param)


@pytest.fixture
def backup(tables: Path, store: LocalStore) -> LocalStore:
    return LocalStore(str(tables / store.address.uri.rstrip("/").rpartition("/")[2]))


def answers(store: Store, backup: Store | None = None) -> dict[str, str]:
    plan = plan_repair(client(store), backup)
    return {finding.id: finding.answer for finding in plan.findings}


def mended(store: Store, backup: Store | None = None) -> list[str]:
    """Repair; give what was mended, and see that nothing is left."""
    report = repair(client(store), plan_repair(client(store), backup), backup)
    assert report.left == ()
    assert verify(client(store)).problems == ()
    return [finding.id for finding in report.mended]


def bodies(store: Store) -> dict[str, bytes | None]:
    return {path: store.find(path) for path in listed(store)}


def one_live(store: Store) -> str:
    rows = StateCache(store, sim_ports()).snapshot().files.to_pylist()
    return str(max(rows, key=lambda row: int(str(row["rows"])))["path"])


def test_a_table_that_is_whole_needs_no_repair_and_a_plan_changes_nothing(
    store: LocalStore, backup: LocalStore
) -> None:
    before = bodies(store)
    assert answers(store) == {}
    plan = plan_repair(client(store), backup)
    assert repair(client(store), plan).mended == ()
    assert bodies(store) == before
    flip(store, paths.slot(3), 200)
    flip(store, paths.checkpoint(4), 200)
    before = bodies(store)
    assert len(answers(store, backup)) == 2
    report = repair(client(store), plan, backup)
    assert (report.mended, len(report.left)) == ((), 2), "only what the plan names is mended"
    assert bodies(store) == before
    other = memory()
    create(other)
    with pytest.raises(OptionError):
        plan_repair(client(store), other)


@pytest.mark.parametrize("damage", ["state.json", "part", "lie"])
def test_a_damaged_checkpoint_is_made_again_from_the_decisions(
    store: LocalStore, damage: str
) -> None:
    """INV-11."""
    state = paths.checkpoint(4)
    part = next(p for p in listed(store, paths.CHECKPOINTS) if p.endswith("-added.parquet"))
    path = part if damage == "part" else state
    if damage == "lie":
        reseal_checkpoint(store, 4, final=1)
    else:
        flip(store, path, 200)
    assert mended(store) == [f"checkpoint:{path}"]
    assert list_checkpoints(store)[-1] == 6
    assert client(store).cache.snapshot().version == 6


def test_a_checkpoint_is_not_deleted_while_a_decision_is_missing(store: LocalStore) -> None:
    """It may be all that is left of that decision."""
    store.delete([paths.slot(2)])
    flip(store, paths.checkpoint(4), 200)
    assert answers(store) == {
        f"slot:{paths.slot(2)}": "choose",
        f"checkpoint:{paths.checkpoint(4)}": "later",
    }
    assert repair(client(store), plan_repair(client(store))).mended == ()
    assert list_checkpoints(store) == [4]


def old_file(store: Store) -> str:
    """Return a data file that only older versions need."""
    live = set(StateCache(store, sim_ports()).snapshot().files["path"].to_pylist())
    names = listed(store, "data")
    return next(p for p in names if p.endswith(".base.parquet") and p not in live)


def vector(store: Store) -> str:
    return next(p for p in listed(store, "data") if p.endswith(".dv.bin"))


def other_decision(store: LocalStore) -> str:
    """Let verify name the decision after it, which is right."""
    return reseal(store, 3, lambda decision: replace(decision, client={}))


def put(store: Store, path: str, body: bytes | None) -> str:
    store.put(path, body or b"")
    return path


def lost(store: Store, path: str) -> str:
    store.delete([path])
    return path


def flipped(store: LocalStore, path: str) -> str:
    flip(store, path, 300)
    return path


def one_without_its_end(store: LocalStore) -> str:
    path = one_live(store)
    return put(store, path, (store.find(path) or b"")[:-1])


LOST: dict[str, tuple[str, Callable[[LocalStore], str]]] = {
    "slot: missing": ("lost", lambda s: lost(s, paths.slot(3))),
    "slot: flipped": ("lost", lambda s: flipped(s, paths.slot(3))),
    "slot: empty": ("lost", lambda s: put(s, paths.slot(3), b"")),
    "slot: of an earlier version": ("lost", lambda s: put(s, paths.slot(3), s.find(paths.slot(2)))),
    "slot: of a later version": ("lost", lambda s: put(s, paths.slot(3), s.find(paths.slot(4)))),
    "slot: of another decision": ("lost", other_decision),
    "file: missing": ("choose", lambda s: lost(s, one_live(s))),
    "file: flipped": ("choose", lambda s: flipped(s, one_live(s))),
    "file: cut": ("choose", one_without_its_end),
    "file: of older versions": ("lost", lambda s: lost(s, old_file(s))),
    "vector: missing": ("lost", lambda s: lost(s, vector(s))),
}
OF_LOGS = ("slot: missing", "file: cut", "vector: missing")


@pytest.mark.parametrize("what", LOST)
def test_what_a_decision_proves_comes_back_from_a_copy(copy: Copy, tables: Path, what: str) -> None:
    """INV-01, INV-04, INV-05: the very bytes that the next decision, or the file's own, names."""
    kind = "mor" if what in OF_LOGS else "cow"
    store, backup = copy(kind), LocalStore(str(tables / kind))
    answer, damage = LOST[what]
    path = damage(store)
    found = f"{what.partition(':')[0]}:{path}"
    assert answers(store)[found] == answer
    assert found in mended(store, backup)
    assert store.find(path) == backup.find(path)


def test_slots_that_are_missing_one_after_the_other_come_back_as_a_chain(
    store: LocalStore, backup: LocalStore
) -> None:
    """INV-01: each proves the one before it, and the first one left proves the last."""
    lost = [paths.slot(version) for version in (2, 3, 4)]
    store.delete(lost)
    plan = plan_repair(client(store), backup)
    for _ in lost:  # verify names the first that is missing
        plan = plan_repair(client(store), backup)
        repair(client(store), plan, backup)
    assert verify(client(store)).problems == ()
    assert [store.find(path) for path in lost] == [backup.find(path) for path in lost]


def test_the_newest_slot_is_never_guessed(store: LocalStore, backup: LocalStore) -> None:
    """INV-01: no decision proves it."""
    path = paths.slot(6)
    flip(store, path, 200)
    before = store.find(path)
    assert answers(store, backup) == {f"slot:{path}": "choose"}
    repair(client(store), plan_repair(client(store), backup), backup)
    assert store.find(path) == before


def test_bytes_of_a_copy_that_nothing_proves_are_refused(
    store: LocalStore, backup: LocalStore, tmp_path: Path
) -> None:
    """INV-01, INV-04: the copy is damaged in the same places."""
    live = one_live(store)
    bad = LocalStore(str(tmp_path / "bad"))
    for path, body in bodies(backup).items():
        bad.put(path, body or b"")
    for path in (paths.slot(3), live):
        flip(bad, path, 300)
        store.delete([path])
    assert answers(store, bad)[f"slot:{paths.slot(3)}"] == "lost"
    store.put(paths.slot(3), backup.find(paths.slot(3)) or b"")
    assert answers(store, bad) == {f"file:{live}": "choose"}
    assert repair(client(store), plan_repair(client(store), bad), bad).mended == ()


def test_what_a_plan_says_is_not_trusted(store: LocalStore, backup: LocalStore) -> None:
    live = one_live(store)
    lie = Finding("file", live, "it is fine", "mend", "overwrite it")
    before = bodies(store)
    report = repair(client(store), RepairPlan((lie,)), backup)
    assert (report.mended, bodies(store)) == ((), before)


def test_a_sealed_decision_that_is_not_the_lost_one_is_refused(
    store: LocalStore, backup: LocalStore, tmp_path: Path
) -> None:
    """INV-01: its own seal proves nothing; the next decision names another."""
    other = LocalStore(str(tmp_path / "other"))
    for path, body in bodies(backup).items():
        other.put(path, body or b"")
    path = reseal(other, 3, lambda decision: replace(decision, client={}))
    store.delete([path])
    assert answers(store, other) == {f"slot:{path}": "lost"}


def by_id(table: Table) -> dict[object, object]:
    return {row["id"]: row["text"] for row in table.scan().to_arrow().to_pylist()}


def lose(store: LocalStore) -> tuple[str, set[object], dict[object, object]]:
    """Delete the file of most rows; give its finding, its visible rows and those of the others."""
    table = Table.open(store.address.uri)
    path = one_live(store)
    file = pq.read_table(store.location(path), columns=["id"])
    before = by_id(table)
    store.delete([path])
    return f"file:{path}", set(file["id"].to_pylist()), before


def test_the_rows_of_a_lost_file_are_given_up_only_on_request_and_once(store: LocalStore) -> None:
    """INV-04: everything else can be read and written again, and verify knows why."""
    finding, gone, before = lose(store)
    assert answers(store) == {finding: "choose"}
    plan = plan_repair(client(store), accept_loss=[finding])
    assert [each.answer for each in plan.findings] == ["mend"]
    report = repair(client(store), plan)
    assert [each.id for each in report.mended] == [finding]
    assert [(each.id, each.answer) for each in report.left] == [(finding, "lost")]
    table = Table.open(store.address.uri)
    after = by_id(table)
    assert after.items() <= before.items()
    assert before.keys() - after.keys() <= gone
    entry = table.inspect.history(limit=1)[0]
    assert entry.operation == "delete"
    assert entry.stats["rows_deleted"] == len(before) - len(after)
    assert finding.partition(":")[2] in str(entry.client["reason"])
    assert verify(client(store), history=True).problems == ()
    assert repair(client(store), plan).mended == ()
    assert Table.open(store.address.uri).version == table.version
    table.upsert(rows(0, 20, "again"))
    assert dict.fromkeys(range(20), "again").items() <= by_id(table).items()


def test_rows_whose_deletion_vectors_are_lost_go_whole_and_none_comes_back(copy: Copy) -> None:
    """INV-04: rows that were deleted are not shown again."""
    store = copy("mor")
    table = Table.open(store.address.uri)
    before = by_id(table)
    vectors = StateCache(store, sim_ports()).snapshot().files["dv_path"].to_pylist()
    path = next(path for path in vectors if path is not None)
    store.delete([path])
    plan = plan_repair(client(store), accept_loss=[f"vector:{path}"])
    repair(client(store), plan)
    after = by_id(Table.open(store.address.uri))
    assert after
    assert after.items() < before.items()


def test_a_writer_of_the_bucket_meets_an_accepted_loss_as_a_delete(store: LocalStore) -> None:
    """INV-07."""

    def meanwhile() -> None:
        finding, _, _ = lose(store)
        repair(client(store), plan_repair(client(store), accept_loss=[finding]))

    table = Table.open(store.address.uri)
    with pytest.raises(RetryableConflictError):
        beside(table, "publish", meanwhile).delete(where="id < 100", read_from=table.version)


def test_only_a_file_that_is_lost_and_needed_can_be_given_up(copy: Copy) -> None:
    """INV-05: a clean ends those that only older versions need."""
    store = copy("cow")
    old = lost(store, old_file(store))
    before = bodies(store)
    assert answers(store) == {f"file:{old}": "lost"}
    for wrong in ("file:data/none.parquet", "checkpoint:x", "what"):
        with pytest.raises(OptionError, match="accept_loss"):
            plan_repair(client(store), accept_loss=[wrong])
    with pytest.raises(OptionError, match="newest version"):
        plan_repair(client(store), accept_loss=[f"file:{old}"])
    assert bodies(store) == before
