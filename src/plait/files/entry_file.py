"""Small entries of one writer, one after another in a file: deletion vectors, row maps (RFC 0036).

The decision says where an entry begins and how long it is. What an entry holds is said where it is
written. A seal of eight bytes follows each entry: the XXH64 of the name of the file, of where the
entry begins, and of the entry. So an entry proves itself to the decision that names it: those of
another file, or of another place in the same one, are refused although they are whole. The name is
the last part of the path, which is unique for ever: a table may be copied, and the files of a
repush become those of the table around it.
"""

from __future__ import annotations

import struct

import pyarrow as pa
import xxhash

from plait.files.data_file import corrupt, own_name, reading, writing
from plait.storage.port import Store, check_path

_SEAL = struct.Struct("<Q")
SEAL_BYTES = _SEAL.size
"""Bytes that follow each entry."""


def _seal(path: str, offset: int, *parts: bytes) -> bytes:
    digest = xxhash.xxh64(own_name(path).encode())
    digest.update(_SEAL.pack(offset))
    for part in parts:
        digest.update(part)
    return _SEAL.pack(digest.intdigest())


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
            for part in (*parts, _seal(self.path, offset, *parts)):
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
        CorruptMetadataError: the file is missing, or has another entry there, or none.
        StorageError: the store failed.
    """
    whole = size + SEAL_BYTES
    with reading(path), store.filesystem().open_input_file(check_path(path)) as source:
        if source.size() < offset + whole:
            raise corrupt(path, f"{offset + whole} bytes", str(source.size()))
        body: bytes = source.read_at(whole, offset)
    entry = body[:size]
    if body[size:] != _seal(path, offset, entry):
        raise corrupt(path, f"the entry that was written at {offset}", "another one")
    return entry
