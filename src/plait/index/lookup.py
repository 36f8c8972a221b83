"""Look hashes up in the runs of a record index."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np

from plait.files.hash import Hashes
from plait.index.entries import IndexEntries, Places
from plait.index.manifest import Manifest
from plait.index.run_file import OpenRun, RunFile, RunFooter
from plait.storage.port import Store

T = TypeVar("T")
R = TypeVar("R")
_READERS: Final = 4
"""Threads that read run files, each a stretch of 8 MiB at a time."""
_ALONE: Final = 4
"""Fewer files than this are not worth a thread."""
_BLOCKS_KEPT: Final = 1 << 18
"""Directories of so many blocks are kept: 4 MiB, of a thousand million entries."""


@dataclass(slots=True)
class Footers:
    """Footers of run files that a client has read. A run file never changes."""

    _known: OrderedDict[str, RunFooter] = field(default_factory=OrderedDict)
    _blocks: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def find(self, file: RunFile) -> RunFooter | None:
        """Return the footer of a file; None if it was not read, or long ago."""
        with self._lock:
            known = self._known.get(file.path)
            if known is None or known.file != file:
                return None
            self._known.move_to_end(file.path)
            return known

    def keep(self, footer: RunFooter) -> None:
        """Keep a footer, and let go of those not used for long."""
        with self._lock:
            if footer.file.path in self._known:
                return
            self._known[footer.file.path] = footer
            self._blocks += len(footer.firsts)
            while self._blocks > _BLOCKS_KEPT and len(self._known) > 1:
                _, old = self._known.popitem(last=False)
                self._blocks -= len(old.firsts)


def find_entries(
    store: Store, manifest: Manifest, wanted: Hashes, places: Places, footers: Footers
) -> IndexEntries:
    """Return the newest entry of each hash and partition.

    Of each run only the files are opened whose range has a hash, and of them the blocks are read.

    Args:
        store: the table's.
        manifest: of the index.
        wanted: sorted hashes, each once.
        places: gets the partitions; the entries have its numbers.
        footers: what is known of the files.

    Raises:
        CorruptMetadataError: a file is missing or damaged.
        StorageError: the store failed.
    """
    asked = [(file, part) for file in manifest.files if len(part := _within(wanted, file))]

    def load(one: tuple[RunFile, Hashes]) -> tuple[RunFooter, IndexEntries]:
        file, part = one
        with OpenRun(store.filesystem(), file, footers.find(file)) as source:
            footers.keep(source.footer)
            return source.footer, source.find(part)

    found = []
    for footer, entries in _in_order(load, asked):
        numbers = places.numbers(footer.places)
        if len(entries):
            found.append(IndexEntries(entries.hashes, numbers[entries.places], entries.versions))
    return IndexEntries.concat(found).newest()


def _within(wanted: Hashes, file: RunFile) -> Hashes:
    """Return those of sorted hashes that the range of a file has."""
    ends = np.array([file.first, file.last], np.uint64)
    low = int(np.searchsorted(wanted, ends[0], side="left"))
    return wanted[low : int(np.searchsorted(wanted, ends[1], side="right"))]


def _in_order(load: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """Load many items by some threads, few by the caller's; in their order."""
    if len(items) < _ALONE:
        yield from map(load, items)
        return
    with ThreadPoolExecutor(_READERS, thread_name_prefix="plait-index") as pool:
        yield from pool.map(load, items)
