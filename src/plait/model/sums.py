"""The sums over the live files of a table, which every decision tells."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

_HASH = re.compile(r"[0-9a-f]{16}", re.ASCII)
_MODULO = 1 << 64


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over some live files. The sums of parts add up to those of the whole."""

    files: int = 0
    rows: int = 0
    """Rows that readers see."""
    hash: int = 0
    """The sum of the files' 64-bit hashes, modulo 2**64 (``state/sums.py``)."""

    def __add__(self, other: Sums) -> Sums:
        """Return the sums over both."""
        return Sums(
            self.files + other.files, self.rows + other.rows, (self.hash + other.hash) % _MODULO
        )

    def __sub__(self, other: Sums) -> Sums:
        """Return the sums without those of some files."""
        return Sums(
            self.files - other.files, self.rows - other.rows, (self.hash - other.hash) % _MODULO
        )

    def __str__(self) -> str:
        """Return readable text, for example ``3 files, 20 rows (00f3a1...)``."""
        return f"{self.files} files, {self.rows} rows ({self.hash:016x})"

    def to_list(self) -> list[object]:
        """Write it as JSON values."""
        return [self.files, self.rows, f"{self.hash:016x}"]

    @classmethod
    def from_list(cls, value: object) -> Self:
        """Read what ``to_list`` wrote; raise TypeError or ValueError for anything else."""
        if not isinstance(value, list):
            raise TypeError(value)
        files, rows, total = value
        if type(files) is not int or type(rows) is not int or not isinstance(total, str):
            raise TypeError(value)
        if min(files, rows) < 0 or max(files, rows) >= 1 << 63 or not _HASH.fullmatch(total):
            raise ValueError(value)
        return cls(files, rows, int(total, 16))
