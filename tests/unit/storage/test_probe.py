"""The probe: what it finds, when it runs, and who trusts its hint."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from plait.errors import CapabilityMissingError, StorageError
from plait.model.store_address import StoreAddress
from plait.ports import SystemClock
from plait.storage import open_store, probe, probe_store
from plait.storage.fsspec_store import FsspecStore
from plait.storage.memory import MemoryStore
from plait.storage.port import FIND_BYTES_MAX, FileInfo
from plait.testing import CountingStore
from tests.support.memory import forget

URI = "memory://probe"
WAIT_S = 30.0


class LooksThenWrites(MemoryStore):
    """What fsspec's base class makes of mode="create"."""

    def put_if_absent(self, path: str, body: bytes) -> bool:
        if self.find(path) is not None:
            return False
        SystemClock().sleep(0.001)
        self.put(path, body)
        return True


class WritesInParts(MemoryStore):
    """The name is there before the content is."""

    def put_if_absent(self, path: str, body: bytes) -> bool:
        won = super().put_if_absent(path, body[:10])
        SystemClock().sleep(0.001)
        if won:
            self.put(path, body)
        return won


class Caches(MemoryStore):
    """Remembers what it did not find."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self._seen: dict[str, bytes | None] = {}
        self._listed: dict[str, list[FileInfo]] = {}

    def find(self, path: str, *, size_max: int = FIND_BYTES_MAX) -> bytes | None:
        if path not in self._seen:
            self._seen[path] = super().find(path, size_max=size_max)
        return self._seen[path]

    def list(self, prefix: str) -> Iterator[FileInfo]:
        yield from self._listed.setdefault(prefix, list(super().list(prefix)))


@pytest.fixture(autouse=True)
def empty(monkeypatch: pytest.MonkeyPatch) -> None:
    forget(URI)
    monkeypatch.setattr(probe, "_KNOWN", {})
    monkeypatch.setattr(probe, "ROUNDS", 4)


def probed(kind: type[MemoryStore]) -> probe.ProbeReport:
    return probe.run_probe(MemoryStore(URI), reopen=lambda: kind(URI))


def subject(
    store: MemoryStore | CountingStore, adapter: str = "a 1", host: str = "h"
) -> probe.ProbeSubject:
    return probe.ProbeSubject(store, lambda: MemoryStore(URI), adapter, "here", host)


def test_a_fit_store_passes_and_nothing_of_the_probe_is_left() -> None:
    report = probed(MemoryStore)
    assert report.fit, report
    assert list(MemoryStore(URI).list("")) == []


def test_two_winners_and_torn_content_and_caches_are_found() -> None:
    assert not probed(LooksThenWrites).one_winner
    assert not probed(WritesInParts).whole
    report = probed(Caches)
    assert not report.reads_fresh
    assert not report.lists_fresh


def test_a_shared_store_is_not_fit_when_no_process_can_race(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    report = probe_store(open_store(tmp_path))
    assert not report.fit
    assert report.processes == 0
    assert report.notes


@pytest.mark.parametrize("given", [0, 1, 4, 5])
def test_a_probe_that_gets_no_thread_says_so_and_leaves_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch, given: int
) -> None:
    """The caller got ``RuntimeError: can't start new thread``; those that ran waited for ever."""
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if len(started) == given:
            message = "can't start new thread"
            raise RuntimeError(message)
        start(thread)
        started.append(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(StorageError, match="can't start new thread") as caught:
        probe.run_probe(MemoryStore(URI), reopen=lambda: MemoryStore(URI))
    assert "limit of threads" in caught.value.hint
    for thread in started:
        thread.join(WAIT_S)
    assert not any(thread.is_alive() for thread in started)
    assert list(MemoryStore(URI).list("")) == []


def test_the_hint_spares_the_next_process_on_this_host_the_probe() -> None:
    first = probe.establish(subject(MemoryStore(URI)))
    probe._KNOWN.clear()  # as in a new process
    store = CountingStore(MemoryStore(URI))
    assert probe.establish(subject(store)).fit is first.fit is True
    assert store.counts() == {"find": 1}


@pytest.mark.parametrize(("host", "adapter"), [("other", "a 1"), ("h", "a 2")])
def test_another_host_or_version_probes_again_and_keeps_its_own_hint(
    host: str, adapter: str
) -> None:
    probe.establish(subject(MemoryStore(URI)))
    probe._KNOWN.clear()
    store = CountingStore(MemoryStore(URI))
    assert probe.establish(subject(store, adapter, host)).fit
    assert store.count("list") > 1
    assert len(list(MemoryStore(URI).list(probe.HINTS))) == 2


@pytest.mark.parametrize(
    "body",
    [
        b"", b"\xff", b"[]", b"{", b'{"host": "h"}', b"[" * 60_000, b"x" * (1 << 20),
        b'{"host": "h", "adapter": "a 1", "report": 3}',
        b'{"host": "h", "adapter": "a 1", "report": {"one_winner": 1, "whole": 1, "reads_fresh": 1, "lists_fresh": 1, "swaps": true, "processes": Infinity}}',  # noqa: E501 - one line, as it is stored
        b'{"host": "other", "adapter": "a 1", "report": {}}',
    ],
)  # fmt: skip
def test_a_hint_that_cannot_be_read_costs_a_probe_and_no_more(body: bytes) -> None:
    """INV-11."""
    store = MemoryStore(URI)
    path = probe.hint_path(subject(store))
    store.put(path, body)
    assert probe.establish(subject(store)).fit
    assert json.loads(store.find(path) or b"")["report"]["one_winner"] is True


def test_a_hint_that_says_no_is_not_believed() -> None:
    store = MemoryStore(URI)
    path = probe.hint_path(subject(store))
    probe.establish(subject(store))
    document = json.loads(store.find(path) or b"")
    document["report"]["one_winner"] = False
    store.put(path, json.dumps(document).encode())
    probe._KNOWN.clear()
    assert probe.establish(subject(store)).fit


def test_a_false_yes_gives_nothing_that_the_kind_of_store_does_not_have(tmp_path: Path) -> None:
    """INV-11: the hint is asked only where the adapter is known to be atomic."""
    store = FsspecStore(StoreAddress(f"local://{tmp_path}"))
    assert not store.capabilities.put_if_absent
    with pytest.raises(CapabilityMissingError):
        store.put_if_absent("slot", b"1")
    assert list(store.list("")) == []


@pytest.mark.processes
def test_a_false_declaration_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "ROUNDS", 100)  # few races may all go well by chance
    uri, options = f"local://{tmp_path}", {"plait.declare": "atomic-create"}
    assert not open_store(uri, options).capabilities.put_if_absent


