"""Sessions with one ZooKeeper server: lost, mended, shared, forked."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from plait.errors import LockTimeoutError, LockUnavailableError
from plait.locks import open_lock
from plait.locks.port import LockProvider
from plait.model.consent import Consent
from plait.ports import Ports
from plait.storage import open_store
from plait.table import Table
from plait.testing.lock_kit import until
from tests.integration.zookeeper.sessions import beside, expire, session_in_use
from tests.services.zookeeper import ZooKeeper

pytestmark = pytest.mark.zookeeper


def provider(lock: str, place: str = "memory://sessions") -> LockProvider:
    return open_lock(lock, open_store(place), Ports(), Consent().also(lock))


def test_two_tables_never_share_a_lock(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    lock = zookeeper.lock("shared")
    places = [str(tmp_path / name) for name in ("a", "b", "c")]
    for place in places[:2]:
        Table.create(place, "id bigint", lock=lock)
    with (
        provider(lock, places[0]).acquire(wait_s=60, owner="one"),
        provider(lock, places[1]).acquire(wait_s=60, owner="two"),
        provider(lock, places[2]).acquire(wait_s=60, owner="of no table yet"),
    ):
        holders = [provider(lock, place).holder() for place in places]
    owners = [holder.owner.split(" (")[0] for holder in holders if holder is not None]
    assert owners == ["one", "two", "of no table yet"]


def test_one_table_by_two_uris_has_one_lock(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    lock = zookeeper.lock("aliases")
    Table.create(str(tmp_path / "table"), "id bigint", lock=lock)
    (tmp_path / "alias").symlink_to(tmp_path / "table")
    with provider(lock, str(tmp_path / "table")).acquire(wait_s=60, owner="the first"):
        late = provider(lock, str(tmp_path / "alias")).acquire(wait_s=0, owner="the second")
        with pytest.raises(LockTimeoutError) as caught, late:
            pass
    assert "the first" in str(caught.value.holder)


def test_a_session_that_ends_is_a_loss_for_good(zookeeper: ZooKeeper) -> None:
    lock = zookeeper.lock("ends")
    with provider(lock).acquire(wait_s=60, owner="me") as held:
        expire(lock)
        assert until(lambda: "ended" in str(held.lost))
        assert session_in_use(lock).wait(60)
        time.sleep(0.1)
        assert "ended" in str(held.lost)


def test_who_holds_it_is_told_although_the_connection_breaks(zookeeper: ZooKeeper) -> None:
    lock = zookeeper.lock("asked")
    asker, session = provider(lock), session_in_use(lock)
    for _ in range(20):
        assert session.wait(60)
        session._client._connection._socket.shutdown(socket.SHUT_RDWR)
        assert asker.holder() is None


def test_a_waiter_whose_session_ends_queues_up_again(zookeeper: ZooKeeper) -> None:
    held_in, waits_in = zookeeper.lock("again", session="31s"), zookeeper.lock("again")
    granted = threading.Event()

    def wait() -> None:
        with provider(waits_in).acquire(wait_s=60, owner="the waiter"):
            granted.set()

    with beside(held_in) as client:
        with provider(held_in).acquire(wait_s=60, owner="the first"):
            waiter = threading.Thread(target=wait)
            waiter.start()
            assert until(lambda: len(in_queue(client, "/again")) == 2)
            before = in_queue(client, "/again")
            expire(waits_in)
            assert until(lambda: len(set(before) | set(in_queue(client, "/again"))) == 3)
            assert not granted.is_set()
        assert granted.wait()
        waiter.join()
        assert in_queue(client, "/again") == []


def in_queue(client, path: str) -> list[str]:
    return [
        name
        for table in client.get_children(path)
        for name in client.get_children(f"{path}/{table}/queue")
    ]


def test_a_node_that_somebody_deletes_is_a_loss(zookeeper: ZooKeeper) -> None:
    lock = zookeeper.lock("deleted")
    with provider(lock).acquire(wait_s=60, owner="me") as held:
        assert held.lost is None
        with beside(lock) as client:
            client.delete("/deleted", recursive=True)
        assert until(lambda: held.lost is not None)
    with provider(lock).acquire(wait_s=60, owner="the next") as held:
        assert held.lost is None


def test_time_of_the_grant_and_token_come_from_the_server(zookeeper: ZooKeeper) -> None:
    lock = zookeeper.lock("since")
    granted, release = threading.Event(), threading.Event()

    def hold() -> None:
        with provider(lock).acquire(wait_s=60, owner="the second"):
            granted.set()
            release.wait()

    with provider(lock).acquire(wait_s=60, owner="the first") as first:
        second = threading.Thread(target=hold)
        second.start()
        time.sleep(0.5)  # it waits meanwhile, and that is no time of holding
        freed_ms = time.time() * 1000
    assert granted.wait()
    lender = provider(lock)

    def since() -> int:
        holder = lender.holder()
        assert holder is not None
        return holder.since_ms or 0

    assert until(lambda: since() >= freed_ms - 100)
    holder = lender.holder()
    assert holder is not None
    assert (holder.token or 0) > (first.token or 0)
    release.set()
    second.join()


def test_a_service_that_is_away_is_told_in_bounded_time() -> None:
    lock = provider("zookeeper://127.0.0.1:9/nobody?session=1s")
    for wait_s in (3600, 0, 3600):
        began = time.monotonic()
        with pytest.raises(LockUnavailableError), lock.acquire(wait_s=wait_s, owner="me"):
            pass
        assert time.monotonic() - began < 120


def test_a_server_that_comes_back_keeps_the_lock_and_frees_what_was_let_go_of(
    tmp_path: Path,
) -> None:
    """A release while nobody answers is made good when somebody does."""
    with ZooKeeper(tmp_path) as own:
        lock, other = own.lock("back", session="20s"), own.lock("back", session="21s")
        with provider(lock).acquire(wait_s=60, owner="kept") as held:
            own.servers[0].kill()
            assert until(lambda: "connection" in str(held.lost))
            own.servers[0].start()
            assert until(lambda: held.lost is None)
            late = provider(other).acquire(wait_s=0, owner="another session")
            with pytest.raises(LockTimeoutError), late:
                pass
            own.servers[0].kill()
            assert until(lambda: held.lost is not None)
        own.servers[0].start()
        own.servers[0].wait_ready()
        with provider(other).acquire(wait_s=60, owner="another session") as held:
            assert held.lost is None


def test_a_server_that_answers_nothing_is_called_again_within_the_session() -> None:
    """One that is starting may take a call and forget it: that must not cost the session."""
    calls = list[float]()
    with socket.create_server(("127.0.0.1", 0)) as silent:

        def take_calls() -> None:
            with contextlib.suppress(OSError):
                while True:
                    kept.append(silent.accept()[0])
                    calls.append(time.monotonic())

        kept = list[socket.socket]()
        threading.Thread(target=take_calls, daemon=True).start()
        lock = f"zookeeper://127.0.0.1:{silent.getsockname()[1]}/silent?session=3s"
        with pytest.raises(LockUnavailableError), provider(lock).acquire(wait_s=3, owner="patient"):
            pass
        assert until(lambda: len(calls) >= 3)
        session_in_use(lock).close()
    for call in kept:
        call.close()
    gaps = [then - now for now, then in itertools.pairwise(calls)]
    assert min(gaps) > 0.5, "it does not call without a pause"
    assert min(gaps) < 2.5, "one call at least came in time, however slow the machine"


def test_a_forked_child_holds_nothing_and_has_a_session_of_its_own(zookeeper: ZooKeeper) -> None:
    lock = zookeeper.lock("forked")
    program = """
