"""A file of the table: its name, where it belongs, what it is while live, and its errors.

Names are ``<partition>/<bucket>-<instant>-<attempt>.<kind>.<extension>``. A name is unique for ever
(INV-04 needs no file to be written twice): the instant carries its writer's nonce, the attempt
tells the files of one instant apart. Values of partitions are never read from it.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import (
    CorruptMetadataError,
    FormatError,
    InvariantError,
    StorageError,
    TableError,
)
from plait.model.bucket import (
    UNKEYED,
    BucketId,
    Partition,
    partition_parse,
    partition_path,
    partition_text,
)
from plait.model.changes import BASE, LOG
from plait.model.instant import Instant
from plait.model.plan import LIVE
from plait.model.repush import is_repush_directory
from plait.storage.port import check_path

RUN: Final = "run"
"""Rows that another process is to merge; no reader sees them."""
REMOVALS: Final = "removals"
"""Keys that another process is to remove, before the rows of the next run."""
STATUS: Final = "status"
"""What a writer of a stream reports, where that is too large for a message."""
KEYS: Final = "keys"
"""A sidecar of key hashes."""
MASK: Final = "dv"
"""Deletion vectors, one or more."""
MAP: Final = "map"
"""Row maps of a rewrite."""

EXTENSIONS: Final = {
    BASE: "parquet",
    LOG: "parquet",
    RUN: "parquet",
    REMOVALS: "parquet",
    STATUS: "json",
    KEYS: "bin",
    MASK: "bin",
    MAP: "bin",
}
_NO_BUCKET = "all"
_ATTEMPT = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
_NAME = re.compile(
    r"(\d{5,10}|all)-(\d{17}-[0-9a-f]{16})-([A-Za-z0-9-]{1,64})\.([a-z]+)\.([a-z]+)", re.ASCII
)


@dataclass(frozen=True, slots=True)
class FileName:
    """What the name of a file says."""

    directory: str
    """The partition's directory; its values are not in it. In that of a repush, if one made it."""
    bucket: int
    """UNKEYED for files that belong to no single bucket."""
    instant: Instant
    attempt: str
    kind: str


def data_path(partition: Partition, bucket: int, instant: Instant, attempt: str, kind: str) -> str:
    """Name a file.

    Args:
        partition: the canonical texts of its partition values.
        bucket: its bucket number, or UNKEYED.
        instant: the writer's.
        attempt: unique among the files of this instant, ``[A-Za-z0-9-]{1,64}``; for example
            ``"3-0012"``: task 3, file 12.
        kind: base, log, run, removals, status, keys, dv or map.

    >>> data_path((), 7, Instant.at(0, "0" * 16), "0-0001", "base")
    'data/00007-19700101000000000-0000000000000000-0-0001.base.parquet'
    """
    if kind not in EXTENSIONS or not _ATTEMPT.fullmatch(attempt) or bucket < UNKEYED:
        message = f"invalid parts of a file name: {kind!r}, {attempt!r}, bucket {bucket}"
        raise InvariantError(message)
    number = _NO_BUCKET if bucket == UNKEYED else f"{bucket:05d}"
    name = f"{number}-{instant}-{attempt}.{kind}.{EXTENSIONS[kind]}"
    return f"{partition_path(partition)}/{name}"


def parse_path(path: str) -> FileName | None:
    """Read a name that ``data_path`` made; None for anything else.

    >>> parse_path("data/all-19700101000000000-0000000000000000-0-0001.log.parquet").kind
    'log'
    """
    directory, slash, name = path.rpartition("/")
    match = _NAME.fullmatch(name)
    repush, _, place = directory.rpartition("/")
    known = not repush or is_repush_directory(repush)
    if not slash or not place or not known or match is None:
        return None
    number, instant_text, attempt, kind, extension = match.groups()
    if EXTENSIONS.get(kind) != extension:
        return None
    bucket = UNKEYED if number == _NO_BUCKET else int(number)
    if number not in (_NO_BUCKET, f"{bucket:05d}"):
        return None
    try:
        instant = Instant.parse(instant_text)
    except FormatError:
        return None
    return FileName(directory, bucket, instant, attempt, kind)


def own_name(path: str) -> str:
    """Return the part of a path that a file knows of itself: it stays when directories change.

    >>> own_name("repush-0123456789abcdef/data/a.base.parquet")
    'a.base.parquet'
    """
    return path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a data file belongs, and what it is."""

    path: str
    partition: Partition
    bucket: int
    kind: str  # BASE, LOG, RUN or REMOVALS
    with_row_version: bool = False
    """Whether its rows have the hidden column too, the last one (``model/schema.py``)."""


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file with its current deletion vector; one row of LIVE."""

    path: str
    partition: Partition
    bucket: int
    kind: str
    rows: int
    size_bytes: int
    order: int
    """NO_ORDER, KEY_ORDER, or the id of an order of columns."""
    schema_id: int
    footer: int
    """The hash of the file's footer."""
    version: int
    masked: int
    inline: bytes | None = None
    dv_path: str | None = None
    dv_offset: int | None = None
    dv_bytes: int | None = None
    first_version: int | None = None
    """Version that first added a file that was added again; NO_VERSION if none has yet."""

    @property
    def row_version(self) -> int:
        """The version that wrote rows of which the file says nothing else."""
        return self.version if self.first_version is None else self.first_version

    @property
    def live_rows(self) -> int:
        """Rows that a reader sees."""
        return self.rows - self.masked