def test_a_store_that_was_proven_is_not_probed_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-11: the word spares the probe, and no more."""

    def probed(*_: object, **__: object) -> probe.ProbeReport:
        message = "it was probed"
        raise AssertionError(message)

    monkeypatch.setattr(probe, "run_probe", probed)
    uri = f"local://{tmp_path}"
    assert open_store(uri, {"plait.declare": "atomic-create proven"}).capabilities.put_if_absent
    with pytest.raises(AssertionError, match="it was probed"):
        open_store(uri, {"plait.declare": "atomic-create"}).capabilities  # noqa: B018 - it is asked
    assert not open_store(uri, {"plait.declare": "proven"}).capabilities.put_if_absent


class SwapsWithoutLooking(MemoryStore):
    """What a server makes of a condition that it does not know."""

    def replace(self, path: str, body: bytes, *, expected: bytes) -> bool:
        del expected
        self.put(path, body)
        return True


def test_a_store_whose_swap_looks_at_nothing_is_found_out_and_an_atomic_one_is_known() -> None:
    def reopen() -> SwapsWithoutLooking:
        return SwapsWithoutLooking(URI)

    report = probe.run_probe(reopen(), reopen=reopen)
    assert report.fit
    assert not report.swaps
    assert probe_store(open_store(URI)).swaps
