"""The lock ``zookeeper://...``: a queue of nodes that end with the sessions of their owners.

The lowest number holds the lock; each waiter watches the one before it, so that a release wakes
one. Whoever dies leaves the queue when its session expires.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from plait.errors import LockTimeoutError, LockUnavailableError, StorageError
from plait.locks.address import Address
from plait.locks.identity import table_name
from plait.locks.port import Holder, timed_out
from plait.locks.zookeeper import Node, Session, session_of
from plait.model.cached import cached_property
from plait.model.consent import LOCK, AllowedAddress, Consent
from plait.ports import Ports
from plait.storage.port import Store

_CLAIMS_MAX = 5


class ZooKeeperLock:
    """The lock of a table in ZooKeeper; nothing is asked before it is acquired.

    The text is that of the table's contract, so its servers are asked only if the caller allowed
    them.
    """

    name = "zookeeper"

    def __init__(self, text: str, store: Store, ports: Ports, consent: Consent) -> None:
        self._address, self._text, self._consent = Address.parse(text), text, consent
        self._store, self._clock, self._ids = store, ports.clock, ports.ids

    @cached_property
    def arbiter(self) -> ZooKeeperSlots | None:
        """What decides the slots of this table, if the contract says that they are lent.

        Raises:
            ConsentError: nobody allowed its servers. Without them the newest version is not known.
        """
        return ZooKeeperSlots(self._allowed()) if self._address.external_slots else None

    def require_consent(self) -> None:
        """Raise ConsentError unless the caller allowed the servers; none is asked."""
        self._allowed()

    def _allowed(self) -> AllowedAddress:
        return self._consent.require(self._text, LOCK, self._store.address.uri)

    def _folder(self) -> str:
        try:
            return f"{self._address.path}/{table_name(self._store)}/queue"
        except StorageError as error:
            message = f"the lock of {self._store.address.uri} has no name: {error.message}"
            raise LockUnavailableError(message, hint=error.hint) from error

    @contextmanager
    def acquire(self, *, wait_s: float, owner: str) -> Iterator[QueueHeld]:
        """Wait for the lock; raise LockTimeoutError naming the holder."""
        deadline = self._clock.monotonic() + wait_s
        place = _Place(
            session_of(self._allowed()), self._folder(), self._ids.nonce(), _facts(owner)
        )
        try:
            node = self._wait(place, deadline)
            if node is None:
                raise self._timed_out(place, wait_s)
            yield QueueHeld(place, node)
        finally:
            place.leave()

    def _wait(self, place: _Place, deadline: float) -> Node | None:
        """Wait until nobody is before us, through lost connections and sessions too."""
        while True:
            place.waker.clear()
            try:
                node = place.at_front()
                left_s = deadline - self._clock.monotonic()
                if node is not None or left_s <= 0:
                    return node
                place.waker.wait(left_s)
            except LockUnavailableError:
                left_s = deadline - self._clock.monotonic()
                if not place.queued:  # nothing to lose: so long as the service is worth waiting for
                    left_s = min(left_s, place.session.patience_s)
                if left_s <= 0 or not place.session.wait(left_s):
                    raise

    def holder(self) -> Holder | None:
        """Tell who holds it now, and since when by the server's clock."""
        session, folder = session_of(self._allowed()), self._folder()
        for name in _in_order(session.children(folder)):
            node = session.read(f"{folder}/{name}")
            if node is not None:
                return Holder(_owner(node.data), node.changed_ms, node.created)
        return None

    def _timed_out(self, place: _Place, wait_s: float) -> LockTimeoutError:
        holder = self.holder()
        hint = (
            f"increase lock.wait; a dead holder's lock is free after {self._address.session_s:g} s"
        )
        return timed_out(f"the lock {place.folder}", holder.owner if holder else None, wait_s, hint)


