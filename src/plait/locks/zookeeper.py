"""Sessions with ZooKeeper: the one file that knows its client, kazoo (extra ``zookeeper``).

A process has one session an ensemble, shared by all its tables, never by a forked child. Every
call is bounded in time. kazoo's own lock is not used: its time-out starts anew with every wait, a
create whose reply is lost leaves a node in a session that lives, and it goes on to say that it is
acquired when its session has long ended.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, cast

from plait.errors import LockUnavailableError, MissingDependencyError
from plait.locks.address import Address
from plait.model.consent import AllowedAddress
from plait.ports import Clock, SystemClock

if TYPE_CHECKING:
    from kazoo.client import KazooClient
    from kazoo.interfaces import IAsyncResult
    from kazoo.protocol.states import WatchedEvent, ZnodeStat

_RETRY = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 0.5}
_ATTEMPTS = 3
"""Number of attempts to connect within a session's time. A server that is starting may take a call
and never answer it, and kazoo waits for an answer for the session's time divided by the hosts that
it was given."""
_WAIT_S_MIN = 0.1
_PAUSE_S = 0.05
"""Pause before a read is repeated, so that it does not spin until the loss is known."""
_log = logging.getLogger(__name__)
_client_log = logging.getLogger("plait.kazoo")
_client_log.setLevel(logging.CRITICAL)  # each lost connection would be a warning to people


@dataclass(frozen=True, slots=True)
class Node:
    """A node as it was created or read."""

    path: str
    data: bytes
    created: int
    """The transaction that created it: it only grows."""
    changed_ms: int
    """Time of the last change, by the server's clock."""
    session: int
    """Session with which the node ends; 0 if it stays."""


