"""What happens to sessions, on order."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from kazoo.client import KazooClient
from kazoo.protocol.serialization import Close, Connect, int_struct

from plait.locks import zookeeper
from plait.locks.address import Address
from plait.locks.zookeeper import Session


def session_in_use(lock: str) -> Session:
    """Give the session of this process behind the text of a lock."""
    return zookeeper.session_of(Address.parse(lock))


def expire(lock: str) -> None:
    """End that session on the server: who takes over a session and closes it ends it for all.

    Both are sent in one piece, before its owner can take it back.
    """
    session = session_in_use(lock)
    assert session.wait(10)
    number, password = session._client.client_id
    calls = [
        Connect(0, 0, 2000, number, password, False).serialize(),
        int_struct.pack(0) + int_struct.pack(Close.type),
    ]
    with socket.create_connection(session._client.hosts[0], timeout=10) as thief:
        thief.sendall(b"".join(int_struct.pack(len(call)) + call for call in calls))
        while thief.recv(4096):
            pass  # until the server hangs up


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
