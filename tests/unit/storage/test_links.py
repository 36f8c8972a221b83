"""Hostile names on a disk: links, special files and directories where files belong.

No link below the root of a table is followed, whoever put it there; the root itself may be reached
through links. What is not a regular file is refused and named, and nobody waits for it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plait.errors import CorruptMetadataError, StorageError, TableError
from plait.storage import open_store
from plait.storage.disk import TEMP_PREFIX
from plait.storage.local import LocalStore

KEPT = "precious"


@pytest.fixture(params=[True, False], ids=["nameless", "named"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> LocalStore:
    made = LocalStore(str(tmp_path / "table"), nameless=request.param)
    made.put("inside", b"1")
    return made


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A directory beside the table, which nothing may change."""
    folder = tmp_path / "outside"
    (folder / "deep").mkdir(parents=True)
    for path in (folder / "file", folder / "deep" / "file"):
        path.write_text(KEPT)
    yield folder
    assert sorted(folder.rglob("*")) == [folder / "deep", folder / "deep" / "file", folder / "file"]
    assert {path.read_text() for path in folder.rglob("file")} == {KEPT}


def write_by_arrow(store: LocalStore, path: str) -> None:
    with store.filesystem().open_output_stream(path) as sink:
        sink.write(b"1")


WRITES: dict[str, Callable[[LocalStore, str], object]] = {
    "put": lambda store, path: store.put(path, b"1"),
    "put_if_absent": lambda store, path: store.put_if_absent(path, b"1"),
    "replace": lambda store, path: store.replace(path, b"1", expected=KEPT.encode()),
    "delete": lambda store, path: store.delete([path]),
    "list": lambda store, path: list(store.list(path.rpartition("/")[0])),
    "arrow": write_by_arrow,
    "arrow_delete": lambda store, path: store.filesystem().delete_file(path),
    "arrow_move": lambda store, path: store.filesystem().move("inside", path),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("depth", [".meta", ".meta/leases"])
def test_a_linked_directory_is_never_entered(
    store: LocalStore, outside: Path, write: str, depth: str
) -> None:
    link = Path(store.root, depth)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(outside)
    path = f"{depth}/file" if "/" in depth else ".meta/deep/file"
    with pytest.raises(CorruptMetadataError) as caught:
        WRITES[write](store, path)
    assert caught.value.path == depth
    assert caught.value.found == "a symbolic link"


def test_a_link_in_place_of_a_file_is_replaced_or_removed_itself(
    store: LocalStore, outside: Path
) -> None:
    """A write never lands in its target, a deletion never takes the target away."""
    for name in ("put", "deleted", "slot"):
        Path(store.root, name).symlink_to(outside / "file")
    store.put("put", b"new")
    store.delete(["deleted"])
    assert store.find("put") == b"new"
    assert store.find("deleted") is None
    assert store.put_if_absent("slot", b"new") is False
    with pytest.raises(CorruptMetadataError):
        store.replace("slot", b"new", expected=KEPT.encode())
    with pytest.raises(CorruptMetadataError):
        write_by_arrow(store, "slot")


def test_a_link_that_leads_nowhere_takes_a_name(store: LocalStore) -> None:
    Path(store.root, "slot").symlink_to("nowhere")
    assert store.put_if_absent("slot", b"new") is False
    with pytest.raises(CorruptMetadataError):
        write_by_arrow(store, "slot")
    assert not Path(store.root, "nowhere").exists()


def test_listing_names_a_link_and_does_not_follow_it(store: LocalStore, outside: Path) -> None:
    """It is seen, so that a record which somebody replaced by a link still counts as one."""
    store.put("top/file", b"12")
    Path(store.root, "top/link").symlink_to(outside)
    Path(store.root, "top/other").symlink_to(outside / "file")
    assert [info.path for info in store.list("top")] == ["top/file", "top/link", "top/other"]
    with pytest.raises(CorruptMetadataError):
        store.find("top/other")


def test_old_temporary_names_are_swept_only_if_they_are_ours(
    store: LocalStore, outside: Path
) -> None:
    link = Path(store.root, f"{TEMP_PREFIX}{'0' * 16}")
    link.symlink_to(outside / "file")
    strange = Path(store.root, f"{TEMP_PREFIX}notes.txt")
    strange.write_text(KEPT)
    for path in (link, strange):
        os.utime(path, (1, 1), follow_symlinks=False)
    list(store.list(""))
    assert strange.exists()


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = Path.cwd()
        os.chdir(path.parent)
        made.bind(path.name)
        os.chdir(here)


SPECIAL: dict[str, Callable[[Path], None]] = {
    "fifo": make_fifo,
    "socket": make_socket,
    "directory": Path.mkdir,
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "loop": lambda path: path.symlink_to(path.name),
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", SPECIAL)
def test_what_is_not_a_file_is_refused_at_once(store: LocalStore, kind: str) -> None:
    SPECIAL[kind](Path(store.root, "odd"))
    files = store.filesystem()
    for attempt in (
        lambda: store.find("odd"),
        lambda: store.replace("odd", b"1", expected=b"2"),
        lambda: files.open_input_file("odd"),
        lambda: files.open_output_stream("odd"),
    ):
        with pytest.raises(TableError) as caught:
            attempt()
        assert caught.value.path == "odd"  # type: ignore[attr-defined]
    assert store.put_if_absent("odd", b"1") is False


def test_a_file_in_place_of_a_directory_is_named(store: LocalStore) -> None:
    for attempt in (
        lambda: store.find("inside/file"),
        lambda: list(store.list("inside")),
        lambda: list(store.list("inside/deeper")),
        lambda: store.put("inside/file", b"1"),
    ):
        with pytest.raises((CorruptMetadataError, StorageError)) as caught:
            attempt()
        assert caught.value.path == "inside"


def test_directories_without_end_are_refused(store: LocalStore) -> None:
    path = "deep/" * 300
    here = os.open(store.root, os.O_RDONLY)
    for name in path.strip("/").split("/"):
        os.mkdir(name, dir_fd=here)
        inner = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    with pytest.raises(StorageError):
        list(store.list("deep"))


def test_the_root_itself_may_be_reached_through_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    store = LocalStore(str(tmp_path / "link" / "table"))
    assert store.put_if_absent("a/b", b"1")
    write_by_arrow(store, "c/d")
    assert [info.path for info in store.list("")] == ["a/b", "c/d"]
    assert (tmp_path / "real" / "table" / "c" / "d").is_file()


@pytest.mark.parametrize("depth", [".meta", ".meta/leases"])
@pytest.mark.parametrize("write", ["put", "delete", "list", "arrow"])
def test_the_adapter_of_fsspec_for_a_disk_follows_no_link_either(
    tmp_path: Path, outside: Path, write: str, depth: str
) -> None:
    store = open_store(f"local://{tmp_path}/table")
    link = tmp_path / "table" / depth
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)
    path = f"{depth}/file" if "/" in depth else ".meta/deep/file"
    with pytest.raises(CorruptMetadataError) as caught:
        WRITES[write](store, path)  # type: ignore[arg-type]
    assert caught.value.path in (depth, path.rpartition("/")[0])
