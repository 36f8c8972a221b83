"""The changes of a commit to the files of a table, as Arrow tables."""

from __future__ import annotations

import io
import itertools
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields

import pyarrow as pa

from plait.model.bucket import BucketId, partition_text

BASE, LOG = "base", "log"

ADDED = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("partition", pa.string(), nullable=False),  # partition_text
        pa.field("bucket", pa.int32(), nullable=False),  # UNKEYED without a record key
        pa.field("kind", pa.string(), nullable=False),  # BASE | LOG
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("order", pa.int32(), nullable=False),  # of its rows (model/order.py)
        pa.field("schema_id", pa.int32(), nullable=False),
        pa.field("footer", pa.uint64(), nullable=False),  # hash of its bytes (files/footer.py)
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
LOOKUPS = pa.schema([pa.field("partition", pa.string()), *list(TOUCHED)[1:]])
"""Like TOUCHED; without a partition the keys were looked for in every one."""
PATHS = pa.schema([pa.field("path", pa.string(), nullable=False)])
MOVED = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),  # a source of a rewrite
        pa.field("group", pa.int32(), nullable=False),  # its rows went to the targets of the group
        pa.field("rows", pa.int64(), nullable=False),  # of the source, hidden ones included
        pa.field("map_inline", pa.binary()),  # the entry itself, when small (files/row_map.py)
        pa.field("map_path", pa.string()),  # or the file that holds it ...
        pa.field("map_offset", pa.int64()),
        pa.field("map_bytes", pa.int64()),
    ]
)
PLACED = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),  # a target of a rewrite
        pa.field("group", pa.int32(), nullable=False),
        pa.field("first", pa.int64(), nullable=False),  # rows in the group's targets before it
        pa.field("rows", pa.int64(), nullable=False),
    ]
)

KEYS_FILES = "files"  # the keys of the files that this decision adds to the bucket
KEYS_INLINE = "inline"
KEYS_SIDECAR = "sidecar"
KEYS_ALL = "all"  # any key of the bucket may have been touched
KEYS_NONE = "none"  # rows were added to a table without keys


def touched_whole(buckets: Iterable[BucketId], keys: str) -> pa.Table:
    """Return one row of TOUCHED for each bucket, without a list of its keys.

    Args:
        buckets: each once.
        keys: KEYS_ALL or KEYS_NONE.
    """
    rows = [
        {
            "partition": partition_text(partition),
            "bucket": number,
            "keys": keys,
            "key_count": 0,
        }
        for partition, number in buckets
    ]
    return pa.Table.from_pylist(rows, schema=TOUCHED)


def no_rows(schema: pa.Schema) -> pa.Table:
    """Make a table without rows; unlike ``empty_table`` it brings no pandas along."""
    return pa.Table.from_batches([], schema=schema)


def default_no_rows(schema: pa.Schema) -> Callable[[], pa.Table]:
    """Return what gives the same table without rows each time: the default of a field."""
    return itertools.repeat(no_rows(schema)).__next__


@dataclass(frozen=True, slots=True)
class Changes:
    """Files added, removed and masked, and the logical write set that they stand for."""

    added: pa.Table = field(default_factory=default_no_rows(ADDED))
    masked: pa.Table = field(default_factory=default_no_rows(MASKED))
    touched: pa.Table = field(default_factory=default_no_rows(TOUCHED))
    lookups: pa.Table = field(default_factory=default_no_rows(LOOKUPS))
    """Keys that were looked up and left unchanged, if reads count."""
    removed: pa.Table = field(default_factory=default_no_rows(PATHS))
    garbage: pa.Table = field(default_factory=default_no_rows(PATHS))
    """Own files that no reader ever sees, such as runs; condemned from the start."""
    moved: pa.Table = field(default_factory=default_no_rows(MOVED))
    """The sources of a rewrite, with their row maps."""
    placed: pa.Table = field(default_factory=default_no_rows(PLACED))
    """The targets of a rewrite."""

    def tables(self) -> dict[str, pa.Table]:
        """Return the tables by name."""
        return dict(zip(SECTIONS, _TABLES(self), strict=True))

    def named(self) -> list[str]:
        """Return the files of this operation that readers or conflict checks will open."""
        return [
            *self.added["path"].to_pylist(),
            *filter(None, self.masked["dv_path"].to_pylist()),
            *filter(None, self.touched["key_path"].to_pylist()),
            *filter(None, self.lookups["key_path"].to_pylist()),
        ]

    def written(self) -> set[str]:
        """Return every file that this operation wrote, whether or not a client will open it."""
        return {*self.named(), *self.garbage["path"].to_pylist()}

    @property
    def nothing(self) -> bool:
        """Whether the table does not change and no file was written."""
        return not (self.removed.num_rows or self.masked.num_rows or self.written())

    @property
    def rows(self) -> int:
        """Entries in all: the size of this value, not of the data."""
        return sum(table.num_rows for table in self.tables().values())

    @classmethod
    def concat(cls, parts: Iterable[Changes]) -> Changes:
        """Combine the changes of several tasks."""
        every = list(parts)
        if not every:
            return cls()
        return cls(**{n: pa.concat_tables([getattr(p, n) for p in every]) for n in SECTIONS})


