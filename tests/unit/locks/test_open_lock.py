"""The door to the locks, and what the file lock leaves on the disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plait.errors import LockUnavailableError, OptionError
from plait.locks import default_lock, open_lock
from plait.locks.file import FileLock, try_lock
from plait.ports import Ports
from plait.storage import open_store
from plait.storage.local import LocalStore
from plait.testing import CountingStore, SeqIds, SimClock, sim_ports


def test_each_word_opens_its_lock_and_the_default_is_the_best_that_the_store_can_have(
    tmp_path: Path,
) -> None:
    store, other = open_store(str(tmp_path)), open_store("memory://locks")
    for word in ("file", "process", "none"):
        assert open_lock(word, store, Ports()).name == word
    assert (default_lock(store), default_lock(other)) == ("file", "process")
    with pytest.raises(OptionError):
        open_lock("file", other, Ports())
    everybodys = open_lock("none", other, Ports())
    with everybodys.acquire(wait_s=0, owner="a") as one, everybodys.acquire(wait_s=0, owner="b"):
        assert (one.token, one.lost) == (None, None)
    assert everybodys.holder() is None


def test_a_wrapped_store_has_the_lock_of_the_inner_one(tmp_path: Path) -> None:
    store = CountingStore(open_store(table_at(tmp_path)))
    with open_lock("file", store, Ports()).acquire(wait_s=1, owner="me"):
        pass
    assert store.calls == ()


@pytest.mark.parametrize("word", ["magic", "lease:5s", "zookeepers://h1/plait", ""])
def test_locks_that_are_not_known_are_refused_with_what_to_use(word: str) -> None:
    with pytest.raises(OptionError) as caught:
        open_lock(word, open_store("memory://locks"), Ports())
    assert caught.value.key == "lock"
    assert "none" in caught.value.hint


def table_at(place: Path) -> str:
    """Make what a lock needs of a table: it makes no directory where none is."""
    (place / ".meta").mkdir()
    return str(place)


def test_the_record_of_the_holder_is_for_people_and_goes_with_the_lock(tmp_path: Path) -> None:
    lock = FileLock(table_at(tmp_path), sim_ports())
    record = tmp_path / ".meta/locks/commit.holder"
    with lock.acquire(wait_s=1, owner="ingest"):
        facts = json.loads(record.read_text())
        assert facts["owner"] == "ingest"
        assert facts["since_ms"] == SimClock.START_MS
        record.write_bytes(b"\xff{")
        holder = lock.holder()
        assert holder is not None
        assert "no record" in holder.owner
    assert not record.exists()
    assert lock.holder() is None


def test_a_record_that_a_dead_holder_left_misleads_nobody(tmp_path: Path) -> None:
    lock = FileLock(table_at(tmp_path), sim_ports())
    record = tmp_path / ".meta/locks/commit.holder"
    record.parent.mkdir()
    record.write_text('{"owner": "ghost", "host": "h", "pid": 1, "since_ms": 1}')
    assert lock.holder() is None
    with lock.acquire(wait_s=0, owner="me"):
        holder = lock.holder()
        assert holder is not None
        assert "me" in holder.owner


def test_a_holder_notices_that_somebody_removed_the_lock_file(tmp_path: Path) -> None:
    with FileLock(table_at(tmp_path), sim_ports()).acquire(wait_s=1, owner="me") as held:
        assert held.lost is None
        (tmp_path / ".meta/locks/commit").unlink()
        assert held.lost is not None


def test_a_place_that_cannot_hold_a_lock_is_told(tmp_path: Path) -> None:
    (tmp_path / ".meta").write_bytes(b"")
    lock = FileLock(str(tmp_path), sim_ports())
    with pytest.raises(LockUnavailableError), lock.acquire(wait_s=1, owner="me"):
        pass


def test_the_ticket_of_a_dead_waiter_is_removed_and_that_of_a_living_one_respected(
    tmp_path: Path,
) -> None:
    lock = FileLock(str(tmp_path), sim_ports(ids=SeqIds("a")))
    queue = tmp_path / ".meta/locks/queue"
    queue.mkdir(parents=True)
    dead, living = (queue / f"{n:017d}-{'b' * 16}" for n in (1, 2))
    dead.write_bytes(b"")
    ticket = try_lock(str(living))
    assert ticket is not None
    with pytest.raises(TimeoutError), lock.acquire(wait_s=1, owner="me"):
        pass
    assert not dead.exists()
    assert living.exists()
    ticket.release()
    with lock.acquire(wait_s=1, owner="me"):
        pass
    assert list(queue.iterdir()) == []


@pytest.mark.parametrize("since", ["Infinity", "1e400", "null", '"x"'])
def test_a_record_that_cannot_be_true_names_nobody(tmp_path: Path, since: str) -> None:
    """It is for people only: whoever asks or waits does not fail for it."""
    (tmp_path / ".meta").mkdir()  # a lock makes its own room, never that of the table
    lock = FileLock(str(tmp_path), Ports())
    record = f'{{"owner":"me","host":"h","pid":1,"since_ms":{since}}}'
    with lock.acquire(wait_s=1, owner="me"):
        LocalStore(str(tmp_path)).put(".meta/locks/commit.holder", record.encode())
        found = FileLock(str(tmp_path), Ports()).holder()
    assert found is not None
    assert found.since_ms is None
