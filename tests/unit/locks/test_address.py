"""The text of a ZooKeeper lock, and the names of tables below it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from plait.errors import CorruptMetadataError, MissingDependencyError, OptionError
from plait.locks import open_lock
from plait.locks.address import Address, with_external_slots
from plait.locks.identity import place_name, table_name
from plait.model.consent import Consent
from plait.ports import Ports
from plait.storage import open_store
from plait.table import Table
from plait.txn.reservation import CommitQueue
from tests.support.memory import forget

BAD = [
    "zookeeper",
    "zookeeper:",
    "zookeeper:h1:2181/plait",
    "zookeeper:///plait",
    "zookeeper://h1:2181",
    "zookeeper://h1:2181/",
    "zookeeper://h1:0/plait",
    "zookeeper://h1:65536/plait",
    "zookeeper://h1:x/plait",
    "zookeeper://h1,/plait",
    "zookeeper://h1,h1:2181/plait",
    "zookeeper://user@h1/plait",
    "zookeeper://h 1/plait",
    "zookeeper://h1/a//b",
    "zookeeper://h1/a/../b",
    "zookeeper://h1/./a",
    "zookeeper://h1/a b",
    "zookeeper://h1/a\x00b",
    "zookeeper://h1/a\x1fb",
    "zookeeper://h1/\ud800",
    "zookeeper://h1/é",
    "zookeeper://h1/zookeeper/plait",
    "zookeeper://h1/plait?session=never",
    "zookeeper://h1/plait?session=0.1s",
    "zookeeper://h1/plait?session=2h",
    "zookeeper://h1/plait?session=2s&session=3s",
    "zookeeper://h1/plait?slots=mine",
    "zookeeper://h1/plait?wait=3s",
    "zookeeper://h1/plait?lent",
    "zookeeper://h1/" + "a" * 2000,
]


@pytest.mark.parametrize("text", BAD)
def test_bad_text_is_refused_before_anything_is_written(text: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError) as caught:
        Table.create(str(tmp_path / "table"), "id bigint", lock=text)
    assert caught.value.key in ("lock", "session")
    assert list(tmp_path.iterdir()) == []


def test_hosts_path_and_options_are_read() -> None:
    found = Address.parse("zookeeper://h1,[::1]:2182/a/b.c-d/?slots=lent&session=1500ms")
    assert found == Address("h1:2181,[::1]:2182", "/a/b.c-d", 1.5, external_slots=True)


@pytest.mark.parametrize("query", ["", "?session=4s", "?slots=lent", "?session=4s&slots=lent"])
def test_lending_adds_just_that_and_only_once(query: str) -> None:
    text = f"zookeeper://h1/plait{query}"
    lent = Address.parse(with_external_slots(text))
    assert lent.external_slots
    assert with_external_slots(with_external_slots(text)) == with_external_slots(text)
    assert lent.session_s == Address.parse(text).session_s


def test_a_lock_without_its_library_names_the_extra_when_it_is_used_and_makes_no_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "kazoo", None)
    text = "zookeeper://127.0.0.1:9/absent?session=7s"
    lock = open_lock(text, open_store("memory://x"), Ports(), Consent().also(text))
    with pytest.raises(MissingDependencyError) as caught, lock.acquire(wait_s=0, owner="me"):
        pass
    assert caught.value.extra == "zookeeper"
    with pytest.raises(MissingDependencyError):
        Table.create(str(tmp_path / "table"), "id bigint", lock="zookeeper://h1/plait")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("missing", [True, False])
def test_a_commit_goes_on_without_a_lock_that_cannot_be_had(
    missing: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """INV-11: whether its library or its service is not there."""
    lock = f"zookeeper://127.0.0.1:9/x?session={'600ms' if missing else '700ms'}"
    table = Table.create("memory://unlocked", "id bigint", lock=lock)
    if missing:
        monkeypatch.setitem(sys.modules, "kazoo", None)
    with CommitQueue(table._handle, 5, "me"):
        assert "committing without the lock" in caplog.text
    forget("memory://unlocked")


def test_a_table_has_one_name_by_its_identity_and_another_before_it_is_made() -> None:
    store, other = open_store("memory://named"), open_store("memory://named-too")
    try:
        assert table_name(store) == place_name(store) != place_name(other)
        Table.create("memory://named", "id bigint")
        Table.create("memory://named-too", "id bigint")
        assert table_name(store) == table_name(open_store("memory://named")) != table_name(other)
        assert table_name(store) != place_name(store)
    finally:
        forget("memory://named")
        forget("memory://named-too")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"id": 7}', b'{"id": "../x"}', b'{"id": ""}'])
def test_a_damaged_identity_is_no_name(body: bytes, tmp_path: Path) -> None:
    """A guess could split the writers of a table."""
    store = open_store(str(tmp_path), create=True)
    store.put(".meta/table.json", body)
    with pytest.raises(CorruptMetadataError):
        table_name(store)
