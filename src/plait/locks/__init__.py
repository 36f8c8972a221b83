"""Locks: the port, its providers, and the door to them."""

from __future__ import annotations

from plait.errors import OptionError
from plait.locks.file import FileLock
from plait.locks.none import NoLock
from plait.locks.port import Held, Holder, LockProvider
from plait.locks.process import ProcessLock
from plait.locks.turns import ZooKeeperLock
from plait.ports import Ports
from plait.storage import local_root
from plait.storage.memory import SCHEME as MEMORY
from plait.storage.port import Store

__all__ = ["Held", "Holder", "LockProvider", "default_lock", "open_lock"]

_LATER = ("lease",)


def open_lock(lock: str, store: Store, ports: Ports) -> LockProvider:
    """Open the lock of a table as its contract names it; nothing is taken yet.

    Raises:
        OptionError: no such lock, or not with this store.
    """
    kind = lock.split(":", 1)[0]
    uri = store.spec.uri
    if kind == "none":
        return NoLock()
    if kind == "process":
        return ProcessLock(uri, ports)
    if kind == "file":
        root = local_root(store.spec)
        if root is not None:
            return FileLock(root, ports)
        message = f"lock='file' needs a table on a disk, and this one is at {uri}"
        hint = "use 'none' (the slots alone are safe), or 'process' for one process"
        raise OptionError(message, hint=hint, key="lock", value=lock)
    if kind == "zookeeper":
        return ZooKeeperLock(lock, store, ports)
    if kind in _LATER:
        message = f"lock={kind!r} comes with a later release"
        hint = "use 'file' on a disk, else 'none': the slots alone are safe"
        raise OptionError(message, hint=hint, key="lock", value=lock)
    message = f"lock={lock!r} is not known"
    raise OptionError(
        message, hint="one of file, process, lease, zookeeper://..., none", key="lock", value=lock
    )


def default_lock(store: Store) -> str:
    """Name the best lock that a store can have: ``file``, ``process`` or ``none``."""
    if local_root(store.spec) is not None:
        return "file"
    return "process" if store.spec.uri.startswith(MEMORY) else "none"
