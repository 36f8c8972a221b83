"""Lent slots: one winner, nothing missing below the head, and keys that do not pile up."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from plait.errors import (
    CommitOutcomeUnknownError,
    CorruptMetadataError,
    LockUnavailableError,
    OptionError,
    StorageError,
    TableExistsError,
)
from plait.locks import resolve_lock
from plait.storage.memory import MemoryStore
from plait.storage.port import Capabilities, Store
from plait.table import Table
from plait.testing import CountingStore, Fault, FaultStore, SimulatedCrashError, sim_ports
from plait.timeline import paths
from plait.timeline.external_commits import BODIES, KEPT, ExternalCommitStore
from tests.support.build import rows
from tests.support.lending import (
    Client,
    Keys,
    PlainStore,
    create_lent,
    lent_table,
    versions_in,
)
from tests.support.memory import forget

URI = "memory://lent"
IDENTITY = b'{"format": 1, "id": "00112233445566778899aabbccddeeff"}'


@pytest.fixture
def store() -> Iterator[Store]:
    yield PlainStore(MemoryStore(URI))
    forget(URI)


@pytest.fixture
def keys() -> Keys:
    return Keys()


def lent(store: Store, keys: Keys) -> ExternalCommitStore:
    found = ExternalCommitStore(store, Client(keys))
    found.put_if_absent(paths.TABLE, IDENTITY)
    return found


def body_of(version: int, who: str = "a") -> bytes:
    return f"{who} decides {version}".encode()


class NoAnswerError(LockUnavailableError):
    def __init__(self) -> None:
        super().__init__("no answer")


def bodies(store: Store) -> list[str]:
    return [info.path for info in store.list(BODIES)]


def test_files_of_a_store_with_lent_slots_are_where_its_store_has_them(
    store: Store, keys: Keys
) -> None:
    """Other programs are told of them."""
    found = lent(store, keys)
    assert found.location("data/a") == store.location("data/a")
    assert found.address == store.address
    assert found.now_ms() <= store.now_ms()
    found.put("data/a", b"1")
    assert found.replace("data/a", b"2", expected=b"1")
    assert not found.replace("data/a", b"3", expected=b"1")
    assert store.find("data/a") == b"2"


def test_of_two_identities_the_one_that_the_service_has_stands(store: Store, keys: Keys) -> None:
    """INV-02: also if its copy in the store was lost."""
    assert ExternalCommitStore(store, Client(keys)).put_if_absent(paths.TABLE, IDENTITY)
    store.delete([paths.TABLE])
    other = IDENTITY.replace(b"00", b"ff")
    assert not ExternalCommitStore(store, Client(keys)).put_if_absent(paths.TABLE, other)
    assert store.find(paths.TABLE) == IDENTITY


def test_a_table_is_written_and_read_by_all_means(store: Store, keys: Keys) -> None:
    """INV-02 on a store that could only be read before."""
    table = create_lent(store, Client(keys), sim_ports(), "id bigint")
    table.append(rows(1, 2))
    other = lent_table(store, Client(keys), sim_ports())
    other.append(rows(3))
    table.delete(where="id = 1")
    for reader in (table, other, Table.open(URI)):
        assert sorted(reader.scan().to_arrow()["id"].to_pylist()) == [2, 3]
    assert table.check.verify().problems == ()
    assert bodies(store) == []


def test_one_of_many_wins_a_slot_and_all_read_the_same(store: Store, keys: Keys) -> None:
    """INV-02."""
    lent(store, keys)
    clients = [ExternalCommitStore(store, Client(keys)) for _ in range(6)]
    for version in range(20):
        won, seen = contend(clients, version)
        assert len(won) == 1
        assert seen == set(won)
        assert store.find(paths.slot(version)) == won[0]


def contend(
    clients: list[ExternalCommitStore], version: int
) -> tuple[list[bytes], set[bytes | None]]:
    won: list[bytes] = []
    seen: set[bytes | None] = set()
    start = threading.Barrier(len(clients))

    def run(number: int, client: ExternalCommitStore) -> None:
        body = body_of(version, f"client {number}")
        start.wait()
        if client.put_if_absent(paths.slot(version), body):
            won.append(body)
        seen.add(client.find(paths.slot(version)))

    threads = [threading.Thread(target=run, args=item) for item in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won, seen


@pytest.mark.parametrize("looks", [True, False], ids=["looks", "loses"])
def test_a_head_that_only_the_service_has_is_finished_by_whoever(
    store: Store, keys: Keys, *, looks: bool
) -> None:
    faults = FaultStore(store, [Fault("crash_before", "put", "*timeline*")])
    lent(store, keys)
    with pytest.raises(SimulatedCrashError):
        ExternalCommitStore(faults, Client(keys)).put_if_absent(paths.slot(0), body_of(0))
    assert store.find(paths.slot(0)) is None, "without the service: the version before"
    late = ExternalCommitStore(store, Client(keys))
    if looks:
        assert late.find(paths.slot(0)) == body_of(0)
    else:
        assert not late.put_if_absent(paths.slot(0), body_of(0, "late"))
    assert store.find(paths.slot(0)) == body_of(0)


def test_a_reader_that_may_not_write_reads_the_head_all_the_same(store: Store, keys: Keys) -> None:
    half_decided(store, keys, 0)
    refusing = FaultStore(store, [Fault("error", "put", times=99)])
    reader = ExternalCommitStore(refusing, Client(keys))
    assert reader.find(paths.slot(0)) == body_of(0)
    assert reader.find(paths.slot(0)) == body_of(0)
    assert store.find(paths.slot(0)) is None


def half_decided(store: Store, keys: Keys, version: int) -> None:
    """Leave what a writer leaves that dies before the copy."""
    lent(store, keys)
    dying = FaultStore(store, [Fault("error", "put", "*timeline*", times=9)])
    with pytest.raises(StorageError):
        ExternalCommitStore(dying, Client(keys)).put_if_absent(
            paths.slot(version), body_of(version)
        )


def test_nobody_decides_a_version_while_the_one_before_is_not_on_the_store(
    store: Store, keys: Keys
) -> None:
    """Or a reader without the service would take a gap for the head."""
    half_decided(store, keys, 0)
    refusing = FaultStore(store, [Fault("error", "put", "*timeline*", times=2)])
    writer = ExternalCommitStore(refusing, Client(keys))
    assert writer.find(paths.slot(0)) == body_of(0)
    with pytest.raises(StorageError):
        writer.put_if_absent(paths.slot(1), body_of(1))
    assert list(versions_in(store)) == []
    assert writer.put_if_absent(paths.slot(1), body_of(1))
    assert list(versions_in(store)) == [0, 1]


@pytest.mark.parametrize("after", [False, True])
def test_a_claim_without_an_answer_is_unknown_and_asking_again_tells(
    after: bool, store: Store, keys: Keys
) -> None:
    """INV-10: done or not, the same attempt wins; nobody wins twice."""
    lent(store, keys)
    client = Client(keys)
    fails = [True]

    def fail(operation: str, now_after: bool) -> None:
        if operation == "claim" and now_after is after and fails and fails.pop():
            raise NoAnswerError

    client.fault = fail
    writer = ExternalCommitStore(store, client)
    with pytest.raises(StorageError):
        writer.put_if_absent(paths.slot(0), body_of(0))
    assert (writer.find(paths.slot(0)) == body_of(0)) is after
    assert writer.put_if_absent(paths.slot(0), body_of(0))
    assert not ExternalCommitStore(store, Client(keys)).put_if_absent(
        paths.slot(0), body_of(0, "b")
    )


def test_a_sleeper_of_a_year_finds_its_slot_taken_though_the_key_is_free_again(
    store: Store, keys: Keys
) -> None:
    """INV-01: it wakes between its look at the slot and its claim."""
    lent(store, keys)
    awake = ExternalCommitStore(store, Client(keys))
    sleeper = Client(keys)

    def live_on(operation: str, after: bool) -> None:
        if operation == "claim" and not after:
            sleeper.fault = lambda _operation, _after: None
            for version in range(KEPT + 20):
                assert awake.put_if_absent(paths.slot(version), body_of(version))

    sleeper.fault = live_on
    assert not ExternalCommitStore(store, sleeper).put_if_absent(
        paths.slot(5), body_of(5, "sleeper")
    )
    assert store.find(paths.slot(5)) == body_of(5)
    assert not [key for key in keys.bound if key.endswith(f"{5:020d}")]


def test_an_emptied_slot_stays_empty(store: Store, keys: Keys) -> None:
    """INV-01."""
    writer = lent(store, keys)
    assert writer.put_if_absent(paths.slot(0), body_of(0))
    store.put(paths.slot(0), b"")
    assert writer.find(paths.slot(0)) == b""
    assert not writer.put_if_absent(paths.slot(0), body_of(0, "b"))
    assert store.find(paths.slot(0)) == b""


def test_keys_and_bodies_do_not_pile_up(store: Store, keys: Keys) -> None:
    writer = lent(store, keys)
    store.put(f"{BODIES}/{3:020d}-orphan", b"its writer died before the claim")
    store.put(f"{BODIES}/{2 * KEPT + 5:020d}-young", b"its writer may live")
    for version in range(2 * KEPT + 2):
        assert writer.put_if_absent(paths.slot(version), body_of(version))
    assert len(keys.bound) == KEPT + 2  # the place, version 0, the newest
    assert [path.rsplit("-", 1)[1] for path in bodies(store)] == ["young"]


def test_a_commit_asks_little_more(store: Store, keys: Keys) -> None:
    lent(store, keys)
    counting, client = CountingStore(store), Client(keys)
    writer = ExternalCommitStore(counting, client)
    assert writer.put_if_absent(paths.slot(0), body_of(0))
    counting.reset()
    client.calls = 0
    assert writer.put_if_absent(paths.slot(1), body_of(1))
    # found: the place, and at last the identity, so that no slot of another table is replaced
    assert counting.counts() == {"find": 3, "put": 2, "persist": 2, "delete": 1}
    assert client.calls == 1


def test_without_the_service_a_table_is_read_and_a_commit_ends_as_unknown(
    store: Store, keys: Keys
) -> None:
    """INV-10."""
    client = Client(keys)
    table = create_lent(store, client, sim_ports(), "id bigint")
    table.append(rows(1))
    client.away = True
    assert table.scan().to_arrow().num_rows == 1
    with pytest.raises(CommitOutcomeUnknownError):
        table.append(rows(2))
    client.away = False
    assert table.scan().to_arrow().num_rows == 1


def test_a_copied_table_cannot_take_its_originals_versions(store: Store, keys: Keys) -> None:
    """Copies share their original's identity; whoever comes second is refused, not mixed in."""
    table = create_lent(store, Client(keys), sim_ports(), "id bigint")
    table.append(rows(1))
    copy = PlainStore(MemoryStore(f"{URI}/copy"))
    for info in list(store.list("")):
        if not info.path.startswith("copy/"):
            copy.put(info.path, store.find(info.path) or b"")
    table.append(rows(2))
    twin = lent_table(copy, Client(keys), sim_ports())
    with pytest.raises(CorruptMetadataError) as caught:
        twin.append(rows(3))
    assert caught.value.path == paths.slot(2)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2]
    forget(f"{URI}/copy")


