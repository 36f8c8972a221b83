"""Storage: the port, its adapters, and the door to them."""

from __future__ import annotations

import os
from collections.abc import Mapping

from plait.errors import OptionError
from plait.model.store_address import StoreAddress
from plait.storage.fsspec_store import FsspecStore
from plait.storage.local import LocalStore
from plait.storage.location import DECLARE, declared_of, is_url, options_of, plain_url
from plait.storage.memory import SCHEME as MEMORY
from plait.storage.memory import MemoryStore, in_this_process
from plait.storage.objects import ObjectStore
from plait.storage.port import Capabilities, FileInfo, Store, check_path
from plait.storage.probe import ProbeReport, prove, run_probe
from plait.storage.s3 import SCHEMES as S3
from plait.storage.s3 import S3Store

__all__ = [
    "Capabilities",
    "FileInfo",
    "ProbeReport",
    "Store",
    "check_path",
    "in_this_process",
    "local_root",
    "open_store",
    "probe_store",
]


def open_store(
    place: StoreAddress | str | os.PathLike[str],
    storage_options: Mapping[str, object] | None = None,
    *,
    create: bool = False,
) -> Store:
    """Open the store of a table; nothing is read or written yet.

    Args:
        place: a path, a URL, or the ``address`` of another store.
        storage_options: those of the fsspec adapter, and ``plait.declare`` (words, see the
            concepts page of storage).
        create: whether something is about to be made here: only then a write makes the directory
            of the table, and its ``.meta``. Refuses a file in their place.

    Raises:
        OptionError: no such place or option.
        MissingDependencyError: the adapter's library is not installed.

    >>> open_store("memory://doc").put_if_absent("a", b"1")
    True
    """
    address = _address(place, storage_options or {})
    declared_of(address)
    if address.uri.startswith(S3):
        return S3Store(address)
    if address.uri.startswith(MEMORY):
        _no_options(address)
        return MemoryStore(address.uri)
    root = local_root(address)
    if root is None:
        return FsspecStore(address, makes_root=create)
    _no_options(address)
    store = LocalStore(root, options=address.options, makes_root=create)
    if create:
        store.check_root()
    return store


def probe_store(store: Store) -> ProbeReport:
    """Race real calls on a store, whatever is known or declared of it.

    The processes of this host that open the same place need not probe it again.

    Raises:
        StorageError: the store cannot be written at all.
    """
    if isinstance(store, ObjectStore):
        return prove(store.probe_subject())
    return run_probe(store, reopen=lambda: open_store(store.address, create=True))


def local_root(address: StoreAddress) -> str | None:
    """Return the directory of a table on a local disk; None if it is elsewhere."""
    uri = plain_url(address.uri)
    return None if is_url(uri) else uri


def _address(
    place: StoreAddress | str | os.PathLike[str], options: Mapping[str, object]
) -> StoreAddress:
    if isinstance(place, StoreAddress):
        return place if not options else StoreAddress(place.uri, tuple(sorted(options.items())))
    return StoreAddress(plain_url(place), tuple(sorted(options.items())))


def _no_options(address: StoreAddress) -> None:
    options = options_of(address)
    if options:
        key = min(options)
        message = f"{address.uri} does not support the storage option {key!r}"
        raise OptionError(message, hint=f"only {DECLARE} is supported", key=key, value="")