SECTIONS: Mapping[str, pa.Schema] = {
    "added": ADDED,
    "masked": MASKED,
    "touched": TOUCHED,
    "lookups": LOOKUPS,
    "removed": PATHS,
    "garbage": PATHS,
    "moved": MOVED,
    "placed": PLACED,
}
_TABLES = operator.attrgetter(*SECTIONS)


@dataclass(frozen=True, slots=True)
class WriteStats:
    """Counts of one commit, or of one task of a commit."""

    rows_in: int = 0
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    keys_unchanged: int = 0
    """Input keys that changed nothing: absent, skipped, or outdated by the ordering field."""
    files_added: int = 0
    files_removed: int = 0
    bytes_written: int = 0
    flushes: int = 0

    def __add__(self, other: WriteStats) -> WriteStats:
        """Add count by count."""
        return WriteStats(*map(operator.add, _COUNTS(self), _COUNTS(other)))

    def to_dict(self) -> dict[str, int]:
        """Return it as plain values."""
        return dict(zip(STATS, _COUNTS(self), strict=True))


STATS = tuple(each.name for each in fields(WriteStats))
_COUNTS = operator.attrgetter(*STATS)


@dataclass(frozen=True, slots=True)
class Digest:
    """Identifies a set of rows, in any order, by their number and a sum of their hashes.

    The digests of parts add up to the digest of the whole.
    """

    rows: int = 0
    hash: int = 0
    """The sum of the rows' 64-bit hashes, modulo 2**64 (``files/digest.py``)."""

    def __add__(self, other: Digest) -> Digest:
        """Return the digest of both together."""
        return Digest(self.rows + other.rows, (self.hash + other.hash) % (1 << 64))

    def __str__(self) -> str:
        """Return readable text, for example ``20 rows (00f3a1...)``."""
        return f"{self.rows} rows ({self.hash:016x})"


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """The result of staging, by a writer or by one task of a distributed writer."""

    changes: Changes = field(default_factory=Changes)
    stats: WriteStats = field(default_factory=WriteStats)
    digest: Digest | None = None
    """The digest of the input rows, if the plan asks for it."""

    @classmethod
    def concat(cls, parts: Iterable[WriteStatus]) -> WriteStatus:
        """Combine the statuses of several tasks."""
        every = list(parts)
        stats, digest = WriteStats(), Digest()
        for part in every:
            stats += part.stats
            digest += part.digest or Digest()
        counted = any(part.digest is not None for part in every)
        changes = Changes.concat(part.changes for part in every)
        return cls(changes, stats, digest if counted else None)

    def to_bytes(self) -> bytes:
        """Encode it for the driver, as Arrow streams: no pickle."""
        sink = io.BytesIO()
        for name, table in self.changes.tables().items():
            meta = self._metadata() if name == "added" else None
            plain = table.replace_schema_metadata(meta)
            with pa.ipc.new_stream(sink, plain.schema) as stream:
                stream.write_table(plain)
        return sink.getvalue()

    @classmethod
    def from_bytes(cls, body: bytes) -> WriteStatus:
        """Read what ``to_bytes`` wrote."""
        source = pa.BufferReader(body)
        tables: dict[str, pa.Table] = {}
        stats, digest = WriteStats(), None
        for name in SECTIONS:
            with pa.ipc.open_stream(source) as stream:
                table = stream.read_all()
            meta = table.schema.metadata or {}
            if b"stats" in meta:
                stats = WriteStats(**_counts(meta[b"stats"].decode()))
            if b"digest" in meta:
                rows, total = meta[b"digest"].decode().split(" ")
                digest = Digest(int(rows), int(total))
            tables[name] = table.cast(SECTIONS[name])
        return cls(Changes(**tables), stats, digest)

    def _metadata(self) -> dict[bytes, bytes]:
        recorded = {b"stats": repr(self.stats.to_dict()).encode()}
        if self.digest is not None:
            recorded[b"digest"] = f"{self.digest.rows} {self.digest.hash}".encode()
        return recorded


def _counts(text: str) -> dict[str, int]:
    pairs = (pair.split(":") for pair in text.strip("{}").split(","))
    return {name.strip(" '"): int(value) for name, value in pairs}
