"""The door: which place opens which store, and what is refused with which hint."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

import pytest
from fsspec.registry import known_implementations

from plait import Table
from plait.errors import (
    MissingDependencyError,
    OptionError,
    TableNotFoundError,
)
from plait.model.store_address import StoreAddress
from plait.storage import local_root, open_store
from plait.storage.fsspec_store import FsspecStore
from plait.storage.local import LocalStore
from plait.storage.location import adapter_missing
from plait.storage.memory import MemoryStore
from tests.support.memory import forget


@pytest.mark.parametrize(
    ("uri", "root"),
    [
        ("/data/t", "/data/t"),
        ("/data/t/", "/data/t"),
        ("file:///data/t", "/data/t"),
        ("file://localhost/data/t", "/data/t"),
        ("file:///data/a%20b", "/data/a%20b"),
        ("file:/data/t", "/data/t"),
        ("FILE:/data/t", "/data/t"),
        ("file:////data/t", "/data/t"),
        ("/data/a:b", "/data/a:b"),
        ("/data/s3://b", "/data/s3:/b"),
    ],
)
def test_paths_and_file_uris_are_local(uri: str, root: str) -> None:
    store = open_store(uri)
    assert isinstance(store, LocalStore)
    assert store.root == root
    assert store.address == StoreAddress(root)


def test_relative_paths_are_pinned_when_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_store("a/table").address.uri == f"{tmp_path}/a/table"


@pytest.mark.parametrize(
    "uri",
    [
        *("", " ", "a\0b", "file://host/t", "memory://", "s3://bucket", "s3://bucket//a"),
        *("file:t", "file:", "file://", "memory:/t", "data:t", "s3:/bucket/t", "hdfs:/t", "gs:t"),
        *("s3://buck et/t", "s3a://me:secret@bucket/t"),
        *("dbfs:/t", "dbfs:///t", "dbfs://t", "wasbs://c@a/t", "C:\\data\\t", "C:/data/t"),
    ],
)
def test_what_is_no_place_is_refused(uri: str) -> None:
    with pytest.raises(OptionError) as caught:
        open_store(uri)
    assert caught.value.key == "uri"


@pytest.mark.parametrize("place", [None, 5, b"t", ["t"]])
def test_what_is_no_text_makes_no_directory(
    place: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError):
        Table.create(cast("str", place), "id bigint")
    assert not list(tmp_path.iterdir())
    assert open_store(cast("str", tmp_path / "t")).address.uri == f"{tmp_path}/t"


@pytest.mark.parametrize("uri", ["gopher://host/t", "plait://host/t", "simplecache::http://host/t"])
def test_an_unknown_scheme_is_refused_and_no_package_is_made_up(uri: str) -> None:
    """Nor are URLs chained: caches show what was."""
    with pytest.raises(OptionError) as caught:
        open_store(uri)
    assert "pip install" not in str(caught.value)


@pytest.mark.parametrize("uri", ["file:/made/here", "dbfs:/made/here", "C:/made/here"])
def test_no_directory_is_named_as_a_scheme(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((OptionError, TableNotFoundError)):
        Table.open(uri)
    if uri.startswith("file:"):
        Table.create(f"file:{tmp_path}/t", "id bigint")
        assert Table.open(f"file://{tmp_path}/t")._handle.store.address.uri == f"{tmp_path}/t"
    else:
        with pytest.raises(OptionError):
            Table.create(uri, "id bigint")
    assert {entry.name for entry in tmp_path.iterdir()} <= {"t"}


def test_remedies_name_what_means_the_same() -> None:
    for uri, remedy in {
        "dbfs:/t": "/dbfs/",
        "hdfs:/t": "hdfs://namenode",
        "s3:/bucket/t": "s3://bucket",
        "wasbs://c@a/t": "abfss://",
        "data:t": "./data:t",
        "file:t": "without file:",
    }.items():
        with pytest.raises(OptionError) as caught:
            open_store(uri)
        assert remedy in caught.value.hint, uri


def test_options_that_mean_nothing_and_unknown_words_are_refused() -> None:
    for uri in ("/data/t", "memory://t"):
        with pytest.raises(OptionError) as caught:
            open_store(uri, {"key": "secret"})
        assert "secret" not in str(caught.value)
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
    assert local_root(store.address) is None


@pytest.mark.parametrize(
    ("uri", "package"),
    [
        ("s3://bucket/t", "s3fs"),
        ("gs://bucket/t", "gcsfs"),
        ("gcs://bucket/t", "gcsfs"),
        ("abfss://c@a.dfs.core.windows.net/t", "adlfs"),
        ("az://c/t", "adlfs"),
        ("oss://bucket/t", "ossfs"),
    ],
)
def test_the_hint_names_the_package_and_never_the_scheme(
    uri: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError) as caught:
        open_store(uri)
    if package == "s3fs":
        assert caught.value.extra == "s3"
    else:
        assert caught.value.library == package
        assert caught.value.hint == f"pip install {package}"


def test_no_hint_installs_what_only_a_scheme_names() -> None:
    """A scheme's name on the package index belongs to whoever took it first."""
    for scheme, known in known_implementations.items():
        said = known.get("err", "")
        hint = adapter_missing(f"{scheme}://host/t", ImportError(said)).hint
        named = hint.removeprefix("pip install ") if "pip" in hint else ""
        assert named in said or scheme in ("abfs", "http", "https"), hint
        assert named != scheme or scheme == "dvc", hint


def test_a_name_that_is_not_utf_8_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """Arrow takes no such path, and would say so after the table was made."""
    with pytest.raises(OptionError):
        Table.create(f"{tmp_path}/t\udcff", "id bigint")
    assert list(tmp_path.iterdir()) == []