NO_VERSION: Final = -1
"""Version of files that are not committed."""
_RENAMED = {"size_bytes": "bytes"}
_COLUMNS = {_RENAMED.get(f.name, f.name): f.name for f in dataclasses.fields(LiveFile)}
"""The columns of LIVE that a ``LiveFile`` has, and what they are called there."""
_AT_ONCE = 1024
_MASK = {"masked": "rows"} | {n: n for n in ("inline", "dv_path", "dv_offset", "dv_bytes")}
"""Columns of LIVE that a mask sets, and where they stand in MASKED."""


def unmasked(added: pa.Table, *, version: int, staged: bool = False) -> pa.Table:
    """Take files as a version added them (ADDED) for live ones without a deletion vector.

    ``staged``: they are not committed yet, and the version only says in which order they came.
    """
    count = added.num_rows
    known = {"version": pa.repeat(version, count), "masked": pa.repeat(0, count)}
    if staged:
        known["first_version"] = pa.repeat(NO_VERSION, count)
    known |= {name: added[name] for name in added.schema.names}
    columns = [known[f.name] if f.name in known else pa.nulls(count, f.type) for f in LIVE]
    return pa.table(columns, schema=LIVE)


def written_versions(files: pa.Table) -> pa.ChunkedArray:
    """Return for each of some files (LIVE) what ``LiveFile.row_version`` says."""
    return pc.coalesce(files["first_version"], files["version"])


def with_masks(files: pa.Table, masked: pa.Table) -> pa.Table:
    """Return live files (LIVE) with the deletion vectors that a commit gave them (MASKED)."""
    masked = masked.combine_chunks()
    at = pc.index_in(files["path"], value_set=masked["path"].combine_chunks())
    hit = pc.is_valid(at)
    for name, source in _MASK.items():
        column = pc.if_else(hit, masked[source].take(at), files[name])
        files = files.set_column(LIVE.get_field_index(name), LIVE.field(name), column)
    return files


def live_files(files: pa.Table) -> Iterator[LiveFile]:
    """Return the files of a LIVE table one by one, in its order.

    Raises:
        CorruptMetadataError: a path leaves the table, or counts make no sense.
    """
    chosen = files.select(list(_COLUMNS)).rename_columns(list(_COLUMNS.values()))
    for start in range(0, chosen.num_rows, _AT_ONCE):
        for row in chosen.slice(start, _AT_ONCE).to_pylist():
            yield _checked(row)


def _checked(row: dict[str, object]) -> LiveFile:
    path, text = str(row["path"]), str(row["partition"])
    check_path(path)
    try:
        partition = partition_parse(text)
    except ValueError as error:
        raise corrupt(path, "a JSON list of partition values", text) from error
    file = LiveFile(**{**row, "partition": partition})  # type: ignore[arg-type]  # LIVE's types
    if not 0 <= file.masked <= file.rows:
        raise corrupt(path, f"at most {file.rows} masked rows", str(file.masked))
    return file


def bucket_spans(
    files: pa.Table, columns: Sequence[str] = ("partition", "bucket")
) -> list[tuple[int, int]]:
    """Return the stretches of a sorted table of files that have the same values in columns."""
    if not files.num_rows:
        return []
    ends = np.zeros(files.num_rows - 1, dtype=np.bool_)
    for name in columns:
        codes = files[name].combine_chunks().dictionary_encode().indices.to_numpy()
        ends |= codes[1:] != codes[:-1]
    edges = [0, *(np.flatnonzero(ends) + 1).tolist(), files.num_rows]
    return list(itertools.pairwise(edges))


def bucket_pairs(table: pa.Table) -> Iterator[tuple[str, int]]:
    """Return the partition (``partition_text``) and the bucket of each row about files."""
    return zip(table["partition"].to_pylist(), table["bucket"].to_pylist(), strict=True)


def files_in(files: pa.Table, buckets: Collection[BucketId]) -> pa.Table:
    """Return those of some files that lie in these buckets."""
    wanted = {(partition_text(partition), number) for partition, number in buckets}
    places = pa.array(sorted({text for text, _ in wanted}), pa.string())
    numbers = pa.array(sorted({number for _, number in wanted}), pa.int32())
    near = files.filter(pc.is_in(files["bucket"], value_set=numbers))
    near = near.filter(pc.is_in(near["partition"], value_set=places))
    flags = [pair in wanted for pair in bucket_pairs(near)]  # of few, however many files there are
    return near.filter(pa.array(flags, pa.bool_()))


# --- errors of the store and of Parquet, translated where they enter --------------------------


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Turn errors of the store into StorageError."""
    try:
        yield
    except TableError:
        raise
    except OSError as error:
        message = f"cannot write {path}: {error}"
        raise StorageError(message, hint="check the store", path=path) from error


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn a missing or damaged file into CorruptMetadataError, others into StorageError."""
    try:
        yield
    except TableError:
        raise
    except FileNotFoundError as error:
        raise corrupt(path, "the file that a decision names", "no file") from error
    except (pa.ArrowException, ValueError, ArithmeticError) as error:
        raise corrupt(path, "a Parquet file", str(error)) from error
    except OSError as error:
        # Parquet reports damage inside a file as an OSError without an errno.
        if error.errno is None:
            raise corrupt(path, "a Parquet file", str(error)) from error
        message = f"cannot read {path}: {error}"
        raise StorageError(message, hint="check the store", path=path) from error


def corrupt(path: str, expected: str, found: str) -> CorruptMetadataError:
    """Make the error for a file that is not what the metadata says."""
    shown = found if len(found) <= 300 else found[:300] + "..."  # noqa: PLR2004 - one line
    message = f"{path} does not match the table's metadata: expected {expected}, found {shown}"
    hint = "run tablectl verify"
    return CorruptMetadataError(message, hint=hint, path=path, expected=expected, found=shown)