def test_a_table_made_anew_in_the_place_of_a_deleted_one_is_refused_at_once(
    store: Store, keys: Keys
) -> None:
    create_lent(store, Client(keys), sim_ports(), "id bigint")
    store.delete([info.path for info in list(store.list(""))])
    # Another schema: in the same millisecond the same bytes would be the same table.
    with pytest.raises(CorruptMetadataError):
        create_lent(store, Client(keys), sim_ports(), "id bigint, b string")


def test_one_of_two_creators_wins_and_both_see_one_identity(store: Store, keys: Keys) -> None:
    """INV-02."""
    first = create_lent(store, Client(keys), sim_ports(), "id bigint")
    with pytest.raises(TableExistsError):
        create_lent(store, Client(keys), sim_ports(), "id bigint, b string")
    assert first.schema.names == ["id"]
    assert store.find(paths.TABLE) in keys.bound.values()


class Stale(PlainStore):
    """Reads may miss what was written."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(put_if_absent=False)


def test_slots_are_lent_where_they_must_be_and_may_be(store: Store) -> None:
    lock = "zookeeper://h1:2181/plait"
    assert resolve_lock(lock, MemoryStore(URI)) == lock
    assert resolve_lock(f"{lock}?slots=lent", MemoryStore(URI)) == f"{lock}?slots=lent"
    assert resolve_lock(lock, store) == f"{lock}?slots=lent"
    with pytest.raises(OptionError) as caught:
        resolve_lock(lock, Stale(MemoryStore(URI)))
    assert "coherent" in caught.value.hint
    assert not ExternalCommitStore(
        Stale(MemoryStore(URI)), Client(Keys())
    ).capabilities.put_if_absent


@pytest.mark.parametrize(
    "pointer",
    [b"", b"{", b"[]", b'{"body": "../x", "sha256": ""}', b'{"body": "data", "sha256": ""}'],
)
def test_a_damaged_key_is_refused(pointer: bytes, store: Store, keys: Keys) -> None:
    writer = lent(store, keys)
    assert writer.put_if_absent(paths.slot(0), body_of(0))
    key = next(key for key in keys.bound if key.endswith(f"{0:020d}"))
    keys.bound[key.replace(f"{0:020d}", f"{1:020d}")] = pointer
    with pytest.raises(CorruptMetadataError):
        writer.find(paths.slot(1))
