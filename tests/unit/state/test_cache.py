"""What a client knows only moves forward, and costs few reads (INV-11)."""

from __future__ import annotations

import threading

import pytest

from plait.errors import CorruptMetadataError, InstantExpiredError, InstantNotFoundError
from plait.services.verify.state_replay import difference
from plait.state.cache import StateCache
from plait.state.checkpoint import list_checkpoints
from plait.storage.memory import MemoryStore
from plait.testing import CountingStore, sim_ports
from plait.timeline import paths
from plait.timeline.log import Timeline
from plait.txn.table_handle import TableHandle
from tests.support.forge import decision_at, rewrite
from tests.support.histories import History
from tests.support.protocol import client, create, live_marks, memory, upsert


@pytest.fixture
def store() -> MemoryStore:
    made = memory()
    create(made, properties={"checkpoint.interval": "50"})
    return made


def cache(store: object) -> StateCache:
    return StateCache(store, sim_ports())  # type: ignore[arg-type]  # any store


def checkpointed(store: MemoryStore) -> TableHandle:
    """Return a client that made three commits and a checkpoint after them."""
    handle = client(store)
    for _ in range(3):
        upsert(handle)
    assert handle.cache.checkpoint(1)
    return handle


def test_a_look_at_the_head_is_two_reads_when_nothing_happened(store: MemoryStore) -> None:
    counting = CountingStore(store)
    known = cache(counting)
    known.refresh()
    counting.reset()
    known.refresh()
    head, same = ("find", paths.slot(1)), ("find", paths.slot(0))
    assert [(call.operation, call.path) for call in counting.calls] == [head, same]
    handle = client(counting)
    upsert(handle)
    counting.reset()
    assert handle.cache.known().version == 1
    assert not counting.calls, "what this client published is known"


def test_a_decision_that_is_known_is_not_read_again(store: MemoryStore) -> None:
    """INV-04: whoever validates asks for those that a look at the head has just brought.

    A state that rests on a checkpoint has the later ones in memory, and no others.
    """
    checkpointed(store)
    upsert(client(store))
    counting = CountingStore(store)
    known = cache(counting)
    known.refresh()
    upsert(client(store))
    counting.reset()
    for after, limit, versions, read in (
        (3, 100, [4, 5], [5, 6]),
        (3, 1, [4], []),
        (2, 2, [3, 4], None),
    ):
        assert [found.version for found in known.decisions(after, limit=limit)] == versions
        slots = [call.path for call in counting.calls]
        assert read is None or slots == [paths.slot(version) for version in read]
        counting.reset()


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
    handle = client(store)
    older = handle.cache.refresh()
    upsert(handle)
    assert handle.cache.offer(older).version == 1
    assert handle.cache.known().version == 1
    assert handle.cache.advance(decision_at(store, 1)).version == 1


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
    handle = client(store)
    written = []
    for _ in range(12):
        upsert(handle)
        written.append(handle.cache.checkpoint(5))
    assert [n for n, done in enumerate(written, 1) if done] == [5, 10]
    assert list_checkpoints(store) == [5, 10]
    assert live_marks(store) == ["mark"] * 12


def test_a_checkpoint_that_nobody_wrote_for_two_intervals_falls_to_anyone(
    store: MemoryStore,
) -> None:
    """INV-11."""
    for _ in range(7):
        upsert(client(store))
    assert not client(store).cache.checkpoint(5)
    for _ in range(4):
        upsert(client(store))
    assert client(store).cache.checkpoint(5)
    assert list_checkpoints(store) == [11]


@pytest.mark.parametrize(("hint", "writes"), [(b"1", True), (b"10", False)])
def test_a_client_that_knows_no_checkpoint_asks_the_hint_before_it_writes_one(
    store: MemoryStore, hint: bytes, *, writes: bool
) -> None:
    """INV-11: a hint of two intervals ago does not count, a newer one is remembered."""
    for _ in range(12):
        upsert(client(store))
    counting = CountingStore(store)
    known = cache(counting)
    known.refresh()
    store.put(paths.CHECKPOINT_HINT, hint)
    assert known.checkpoint(5) is writes
    counting.reset()
    assert not known.checkpoint(5)
    assert not counting.calls


def test_a_checkpoint_that_is_two_intervals_old_is_not_believed_to_be_the_newest(
    store: MemoryStore,
) -> None:
    """INV-11: the hint is asked then, so that not every client writes one."""
    handle = checkpointed(store)
    for _ in range(10):
        upsert(client(store))
    store.put(paths.CHECKPOINT_HINT, b"12")
    handle.cache.refresh()
    assert not handle.cache.checkpoint(5)


