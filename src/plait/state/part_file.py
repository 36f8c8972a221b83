"""One table of a checkpoint part on storage: sorted, in row groups, so that few of them are read.

A file that is read whole is checked by its SHA-256. Of a larger one pieces are read: its footer is
checked by a hash, and each page by the checksum beside it, as in data files.
"""

from __future__ import annotations

import bisect
import hashlib
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from plait.expr.prune import Flags
from plait.files.bounds import Kinds, bound_fields
from plait.files.data_file import corrupt, reading
from plait.files.footer import footer_bytes, footer_hash, named, parse_footer
from plait.model.plan import Spans
from plait.state.events import TABLES
from plait.storage.port import Store, check_path
from plait.timeline import paths
from plait.timeline.columns import load_parquet, open_parquet, read_groups, readable

GROUP_ROWS: Final = 4_096
WHOLE_BYTES_MAX: Final = 512 << 10
"""Smaller files are read in one piece: that is one call, and few row groups."""
PLACES: Final = pa.schema(
    [
        pa.field("directory", pa.string(), nullable=False),
        pa.field("partition", pa.string(), nullable=False),
        pa.field("files", pa.int64(), nullable=False),  # rows of "added" there
        # What the part adds to the sums over the live files there (state/statistics.py):
        pa.field("live", pa.int64(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("hash", pa.uint64(), nullable=False),
    ]
)
PART_TABLES: Final[Mapping[str, pa.Schema]] = {**TABLES, "places": PLACES}
"""The tables of events, and where files lie: how many in ``added``, and the sums over live ones."""
_GROUPS_AT_ONCE: Final = 16
"""Number of row groups in memory at once while their files are compared with a predicate."""
_ROWS_MAX: Final = 1 << 31
Key = TypeVar("Key", str, int)
_ORDER: Final = ("directory", "path", "version")
_IN_TIME: Final = ("commits", "tokens")
_COLD: Final = ("stats",)
"""Columns that planning does not need; they are read only on request."""


@dataclass(frozen=True, slots=True)
class PartFile:
    """One table of a part."""

    table: str
    path: str
    rows: int
    size: int
    footer: int
    """Hash of the footer, which is checked before pieces are read."""
    sha256: str

    @property
    def small(self) -> bool:
        """Whether it is read in one piece."""
        return self.size <= WHOLE_BYTES_MAX

    def to_list(self) -> list[object]:
        """Write it as JSON values."""
        return [self.table, self.path, self.rows, self.size, self.footer, self.sha256]

    @classmethod
    def from_list(cls, value: object) -> Self:
        """Read what ``to_list`` wrote; raise ValueError or TypeError for anything else."""
        if not isinstance(value, list):
            raise TypeError(value)
        table, path, rows, size, footer, digest = value
        inside = isinstance(path, str) and path.startswith(f"{paths.CHECKPOINTS}/")
        counts = 0 < int(rows) < _ROWS_MAX and int(size) > 0 and 0 <= int(footer) < 1 << 64
        if table not in PART_TABLES or not inside or not counts:
            raise ValueError(path)
        return cls(table, check_path(path), int(rows), int(size), int(footer), str(digest))


def write_part_file(store: Store, name: str, path: str, table: pa.Table) -> PartFile:
    """Write one table of a part under a name that nobody else uses."""
    order = [(key, "ascending") for key in _ORDER if key in table.column_names]
    rows = table if name in _IN_TIME else table.sort_by(order)
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink, rows.schema, compression="zstd", write_page_checksum=True
    ) as writer:
        writer.write_table(rows, row_group_size=GROUP_ROWS)
        writer.add_key_value_metadata(named(path))
    body = sink.getvalue()
    tail = footer_bytes(pa.BufferReader(body), len(body))
    store.put_if_absent(path, body)
    digest = hashlib.sha256(body).hexdigest()
    return PartFile(name, path, table.num_rows, len(body), footer_hash(tail), digest)


def read_whole(store: Store, file: PartFile, kinds: Kinds | None = None) -> pa.Table:
    """Read every row and every column, and the typed bounds of some fields.

    Raises:
        CorruptMetadataError: the file is damaged or gone.
    """
    schema = part_schema(file.table, kinds or {})
    return load_parquet(store, file.path, schema, rows=file.rows, sha256=file.sha256)


def part_schema(table: str, kinds: Kinds, *, cold: bool = True) -> pa.Schema:
    """Return the columns of a table as they are loaded."""
    known = [field for field in PART_TABLES[table] if cold or field.name not in _COLD]
    return pa.schema([*known, *bound_fields(kinds)])


class PieceReader:
    """A large file of a part that is open: pieces of it are read. Use it in a ``with`` block."""

    def __init__(self, store: Store, file: PartFile) -> None:
        """Open the file, and compare its size and its footer with what ``state.json`` says.

        Raises:
            CorruptMetadataError: it is damaged or gone.
        """
        self._file = file
        with reading(file.path):
            self._input = store.filesystem().open_input_file(check_path(file.path))
        try:
            with reading(file.path):
                self._footer = self._checked()
        except BaseException:
            self._input.close()
            raise

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self._input.close()

    def _checked(self) -> pq.FileMetaData:
        file, size = self._file, self._input.size()
        if size != file.size:
            raise corrupt(file.path, f"{file.size} bytes", f"{size} bytes")
        tail = footer_bytes(self._input, size)
        if footer_hash(tail) != file.footer:
            raise corrupt(file.path, f"a footer with the hash {file.footer}", "another footer")
        footer = parse_footer(tail)
        rows = sum(footer.row_group(each).num_rows for each in range(footer.num_row_groups))
        if rows != file.rows or footer.num_rows != file.rows:
            raise corrupt(file.path, f"{file.rows} rows", f"{rows} rows")
        return footer

    def read(self, schema: pa.Schema, directories: frozenset[str] | None = None) -> pa.Table:
        """Read columns of the rows below some directories; of all rows by default.

        Raises:
            CorruptMetadataError: the file is damaged, or not sorted.
        """
        if directories is None:
            return self._read(schema, self._all)
        return below(self._read(schema, self._groups(directories)), directories)

    def read_named(self, schema: pa.Schema, names: pa.Array) -> pa.Table:
        """Read columns of the rows of some files.

        Raises:
            CorruptMetadataError: the file is damaged, or not sorted.
        """
        # A file that is not sorted is refused as damaged: the binary search would silently miss
        # rows.
        least, most = self._ends("path", str)
        found: set[int] = set()
        for name in names.to_pylist():
            found.update(range(bisect.bisect_left(most, name), bisect.bisect_right(least, name)))
        rows = self._read(schema, sorted(found))
        return rows.filter(pc.is_in(rows["path"], value_set=names))

    def read_matching(
        self,
        schema: pa.Schema,
        keep: Callable[[pa.Table], Flags],
        directories: frozenset[str] | None = None,
    ) -> tuple[pa.Table, int]:
        """Read columns of the files that may match by their bounds; of the others only those.

        Returns:
            These files, and how many there are in the directories, by default in all.

        Raises:
            CorruptMetadataError: the file is damaged, or not sorted.
        """
        wanted = {"rows", "path"} if directories is not None else {"rows"}
        narrow = pa.schema([f for f in schema if f.name in wanted or "." in f.name])
        groups = self._groups(directories) if directories is not None else self._all
        found, considered = [schema.empty_table()], 0
        for start in range(0, len(groups), _GROUPS_AT_ONCE):
            some = groups[start : start + _GROUPS_AT_ONCE]
            bounds = self._read(narrow, some)
            inside = np.ones(bounds.num_rows, dtype=np.bool_)
            if directories is not None:
                inside = is_below(bounds, directories).to_numpy(zero_copy_only=False)
            considered += int(inside.sum())
            sizes = [self._footer.row_group(group).num_rows for group in some]
            flags = np.split(keep(bounds) & inside, np.cumsum(sizes)[:-1])
            hits = [group for group, each in zip(some, flags, strict=True) if each.any()]
            if hits:
                chosen = pa.array(np.concatenate([each for each in flags if each.any()]))
                found.append(self._read(schema, hits).filter(chosen))
        return pa.concat_tables(found), considered

    def read_places(self, versions: Spans) -> pa.Table:
        """Return where the files lie that some versions added (PLACES), as ``places_of`` does.

        Raises:
            CorruptMetadataError: the file is damaged.
        """
        narrow = pa.schema(
            [PART_TABLES["added"].field(n) for n in ("path", "partition", "version")]
        )
        found = []
        for start in range(0, len(self._all), _GROUPS_AT_ONCE):
            rows = self._read(narrow, self._all[start : start + _GROUPS_AT_ONCE])
            found.append(places_of(written_in(rows, versions)))
        return pa.concat_tables([PLACES.empty_table(), *found])

    @property
    def _all(self) -> list[int]:
        return list(range(self._footer.num_row_groups))

    def read_after(self, schema: pa.Schema, version: int) -> pa.Table:
        """Read columns of the rows of later versions, and maybe of some before.

        Raises:
            CorruptMetadataError: the file is damaged, or not sorted.
        """
        _, most = self._ends("version", int)
        return self._read(schema, range(bisect.bisect_right(most, version), len(most)))

    def _read(self, schema: pa.Schema, groups: Sequence[int]) -> pa.Table:
        path, size = self._file.path, self._file.size
        with readable(schema, where=path):
            source = open_parquet(self._input, schema, footer=self._footer)
            rows = read_groups(source, schema, size=size, where=path, groups=groups)
        expected = sum(self._footer.row_group(group).num_rows for group in groups)
        if rows.num_rows != expected:
            raise corrupt(path, f"{expected} rows", f"{rows.num_rows} rows")
        return rows

    def _groups(self, directories: Iterable[str]) -> list[int]:
        """Return the row groups in which files of these directories may be."""
        least, most = self._ends("path", str)
        found: set[int] = set()
        for directory in directories:
            first = bisect.bisect_left(most, f"{directory}/")
            end = bisect.bisect_left(least, f"{directory}0")  # what follows "/"
            found.update(range(first, end))
        return sorted(found)

    def _ends(self, column: str, kind: type[Key]) -> tuple[list[Key], list[Key]]:
        """Return the least and the greatest value of each row group, in a sorted file."""
        leaf = self._footer.schema.names.index(column)
        groups = (self._footer.row_group(each) for each in range(self._footer.num_row_groups))
        recorded = [group.column(leaf).statistics for group in groups]
        known = [each for each in recorded if each is not None and each.has_min_max]
        least, most = [kind(each.min) for each in known], [kind(each.max) for each in known]
        if len(known) < len(recorded) or least != sorted(least) or most != sorted(most):
            raise corrupt(self._file.path, f"rows in the order of {column}", "others")
        return least, most


def below(rows: pa.Table, directories: Iterable[str]) -> pa.Table:
    """Return the rows whose path lies in one of these directories."""
    return rows.filter(is_below(rows, directories))


def is_below(rows: pa.Table, directories: Iterable[str]) -> pa.ChunkedArray:
    """Tell for each row whether its path lies in one of these directories."""
    chosen = pa.array(sorted(directories), pa.string())
    return pc.is_in(directories_of(rows), value_set=chosen)


def directories_of(rows: pa.Table) -> pa.ChunkedArray:
    """Return the directory of each path."""
    return pc.replace_substring_regex(rows["path"], "/[^/]*$", "")


def written_in(added: pa.Table, versions: Spans) -> pa.Table:
    """Return the files that some versions added."""
    at = added["version"].to_numpy()
    flags = np.zeros(len(at), dtype=np.bool_)
    for first, last in versions:
        flags |= (first <= at) & (at <= last)
    return added.filter(pa.array(flags))


def places_of(added: pa.Table) -> pa.Table:
    """Return the directories of files, their partitions, and how many files are there.

    PLACES, with no sums over live files.
    """
    pairs = pa.table({"directory": directories_of(added), "partition": added["partition"]})
    counted = pairs.group_by(["directory", "partition"], use_threads=False).aggregate(
        [([], "count_all")]
    )
    zero = pa.repeat(0, counted.num_rows)
    columns = [*counted.columns, zero, zero, zero]
    return pa.table(columns, names=PLACES.names).cast(PLACES)


def require_counted(
    places: pa.Table, rows: int, path: str, directories: frozenset[str] | None = None
) -> None:
    """Compare the files counted in some directories, by default all, with those that were found.

    Raises:
        CorruptMetadataError: they are not as many; so no file is overlooked.
    """
    if directories is not None:
        chosen = pa.array(sorted(directories), pa.string())
        places = places.filter(pc.is_in(places["directory"], value_set=chosen))
    counted = int(pc.sum(places["files"]).as_py() or 0)
    if counted != rows:
        raise corrupt(path, f"{counted} files", f"{rows} files")
