"""Local disks: what is durable, what a crash leaves, and what happens without hard links."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from plait.errors import (
    CapabilityMissingError,
    ClockUnavailableError,
    CorruptMetadataError,
    StorageError,
)
from plait.ports import SystemIds
from plait.storage import exclusive
from plait.storage.disk import TEMP_PREFIX, Disk, kernel_ms
from plait.storage.local import TEMP_AGE_MS_MAX, LocalStore
from plait.storage.mounts import Mount
from plait.testing import SimClock

SLOT = ".meta/timeline/0/1"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "table"))


@pytest.fixture(params=[True, False], ids=["nameless", "named"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "table"), nameless=request.param)


def names(root: str) -> list[str]:
    return sorted(name for _, _, files in os.walk(root) for name in files)


def test_a_slot_costs_two_syncs_once_its_directory_is_known(either: LocalStore) -> None:
    either.put_if_absent(SLOT, b"1")
    before = either.fsyncs
    either.put_if_absent(".meta/timeline/0/2", b"2")
    assert either.fsyncs - before == 2


def test_the_way_that_leads_to_a_slot_is_synced_once(store: LocalStore) -> None:
    Path(store.root, ".meta/timeline/0").mkdir(parents=True)  # by a process that is dead now
    store.put_if_absent(SLOT, b"1")
    assert store.fsyncs == 6  # file, 0, timeline, .meta, table, and the table's name
    store.put_if_absent(".meta/timeline/1/10000", b"2")
    assert store.fsyncs == 9  # file, block directory, its name in timeline/
    assert not store.put_if_absent(SLOT, b"2")
    store.put(".meta/pending/1", b"1")
    store.put(".meta/pending/1", b"2")
    assert store.fsyncs == 9, "a lost race syncs nothing, nor does a put"


def test_a_table_at_the_top_of_the_disk_has_nothing_above_it_to_sync() -> None:
    top = Disk("/", SystemIds())
    top.sync_names(["//"])
    assert top.fsyncs <= 2


def test_a_table_in_new_directories_is_synced_up_to_the_old_one(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "new" / "er" / "table"))
    store.put_if_absent("a", b"1")
    assert store.fsyncs == 5  # file, table, er, new, and the name of new


def test_content_is_synced_before_its_name_and_the_directory_after(
    either: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a power cut leaves is the whole file or no name; what was told stays."""
    either.put_if_absent(SLOT, b"1")
    steps: list[str] = []

    def record(name: str) -> None:
        real = getattr(os, name)

        def step(*arguments: object, **options: object) -> object:
            folder = name == "fsync" and os.path.isdir(f"/proc/self/fd/{arguments[0]}")
            steps.append("sync directory" if folder else name)
            return real(*arguments, **options)

        monkeypatch.setattr(os, name, step)

    for name in ("write", "fsync", "link"):
        record(name)
    either.put_if_absent(".meta/timeline/0/2", b"2")
    assert steps == ["write", "fsync", "link", "sync directory"]


@pytest.mark.parametrize("count", [1, 9])
def test_persist_syncs_each_file_and_each_directory_once(store: LocalStore, count: int) -> None:
    store.put_if_absent("table.json", b"1")
    paths = [f"day={number % 2}/{number}" for number in range(count)]
    for path in paths:
        store.put(path, b"data")
    before = store.fsyncs
    store.persist([*paths, *paths])
    folders = len({path.split("/")[0] for path in paths})
    assert store.fsyncs - before == count + folders + 1  # and the table, which got new names
    before = store.fsyncs
    store.persist(paths)
    assert store.fsyncs - before == count + folders
    with pytest.raises(StorageError) as caught:
        store.persist(["day=1/gone"])
    assert caught.value.path == "day=1/gone"