def test_a_long_lived_client_holds_a_short_tail(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.state.cache._TAIL_MAX", 20)
    handle = client(store)
    for number in range(50):
        upsert(handle, number % 4)
    assert len(handle.cache.known().tail) <= 21
    assert difference(store, handle.cache.known(), cache(store).refresh()) is None


def test_versions_that_cannot_be_read_are_refused(store: MemoryStore) -> None:
    """INV-04: with the reason."""
    handle = client(store)
    upsert(handle)
    for version in (-1, 2, 99):
        with pytest.raises(InstantNotFoundError) as missing:
            handle.cache.snapshot(version=version)
        assert missing.value.version == version
    history = History.begin(memory()).run([("add", 1, 1)] * 3 + [("clean", 2, 0)])
    with pytest.raises(InstantExpiredError) as expired:
        history.state.snapshot(history.store, version=1)
    assert (expired.value.version, expired.value.oldest) == (1, 2)


def test_a_decision_that_does_not_continue_the_state_is_refused(store: MemoryStore) -> None:
    """INV-01."""
    handle = client(store)
    upsert(handle)
    upsert(handle)
    state = client(store).cache.refresh()
    for version in (1, 2):
        with pytest.raises(CorruptMetadataError):
            state.apply(decision_at(store, version), where="slot")


DEFINITIONS: dict[str, dict[str, object]] = {
    "bucket spec": {"bucket_spec": []},
    "contract": {"contract": []},
    "properties": {"properties": []},
    "key": {"bucket_spec": {"id": 0, "key": ["other"], "count": 4}},
    "no bucket": {"bucket_spec": {"id": 0, "key": ["id"], "count": 0}},
    "partitioning": {"partition_by": ["other"]},
    "ordering": {"ordering": "other"},
    "type": {"table_type": "other"},
    "schema": {"schema_id": 7},
}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_definition_that_cannot_be_is_refused(store: MemoryStore, name: str) -> None:
    """INV-01."""

    def change(document: dict[str, object]) -> None:
        document["table"].update(DEFINITIONS[name])  # type: ignore[attr-defined]  # an object

    rewrite(store, 0, change)
    with pytest.raises(CorruptMetadataError) as caught:
        cache(store).refresh()
    assert caught.value.path == paths.slot(0)


def test_an_archived_start_without_a_checkpoint_is_an_error(store: MemoryStore) -> None:
    """INV-01."""
    store.put(paths.slot(0), b"")
    with pytest.raises(CorruptMetadataError) as caught:
        cache(store).refresh()
    assert caught.value.expected == "a decision"


def test_an_archived_start_is_passed_over_by_a_checkpoint() -> None:
    """INV-01: an emptied slot keeps its name; the state goes on from the checkpoint."""
    history = History.begin(memory()).run([("add", 1, 1)])
    behind = cache(history.store)
    behind.refresh()
    history.run([("add", 1, 1)] * 3)
    newer = cache(history.store)
    newer.refresh()
    newer.checkpoint(1)
    history.run([("add", 1, 1)] * 2)
    for version in range(4):
        history.store.put(paths.slot(version), b"")
    assert behind.refresh().version == 6
    assert cache(history.store).refresh().version == 6
    assert len(list(Timeline(history.store).load_after(4, limit=9))) == 2


def test_an_archived_slot_is_found_covered_though_the_hint_names_an_older_checkpoint() -> None:
    """INV-01, INV-11: of two writers the one with the older checkpoint wrote the hint last."""
    store = memory()
    create(store, properties={"checkpoint.interval": "1"})
    for _ in range(4):
        upsert(client(store))
    assert list_checkpoints(store) == [1, 2, 3, 4]
    store.put(paths.CHECKPOINT_HINT, b"2")
    for version in range(1, 5):
        store.put(paths.slot(version), b"")
    assert client(store).cache.refresh().version == 4


def test_commits_are_found_by_id_and_time(store: MemoryStore) -> None:
    """INV-09: in the tail and in every part."""
    handle = client(store)
    for number in range(12):
        upsert(handle, commit_id=f"c{number}" if number % 2 else None)
        handle.cache.checkpoint(5)
    state = cache(store).refresh()
    for number in range(12):
        found = list(state.find_commits(store, f"c{number}"))
        assert found == ([number + 1] if number % 2 else [])
    rows = state.commits(store)
    assert rows["version"].to_pylist() == list(range(13))
    assert state.commits(store, since=10)["version"].to_pylist() == [11, 12]
    for version, completed in zip(
        rows["version"].to_pylist(), rows["completed_ms"].to_pylist(), strict=True
    ):
        assert state.find_version_at(store, completed) == version
    assert state.find_version_at(store, rows["completed_ms"][0].as_py() - 1) is None
