"""What a client knows only moves forward, and costs few reads (INV-11)."""

from __future__ import annotations

import threading

import pytest

from plait.errors import CorruptMetadataError, InstantExpiredError, InstantNotFoundError
from plait.services.verify.replay import difference
from plait.state.cache import StateCache
from plait.state.checkpoint import list_checkpoints
from plait.storage.memory import MemoryStore
from plait.testing import CountingStore, sim_ports
from plait.timeline import paths
from plait.timeline.log import Timeline
from tests.support.forge import decision_at
from tests.support.histories import History
from tests.support.protocol import client, create, live_marks, memory, upsert


@pytest.fixture
def store() -> MemoryStore:
    made = memory()
    create(made, properties={"checkpoint.interval": "50"})
    return made


def cache(store: object) -> StateCache:
    return StateCache(store, sim_ports())  # type: ignore[arg-type]  # any store


def test_a_look_at_the_head_is_one_read_when_nothing_happened(store: MemoryStore) -> None:
    counting = CountingStore(store)
    known = cache(counting)
    known.refresh()
    counting.reset()
    known.refresh()
    assert [(call.operation, call.path) for call in counting.calls] == [("find", paths.slot(1))]


def test_what_this_client_published_is_known_without_a_read(store: MemoryStore) -> None:
    counting = CountingStore(store)
    site = client(counting)
    upsert(site)
    counting.reset()
    assert site.cache.known().version == 1
    assert not counting.calls


def test_a_decision_that_is_known_is_not_read_again(store: MemoryStore) -> None:
    """Whoever validates asks for those that a look at the head has just brought."""
    for _ in range(3):
        upsert(client(store))
    counting = CountingStore(store)
    known = cache(counting)
    known.refresh()
    upsert(client(store))
    counting.reset()
    found = [decision.version for decision in known.decisions(1, limit=100)]
    assert found == [2, 3, 4]
    assert [call.path for call in counting.calls] == [paths.slot(4), paths.slot(5)]
    assert [decision.version for decision in known.decisions(0, limit=2)] == [1, 2]
    assert len(counting.calls) == 2


def test_a_client_that_slept_through_many_versions_catches_up() -> None:
    """INV-11: by a checkpoint, not one by one."""
    history = History.begin(memory())
    slept = cache(CountingStore(history.store))
    slept.refresh()
    writer = cache(history.store)
    for number in range(300):
        history.step(("add", 0, 1) if number % 10 else ("replace", number, 0))
        if number % 20 == 0:
            writer.refresh()
            writer.checkpoint(20)
    counting = slept.store
    assert isinstance(counting, CountingStore)
    counting.reset()
    state = slept.refresh()
    assert state.version == 300
    assert counting.count("find") < 110
    assert difference(history.store, state, cache(history.store).refresh()) is None


def test_a_state_never_goes_back(store: MemoryStore) -> None:
    site = client(store)
    older = site.cache.refresh()
    upsert(site)
    assert site.cache.offer(older).version == 1
    assert site.cache.known().version == 1
    assert site.cache.advance(decision_at(store, 1)).version == 1


def test_threads_that_share_a_client_see_the_same(store: MemoryStore) -> None:
    """INV-04."""
    shared = client(store)
    for number in range(5):
        upsert(client(store), number % 3, mark=str(number))
    seen: list[tuple[int, int]] = []
    start = threading.Barrier(4)

    def look() -> None:
        start.wait()
        snapshot = shared.cache.snapshot()
        seen.append((snapshot.version, snapshot.files.num_rows))

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [(5, 3)] * 4


def test_a_checkpoint_is_written_once_an_interval(store: MemoryStore) -> None:
    site = client(store)
    written = []
    for _ in range(12):
        upsert(site)
        written.append(site.cache.checkpoint(5))
    assert [n for n, done in enumerate(written, 1) if done] == [5, 10]
    assert list_checkpoints(store) == [5, 10]
    assert live_marks(store) == ["mark"] * 12


def test_a_long_lived_client_holds_a_short_tail(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.state.cache._TAIL_MAX", 20)
    site = client(store)
    for number in range(50):
        upsert(site, number % 4)
    assert len(site.cache.known().tail) <= 21
    assert difference(store, site.cache.known(), cache(store).refresh()) is None


def test_versions_that_cannot_be_read_are_refused(store: MemoryStore) -> None:
    """INV-04: with the reason."""
    site = client(store)
    upsert(site)
    for version in (-1, 2, 99):
        with pytest.raises(InstantNotFoundError) as missing:
            site.cache.snapshot(version=version)
        assert missing.value.version == version
    history = History.begin(memory()).run([("add", 1, 1)] * 3 + [("clean", 2, 0)])
    with pytest.raises(InstantExpiredError) as expired:
        history.state.snapshot(history.store, version=1)
    assert (expired.value.version, expired.value.oldest) == (1, 2)


def test_a_decision_that_does_not_continue_the_state_is_refused(store: MemoryStore) -> None:
    """INV-01."""
    site = client(store)
    upsert(site)
    upsert(site)
    state = client(store).cache.refresh()
    for version in (1, 2):
        with pytest.raises(CorruptMetadataError):
            state.apply(decision_at(store, version), where="slot")


def test_an_archived_start_without_a_checkpoint_is_an_error(store: MemoryStore) -> None:
    """INV-01."""
    store.put(paths.slot(0), b"")
    with pytest.raises(CorruptMetadataError) as caught:
        cache(store).refresh()
    assert caught.value.expected == "a checkpoint"


def test_an_archived_start_is_passed_over_by_a_checkpoint() -> None:
    """INV-01: an emptied slot keeps its name; the state goes on from the checkpoint."""
    history = History.begin(memory()).run([("add", 1, 1)] * 4)
    behind = cache(history.store)
    behind.refresh()
    newer = cache(history.store)
    newer.refresh()
    newer.checkpoint(1)
    history.run([("add", 1, 1)] * 2)
    for version in range(4):
        history.store.put(paths.slot(version), b"")
    assert cache(history.store).refresh().version == 6
    assert len(list(Timeline(history.store).load_after(4, limit=9))) == 2


def test_commits_are_found_by_id_and_time(store: MemoryStore) -> None:
    """INV-09: in the tail and in every part."""
    site = client(store)
    for number in range(12):
        upsert(site, commit_id=f"c{number}" if number % 2 else None)
        site.cache.checkpoint(5)
    state = cache(store).refresh()
    for number in range(12):
        found = state.find_commit(store, f"c{number}")
        assert found == (number + 1 if number % 2 else None)
    rows = state.commits(store)
    assert rows["version"].to_pylist() == list(range(13))
    assert state.commits(store, since=10)["version"].to_pylist() == [11, 12]
    for version, completed in zip(
        rows["version"].to_pylist(), rows["completed_ms"].to_pylist(), strict=True
    ):
        assert state.find_version_at(store, completed) == version
    assert state.find_version_at(store, rows["completed_ms"][0].as_py() - 1) is None
