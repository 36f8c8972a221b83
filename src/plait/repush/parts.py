"""What a repush loads: rows in parts that are always cut alike."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self, runtime_checkable

import numpy as np
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class RowPart:
    """The rows of one task."""

    rows: int
    """Number of rows; if a file is divided, hidden rows are included."""
    read: Callable[[], object]
    """Returns what a writer takes."""
    check: Callable[[], None] = lambda: None
    """Raises RepushRefusedError after reading, if the source may have changed meanwhile."""


@dataclass(frozen=True, slots=True)
class SourceOrigin:
    """What a source says beside its rows, for a table that is made of it."""

    partition_by: tuple[str, ...] = ()
    """Partition columns, and transforms that a table of Plait has too."""
    record_key: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    """What a table of Plait will not have of it, one sentence each."""
    directory: str = ""
    """Where its files are, if its address does not tell; a local one as a path."""
    older: str = ""
    """What is said of older versions, where those are not brought over."""


NO_ORIGIN: Final = SourceOrigin()


class RowSource(Protocol):
    """Rows that do not change, and know how many they are."""

    @property
    def version(self) -> int:
        """The version or the snapshot that is read; 0 if there are none."""

    @property
    def digest(self) -> str:
        """Tells sources without versions apart."""

    @property
    def rows(self) -> int:
        """How many rows it has."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""

    @property
    def origin(self) -> SourceOrigin:
        """Partition columns, key and losses of a table that is made of the source."""

    def parts(self, rows: int) -> Sequence[RowPart]:
        """Cut it into parts of about so many rows; one at least, maybe without rows."""

    def close(self) -> None:
        """Let go of what was kept to read it."""


@runtime_checkable
class PiecedSource(RowSource, Protocol):
    """Rows in files, of which a later version may have the same."""

    @property
    def pieces(self) -> Sequence[str]:
        """The identity of each file with the rows that are hidden in it."""

    def only(self, pieces: Collection[str]) -> Self:
        """Return the source with some of its files."""


@dataclass(frozen=True, slots=True)
class SourceVersion:
    """A version of a source, or a snapshot."""

    number: int
    time_ms: int | None
    """When it was made, as the source says; None if it does not."""
    same_rows: bool = False
    """Whether the source says that its rows are those of the version before, in other files."""


@dataclass(frozen=True, slots=True)
class SourceHistory:
    """The versions of a source that can be brought over."""

    versions: tuple[SourceVersion, ...]
    """Oldest first, up to the newest; of one schema, with all their files."""
    lost: tuple[str, ...] = ()
    """Why no older one is among them."""


def stretches(counts: Sequence[int], rows: int) -> Iterator[tuple[int, range]]:
    """Divide files with these numbers of rows into stretches of at most so many, always alike.

    >>> list(stretches([3, 25], 10))
    [(0, range(0, 3)), (1, range(0, 8)), (1, range(8, 16)), (1, range(16, 25))]
    """
    for file, count in enumerate(counts):
        pieces = max(1, -(-count // rows))
        edges = [count * piece // pieces for piece in range(pieces + 1)]
        yield from ((file, range(low, high)) for low, high in itertools.pairwise(edges))


def spans(counts: Sequence[int], rows: int) -> Iterator[tuple[int, int]]:
    """Cut files with these numbers of rows into groups of about so many; no file is divided.

    >>> list(spans([5, 5, 1, 9], 10)), list(spans([], 10))
    ([(0, 2), (2, 4)], [(0, 0)])
    """
    # Cut by counts alone, never by time or load: a process that resumes must cut the same tasks,
    # because the token of the shadow records only the number of the next one.
    ends = np.cumsum(np.asarray(counts, dtype=np.int64))
    number = np.maximum(0, ends - 1) // rows
    edges = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(counts)]
    for low, high in itertools.pairwise(edges):
        if high > low or not len(counts):
            yield low, high