class _Place:
    """A place in the queue: taken when first asked about, and again in a new session."""

    def __init__(self, session: Session, folder: str, nonce: str, data: bytes) -> None:
        self.session, self.folder = session, folder
        self.waker = threading.Event()
        self.node: Node | None = None
        self._prefix, self._data = f"{nonce}-", data
        self._tries, self._waited = 0, False
        session.listen(self.waker)

    @property
    def queued(self) -> bool:
        """Whether it was taken, as far as is known."""
        return self.node is not None and self.node.session == self.session.id

    def at_front(self) -> Node | None:
        """Return our node if nobody is before us; else be woken when the one before us is gone."""
        node = self._queued()
        names = _in_order(self.session.children(self.folder))
        mine = node.path.rsplit("/", 1)[1]
        if mine not in names:  # somebody deleted it, or its session ended a moment ago
            self.node = None
            self.waker.set()
            return None
        number = names.index(mine)
        if number == 0:
            if self._waited:  # its time is from now on the time of the grant
                self.session.touch(node.path, self._data)
            return node
        self._waited = True
        # Watch only the node before ours: a release then wakes one waiter and not all of them.
        before = self.session.read(f"{self.folder}/{names[number - 1]}", waker=self.waker)
        if before is None:
            self.waker.set()
        return None

    def _queued(self) -> Node:
        if self.node is None or self.node.session != self.session.id:
            again, self.node = self._tries > 0, None
            self._tries += 1
            self.node = self.session.queue_up(self.folder, self._prefix, self._data, again=again)
        return self.node

    def leave(self) -> None:
        """Leave the queue, and with it the lock."""
        if self.session.pid != os.getpid():
            return  # a forked child: the place is its parent's
        self.session.ignore(self.waker)
        if self._tries:
            path = self.node.path if self.node is not None and self._tries == 1 else None
            self.session.leave(self.folder, self._prefix, path)


class QueueHeld:
    """A granted lock. Its token is the transaction that put us into the queue.

    ``lost`` tells what this process has heard. One that was stopped may believe for a moment
    more that it holds the lock; the slots fence, not this.
    """

    def __init__(self, place: _Place, node: Node) -> None:
        self._session, self._node = place.session, node
        self._gone = threading.Event()
        self.token: int | None = node.created
        self._session.on_deleted(node.path, self._gone.set)

    @property
    def lost(self) -> str | None:
        """Why others may hold it too: for good, or until the connection is back."""
        if self._session.pid != os.getpid():
            return "a forked child does not hold what its parent holds"
        if self._session.id != self._node.session:
            return "the session with ZooKeeper ended"
        if self._session.disconnected:
            return "the connection to ZooKeeper is lost"
        return "its node in ZooKeeper is gone" if self._gone.is_set() else None


class ZooKeeperSlots:
    """One node a key, below the path of the lock; creating it is the one atomic step."""

    def __init__(self, allowed: AllowedAddress) -> None:
        self._allowed, self._path = allowed, Address.parse(allowed.text).path

    def _at(self, key: str) -> str:
        return f"{self._path}/{key}"

    def claim(self, key: str, pointer: bytes) -> bytes:
        """Bind a key unless it is bound, and return what it is bound to."""
        session = session_of(self._allowed)
        for _ in range(_CLAIMS_MAX):
            # If the reply of `create` is lost, it raises. The caller asks again, and the node then
            # has our pointer, which is unique: so we learn that we won.
            if session.create(self._at(key), pointer):
                return pointer
            node = session.read(self._at(key))
            if node is not None:
                return node.data
        message = f"{self._at(key)} keeps being created and removed"
        raise LockUnavailableError(message, hint="another program seems to write below this path")

    def find(self, key: str) -> bytes | None:
        """Return what a key is bound to."""
        node = session_of(self._allowed).read(self._at(key))
        return None if node is None else node.data

    def remove(self, key: str) -> None:
        """Free a key; nobody waits for it."""
        session_of(self._allowed).drop(self._at(key))


def _facts(owner: str) -> bytes:
    facts = {"owner": owner[:500], "host": socket.gethostname(), "pid": os.getpid()}
    return json.dumps(facts).encode()


def _owner(data: bytes) -> str:
    try:
        facts = json.loads(data)
        return f"{facts['owner']} (process {facts['pid']} on {facts['host']})"[:700]
    except (ValueError, TypeError, KeyError, RecursionError):
        return "an unknown client"


def _in_order(names: list[str]) -> list[str]:
    """Sort by the number that the server gave; pass over what is not of the queue."""
    numbered = [(name.rpartition("-")[2], name) for name in names]
    return [name for number, name in sorted(n for n in numbered if n[0].isdecimal())]
