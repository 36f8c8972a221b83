"""Foreign files: removed only where a decision proves that nobody needs them (INV-06)."""

from __future__ import annotations

import pytest

from plait.errors import RolledBackError
from plait.model.instant import Instant
from plait.services.maintenance.clean import clean
from plait.services.verify.checks import verify
from plait.services.verify.foreign import ForeignFile, list_foreign, remove_foreign
from plait.storage.memory import MemoryStore
from plait.testing import SimClock
from plait.timeline import paths
from plait.txn.recovery import roll_back
from plait.txn.table_decisions import set_properties
from tests.support.build import LITTLE
from tests.support.protocol import Phases, Work, client, create, listed, memory, upsert

LOST = "data/00000-20260101000000000-eeeeeeeeeeeeeeee-0-0000.base.parquet"


@pytest.fixture
def store(clock: SimClock) -> MemoryStore:
    made = memory(clock)
    create(made)
    for number in range(3):
        upsert(client(made, clock), mark=str(number))
    clock.advance(1)
    return made


def owners(store: MemoryStore) -> dict[str, str]:
    return {file.path: file.owner for file in list_foreign(client(store))}


def again(path: str) -> str:
    """Name another file of the same instant."""
    return path.replace(".base.", "-again.base.")


def test_every_foreign_file_is_told_apart_by_its_instant(
    store: MemoryStore, clock: SimClock
) -> None:
    """INV-06: only what a decision proves to be nobody's is removed, whatever a plan says."""
    assert owners(store) == {}
    live = listed(store, "data")
    mine = again(live[0])
    ended = Work.begin(client(store, clock), [((), 1)])
    roll_back(client(store, clock), ended.txn.instant, reason="test")
    working = Work.begin(client(store, clock), [((), 2)])
    manifest = paths.manifest(ended.txn.instant, "a1", "added")
    strange = ["notes.txt", "data/notes.txt"]
    late = {mine, *ended.hand.written, manifest}
    for path in (*late, LOST, *strange):
        store.put(path, b"?")
    assert owners(store) == {
        mine: "unnamed",
        ended.hand.written[0]: "rolled_back",
        manifest: "rolled_back",
        working.hand.written[0]: "pending",
        LOST: "unknown",
        **dict.fromkeys(strange, "strange"),
    }
    lies = [ForeignFile(path, 1, "rolled_back") for path in [*live, *working.hand.written]]
    done = remove_foreign(client(store, clock), lies)
    assert (done.removed, [file.owner for file in done.kept]) == ((), ["pending"])
    store.delete([LOST])
    before = set(listed(store))
    done = remove_foreign(client(store, clock), list_foreign(client(store, clock)))
    assert set(done.removed) == late
    assert {file.path for file in done.kept} == {*working.hand.written, *strange}
    assert before - set(listed(store)) == late
    working.commit()


def test_an_unknown_instant_is_rolled_back_before_its_files_go(
    store: MemoryStore, clock: SimClock
) -> None:
    """INV-06: from then on it can never commit, whoever it is."""
    work = Work.begin(client(store, clock), [((), 1)])
    for info in store.list(paths.PENDING):  # somebody took its records away
        store.delete([info.path])
    seen: list[bool] = []

    def look() -> None:
        seen.append(store.find(work.hand.written[0]) is not None)

    handle = client(store, clock, observer=Phases(on={"delete": look}))
    done = remove_foreign(handle, list_foreign(handle))
    assert (done.ended, seen) == ((work.txn.instant,), [True])
    assert done.removed == tuple(work.hand.written)
    with pytest.raises(RolledBackError):
        work.commit()
    assert verify(client(store), data=False).problems == ()


def test_an_unknown_instant_that_commits_first_keeps_its_files(
    store: MemoryStore, clock: SimClock
) -> None:
    """INV-03, INV-06: its commit and the rollback compete for a slot."""
    work = Work.begin(client(store, clock), [((), 1)])
    store.delete([info.path for info in store.list(paths.PENDING)])
    handle = client(store, clock, observer=Phases(on={"publish": work.commit}))
    found = list_foreign(handle)
    assert [file.owner for file in found] == ["unknown"]
    done = remove_foreign(handle, found)
    assert (done.removed, done.ended) == ((), ())
    assert set(work.hand.written) <= set(listed(store))
    assert verify(client(store), data=False).problems == ()


def test_a_file_that_a_decision_named_is_never_removed(store: MemoryStore, clock: SimClock) -> None:
    """INV-06: that a checkpoint does not know it any more proves nothing."""
    set_properties(client(store, clock), LITTLE)
    clock.advance(1)
    before = {path: store.find(path) or b"" for path in listed(store, "data")}
    deleted = clean(client(store, clock)).deleted
    clean(client(store, clock))
    for path in deleted:
        store.put(path, before[path])
    assert owners(store) == dict.fromkeys(deleted, "dropped")
    assert remove_foreign(client(store, clock), list_foreign(client(store))).removed == ()


def test_files_of_an_instant_whose_decision_cannot_be_read_stay(
    store: MemoryStore, clock: SimClock
) -> None:
    """INV-06: nothing proves that it does not name them."""
    live = client(store, clock)
    live.cache.refresh()
    mine = again(listed(store, "data")[0])
    store.put(mine, b"?")
    instant = Instant.parse(mine.split("/")[1].split("-", 1)[1][:34])
    version = live.cache.known().find_instant(store, instant)
    store.put(paths.slot(version or 0), b"rubbish")
    assert [(f.path, f.owner) for f in list_foreign(live)] == [(mine, "unproven")]
