"""Make a run of the record index from keys in any order, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Final, Self

import pyarrow.fs as pafs

from plait.files.hash import Hashes
from plait.index.entries import IndexEntries, Places
from plait.index.merge import merged, write_files
from plait.index.run_file import OpenRun, RunFile
from plait.storage.scratch import Scratch

MEMORY_BYTES: Final = 256 << 20
_BYTES_AN_ENTRY: Final = 80
"""What sorting an entry takes: the entry, its copy, and the order."""


class RunBuilder:
    """Collects entries, sorts them on the local disk, and writes them as run files.

    Use it in a ``with`` block: it removes what it spilled.
    """

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        """Begin; ``memory_bytes`` bounds what is held, apart from the names of partitions."""
        self.places = Places()
        self._most = max(1, memory_bytes // _BYTES_AN_ENTRY)
        self._held: list[IndexEntries] = []
        self._count = 0
        self._spilled: list[RunFile] = []
        self._scratch = Scratch("index")

    def __enter__(self) -> Self:
        """Use it in a block."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Remove what was spilled."""
        self._scratch.close()

    def add(self, hashes: Hashes, partition: str, version: int) -> None:
        """Take keys of one partition (``partition_text``) that one version wrote.

        Raises:
            UnsupportedFeatureError: the version is too great for an index.
            StorageError: the local disk failed.
        """
        place = self.places.number(partition)
        for start in range(0, len(hashes), self._most):
            part = IndexEntries.of(hashes[start : start + self._most], place, version)
            if self._count + len(part) > self._most:
                self._spill()
            self._held.append(part)
            self._count += len(part)

    def write(
        self,
        filesystem: pafs.FileSystem,
        name: Callable[[int], str],
        older: Sequence[RunFile] = (),
    ) -> list[RunFile]:
        """Write everything, each hash and partition once, together with that of older files.

        Args:
            filesystem: the store's.
            name: gives the n-th file its name.
            older: files on the store whose entries are taken in.

        Raises:
            CorruptMetadataError: an older file is damaged.
            StorageError: the store, or the local disk, failed.
        """
        if not (self._spilled or older):
            chunks: Iterator[IndexEntries] = iter([self._taken()])
            return write_files(filesystem, name, chunks, self.places)
        self._spill()
        with ExitStack() as stack:
            local = self._scratch.filesystem()
            sources = [stack.enter_context(OpenRun(local, file)) for file in self._spilled]
            sources += [stack.enter_context(OpenRun(filesystem, file)) for file in older]
            chunks = merged(sources, self.places, self._most)
            return write_files(filesystem, name, chunks, self.places)

    def _taken(self) -> IndexEntries:
        held, self._held, self._count = self._held, [], 0
        return IndexEntries.concat(held).newest()

    def _spill(self) -> None:
        if not self._count:
            return
        entries, number = self._taken(), len(self._spilled)
        with self._scratch.alone():
            self._spilled += write_files(
                self._scratch.filesystem(),
                lambda at: f"{number:06d}-{at:06d}.run",
                [entries],
                self.places,
                most=len(entries),
            )
