"""Slots that were emptied or removed by hand: named, and never written over (INV-01, INV-02)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from plait import Table
from plait.errors import CorruptMetadataError
from plait.storage.port import Store
from plait.testing import CountingStore, open_wrapped
from plait.timeline import paths
from tests.support.memory import forget

ROWS = pa.table({"id": pa.array([1], pa.int64())})
ACTS: dict[str, Callable[[Table], object]] = {
    "version": lambda table: table.version,
    "scan": lambda table: table.scan().to_arrow(),
    "append": lambda table: table.append(ROWS),
    "clean": lambda table: table.maintenance.clean(),
    "transaction": lambda table: table.transaction().__enter__(),
}


@pytest.fixture(params=["disk", "memory"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "disk":
        return str(tmp_path / "t")
    forget(f"memory://{request.node.name}")
    return f"memory://{request.node.name}"


def made(uri: str, versions: int) -> Store:
    table = Table.create(uri, ROWS.schema)
    while table.version < versions:
        table.append(ROWS)
    return table._handle.store


def slots(store: Store) -> dict[str, bytes | None]:
    return {info.path: store.find(info.path) for info in store.list(paths.TIMELINE)}


HARMS: dict[str, tuple[int, int, Callable[[Store, str], object]]] = {
    "gone": (1, 2, lambda store, slot: store.delete([slot])),
    **{
        f"emptied {version}": (0, version, lambda store, slot: store.put(slot, b""))
        for version in (1, 2, 3)
    },
}


@pytest.mark.long(20)
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("aged", [True, False], ids=["aged", "fresh"])
def test_a_slot_that_is_gone_or_emptied_while_later_ones_are_there_is_damage(
    uri: str, act: str, harm: str, *, aged: bool
) -> None:
    """INV-01, INV-02: nobody publishes into the gap, and nobody is shown the version before it."""
    known, lost, damage = HARMS[harm]
    store = made(uri, known)
    table = Table.open(uri)
    for _ in range(3):
        Table.open(uri).append(ROWS)
    damage(store, paths.slot(lost))
    before = slots(store)
    with pytest.raises(CorruptMetadataError) as caught:
        ACTS[act](table if aged else Table.open(uri))
    assert caught.value.path == paths.slot(lost)
    assert slots(store) == before


@pytest.mark.parametrize("gone", [2, 12])
def test_a_wide_gap_is_seen_too(uri: str, gone: int) -> None:
    store = made(uri, 2 * gone + 3)
    store.delete([info.path for info in store.list(paths.META) if "checkpoint" in info.path])
    store.delete([paths.slot(version) for version in range(1, 1 + gone)])
    with pytest.raises(CorruptMetadataError) as caught:
        Table.open(uri).append(ROWS)
    assert caught.value.path == paths.slot(1)


def test_a_decision_that_meets_an_emptied_slot_is_not_reported_as_unknown(uri: str) -> None:
    """INV-10: the slot is named; nothing was published."""
    store = made(uri, 1)

    def write() -> None:
        with Table.open(uri).writer() as writer:
            writer.write(ROWS)
            store.put(paths.slot(2), b"")

    with pytest.raises(CorruptMetadataError) as caught:
        write()
    assert caught.value.path == paths.slot(2)


def test_the_first_slot_is_not_made_anew_over_a_table(uri: str) -> None:
    store = made(uri, 2)
    store.delete([paths.slot(0)])
    with pytest.raises(CorruptMetadataError) as caught:
        Table.create(uri, ROWS.schema)
    assert caught.value.path == paths.slot(0)
    with pytest.raises(CorruptMetadataError):
        Table.open(uri)


def test_a_slot_that_comes_while_the_next_is_looked_for_is_no_gap(uri: str) -> None:
    """Both came since the first look: the file is read then."""
    store = made(uri, 1)
    last = store.find(paths.slot(1))
    assert last is not None
    for later in (paths.slot(2), paths.slot(9_999)):
        assert store.find(paths.slot(1), later=[later]) == last
    assert store.find(paths.slot(5), later=paths.slots_after(5)) is None


def test_looking_for_a_gap_is_not_a_call_of_its_own(uri: str) -> None:
    made(uri, 1)
    table, store = open_wrapped(uri, CountingStore)
    store.reset()
    assert table.version == 1
    assert store.counts("metadata") == {"find": 2}  # the head, and that the table is the same


def test_a_later_checkpoint_is_caught_up_with_after_an_emptied_slot(uri: str) -> None:
    """The head is reached, not only the checkpoint."""
    store = made(uri, 1)
    behind = Table.open(uri)
    ahead = Table.open(uri)
    for _ in range(3):
        ahead.append(ROWS)
    ahead._handle.cache.checkpoint(1)
    for _ in range(2):
        ahead.append(ROWS)
    store.put(paths.slot(2), b"")
    assert behind.version == 6


def test_a_checkpoint_of_another_table_costs_time_only(tmp_path: Path) -> None:
    """INV-11: the timeline proves a checkpoint, and an older state is begun from without one."""
    properties = {"checkpoint.interval": "2"}
    tables = [Table.create(str(tmp_path / n), ROWS.schema, properties=properties) for n in "ab"]
    for table in tables:
        while table.version < 3:
            table.append(ROWS)
    mine, other = (Path(tmp_path, name, paths.checkpoint(2)) for name in "ab")
    mine.write_bytes(other.read_bytes())
    found = Table.open(str(tmp_path / "a"))
    assert (found.version, found.scan().count()) == (3, 3 * ROWS.num_rows)


def test_a_checkpoint_of_a_deleted_table_is_not_the_head_of_the_next_one(tmp_path: Path) -> None:
    """INV-04: the slot of its version is not there, so it is of another table."""
    properties = {"checkpoint.interval": "2"}
    old = Table.create(str(tmp_path / "old"), ROWS.schema, properties=properties)
    while old.version < 4:
        old.append(ROWS)
    new = Table.create(str(tmp_path / "new"), ROWS.schema)
    shutil.copytree(tmp_path / "old" / paths.CHECKPOINTS, tmp_path / "new" / paths.CHECKPOINTS)
    shutil.copytree(tmp_path / "old" / ".meta/hints", tmp_path / "new" / ".meta/hints")
    new.append(ROWS)
    found = Table.open(str(tmp_path / "new"))
    assert (found.version, found.scan().count()) == (1, ROWS.num_rows)
    found.append(ROWS)
    assert {each.path for each in found.check.verify().problems} == {
        paths.checkpoint(2),
        paths.checkpoint(4),
    }


def test_a_manifest_that_is_missing_is_named_with_the_slot_that_names_it(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot of another table names manifests that are not here."""
    monkeypatch.setattr("plait.timeline.log.INLINE_ROWS_MAX", 0)
    store = made(uri, 1)
    (manifest,) = [i.path for i in store.list(paths.MANIFESTS) if i.path.endswith("added.parquet")]
    store.delete([manifest])
    with pytest.raises(CorruptMetadataError) as caught:
        Table.open(uri).scan()
    assert (caught.value.path, caught.value.decision) == (manifest, paths.slot(1))


