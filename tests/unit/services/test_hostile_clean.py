"""Clean and rollback on tables that somebody tampered with: nothing else is ever deleted."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from plait import Table
from plait.errors import (
    CorruptMetadataError,
    InstantExpiredError,
    LockUnavailableError,
    TableError,
)
from plait.locks.file import FileLock
from plait.model.decision import Cleaned
from plait.model.instant import Action, Operation
from plait.storage.local import LocalStore
from plait.testing import sim_ports
from tests.support.build import again
from tests.support.forge import forge, rewrite

ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})
NONCE = "f" * 16
INSTANT = f"20200101000000000-{NONCE}"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(str(tmp_path / "t"), ROWS.schema, record_key=["id"], buckets=1)
    made.upsert(ROWS)
    return made


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / "deep").mkdir(parents=True)
    for name in (
        "file",
        "deep/file",
        INSTANT,
        f"{INSTANT}.requested",
        f"00000-{INSTANT}-a.base.parquet",
    ):
        (folder / name).write_text("precious")
        os.utime(folder / name, (1, 1))
    return folder


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


READ = ("heartbeats", "leases", "pending")
"""Folders of which a clean lists the files, so that a link in their place is refused."""


@pytest.mark.parametrize(
    "place", ["heartbeats", "leases", "pending", "manifests", "locks", "checkpoints", "locks/queue"]
)
def test_a_linked_folder_of_metadata_is_never_emptied(
    tmp_path: Path, table: Table, outside: Path, place: str
) -> None:
    link = tmp_path / "t/.meta" / place
    if link.exists():
        shutil.rmtree(link)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(outside)
    before = names(outside)
    if place in READ:
        with pytest.raises(CorruptMetadataError) as caught:
            table.maintenance.clean()
        assert caught.value.path == f".meta/{place}"
    else:
        with suppress(TableError):
            table.maintenance.clean()
    if place == "locks":
        lock = FileLock(str(tmp_path / "t"), sim_ports())
        with pytest.raises(LockUnavailableError), lock.acquire(wait_s=0, owner="me"):
            pass
        with pytest.raises(LockUnavailableError):
            lock.holder()
    assert names(outside) == before
    assert {path.read_text() for path in outside.rglob("*") if path.is_file()} == {"precious"}


@pytest.mark.parametrize("place", ["heartbeats", "leases", "pending", "manifests"])
def test_names_that_are_none_of_ours_stay(tmp_path: Path, table: Table, place: str) -> None:
    strange = [f".meta/{place}/{name}" for name in ("notes.txt", "a/b/notes.txt", f"x-{NONCE}")]
    for name in strange:
        path = tmp_path / "t" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("precious")
        os.utime(path, (1, 1))
    table.maintenance.clean()
    assert all((tmp_path / "t" / name).exists() for name in strange)


def forge_condemned(table: Table, root: str, path: str) -> None:
    store = LocalStore(root)
    cleaned = Cleaned(0, 0, ((path, 0),), ())
    forge(
        store,
        lambda d: replace(
            d,
            action=Action.CLEAN,
            operation=Operation.CLEAN,
            cleaned=cleaned,
            table=None,
            changes=type(d.changes)(),
        ),
        like=1,
    )


@pytest.mark.parametrize(
    "path",
    [
        ".meta/table.json",
        ".meta/timeline/00000000000000000000/00000000000000000000.json",
        ".meta/locks/commit",
        "data/notes.txt",
        "link/file",
        f"link/00000-{INSTANT}-a.base.parquet",
        ".meta/checkpoints/00000000000000000000/notes.txt",
        ".meta/manifests/notes.parquet",
    ],
)
def test_a_condemned_file_that_no_writer_leaves_is_refused_by_name(
    tmp_path: Path, table: Table, outside: Path, path: str
) -> None:
    """And one below a linked directory stays, whatever its name."""
    (tmp_path / "t/link").symlink_to(outside)
    target = tmp_path / "t" / path
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        target.write_text("precious")
    forge_condemned(table, str(tmp_path / "t"), path)
    with pytest.raises(CorruptMetadataError) as caught:
        again(table).maintenance.clean()
    assert caught.value.path == ("link" if path.endswith("-a.base.parquet") else path)
    assert target.exists()


@pytest.mark.parametrize("name", ["commit.holder.new", "commit.holder", "commit"])
def test_a_link_among_the_locks_is_never_written_through(
    tmp_path: Path, outside: Path, name: str
) -> None:
    link = tmp_path / "t/.meta/locks" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(outside / "file")
    lock = FileLock(str(tmp_path / "t"), sim_ports())
    try:
        with lock.acquire(wait_s=0, owner="me"):
            assert name != "commit"
    except LockUnavailableError:
        assert name == "commit"
    assert (outside / "file").read_text() == "precious"


@pytest.mark.parametrize("act", ["read", "write"])
def test_a_horizon_above_the_newest_version_lets_nobody_read_or_write(
    table: Table, act: str
) -> None:
    """A decision that says so is a lie, and what it says of files may be one as well."""

    def lie(document: dict[str, object]) -> None:
        document["cleaned"] = {"horizon": 9, "final": 9, "condemned": [], "deleted": []}

    rewrite(table._handle.store, table.version, lie)
    opened = again(table)
    with pytest.raises(InstantExpiredError) as caught:
        opened.upsert(ROWS) if act == "write" else opened.scan()
    assert caught.value.facts["oldest"] == 9
