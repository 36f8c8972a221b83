"""How much memory a writer may use, and into what it divides it."""

from __future__ import annotations

from dataclasses import dataclass

from plait.model.options import Options

_KIB, _MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, all derived from two options.

    A writer's rows, sorted copies and merge blocks together stay below ``total``, which is 1.5
    times ``write.buffer.size``, whatever comes in; rows of many megabytes each excepted.
    """

    bucket: int
    """A bucket with more than this in the buffer is flushed."""
    buffer: int
    """A buffer with more than this is flushed whole."""

    @classmethod
    def of(cls, options: Options) -> Limits:
        """Take them from a table's options."""
        return cls(options.size("write.bucket.size"), options.size("write.buffer.size"))

    @property
    def total(self) -> int:
        """The bound on all memory of a writer."""
        return self.buffer + self.buffer // 2

    @property
    def chunk(self) -> int:
        """Rows that are divided by bucket in one go."""
        return min(max(self.buffer // 16, _KIB), 8 * _MIB)

    @property
    def segment(self) -> int:
        """Rows that are sorted in one go; a flush of more gives several sorted segments."""
        return min(max(self.buffer * 5 // 16, 4 * _KIB), 256 * _MIB)

    @property
    def slice(self) -> int:
        """Rows that are copied in sorted order and written in one go."""
        return min(max(self.buffer // 64, _KIB), 4 * _MIB)

    @property
    def block(self) -> int:
        """Rows of a run that are read back in one go while runs are merged."""
        return min(max(self.buffer // 1024, _KIB), _MIB)

    @property
    def group(self) -> int:
        """Rows that a file writer may hold back until they make a row group."""
        return min(max(self.buffer // 32, _KIB), 32 * _MIB)

    def working(self, flushed: int) -> int:
        """Give the memory that flushing a bucket of this size needs beside its rows."""
        # A copy in one piece, the keys and their order, a slice, a row group and its encoding.
        segment = min(flushed, self.segment)
        return segment + segment // 4 + self.slice + 2 * self.group
