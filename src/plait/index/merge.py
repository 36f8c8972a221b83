"""Merge sorted run files in bounded memory, and write entries into files by ranges of hashes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow.fs as pafs

from plait.index.entries import Codes, IndexEntries, Places
from plait.index.run_file import BLOCK, OpenRun, RunFile, RunWriter

FILE_ENTRIES: Final = 1 << 21
"""A run file has about so many entries at most: 32 MiB."""
_HASHES: Final = 1 << 64


def merged(sources: Sequence[OpenRun], places: Places, most: int) -> Iterator[IndexEntries]:
    """Return the entries of sorted files, range by range, the newest of each hash and place.

    Args:
        sources: the files.
        places: gets the partitions of all of them; the entries have its numbers.
        most: about so many entries are in memory at once.

    Raises:
        CorruptMetadataError: a file is damaged.
    """
    known = numbered(sources, places)
    for low, high in ranges(sources, most):
        yield part_of(known, low, high)


def numbered(sources: Sequence[OpenRun], places: Places) -> list[tuple[OpenRun, Codes]]:
    """Return each file with the numbers of its partitions among ``places``."""
    return [(source, places.numbers(source.footer.places)) for source in sources]


def part_of(sources: Sequence[tuple[OpenRun, Codes]], low: int, high: int) -> IndexEntries:
    """Return the newest entries of a range of hashes, sorted; see ``merged``."""
    parts = []
    for source, numbers in sources:
        found = source.between(low, high)
        if len(found):
            parts.append(IndexEntries(found.hashes, numbers[found.places], found.versions))
    return IndexEntries.concat(parts).newest()


def ranges(sources: Sequence[OpenRun], most: int) -> Iterator[tuple[int, int]]:
    """Divide all hashes so that the files have about ``most`` entries at most in each range."""
    firsts = np.sort(np.concatenate([np.zeros(0, np.uint64), *(s.firsts for s in sources)]))
    step = max(1, most // BLOCK - len(sources))
    cuts = sorted({int(each) for each in firsts[step::step]} - {0})
    yield from zip([0, *cuts], [*cuts, _HASHES], strict=True)


def write_files(
    filesystem: pafs.FileSystem,
    name: Callable[[int], str],
    chunks: Iterable[IndexEntries],
    places: Places,
    *,
    most: int = FILE_ENTRIES,
) -> list[RunFile]:
    """Write sorted entries into files, each with a range of the hashes.

    Args:
        filesystem: where.
        name: gives the n-th file its name.
        chunks: entries in order, with the numbers of ``places``, which may grow meanwhile.
        places: the partitions.
        most: a file has so many entries at most.

    Raises:
        StorageError: the store failed.
    """
    files: list[RunFile] = []
    writer: RunWriter | None = None
    local = _Numbering()
    try:
        for piece in _pieces(chunks, most):
            if writer is not None and writer.entries + len(piece) > most:
                files.append(writer.close(local.texts(places)))
                writer = None
            if writer is None:
                writer, local = RunWriter(filesystem, name(len(files))), _Numbering()
            writer.add(local.applied(piece))
        if writer is not None:
            files.append(writer.close(local.texts(places)))
            writer = None
    finally:
        if writer is not None:
            writer.abandon()
    return files


def _pieces(chunks: Iterable[IndexEntries], most: int) -> Iterator[IndexEntries]:
    """Cut entries where a file is full."""
    room = most
    for chunk in chunks:
        start = 0
        while start < len(chunk):
            piece = chunk.part(start, start + room)
            yield piece
            start += len(piece)
            room = room - len(piece) or most


@dataclass(slots=True)
class _Numbering:
    """The numbers that the partitions have in one file."""

    _known: dict[int, int] = field(default_factory=dict)

    def applied(self, entries: IndexEntries) -> IndexEntries:
        if not len(entries):
            return entries
        present = np.zeros(int(entries.places.max()) + 1, np.bool_)
        present[entries.places] = True
        numbers = np.zeros(len(present), np.uint32)
        for each in np.flatnonzero(present).tolist():
            numbers[each] = self._known.setdefault(each, len(self._known))
        return IndexEntries(entries.hashes, numbers[entries.places], entries.versions)

    def texts(self, places: Places) -> list[str]:
        return [places.texts[number] for number in self._known]
