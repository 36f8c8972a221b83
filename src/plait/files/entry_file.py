"""Small entries of one writer, one after another in a file: deletion vectors, row maps.

The decision says where an entry begins and how long it is. What an entry holds, and how it is
checked, is said where it is written.
"""

from __future__ import annotations

import pyarrow as pa

from plait.files.data_file import corrupt, reading, writing
from plait.storage.port import Store, check_path


class EntryFile:
    """A file of entries; it is created when the first one comes."""

    def __init__(self, store: Store, path: str, head: bytes) -> None:
        """Take the name of the file, and what it begins with."""
        self.path = check_path(path)
        self._store, self._head = store, head
        self._sink: pa.NativeFile | None = None

    def append(self, *parts: bytes) -> int:
        """Write an entry, and return where it begins."""
        with writing(self.path):
            if self._sink is None:
                self._sink = self._store.filesystem().open_output_stream(self.path)
                self._sink.write(self._head)
            offset: int = self._sink.tell()
            for part in parts:
                self._sink.write(part)
        return offset

    @property
    def paths(self) -> list[str]:
        """The file, if there is one, to be made durable with ``store.persist``."""
        return [] if self._sink is None else [self.path]

    def close(self) -> None:
        """Finish the file."""
        if self._sink is not None and not self._sink.closed:
            with writing(self.path):
                self._sink.close()


def read_entry(store: Store, path: str, offset: int, size: int) -> bytes:
    """Read the bytes of an entry.

    Raises:
        CorruptMetadataError: the file is missing, or ends before the entry does.
        StorageError: the store failed.
    """
    with reading(path), store.filesystem().open_input_file(check_path(path)) as source:
        if source.size() < offset + size:
            raise corrupt(path, f"{offset + size} bytes", str(source.size()))
        entry: bytes = source.read_at(size, offset)
    return entry