class Session:
    """A connection that reconnects by itself, and records when its session was lost."""

    def __init__(self, address: Address, *, clock: Clock | None = None) -> None:
        kazoo = require_kazoo()
        self._hosts, self._patience_s = address.hosts, address.session_s
        self._clock = clock or SystemClock()
        self._client: KazooClient = kazoo.client.KazooClient(
            hosts=_repeated(address.hosts),
            timeout=address.session_s,
            connection_retry=_RETRY,
            logger=_client_log,
        )
        self._errors = (
            kazoo.exceptions.KazooException,
            kazoo.handlers.threading.KazooTimeoutError,
            OSError,
        )
        self._callback = kazoo.protocol.states.Callback
        self._lost = (kazoo.exceptions.ConnectionLoss, kazoo.exceptions.SessionExpiredError)
        self._no_node = kazoo.exceptions.NoNodeError
        self._exists = kazoo.exceptions.NodeExistsError
        self._mutex = threading.Lock()
        self._pending_deletes: set[tuple[str, str]] = set()
        self._disconnected_since: float | None = self._clock.monotonic()
        self._wakers: set[threading.Event] = set()
        self.id = 0
        """The session that lives, as far as is known; nodes of any other one are gone."""
        self.pid = os.getpid()
        self._client.add_listener(self._on_connection_state)
        self._connected: threading.Event = self._client.start_async()

    # --- its state -----------------------------------------------------------------------------

    @property
    def disconnected(self) -> bool:
        """Whether the connection is lost, and with it perhaps the session."""
        return not self._connected.is_set()

    @property
    def patience_s(self) -> float:
        """How much longer a lost connection is worth waiting for: a session's time in all."""
        with self._mutex:
            since = self._disconnected_since
        if since is None:
            return self._patience_s
        return since + self._patience_s - self._clock.monotonic()

    def wait(self, wait_s: float) -> bool:
        """Wait for the connection; tell whether it is there."""
        return self._connected.wait(max(0.0, wait_s))

    def _on_connection_state(self, state: str) -> None:
        """Record a change of the connection. The client's thread calls it: it must not block."""
        with self._mutex:
            if state == "CONNECTED":
                self._disconnected_since = None
                self.id = self._client.client_id[0]
            elif self._disconnected_since is None:
                self._disconnected_since = self._clock.monotonic()
            if state == "LOST":  # and with the session every node that ended with it
                self.id = 0
                self._pending_deletes.clear()
            owing = state == "CONNECTED" and bool(self._pending_deletes)
            wakers = list(self._wakers)
        for waker in wakers:
            waker.set()
        if owing:
            self._client.handler.spawn(self._delete_pending)

    def close(self) -> None:
        """End the session: every node that ends with it goes at once."""
        if self.pid != os.getpid():
            return  # a forked child: the connection is its parent's
        try:
            self._client.stop()
            self._client.close()
        except self._errors:
            _log.info("the ZooKeeper session was not closed and will expire", exc_info=True)

    # --- calls ---------------------------------------------------------------------------------

    def _ask(self, order: Callable[[], IAsyncResult]) -> object:
        """Make a call; raise LockUnavailableError when no answer comes in the session's time."""
        if self.disconnected and not self.wait(max(self.patience_s, _WAIT_S_MIN)):
            raise self._unavailable(None)
        # The call may wait for its turn in the client's thread and then for the answer. Both share
        # one limit, so that a stuck client cannot hold a commit for longer.
        ends = self._clock.monotonic() + self._patience_s
        try:
            answer = self._begin(order).result(self._patience_s)
            return answer.get(timeout=max(0.0, ends - self._clock.monotonic()))
        except (self._no_node, self._exists):
            raise
        except self._errors as error:
            raise self._unavailable(error) from error

    def _begin(self, order: Callable[[], IAsyncResult]) -> Future[IAsyncResult]:
        """Let the client make a call in a thread of its own, after those that it was given before.

        It swallows whatever interrupts a call, and the interrupt of a user comes to the main
        thread: there it would be lost.
        """
        made: Future[IAsyncResult] = Future()

        def make() -> None:
            try:
                made.set_result(order())
            except Exception as error:  # noqa: BLE001 - raised where it is waited for
                made.set_exception(error)

        self._client.handler.dispatch_callback(self._callback("call", make, ()))
        return made

    def _read(self, order: Callable[[], IAsyncResult]) -> object:
        """Make a call that changes nothing, so that it is made again if the connection was lost."""
        ends = self._clock.monotonic() + self._patience_s
        while True:
            try:
                return self._ask(order)
            except LockUnavailableError as error:
                lost = isinstance(error.__cause__, self._lost)
                if not lost or self._clock.monotonic() >= ends:
                    raise
            self._clock.sleep(_PAUSE_S)

    def _unavailable(self, error: Exception | None) -> LockUnavailableError:
        what = f"{type(error).__name__} {error}".strip() if error else "no connection"
        message = f"ZooKeeper at {self._hosts} does not answer: {what}"
        hint = "check that a majority of its servers runs and can be reached from here"
        return LockUnavailableError(message, hint=hint)

    def create(self, path: str, data: bytes) -> bool:
        """Create a node that stays: True; False if it is there. Its parents are made."""
        while True:
            try:
                self._ask(lambda: self._client.create_async(path, data))
            except self._exists:
                return False
            except self._no_node:
                self._make(path.rsplit("/", 1)[0])
            else:
                return True

    def queue_up(self, folder: str, prefix: str, data: bytes, *, again: bool) -> Node:
        """Create a numbered node that ends with the session.

        After an error it may be there all the same: ``leave`` it, or try ``again``, which looks
        for it first.
        """
        while True:
            for name in self.children(folder) if again else ():
                node = self.read(f"{folder}/{name}") if name.startswith(prefix) else None
                # Nodes of an earlier session may be listed still, though they are about to go. Only
                # one of this session keeps our place.
                if node is not None and node.session == self.id:
                    return node
            try:
                made = self._ask(
                    lambda: self._client.create_async(
                        f"{folder}/{prefix}", data, ephemeral=True, sequence=True, include_data=True
                    )
                )
            except self._no_node:
                self._make(folder)
                continue
            path, stat = cast("tuple[str, ZnodeStat]", made)
            return _node(path, data, stat)

    def _make(self, folder: str) -> None:
        self._ask(lambda: self._client.ensure_path_async(folder))

    def children(self, folder: str) -> list[str]:
        """List the names below a node; none if it is not there."""
        try:
            names = self._read(lambda: self._client.get_children_async(folder))
        except self._no_node:
            return []
        return cast("list[str]", names)

    def read(self, path: str, *, waker: threading.Event | None = None) -> Node | None:
        """Read a node; None if it is not there. A change of it sets ``waker``, once."""
        watch = None if waker is None else (lambda _event: waker.set())
        try:
            answer = self._read(lambda: self._client.get_async(path, watch=watch))
        except self._no_node:
            return None
        data, stat = cast("tuple[bytes, ZnodeStat]", answer)
        return _node(path, data, stat)

    # --- without waiting -----------------------------------------------------------------------

    def touch(self, path: str, data: bytes) -> None:
        """Write a node anew, so that its time is now; nobody waits for it."""
        if not self.disconnected:
            self._begin(lambda: self._client.set_async(path, data))

    def drop(self, path: str) -> None:
        """Delete a node that nobody needs; nobody waits for it."""
        if not self.disconnected:
            self._begin(lambda: self._client.delete_async(path))

    def on_deleted(self, path: str, tell: Callable[[], None]) -> None:
        """Call ``tell`` when a node is gone, in the client's thread."""

        def seen(event: WatchedEvent) -> None:
            if event.type == "DELETED":
                tell()
            elif event.type == "NONE":  # the connection was lost, and with it the watch
                ask()

        def ask() -> None:
            self._begin(exists)

        def exists() -> IAsyncResult:
            asked = self._client.exists_async(path, watch=seen)
            asked.rawlink(answered)
            return asked

        def answered(answer: IAsyncResult) -> None:
            if answer.successful() and answer.value is None:
                tell()

        ask()

    def listen(self, waker: threading.Event) -> None:
        """Set an event at every change of the connection, until ``ignore``."""
        with self._mutex:
            self._wakers.add(waker)

    def ignore(self, waker: threading.Event) -> None:
        """Set it no more."""
        with self._mutex:
            self._wakers.discard(waker)

    # --- what must not stay ----------------------------------------------------------------------

    def leave(self, folder: str, prefix: str, path: str | None) -> None:
        """Delete the node of a prefix: now, or when the connection is back.

        It may have been created though no reply came, so it is looked for unless ``path`` names it.
        """
        try:
            if self.disconnected:
                raise self._unavailable(None)
            if path is None:
                self._delete_all(folder, prefix)
            else:
                self._delete(path)
        except LockUnavailableError:
            with self._mutex:
                self._pending_deletes.add((folder, prefix))
            if not self.disconnected:  # it came back before the debt was noted
                self._delete_pending()

    def _delete_pending(self) -> None:
        with self._mutex:
            debts = list(self._pending_deletes)
        for folder, prefix in debts:
            try:
                self._delete_all(folder, prefix)
            except LockUnavailableError:
                return  # when the connection is back the next time
            with self._mutex:
                self._pending_deletes.discard((folder, prefix))

    def _delete_all(self, folder: str, prefix: str) -> None:
        for name in self.children(folder):
            if name.startswith(prefix):
                self._delete(f"{folder}/{name}")

    def _delete(self, path: str) -> None:
        try:
            self._ask(lambda: self._client.delete_async(path))
        except self._no_node:
            return


