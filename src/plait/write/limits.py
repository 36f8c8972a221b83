"""How much memory a writer may use, and into what it divides it."""

from __future__ import annotations

from dataclasses import dataclass

from plait.model.options import Options

_KIB, _MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, all derived from two options.

    A writer's rows, sorted copies and merge blocks together stay below ``total``, which is 1.5
    times ``write.buffer.size``, whatever comes in; buffers of less than 4 MiB, where the least
    pieces are larger than their share, and rows of many megabytes each are excepted.
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
        return _between(self.buffer // 64, _KIB, 8 * _MIB)

    @property
    def round(self) -> int:
        """Rows that are merged in one go while a bucket is flushed."""
        return _between(self.buffer // 64, 64 * _KIB, 8 * _MIB)

    @property
    def slice(self) -> int:
        """Rows that are copied in their final order and written in one go."""
        return _between(self.buffer // 128, 32 * _KIB, 2 * _MIB)

    @property
    def group(self) -> int:
        """Rows that a file writer may hold back until they make a row group."""
        return _between(self.buffer // 32, 64 * _KIB, 16 * _MIB)

    @property
    def block(self) -> int:
        """Rows of a run that are read back in one go while runs are merged."""
        return _between(self.buffer // 512, 16 * _KIB, _MIB)

    @property
    def admitted(self) -> int:
        """Rows in the buffer and on the way to files, at most."""
        # The rest of ``total`` is for what is being divided, merged, encoded and written.
        return self.buffer + self.buffer // 16


def _between(wanted: int, least: int, most: int) -> int:
    return min(max(wanted, least), most)
