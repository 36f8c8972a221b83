"""Keys in ZooKeeper that are bound once: what decides slots that are lent."""

from __future__ import annotations

from plait.errors import LockUnavailableError
from plait.locks.address import Address
from plait.locks.zookeeper import session_of

_TRIES = 5


class ZooKeeperSlots:
    """One node a key, below the path of the lock; creating it is the one atomic step."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def _at(self, key: str) -> str:
        return f"{self._address.path}/{key}"

    def claim(self, key: str, pointer: bytes) -> bytes:
        """Bind a key unless it is bound, and return what it is bound to."""
        session = session_of(self._address)
        for _ in range(_TRIES):
            if session.create(self._at(key), pointer):
                return pointer
            node = session.read(self._at(key))
            if node is not None:
                return node.data
        message = f"{self._at(key)} is created and removed again and again"
        raise LockUnavailableError(message, hint="another program writes below this path")

    def find(self, key: str) -> bytes | None:
        """Return what a key is bound to."""
        node = session_of(self._address).read(self._at(key))
        return None if node is None else node.data

    def remove(self, key: str) -> None:
        """Free a key; nobody waits for it."""
        session_of(self._address).drop(self._at(key))