def _repeated(hosts: str) -> str:
    """Name each host so often that an attempt to connect to one waits for a part of a session.

    >>> _repeated("h1:2181"), _repeated("h1:2181,h2:2181,h3:2181")
    ('h1:2181,h1:2181,h1:2181', 'h1:2181,h2:2181,h3:2181')
    """
    names = hosts.split(",")
    return ",".join(names * -(-_ATTEMPTS // len(names)))


def _node(path: str, data: bytes, stat: ZnodeStat) -> Node:
    return Node(path, data, stat.czxid, stat.mtime, stat.ephemeralOwner)


# --- one session an ensemble and process -------------------------------------------------------

_SESSIONS: dict[tuple[str, float], Session] = {}
_MUTEX = threading.Lock()
_INHERITED: list[Session] = []


def session_of(allowed: AllowedAddress) -> Session:
    """Return the session of this process with an ensemble; connecting goes on beside the caller.

    Args:
        allowed: the text of a lock.

    Raises:
        MissingDependencyError: kazoo is not installed.
    """
    address = Address.parse(allowed.text)
    key = (address.hosts, address.session_s)
    with _MUTEX:
        session = _SESSIONS.get(key)
        if session is None:
            session = _SESSIONS[key] = Session(address)
            atexit.register(session.close)
        return session


def _forget() -> None:
    """Begin anew in a forked child; what it inherited is kept, so that nothing closes it."""
    global _MUTEX  # noqa: PLW0603 - a mutex that another thread held stays locked for ever
    _MUTEX = threading.Lock()
    _INHERITED.extend(_SESSIONS.values())
    _SESSIONS.clear()


os.register_at_fork(after_in_child=_forget)


def require_kazoo() -> ModuleType:
    """Import the client; raise MissingDependencyError if it is not installed."""
    try:
        import kazoo  # noqa: PLC0415 - its only place, and other locks do without
        import kazoo.client  # noqa: PLC0415 - the same
        import kazoo.exceptions  # noqa: PLC0415 - the same
        import kazoo.handlers.threading  # noqa: PLC0415 - the same
        import kazoo.protocol.states  # noqa: PLC0415 - the same
    except ImportError as error:
        message = "a lock in ZooKeeper needs kazoo"
        raise MissingDependencyError(
            message, hint="pip install 'plait[zookeeper]'", library="kazoo", extra="zookeeper"
        ) from error
    library: ModuleType = kazoo
    return library
