"""A store around a store: every call passes through ``call``, including those of Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.fs as pafs

from plait.model.consent import Consent
from plait.model.store_address import StoreAddress
from plait.ports import Ports
from plait.storage import open_store
from plait.storage.arrow import RootedHandler
from plait.storage.port import FIND_BYTES_MAX, Capabilities, FileInfo, Store
from plait.table import Table
from plait.txn.table_handle import open_handle

T = TypeVar("T")
S = TypeVar("S", bound=Store)
METADATA = ".meta/"


def is_metadata(path: str) -> bool:
    """Return whether a path is metadata, not a data file."""
    return path.startswith(METADATA) or path == METADATA.rstrip("/")


class WrappedStore:
    """Passes every call on. A subclass overrides ``call`` to act before and after."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    def call(self, operation: str, path: str, run: Callable[[], T]) -> T:  # noqa: ARG002 - for subclasses
        """Make one call of the store."""
        return run()

    @property
    def address(self) -> StoreAddress:
        """The address of the inner store; opening it again opens it without the wrapper."""
        return self.inner.address

    @property
    def capabilities(self) -> Capabilities:
        """What the inner store can do."""
        return self.inner.capabilities

    def find(
        self, path: str, *, size_max: int = FIND_BYTES_MAX, later: Sequence[str] = ()
    ) -> bytes | None:
        """Read a whole file."""
        run = partial(self.inner.find, path, size_max=size_max, later=later)
        return self.call("find", path, run)

    def put(self, path: str, body: bytes) -> None:
        """Write a whole file."""
        self.call("put", path, lambda: self.inner.put(path, body))

    def put_if_absent(self, path: str, body: bytes) -> bool:
        """Write a whole file if the name is free."""
        return self.call("put_if_absent", path, lambda: self.inner.put_if_absent(path, body))

    def replace(self, path: str, body: bytes, *, expected: bytes) -> bool:
        """Write a whole file in place of exactly ``expected``."""
        run = partial(self.inner.replace, path, body, expected=expected)
        return self.call("replace", path, run)

    def list(self, prefix: str) -> Iterator[FileInfo]:
        """List files; the whole listing is one call."""
        yield from self.call("list", prefix, lambda: list(self.inner.list(prefix)))

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; each is a call."""
        for path in paths:
            self.call("delete", path, partial(self.inner.delete, [path]))

    def persist(self, paths: Iterable[str]) -> None:
        """Make files durable; all of them are one call."""
        listed = list(paths)
        first = listed[0] if listed else ""
        self.call("persist", first, lambda: self.inner.persist(listed))

    def now_ms(self) -> int:
        """Return the store's clock."""
        return self.inner.now_ms()

    def filesystem(self) -> pafs.FileSystem:
        """Return the Arrow file system; opening a file is a call."""
        return pafs.PyFileSystem(_Handler(self))

    def location(self, path: str) -> str:
        """Return the address of a file."""
        return self.inner.location(path)


class _Handler(RootedHandler):
    def __init__(self, store: WrappedStore) -> None:
        super().__init__(store.inner.filesystem(), "wrapped")
        self._store = store

    def open_input_file(self, path: str) -> pa.NativeFile:
        run = super().open_input_file
        return self._store.call("open_input", path, lambda: run(path))

    def open_input_stream(self, path: str) -> pa.NativeFile:
        run = super().open_input_stream
        return self._store.call("open_input", path, lambda: run(path))

    def open_output_stream(self, path: str, metadata: dict[str, str] | None) -> pa.NativeFile:
        run = super().open_output_stream
        return self._store.call("open_output", path, lambda: run(path, metadata))


def open_wrapped(
    uri: str,
    wrap: Callable[[Store], S],
    *,
    ports: Ports | None = None,
    allow: str | Iterable[str] | None = None,
) -> tuple[Table, S]:
    """Open a table through a wrapper of its store; return both. ``allow`` is that of ``open``.

    >>> from plait.testing import CountingStore
    >>> _ = Table.create("memory://open-wrapped", "id bigint")
    >>> table, store = open_wrapped("memory://open-wrapped", CountingStore)
    >>> table.version, store.count("put_if_absent")
    (0, 0)
    """
    store = wrap(open_store(uri))
    return Table(open_handle(store, ports or Ports(), Consent.of(allow))), store
