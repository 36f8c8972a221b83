"""Look hashes up in the runs of a record index."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from plait.files.hash import Hashes
from plait.index.entries import IndexEntries, Places
from plait.index.manifest import Manifest
from plait.index.run_file import OpenRun, RunFile, RunFooter
from plait.storage.port import Store

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
    found = []
    for file in manifest.files:
        ends = np.array([file.first, file.last], np.uint64)
        low = int(np.searchsorted(wanted, ends[0], side="left"))
        high = int(np.searchsorted(wanted, ends[1], side="right"))
        if low == high:
            continue
        with OpenRun(store.filesystem(), file, footers.find(file)) as source:
            footers.keep(source.footer)
            entries = source.find(wanted[low:high])
        numbers = places.numbers(source.footer.places)
        if len(entries):
            found.append(IndexEntries(entries.hashes, numbers[entries.places], entries.versions))
    return IndexEntries.concat(found).newest()
