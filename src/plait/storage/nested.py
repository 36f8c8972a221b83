"""A store inside a store: the files below one of its directories, for a table inside a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow.fs as pafs

from plait.model.store_address import StoreAddress
from plait.storage.port import FIND_BYTES_MAX, Capabilities, FileInfo, Store, check_path


class NestedStore:
    """Everything that the outer store can do, below one of its directories."""

    def __init__(
        self, outer: Store, directory: str, *, deletes: Callable[[], bool] | None = None
    ) -> None:
        """Look into a directory; nothing is read.

        Args:
            outer: the store that has it.
            directory: its path.
            deletes: asked before files are deleted: while it says no, they stay. By default they
                are deleted.

        >>> from plait.storage import open_store
        >>> outer = open_store("memory://doc-nested")
        >>> NestedStore(outer, "inside").put("a", b"1")
        >>> [file.path for file in outer.list("")]
        ['inside/a']
        """
        self._outer, self._directory, self._deletes = outer, check_path(directory), deletes

    def _path(self, path: str) -> str:
        return f"{self._directory}/{path}"

    @property
    def address(self) -> StoreAddress:
        """Where the directory is."""
        address = self._outer.address
        return replace(address, uri=f"{address.uri.rstrip('/')}/{self._directory}")

    @property
    def capabilities(self) -> Capabilities:
        """What the outer store can do."""
        return self._outer.capabilities

    def find(
        self, path: str, *, size_max: int = FIND_BYTES_MAX, later: Sequence[str] = ()
    ) -> bytes | None:
        """Read a whole file; None if there is none."""
        names = [self._path(name) for name in later]
        return self._outer.find(self._path(path), size_max=size_max, later=names)

    def put(self, path: str, body: bytes) -> None:
        """Write a whole file."""
        self._outer.put(self._path(path), body)

    def put_if_absent(self, path: str, body: bytes) -> bool:
        """Write a whole file if the name is free."""
        return self._outer.put_if_absent(self._path(path), body)

    def replace(self, path: str, body: bytes, *, expected: bytes) -> bool:
        """Write a whole file in place of exactly ``expected``."""
        return self._outer.replace(self._path(path), body, expected=expected)

    def list(self, prefix: str) -> Iterator[FileInfo]:
        """List the files below a directory."""
        place, cut = self._path(prefix).rstrip("/"), len(self._directory) + 1
        return (replace(info, path=info.path[cut:]) for info in self._outer.list(place))

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files, unless they are no longer this table's to delete."""
        if self._deletes is not None and not self._deletes():
            return
        self._outer.delete([self._path(path) for path in paths])

    def persist(self, paths: Iterable[str]) -> None:
        """Make data files durable."""
        self._outer.persist([self._path(path) for path in paths])

    def now_ms(self) -> int:
        """Return the outer store's time."""
        return self._outer.now_ms()

    def filesystem(self) -> pafs.FileSystem:
        """Return an Arrow file system rooted at the directory."""
        return pafs.SubTreeFileSystem(self._directory, self._outer.filesystem())

    def location(self, path: str) -> str:
        """Return the address of a file."""
        return self._outer.location(self._path(path))
