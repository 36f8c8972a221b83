"""Archives that are killed, slow, or beside another one."""

from __future__ import annotations

import pytest

from plait.services.maintenance.archive import archive, plan_archive
from plait.services.maintenance.clean import clean
from plait.services.verify.checks import verify
from plait.storage.memory import MemoryStore
from plait.timeline import paths
from tests.support.protocol import Phases, client, create, listed, memory, upsert


def table(writes: int = 20) -> MemoryStore:
    store = memory()
    create(store, properties={"checkpoint.interval": "4", "archive.keep": "3"})
    write(store, writes)
    return store


def write(store: MemoryStore, count: int) -> None:
    handle = client(store)
    for number in range(count):
        upsert(handle, number % 4)


def test_a_long_history_moves_in_several_archives(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is killed reads little again; the next one goes on where it ended."""
    monkeypatch.setattr("plait.services.maintenance.archive._DECISIONS_MAX", 7)
    store = table(40)
    lasts = []
    while (plan := plan_archive(client(store))).decisions:
        assert plan.decisions <= 7
        assert archive(client(store), plan).version is not None
        lasts.append(plan.last)
    assert lasts[:3] == [6, 13, 20]
    assert lasts[-1] > 30
    assert verify(client(store), data=False).problems == ()


def test_an_archive_goes_on_when_its_file_was_merged_and_cleaned_meanwhile() -> None:
    """INV-01: nothing is damaged, and it is told so."""
    store = table()

    def others() -> None:
        write(store, 40)
        assert archive(client(store)).plan.merged
        clean(client(store))

    report = archive(client(store, observer=Phases(on={"empty": others})))
    (path,) = report.files
    assert path not in listed(store, paths.ARCHIVE), "it is gone, so the test sees what it is for"
    assert verify(client(store), data=False).problems == ()
