"""The door: which place opens which store, and what is refused with which hint."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from plait.errors import MissingDependencyError, OptionError
from plait.model.plan import StoreSpec
from plait.storage import local_root, open_store
from plait.storage.fsspec_store import FsspecStore
from plait.storage.local import LocalStore
from plait.storage.memory import MemoryStore, forget


@pytest.mark.parametrize(
    ("uri", "root"),
    [
        ("/data/t", "/data/t"),
        ("/data/t/", "/data/t"),
        ("file:///data/t", "/data/t"),
        ("file://localhost/data/t", "/data/t"),
        ("file:///data/a%20b", "/data/a%20b"),
    ],
)
def test_paths_and_file_uris_are_local(uri: str, root: str) -> None:
    store = open_store(uri)
    assert isinstance(store, LocalStore)
    assert store.root == root
    assert store.spec == StoreSpec(root)


def test_relative_paths_are_pinned_when_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_store("a/table").spec.uri == f"{tmp_path}/a/table"


@pytest.mark.parametrize(
    "uri", ["", " ", "a\0b", "file://host/t", "memory://", "s3://bucket", "s3://bucket//a"]
)
def test_what_is_no_place_is_refused(uri: str) -> None:
    with pytest.raises(OptionError) as caught:
        open_store(uri)
    assert caught.value.key == "uri"


def test_chained_urls_are_refused_because_caches_show_what_was() -> None:
    with pytest.raises(OptionError):
        open_store("simplecache::http://host/t")


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(OptionError):
        open_store("gopher://host/t")


@pytest.mark.parametrize("uri", ["/data/t", "memory://t"])
def test_options_that_mean_nothing_are_refused(uri: str) -> None:
    with pytest.raises(OptionError) as caught:
        open_store(uri, {"key": "secret"})
    assert "secret" not in str(caught.value)


def test_only_known_words_can_be_declared() -> None:
    assert open_store("/data/t", {"plait.declare": "coherent"}).capabilities.put_if_absent
    with pytest.raises(OptionError) as caught:
        open_store("/data/t", {"plait.declare": "coherent, magic"})
    assert caught.value.key == "plait.declare"


def test_stores_of_one_name_in_memory_share_their_files() -> None:
    forget("memory://shared/a")
    one, other = open_store("memory://shared/a"), open_store("memory://shared/a/")
    one.put("file", b"1")
    assert isinstance(other, MemoryStore)
    assert other.find("file") == b"1"
    assert open_store("memory://shared/b").find("file") is None
    forget("memory://shared/a")
    assert open_store("memory://shared/a").find("file") is None


def test_other_urls_go_to_fsspec(tmp_path: Path) -> None:
    store = open_store(f"local://{tmp_path}")
    assert isinstance(store, FsspecStore)
    assert local_root(store.spec) is None


def test_an_adapter_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(MissingDependencyError) as caught:
        open_store("s3://bucket/table")
    assert caught.value.extra == "s3"
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(MissingDependencyError):
        open_store("gs://bucket/table")
