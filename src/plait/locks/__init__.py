"""Locks: the port, its providers, and the door to them."""

from __future__ import annotations

from plait.errors import OptionError
from plait.locks.address import Address, with_external_slots
from plait.locks.file import FileLock
from plait.locks.port import Held, Holder, LockProvider
from plait.locks.process import NoLock, ProcessLock
from plait.locks.zookeeper import require_kazoo
from plait.locks.zookeeper_queue import ZooKeeperLock
from plait.model.consent import NOTHING, Consent
from plait.ports import Ports
from plait.storage import in_this_process, local_root
from plait.storage.port import Store

__all__ = [
    "Held",
    "Holder",
    "LockProvider",
    "arbiter_of",
    "default_lock",
    "open_lock",
    "settle_lock",
]


def open_lock(lock: str, store: Store, ports: Ports, consent: Consent = NOTHING) -> LockProvider:
    """Open the lock of a table as its contract names it; nothing is taken yet.

    Args:
        lock: the text of the contract.
        store: where the table is.
        ports: the clock and names.
        consent: the servers that may be asked. A lock on others can be opened, not taken.

    Raises:
        OptionError: no such lock, or not with this store.
    """
    kind = lock.split(":", 1)[0]
    uri = store.address.uri
    if kind == "none":
        return NoLock()
    if kind == "process":
        return ProcessLock(uri, ports)
    if kind == "file":
        root = local_root(store.address)
        if root is not None:
            return FileLock(root, ports)
        message = f"lock='file' needs a table on a disk, but this one is at {uri}"
        hint = "use 'none' (the slots alone are safe), or 'process' for one process"
        raise OptionError(message, hint=hint, key="lock", value=lock)
    if kind == "zookeeper":
        return ZooKeeperLock(lock, store, ports, consent)
    message = f"lock={lock!r} is unknown"
    raise OptionError(
        message, hint="one of file, process, zookeeper://..., none", key="lock", value=lock
    )


def resolve_lock(lock: str, store: Store) -> str:
    """Return the text of a lock as the contract of a new table holds it.

    Where the store has no atomic put-if-absent, ZooKeeper lends the slots.

    Raises:
        OptionError: no such lock, or the store lacks what it needs.
        MissingDependencyError: the client of the lock's service is not installed.
    """
    kind = lock.split(":", 1)[0]
    if kind != "zookeeper":
        return lock
    # The text first: to know the capabilities a probe may write.
    external = Address.parse(lock).external_slots
    uri, can = store.address.uri, store.capabilities
    require_kazoo()
    # Lending replaces the atomic put alone. A store whose reads miss finished writes would still
    # show an older head, so that is refused below.
    external = external or not can.put_if_absent
    if external and not can.coherent:
        message = f"cannot lend slots to {uri}: its reads may miss finished writes"
        hint = (
            "if you know that its reads see every finished write: "
            "storage_options={'plait.declare': 'coherent'}"
        )
        raise OptionError(message, hint=hint, key="lock", value=lock)
    return with_external_slots(lock) if external else lock


def arbiter_of(lock: str) -> str | None:
    """Name the service that decides a table's slots; None: its store does.

    >>> arbiter_of("zookeeper://h1:2181/plait?slots=lent")
    'h1:2181/plait'
    """
    if lock.split(":", 1)[0] != "zookeeper":
        return None
    address = Address.parse(lock)
    hosts = ",".join(sorted(address.hosts.split(",")))
    return f"{hosts}{address.path}" if address.external_slots else None


def default_lock(store: Store) -> str:
    """Name the best lock that a store can have: ``file``, ``process`` or ``none``."""
    if local_root(store.address) is not None:
        return "file"
    return "process" if in_this_process(store.address) else "none"
