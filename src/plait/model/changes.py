"""What a commit does to the files of a table, as Arrow tables: no Python object a file."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

BASE, LOG = "base", "log"

ADDED = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("partition", pa.string(), nullable=False),  # partition_text
        pa.field("bucket", pa.int32(), nullable=False),  # UNKEYED without a record key
        pa.field("kind", pa.string(), nullable=False),  # BASE | LOG
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("sorted", pa.bool_(), nullable=False),  # by record key
        pa.field("schema_id", pa.int32(), nullable=False),
        pa.field("stats", pa.string()),  # JSON {field id: [lower, upper, null count]}
    ]
)
MASKED = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),  # the data file
        pa.field("rows", pa.int64(), nullable=False),  # rows masked in all, not only by this commit
        pa.field("inline", pa.binary()),  # the deletion vector itself, when small
        pa.field("dv_path", pa.string()),  # or the file that holds it ...
        pa.field("dv_offset", pa.int64()),
        pa.field("dv_bytes", pa.int64()),
    ]
)
TOUCHED = pa.schema(
    [
        pa.field("partition", pa.string(), nullable=False),
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("keys", pa.string(), nullable=False),  # KEYS_*
        pa.field("key_count", pa.int64(), nullable=False),
        pa.field("key_inline", pa.binary()),  # sorted unique uint64, little endian
        pa.field("key_path", pa.string()),  # sidecar
    ]
)
PATHS = pa.schema([pa.field("path", pa.string(), nullable=False)])

KEYS_FILES = "files"  # the keys of the files that this decision adds to the bucket
KEYS_INLINE = "inline"
KEYS_SIDECAR = "sidecar"
KEYS_ALL = "all"  # any key of the bucket may have been touched
KEYS_NONE = "none"  # rows were added to a table without keys


def no_rows(schema: pa.Schema) -> pa.Table:
    """Make a table without rows; unlike ``empty_table`` it brings no pandas along."""
    return pa.Table.from_batches([], schema=schema)


_NO_ADDED, _NO_MASKED = no_rows(ADDED), no_rows(MASKED)
_NO_TOUCHED, _NO_PATHS = no_rows(TOUCHED), no_rows(PATHS)


@dataclass(frozen=True, slots=True)
class Changes:
    """Files added, removed and masked, and the logical write set that they stand for."""

    added: pa.Table = field(default_factory=lambda: _NO_ADDED)
    masked: pa.Table = field(default_factory=lambda: _NO_MASKED)
    touched: pa.Table = field(default_factory=lambda: _NO_TOUCHED)
    removed: pa.Table = field(default_factory=lambda: _NO_PATHS)
    garbage: pa.Table = field(default_factory=lambda: _NO_PATHS)
    """Files of our own that no reader ever sees, such as runs; condemned from the start."""

    def tables(self) -> dict[str, pa.Table]:
        """Give the five tables by name."""
        return {name: getattr(self, name) for name in SECTIONS}

    def named(self) -> list[str]:
        """Give the files of this operation that readers or conflict checks will open."""
        return [
            *self.added["path"].to_pylist(),
            *filter(None, self.masked["dv_path"].to_pylist()),
            *filter(None, self.touched["key_path"].to_pylist()),
        ]

    def written(self) -> set[str]:
        """Give every file that this operation wrote, whether anybody will open it or not."""
        return {*self.named(), *self.garbage["path"].to_pylist()}

    @property
    def rows(self) -> int:
        """Entries in all: the size of this value, not of the data."""
        return sum(table.num_rows for table in self.tables().values())

    @classmethod
    def concat(cls, parts: Iterable[Changes]) -> Changes:
        """Put the changes of several tasks together."""
        every = list(parts)
        if not every:
            return cls()
        return cls(**{n: pa.concat_tables([getattr(p, n) for p in every]) for n in SECTIONS})


SECTIONS: Mapping[str, pa.Schema] = {
    "added": ADDED,
    "masked": MASKED,
    "touched": TOUCHED,
    "removed": PATHS,
    "garbage": PATHS,
}


@dataclass(frozen=True, slots=True)
class WriteStats:
    """Counts of one commit or one task's share of it."""

    rows_in: int = 0
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    files_added: int = 0
    files_removed: int = 0
    bytes_written: int = 0
    flushes: int = 0

    def __add__(self, other: WriteStats) -> WriteStats:
        """Add count by count."""
        return WriteStats(**{name: getattr(self, name) + getattr(other, name) for name in STATS})

    def to_dict(self) -> dict[str, int]:
        """Give it as plain values."""
        return {name: getattr(self, name) for name in STATS}


STATS = (
    "rows_in",
    "rows_inserted",
    "rows_updated",
    "rows_deleted",
    "files_added",
    "files_removed",
    "bytes_written",
    "flushes",
)


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """What a writer, or one task of a distributed writer, has staged."""

    changes: Changes = field(default_factory=Changes)
    stats: WriteStats = field(default_factory=WriteStats)

    @classmethod
    def concat(cls, parts: Iterable[WriteStatus]) -> WriteStatus:
        """Put the statuses of several tasks together."""
        every = list(parts)
        stats = WriteStats()
        for part in every:
            stats += part.stats
        return cls(Changes.concat(part.changes for part in every), stats)

    def to_bytes(self) -> bytes:
        """Write it for the way from an executor to the driver: Arrow streams, no pickle."""
        sink = io.BytesIO()
        for name, table in self.changes.tables().items():
            meta = {b"stats": repr(self.stats.to_dict()).encode()} if name == "added" else None
            plain = table.replace_schema_metadata(meta)
            with pa.ipc.new_stream(sink, plain.schema) as stream:
                stream.write_table(plain)
        return sink.getvalue()

    @classmethod
    def from_bytes(cls, body: bytes) -> WriteStatus:
        """Read what ``to_bytes`` wrote."""
        source = pa.BufferReader(body)
        tables: dict[str, pa.Table] = {}
        stats = WriteStats()
        for name in SECTIONS:
            with pa.ipc.open_stream(source) as stream:
                table = stream.read_all()
            meta = table.schema.metadata or {}
            if b"stats" in meta:
                stats = WriteStats(**_counts(meta[b"stats"].decode()))
            tables[name] = table.cast(SECTIONS[name])
        return cls(Changes(**tables), stats)


def _counts(text: str) -> dict[str, int]:
    pairs = (pair.split(":") for pair in text.strip("{}").split(","))
    return {name.strip(" '"): int(value) for name, value in pairs}
