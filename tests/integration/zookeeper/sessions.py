"""What happens to sessions, on order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kazoo.client import KazooClient

from plait.locks import zookeeper
from plait.locks.address import Address
from plait.locks.zookeeper import Session


def session_in_use(lock: str) -> Session:
    """Give the session of this process behind the text of a lock."""
    return zookeeper.session_of(Address.parse(lock))


def expire(lock: str) -> None:
    """End that session on the server: who takes over a session and closes it ends it for all."""
    session = session_in_use(lock)
    assert session.wait(10)
    thief = KazooClient(session._hosts, client_id=session._client.client_id, timeout=2)
    thief.start()
    thief.stop()
    thief.close()


@contextmanager
def beside(lock: str) -> Iterator[KazooClient]:
    """Connect beside all that, to look and to break."""
    client = KazooClient(Address.parse(lock).hosts, timeout=5)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()