import json, os, sys
from plait.errors import LockTimeoutError
from plait.locks import open_lock
from plait.model.consent import Consent
from plait.ports import Ports
from plait.storage import open_store
provider = open_lock(
    sys.argv[1], open_store("memory://forked"), Ports(), Consent().also(sys.argv[1])
)
with provider.acquire(wait_s=60, owner="the parent") as held:
    child = os.fork()
    if child == 0:
        told = held.lost
        try:
            with provider.acquire(wait_s=0, owner="the child"):
                told = "the child got it"
        except LockTimeoutError as error:
            told = f"{told}; {error.holder}"
        print(told, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print(held.lost, flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, lock],
        capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": "src"},
    )  # fmt: skip
    told, after = done.stdout.splitlines()
    assert "forked child" in told
    assert "the parent" in told
    assert after == "None", done.stderr
    assert done.stderr == ""


def test_a_process_ends_its_session_when_it_ends(zookeeper: ZooKeeper) -> None:
    """Nobody waits for a session to expire whose process ended in peace."""
    lock = zookeeper.lock("at-exit", session="60s")
    program = """
import sys
from plait.locks import open_lock
from plait.model.consent import Consent
from plait.ports import Ports
from plait.storage import open_store
provider = open_lock(
    sys.argv[1], open_store("memory://at-exit"), Ports(), Consent().also(sys.argv[1])
)
provider.acquire(wait_s=60, owner="careless").__enter__()
"""
    environment = {**os.environ, "PYTHONPATH": "src"}
    command = [sys.executable, "-c", program, lock]
    done = subprocess.run(command, env=environment, check=True, capture_output=True)
    assert done.stderr == b""
    with provider(lock, "memory://at-exit").acquire(wait_s=40, owner="the next"):
        pass  # sooner than the session would have ended by itself


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Have SIGINT interrupt: in the background of a shell it is ignored from the start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupted_waiter_leaves_nothing_behind(
    zookeeper: ZooKeeper, interruptible: None
) -> None:
    lock = zookeeper.lock("interrupted")
    main = threading.get_ident()
    first = provider(zookeeper.lock("interrupted", session="31s"))
    with first.acquire(wait_s=60, owner="first"), beside(lock) as client:

        def interrupt() -> None:
            """Interrupt the waiter once it stands in the queue."""
            until(lambda: len(in_queue(client, "/interrupted")) == 2)
            signal.pthread_kill(main, signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the signal comes to this thread
            threading.Thread(target=interrupt).start()
            with provider(lock).acquire(wait_s=60, owner="interrupted"):
                pass
        names = in_queue(client, "/interrupted")
        assert len(names) == 1
        table = client.get_children("/interrupted")[0]
        data = client.get(f"/interrupted/{table}/queue/{names[0]}")[0]
        assert json.loads(data)["owner"] == "first"


class Interrupting:
    """The socket by which calls wake the client; the first of them meets a signal to a thread."""

    def __init__(self, inner: socket.socket, thread: int) -> None:
        self._inner, self._thread = inner, thread
        self._due = True

    def send(self, data: bytes) -> int:
        if self._due:
            self._due = False
            signal.pthread_kill(self._thread, signal.SIGINT)
        return self._inner.send(data)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def test_an_interrupt_ends_a_call_in_whatever_moment_it_comes(
    zookeeper: ZooKeeper, interruptible: None
) -> None:
    """The client would swallow what interrupts it while it is woken."""
    lock = zookeeper.lock("woken")
    with provider(lock).acquire(wait_s=60, owner="makes the queue"):
        pass
    connection = session_in_use(lock)._client._connection
    inner = connection._write_sock
    connection._write_sock = Interrupting(inner, threading.get_ident())
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the signal comes to this thread
            for _ in range(100):
                provider(lock).holder()
    finally:
        connection._write_sock = inner
    assert provider(lock).holder() is None
