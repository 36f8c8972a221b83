"""Storage: the port, its adapters, and the door to them."""

from __future__ import annotations

from collections.abc import Mapping

from plait.errors import OptionError
from plait.model.plan import StoreSpec
from plait.storage.declared import DECLARE, declared_of, options_of
from plait.storage.fsspec_store import FsspecStore
from plait.storage.local import LocalStore
from plait.storage.memory import SCHEME as MEMORY
from plait.storage.memory import MemoryStore
from plait.storage.port import Capabilities, FileInfo, Store, check_path
from plait.storage.s3 import SCHEMES as S3
from plait.storage.s3 import S3Store

__all__ = ["Capabilities", "FileInfo", "Store", "check_path", "local_root", "open_store"]

_FILE = "file://"


def open_store(
    place: StoreSpec | str,
    storage_options: Mapping[str, object] | None = None,
    *,
    create: bool = False,
) -> Store:
    """Open the store of a table; nothing is read or written yet.

    Args:
        place: a path, a URL, or the ``spec`` of another store.
        storage_options: those of the fsspec adapter, and ``plait.declare`` (words, see the
            concepts page of storage).
        create: whether a table is about to be made here; refuses a file in its place.

    Raises:
        OptionError: no such place or option.
        MissingDependencyError: the adapter's library is not installed.

    >>> open_store("memory://doc").put_if_absent("a", b"1")
    True
    """
    spec = _spec(place, storage_options or {})
    declared_of(spec)
    if spec.uri.startswith(S3):
        return S3Store(spec)
    if spec.uri.startswith(MEMORY):
        _no_options(spec)
        return MemoryStore(spec.uri)
    root = local_root(spec)
    if root is None:
        return FsspecStore(spec)
    _no_options(spec)
    store = LocalStore(root, options=spec.options)
    if create:
        store.check_root()
    return store


def local_root(spec: StoreSpec) -> str | None:
    """Give the directory of a table on a local disk; None if it is elsewhere."""
    uri = spec.uri
    if uri.startswith(_FILE):
        path = uri.removeprefix(_FILE).removeprefix("localhost")
        if path.startswith("/"):
            return path
        message = f"{uri!r} names another machine"
        raise OptionError(message, hint="file:///path has three slashes", key="uri", value=uri)
    return None if "://" in uri else uri


def _spec(place: StoreSpec | str, options: Mapping[str, object]) -> StoreSpec:
    if isinstance(place, StoreSpec):
        return place if not options else StoreSpec(place.uri, tuple(sorted(options.items())))
    text = str(place)
    if not text.strip() or "\0" in text:
        message = f"{text!r} is no place for a table"
        raise OptionError(message, hint="give a path or a URL", key="uri", value=text)
    return StoreSpec(text, tuple(sorted(options.items())))


def _no_options(spec: StoreSpec) -> None:
    options = options_of(spec)
    if options:
        key = min(options)
        message = f"{spec.uri} takes no storage option {key!r}"
        raise OptionError(message, hint=f"only {DECLARE}", key=key, value="")