def test_leftovers_of_the_dead_are_hidden_and_swept_when_old(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.put("dir/file", b"1")
    young, old = (tmp_path / f"dir/{TEMP_PREFIX}{n:016x}" for n in (1, 2))
    for temp, age_ms in ((young, TEMP_AGE_MS_MAX - 60_000), (old, TEMP_AGE_MS_MAX + 60_000)):
        temp.write_bytes(b"half")
        seconds = (store.now_ms() - age_ms) / 1000
        os.utime(temp, (seconds, seconds))
    assert [info.path for info in store.list("")] == ["dir/file"]
    assert young.exists()
    assert not old.exists()


def test_list_goes_on_when_files_vanish_meanwhile(store: LocalStore) -> None:
    for number in range(6):
        store.put(f"{number}/file", b"1")
    listing = store.list("")
    assert next(listing).path == "0/file"
    shutil.rmtree(Path(store.root, "2"))
    store.delete(["4/file"])
    assert [info.path for info in listing] == ["1/file", "3/file", "5/file"]


def test_files_get_the_modes_that_the_umask_allows_and_nothing_is_left_beside_them(
    either: LocalStore,
) -> None:
    old = os.umask(0o027)
    try:
        for body in (b"1", b"2"):
            either.put_if_absent("slot", body)
            either.put("file", body)
    finally:
        os.umask(old)
    assert names(either.root) == ["file", "slot"]
    modes = {Path(either.root, name).stat().st_mode & 0o777 for name in ("slot", "file")}
    assert modes == {0o640}


def without_links(monkeypatch: pytest.MonkeyPatch, code: int = errno.EPERM) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS, errno.ENOTSUP])
def test_without_hard_links_a_rename_that_never_replaces_does(
    either: LocalStore, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    without_links(monkeypatch, code)
    if exclusive._libc() is None:
        pytest.skip("no renameat2 here")
    assert either.put_if_absent("slot", b"1")
    assert not either.put_if_absent("slot", b"2")
    _file(either, "other")
    directory = os.open(either.root, os.O_RDONLY)
    assert not exclusive.rename_if_absent(directory, "other", "slot")
    os.close(directory)
    assert either.find("slot") == b"1"
    assert names(either.root) == ["other", "slot"]


def _file(store: LocalStore, name: str) -> Path:
    store.put(name, b"?")
    return Path(store.root, name)


def test_without_links_and_renameat2_it_refuses_and_leaves_nothing(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_links(monkeypatch)
    monkeypatch.setattr(exclusive, "_libc", lambda: None)
    with pytest.raises(CapabilityMissingError) as caught:
        store.put_if_absent("slot", b"1")
    assert caught.value.capability == "put_if_absent"
    assert names(store.root) == []


def test_a_link_whose_reply_is_lost_is_a_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-10, on NFS: the client sends the link again and hears that the name is taken."""
    store, link = LocalStore(str(tmp_path), nameless=False), os.link

    def link_twice(source: str, target: str, **where: int) -> None:
        link(source, target, **where)
        link(source, target, **where)

    monkeypatch.setattr(os, "link", link_twice)
    assert store.put_if_absent("slot", b"1")
    assert names(str(tmp_path)) == ["slot"]


def test_what_the_disk_refuses_is_a_storage_error_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = LocalStore(str(tmp_path / "file"))
    for attempt in (store.put, store.put_if_absent):
        with pytest.raises(StorageError) as caught:
            attempt("a", b"1")
        assert caught.value.path == "a"
    assert store.find("a") is None
    with pytest.raises(StorageError):
        store.check_root()


def test_a_full_disk_leaves_no_name(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    for attempt in (store.put, store.put_if_absent):
        with pytest.raises(StorageError):
            attempt("a", b"1")
    assert names(store.root) == []


def test_a_failed_sync_is_told_and_publishes_nothing(
    either: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    either.put("file", b"1")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError):
        either.put_if_absent("slot", b"1")
    with pytest.raises(StorageError) as caught:
        either.persist(["file"])
    assert caught.value.path == "file"
    assert names(either.root) == ["file"]


def test_a_file_that_is_too_large_is_not_read(store: LocalStore) -> None:
    path = _file(store, "huge")
    os.truncate(path, 1 << 40)
    with pytest.raises(CorruptMetadataError) as caught:
        store.find("huge")
    assert caught.value.found == 1 << 40


def test_a_swap_waits_for_another_and_gives_up_in_time(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "table"), clock=SimClock())
    store.put("folder/lease", b"1")
    other = os.open(tmp_path / "table" / "folder", os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(StorageError) as caught:
        store.replace("folder/lease", b"2", expected=b"1")
    assert caught.value.path == "folder/lease"
    assert store.find("folder/lease") == b"1"
    os.close(other)
    assert store.replace("folder/lease", b"2", expected=b"1")
    assert names(store.root) == ["lease"]


def _refuse(number: int) -> Callable[[], int]:
    def time_ms() -> int:
        raise OSError(number, os.strerror(number))

    return time_ms


@pytest.mark.skipif(kernel_ms() is None, reason="this system has no files without a disk")
def test_who_may_only_read_learns_the_time_all_the_same(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody could read as of a time of today on a disk that is mounted read-only."""
    told_ms = LocalStore(store.root).now_ms()
    for number in (errno.EACCES, errno.EPERM, errno.EROFS):
        monkeypatch.setattr(store._disk, "time_ms", _refuse(number))
        assert 0 <= store.now_ms() - told_ms < 60_000


def test_a_disk_that_fails_tells_no_time_and_another_machine_is_not_answered_for(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel of this machine knows nothing of the clock of a file server."""
    monkeypatch.setattr(store._disk, "time_ms", _refuse(errno.EIO))
    with pytest.raises(ClockUnavailableError):
        store.now_ms()
    mount = Mount("/", "nfs4", ())
    monkeypatch.setattr("plait.storage.local.find_mount", lambda _: mount)
    served = LocalStore(store.root)
    monkeypatch.setattr(served._disk, "time_ms", _refuse(errno.EACCES))
    with pytest.raises(ClockUnavailableError):
        served.now_ms()
