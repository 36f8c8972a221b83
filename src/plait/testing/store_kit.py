"""What every store must do. Subclass it and provide the fixture ``store``: a new, empty place.

``StoreKit`` runs in this process. ``SharedStoreKit`` races several processes, each of which opens
the store's ``address`` with ``open_store``; it is for stores that other processes can reach.
"""

# Tests: their names say what is promised, and their asserts are the point.
# ruff: noqa: S101, D102, PLR2004

from __future__ import annotations

import pickle  # noqa: TID251 - addresses travel to executors so; nothing foreign is loaded
import threading

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from plait.errors import CapabilityMissingError, CorruptMetadataError, TableError
from plait.storage import open_store
from plait.storage.port import Store
from plait.storage.race import body_of, is_whole, race_processes, race_threads
from plait.testing.expect import refused

ESCAPES = ("", "/a", "../a", "a/../../b", "a/./b", "a//b", "a\\b", "c:/x", "a\0b", "a/")


class StoreKit:
    """The guarantees of the store port that one process can check.

    It does not see whether an adapter translates every foreign error, whether it looks for
    ``later`` in ``find``, and whether it makes nothing where a table is only read.
    """

    rounds = 20
    """How many races a test runs; lower it for a slow store."""

    def reopen(self, store: Store) -> Store:
        """Open the same place again; override it for a store that ``open_store`` cannot open."""
        return open_store(store.address, create=True)

    # --- reading and writing -------------------------------------------------------------------

    def test_find_gives_none_when_there_is_no_file(self, store: Store) -> None:
        assert store.find("absent") is None
        assert store.find(".meta/not/there") is None

    def test_find_finds_no_file_in_a_directory_and_none_below_a_file(self, store: Store) -> None:
        """On a store with real directories, one in the place of a file is damage."""
        store.put("folder/file", b"1")
        for path in ("folder", "folder/file/below"):
            try:
                there = store.find(path)
            except CorruptMetadataError:
                continue
            assert there is None

    def test_put_writes_and_replaces_the_whole_file(self, store: Store) -> None:
        for body in (b"long " * 100, b"", b"short"):
            store.put("deep/er/file", body)
            assert store.find("deep/er/file") == body
            assert self.reopen(store).find("deep/er/file") == body

    def test_put_shows_readers_the_old_or_the_new_never_a_part(self, store: Store) -> None:
        other, over, seen = self.reopen(store), threading.Event(), list[bytes]()
        store.put("file", body_of("0"))

        def read() -> None:
            while not over.is_set():
                seen.append(other.find("file") or b"")

        reader = threading.Thread(target=read)
        reader.start()
        for number in range(self.rounds):
            store.put("file", body_of(str(number)))
        over.set()
        reader.join()
        assert all(is_whole(body) for body in seen)

    def test_find_refuses_a_file_that_is_too_large(self, store: Store) -> None:
        store.put("file", b"12345")
        assert store.find("file", size_max=5) == b"12345"
        with refused(CorruptMetadataError):
            store.find("file", size_max=4)

    # --- put_if_absent -------------------------------------------------------------------------

    def test_put_if_absent_wins_once(self, store: Store) -> None:
        if not store.capabilities.put_if_absent:
            with refused(CapabilityMissingError):
                store.put_if_absent("slot", b"first")
            assert store.find("slot") is None
            return
        assert store.put_if_absent("deep/er/slot", b"first") is True
        assert store.put_if_absent("deep/er/slot", b"second") is False
        assert self.reopen(store).put_if_absent("deep/er/slot", b"third") is False
        assert store.find("deep/er/slot") == b"first"

    def test_put_if_absent_finds_a_name_that_put_took(self, store: Store) -> None:
        if not store.capabilities.put_if_absent:
            return
        store.put("taken", b"")
        assert store.put_if_absent("taken", b"late") is False
        assert store.find("taken") == b""

    def test_put_if_absent_writes_large_files_whole(self, store: Store) -> None:
        if not store.capabilities.put_if_absent:
            return
        body = b"0123456789abcdef" * (6 << 16)
        assert store.put_if_absent("large", body) is True
        assert store.find("large", size_max=len(body)) == body

    def test_put_if_absent_has_one_winner_among_threads(self, store: Store) -> None:
        if not store.capabilities.put_if_absent:
            return
        stores = [self.reopen(store) for _ in range(6)]
        result = race_threads(stores, "race", rounds=self.rounds, name="thread")
        assert result.fair, result

    # --- replace -------------------------------------------------------------------------------

    def test_replace_takes_the_place_of_what_was_expected_and_of_nothing_else(
        self, store: Store
    ) -> None:
        if not store.capabilities.compare_and_swap:
            store.put("lease", b"first")
            with refused(CapabilityMissingError):
                store.replace("lease", b"second", expected=b"first")
            assert store.find("lease") == b"first"
            return
        assert store.replace("deep/er/lease", b"first", expected=b"") is False
        assert store.find("deep/er/lease") is None
        store.put("deep/er/lease", b"first")
        for wrong in (b"", b"fir", b"first ", b"other"):
            assert store.replace("deep/er/lease", b"second", expected=wrong) is False
        assert store.replace("deep/er/lease", b"second", expected=b"first") is True
        assert self.reopen(store).replace("deep/er/lease", b"third", expected=b"first") is False
        assert self.reopen(store).replace("deep/er/lease", b"longer than", expected=b"second")
        assert store.find("deep/er/lease") == b"longer than"
        assert [info.path for info in store.list("deep")] == ["deep/er/lease"]

    def test_replace_has_one_winner_among_threads(self, store: Store) -> None:
        if not store.capabilities.compare_and_swap:
            return
        stores = [self.reopen(store) for _ in range(6)]
        result = race_threads(stores, "swap", rounds=self.rounds, name="thread", swap=True)
        assert result.fair, result

    # --- listing and deleting ------------------------------------------------------------------

    def test_list_gives_every_file_below_in_the_order_of_paths(self, store: Store) -> None:
        names = [
            "a",
            "a.b/x",
            "a-b/c",
            "ab/a",
            "ab/a.x",
            "c/d",
            "c.d",
            "c-d",
            "ab/é/日本",
            "b=1/x y%2F+#?",
        ]
        for name in names:
            store.put(f"top/{name}", name.encode())
        listed = list(self.reopen(store).list("top"))
        assert [info.path for info in listed] == sorted(f"top/{name}" for name in names)
        assert [info.size for info in listed] == [len(info.path.encode()) - 4 for info in listed]
        assert [info.path for info in store.list("")] == [info.path for info in listed]

    def test_list_keeps_to_its_directory(self, store: Store) -> None:
        store.put("dir/file", b"1")
        store.put("dir2/file", b"2")
        assert [info.path for info in store.list("dir")] == ["dir/file"]
        assert [info.path for info in store.list("dir/")] == ["dir/file"]
        assert list(store.list("di")) == []
        assert list(store.list("not/there")) == []

    def test_list_and_find_see_each_write_and_delete_at_once(self, store: Store) -> None:
        other = self.reopen(store)
        for number in range(self.rounds):
            path = f"fresh/{number}/file"
            assert other.find(path) is None
            assert list(other.list(f"fresh/{number}")) == []
            store.put(path, b"1")
            assert other.find(path) == b"1"
            assert [info.path for info in other.list(f"fresh/{number}")] == [path]
            store.delete([path])
            assert other.find(path) is None
            assert list(other.list("fresh")) == []

    def test_listed_times_are_by_the_clock_of_the_store(self, store: Store) -> None:
        store.put("timed", b"1")
        modified_ms = next(iter(store.list(""))).modified_ms
        assert modified_ms is None or abs(store.now_ms() - modified_ms) < 10_000

    def test_the_clock_of_the_store_does_not_go_back(self, store: Store) -> None:
        times = [store.now_ms() for _ in range(5)]
        assert times == sorted(times)

    def test_delete_may_be_repeated(self, store: Store) -> None:
        paths = [f"old/{number}" for number in range(30)]
        for path in paths:
            store.put(path, b"1")
        store.put("kept", b"1")
        store.delete(path for path in [*paths, "never/there"])
        store.delete(paths)
        store.delete([])
        assert [info.path for info in store.list("")] == ["kept"]

    # --- paths ---------------------------------------------------------------------------------

    def test_no_path_leaves_the_table(self, store: Store) -> None:
        for path in ESCAPES:
            with refused(CorruptMetadataError):
                store.find(path)
            with refused(CorruptMetadataError):
                store.put(path, b"1")
            with refused(CorruptMetadataError):
                store.put_if_absent(path, b"1")
            with refused(CorruptMetadataError):
                store.replace(path, b"1", expected=b"")
            with refused(CorruptMetadataError):
                store.delete([path])
            with refused(CorruptMetadataError):
                store.persist([path])
            with refused(CorruptMetadataError):
                store.location(path)
        with refused(CorruptMetadataError):
            list(store.list("../"))

    def test_no_path_leaves_the_table_through_arrow(self, store: Store) -> None:
        files = store.filesystem()
        for path in ("../a", "a/../../b", "/etc/hostname"):
            for attempt in (files.open_input_file, files.open_output_stream, files.delete_file):
                try:
                    attempt(path)
                except (TableError, OSError, pa.ArrowException):
                    continue
                raise AssertionError(f"{path} was not refused")

    # --- data files ----------------------------------------------------------------------------

    def test_parquet_files_make_the_round_trip(self, store: Store) -> None:
        table = pa.table({"key": range(5000), "text": [f"row {n}" for n in range(5000)]})
        path = "day=2026-01-01/x%2Fy/file.parquet"
        pq.write_table(table, path, filesystem=store.filesystem(), row_group_size=1000)
        store.persist([path])
        files = self.reopen(store).filesystem()
        assert pq.read_table(path, filesystem=files).equals(table)
        rows = ds.dataset([path], filesystem=files).to_table(filter=ds.field("key") == 4321)
        assert rows.column("text").to_pylist() == ["row 4321"]
        assert [info.path for info in store.list("day=2026-01-01")] == [path]
        assert files.get_file_info(path).size == next(iter(store.list(""))).size
        assert store.location(path).endswith(path)

    def test_the_address_travels(self, store: Store) -> None:
        address = pickle.loads(pickle.dumps(store.address))  # noqa: S301 - our own, a line ago
        assert address == store.address
        assert self.reopen(store).address == store.address


class SharedStoreKit:
    """The guarantees between processes, for stores that any process can open by ``address``.

    A race finds most adapters whose create looks first and then writes, but not in each run: an
    adapter that passes is not proven.
    """

    rounds = 15

    def test_put_if_absent_has_one_winner_among_processes(self, store: Store) -> None:
        result = race_processes(store.address, "race", rounds=self.rounds)
        assert result is not None
        assert result.fair, result
        bodies = [store.find(f"race/{number}") for number in range(self.rounds)]
        assert all(body is not None and is_whole(body) for body in bodies)

    def test_replace_has_one_winner_among_processes(self, store: Store) -> None:
        if not store.capabilities.compare_and_swap:
            return
        result = race_processes(store.address, "swap", rounds=self.rounds, swap=True)
        assert result is not None
        assert result.fair, result
