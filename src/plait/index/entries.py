"""Entries of the record index: which key was written where, and by which version, columnar."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from plait.errors import UnsupportedFeatureError
from plait.files.hash import Hashes

Codes: TypeAlias = npt.NDArray[np.uint32]

VERSIONS_MAX: Final = (1 << 32) - 1
"""The greatest version that an entry can name."""
PLACES_MAX: Final = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class IndexEntries:
    """Some entries; the columns have one length.

    An entry says: at ``version`` the row of a key with this hash was in a file of the partition
    that this very version had added. It may be long since gone.
    """

    hashes: Hashes
    places: Codes
    """The numbers of partitions."""
    versions: Codes

    def __len__(self) -> int:
        """Count them."""
        return len(self.hashes)

    @classmethod
    def none(cls) -> Self:
        """Return no entries."""
        empty = np.zeros(0, np.uint32)
        return cls(np.zeros(0, np.uint64), empty, empty)

    @classmethod
    def of(cls, hashes: Hashes, place: int, version: int) -> Self:
        """Return the entries of keys of one partition that one version wrote.

        Raises:
            UnsupportedFeatureError: the version is too great for an index.
        """
        if version > VERSIONS_MAX:
            message = f"a record index names versions up to {VERSIONS_MAX}, not {version}"
            hint = "drop the index; look-ups then read the files of a bucket"
            raise UnsupportedFeatureError(message, hint=hint, limit=VERSIONS_MAX, found=version)
        count = len(hashes)
        return cls(hashes, np.full(count, place, np.uint32), np.full(count, version, np.uint32))

    @classmethod
    def concat(cls, parts: Iterable[IndexEntries]) -> Self:
        """Put entries one after another."""
        every = [part for part in parts if len(part)] or [cls.none()]
        return cls(
            np.concatenate([part.hashes for part in every]),
            np.concatenate([part.places for part in every]),
            np.concatenate([part.versions for part in every]),
        )

    def part(self, start: int, stop: int) -> IndexEntries:
        """Return a stretch of them, without a copy."""
        return IndexEntries(
            self.hashes[start:stop], self.places[start:stop], self.versions[start:stop]
        )

    def take(self, at: npt.NDArray[np.generic]) -> IndexEntries:
        """Return those at some positions, or those that are flagged."""
        return IndexEntries(self.hashes[at], self.places[at], self.versions[at])

    def between(self, low: int, high: int) -> IndexEntries:
        """Return those of sorted entries with hashes from ``low`` on and below ``high``."""
        start = int(np.searchsorted(self.hashes, np.uint64(low))) if low else 0
        stop = len(self)
        if high < 1 << 64:
            stop = int(np.searchsorted(self.hashes, np.uint64(high)))
        return self.part(start, stop)

    def newest(self) -> IndexEntries:
        """Sort them by hash and place, and keep the newest of each hash and place.

        >>> one = IndexEntries.of(np.array([9, 3, 9], np.uint64), 0, 1)
        >>> two = IndexEntries.of(np.array([3], np.uint64), 0, 2)
        >>> both = IndexEntries.concat([one, two]).newest()
        >>> both.hashes.tolist(), both.versions.tolist()
        ([3, 9], [2, 1])
        """
        order = np.argsort(self.hashes)
        hashes = self.hashes[order]
        same = hashes[1:] == hashes[:-1]
        if not same.any():
            return self.take(order)
        tied = np.zeros(len(order), np.bool_)
        tied[1:] = same
        tied[:-1] |= same
        among = order[tied]
        # Few hashes come twice: only those are put in order by the other columns too.
        inner = np.lexsort((self.versions[among], self.places[among], self.hashes[among]))
        order[tied] = among[inner]
        ordered = self.take(order)
        last = np.ones(len(order), np.bool_)
        last[:-1] = ~(same & (ordered.places[1:] == ordered.places[:-1]))
        return ordered.take(last)


@dataclass(slots=True)
class Places:
    """Numbers for partitions, in the order in which they come."""

    texts: list[str] = field(default_factory=list)
    """``partition_text`` by number."""
    _numbers: dict[str, int] = field(default_factory=dict)

    def copied(self) -> Places:
        """Return another one with the same numbers, which may grow by itself."""
        return Places(list(self.texts), dict(self._numbers))

    def number(self, text: str) -> int:
        """Return the number of a partition."""
        known = self._numbers.get(text)
        if known is None:
            known = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return known

    def numbers(self, texts: Sequence[str]) -> Codes:
        """Return the numbers of partitions, to translate the numbers of a file."""
        return np.array([self.number(text) for text in texts], np.uint32)