def lost_behind_a_checkpoint(uri: str) -> Store:
    """Make a table of seven versions with a checkpoint of the sixth, and lose the slots from 4."""
    table = Table.create(uri, ROWS.schema, properties={"checkpoint.interval": "3"})
    while table.version < 6:
        table.append(ROWS)
    store = table._handle.store
    assert any(info.path >= paths.checkpoint(6) for info in store.list(paths.CHECKPOINTS))
    store.delete([paths.slot(version) for version in (4, 5, 6)])
    return store


def test_what_a_checkpoint_keeps_is_there_when_the_newest_slots_are_lost(uri: str) -> None:
    """INV-01: nobody writes a version anew that was reported."""
    lost_behind_a_checkpoint(uri)
    table = Table.open(uri)
    assert table.version == 6
    assert table.scan().count() == 6
    assert table.append(ROWS).version == 7
    assert Table.open(uri).scan().count() == 7


def test_a_checkpoint_that_does_not_know_the_newest_slot_keeps_nothing(uri: str) -> None:
    """INV-11: others wrote in the place of what it has, while it was not there."""
    store = lost_behind_a_checkpoint(uri)
    checkpoints = {
        info.path: store.find(info.path) or b""
        for info in store.list(paths.CHECKPOINTS)
        if info.path >= paths.checkpoint(6)
    }
    store.delete(list(checkpoints))
    for name in [info.path for info in store.list(".meta/hints")]:
        store.delete([name])
    assert Table.open(uri).append(ROWS).version == 4
    for path, body in checkpoints.items():
        store.put(path, body)
    table = Table.open(uri)
    assert (table.version, table.scan().count()) == (4, 4)
