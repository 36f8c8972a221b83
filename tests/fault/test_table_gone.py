"""A client whose table is deleted, renamed, emptied or made again at one of its storage calls.

Nobody is told of a success that is in no table, the table that is there now is as it was made, and
nothing of the old client stays behind (INV-01, INV-02, INV-10; RFC 0032). ``make soak`` takes each
call of each operation in every way: ``python -m tests.support.gone``.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from plait import Table
from plait.errors import CorruptMetadataError, StorageError, TableError, TableNotFoundError
from plait.state.checkpoint import write_checkpoint
from plait.storage import open_store
from plait.testing import Fault, FaultStore, SimClock, open_wrapped, sim_ports
from plait.timeline import paths
from tests.support.gone import (
    IN_MEMORY,
    ON_DISK,
    READS,
    SMALL,
    WRITES,
    Trial,
    clean_up,
    clear,
    files_of,
    put_files,
    telling_trials,
)
from tests.support.memory import forget
from tests.support.place import quick_place

ROWS = pa.table({"id": pa.array([1], pa.int64())})


def judged(every: Iterator[Trial]) -> None:
    """Run trials; each must find nothing wrong."""
    for trial in every:
        try:
            assert trial.run() == "", (trial.act, trial.nth)
        finally:
            clean_up(trial)


@pytest.mark.long(15)
@pytest.mark.parametrize("name", [*WRITES, *READS])
def test_an_operation_harms_nobody_when_its_table_goes(name: str) -> None:
    """INV-02, INV-10: a few calls of each operation, each in another way."""
    judged(telling_trials(name, IN_MEMORY))


@pytest.mark.parametrize("name", [*SMALL, "scan"])
def test_an_operation_makes_nothing_on_a_disk_when_its_table_goes(name: str) -> None:
    with quick_place() as place:
        judged(telling_trials(name, ON_DISK, disk=place))


def test_a_client_whose_check_gets_no_answer_does_not_know() -> None:
    """INV-10: the decision may stand, so nothing is taken away."""
    uri = "memory://gone-no-answer"
    forget(uri)
    Table.create(uri, ROWS.schema, lock="none").append(ROWS)
    table, store = open_wrapped(uri, FaultStore, ports=sim_ports(clock=SimClock()))
    store._script.append(Fault("error", "find", paths.slot(1), times=99))
    with pytest.raises(TableError) as caught:
        table.append(ROWS)
    assert type(caught.value).__name__ == "CommitOutcomeUnknownError"
    assert Table.open(uri).version == 2


def test_a_table_of_an_older_copy_is_not_written_from_what_was_seen_before() -> None:
    """INV-02: the copy has the identity of the table, and fewer versions."""
    uri = "memory://gone-older-copy"
    forget(uri)
    table = Table.create(uri, ROWS.schema, lock="none")
    copy = files_of(uri)
    for _ in range(3):
        table.append(ROWS)
    clear(uri)
    put_files(uri, copy)
    with pytest.raises(TableNotFoundError):
        table.append(ROWS)
    with pytest.raises(TableNotFoundError):
        table.scan()
    assert files_of(uri) == copy


@pytest.mark.parametrize("disk", [False, True])
@pytest.mark.parametrize("fresh", [0, 1, 2])
@pytest.mark.parametrize("cut", [False, True])
def test_a_table_that_went_back_by_one_version_is_not_written_by_an_old_client(
    tmp_path: Path, fresh: int, *, cut: bool, disk: bool
) -> None:
    """INV-02: an older copy, or a cut-off, with up to two new commits upon it."""
    uri = str(tmp_path / "t") if disk else "memory://gone-by-one"
    if not disk:
        forget(uri)
    table = Table.create(uri, ROWS.schema, lock="none", partition_by=[])
    for _ in range(2):
        table.append(ROWS)
    copy = files_of(uri)
    table.append(ROWS)
    if cut:
        open_store(uri).delete([paths.slot(3)])
    else:
        clear(uri)
        put_files(uri, copy)
    for _ in range(fresh):
        Table.open(uri).append(ROWS)
    before = files_of(uri)
    with pytest.raises(TableNotFoundError):
        table.append(ROWS)
    with pytest.raises(TableNotFoundError):
        table.scan()
    assert files_of(uri) == before
    Table.open(uri).append(ROWS)
    assert Table.open(uri).version == 3 + fresh


def test_a_table_is_not_written_above_a_damaged_decision() -> None:
    uri = "memory://gone-damaged"
    forget(uri)
    table = Table.create(uri, ROWS.schema, lock="none", partition_by=[])
    table.append(ROWS)
    open_store(uri).put(paths.slot(1), b"no decision")
    with pytest.raises(CorruptMetadataError):
        table.append(ROWS)
    assert open_store(uri).find(paths.slot(2)) is None


def test_a_decision_is_taken_back_when_the_table_went_back_before_its_put() -> None:
    """INV-02: the look after the put finds another decision below."""
    uri = "memory://gone-in-between"
    forget(uri)
    Table.create(uri, ROWS.schema, lock="none", partition_by=[]).append(ROWS)
    copy = files_of(uri)
    Table.open(uri).append(ROWS)
    table, store = open_wrapped(uri, FaultStore, ports=sim_ports(clock=SimClock()))

    def replace() -> None:
        clear(uri)
        put_files(uri, copy)
        Table.open(uri).append(ROWS)

    store._script.append(Fault("step", "put_if_absent", paths.slot(3), run=replace))
    with pytest.raises(TableNotFoundError):
        table.append(ROWS)
    assert open_store(uri).find(paths.slot(3)) is None
    assert Table.open(uri).version == 2


def test_a_disk_makes_no_directory_of_a_table_that_is_gone(tmp_path: Path) -> None:
    """A file system that was unmounted leaves its mount point, and nothing is written into it."""
    uri = str(tmp_path / "t")
    table = Table.create(uri, ROWS.schema, partition_by=[])
    table.append(ROWS)
    store = table._handle.store
    for empty in (False, True):
        shutil.rmtree(uri)
        if empty:
            (tmp_path / "t").mkdir()
        for path in (paths.CHECKPOINT_HINT, "p/file", paths.slot(9), f"inside/{paths.TABLE}"):
            with pytest.raises(StorageError):
                store.put(path, b"1")
            with pytest.raises(StorageError):
                store.put_if_absent(path, b"1")
            with pytest.raises(FileNotFoundError):
                store.filesystem().open_output_stream(f"d/{path}")
        with pytest.raises(TableError):
            table.append(ROWS)
        assert list(tmp_path.rglob("*")) == ([tmp_path / "t"] if empty else [])
        (tmp_path / "t").mkdir(exist_ok=True)


def test_only_a_creation_makes_the_directory_of_a_table(tmp_path: Path) -> None:
    made = open_store(str(tmp_path / "made"), create=True)
    assert made.put_if_absent(paths.TABLE, b"{}")
    shutil.rmtree(tmp_path / "made")
    with pytest.raises(StorageError):
        made.put(paths.slot(0), b"1")
    with pytest.raises(StorageError):
        open_store(str(tmp_path / "other")).put_if_absent(paths.TABLE, b"{}")
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_of_a_table_that_was_made_again_is_taken_away() -> None:
    """INV-11: its name is a version, which the new table will have too."""
    uri = "memory://gone-checkpoint"
    forget(uri)
    old = Table.create(uri, ROWS.schema, lock="none")
    for _ in range(4):
        old.append(ROWS)
    state = old._handle.cache.known()
    clear(uri)
    Table.create(uri, ROWS.schema, lock="none").append(ROWS)
    before = files_of(uri)
    assert write_checkpoint(old._handle.store, state, sim_ports()).parts == state.parts
    assert files_of(uri) == before
