"""What happens to sessions, on order."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kazoo.client import KazooClient
from kazoo.protocol.serialization import Close, Connect, int_struct

from plait.locks import zookeeper
from plait.locks.address import Address
from plait.locks.zookeeper import Session
from plait.model.consent import given


def session_in_use(lock: str) -> Session:
    """Give the session of this process behind the text of a lock."""
    return zookeeper.session_of(given(lock))


def expire(lock: str) -> None:
    """End that session on the server: who takes over a session and closes it ends it for all.

    Both are sent in one piece, before its owner can take it back. One call in twelve the server
    hangs up on before it has read it: then nothing has ended, and it is called again.
    """
    session = session_in_use(lock)
    assert session.wait(60)
    number, password = session._client.client_id
    calls = [
        Connect(0, 0, 2000, number, password, False).serialize(),
        int_struct.pack(0) + int_struct.pack(Close.type),
    ]
    frames = b"".join(int_struct.pack(len(call)) + call for call in calls)
    assert any(_heard(session._client.hosts[0], frames) for _ in range(20))


def _heard(server: tuple[str, int], frames: bytes) -> bool:
    """Send it all, wait until the server hangs up, and tell whether it answered."""
    with socket.create_connection(server, timeout=60) as thief:
        thief.sendall(frames)
        answered = False
        with suppress(ConnectionResetError):
            while thief.recv(4096):
                answered = True
    return answered


@contextmanager
def beside(lock: str) -> Iterator[KazooClient]:
    """Connect beside all that, to look and to break."""
    client = KazooClient(Address.parse(lock).hosts, timeout=60)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()
