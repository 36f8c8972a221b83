"""Files that DuckDB's or Polars' own Parquet reader reads as ours does, and what it must not show.

Such a reader is several times as fast as batches that are handed over one by one, but knows nothing
of a table. So a file is given to it only if that makes no difference: the file is on a disk and is
the one that the metadata names, all columns are in it under the names and types of the version, and
the scan wants every row that is not hidden. Where rows are hidden they are left out by their
position. All other files are read by Plait.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.files.data_file import LiveFile, live_files
from plait.files.deletion import load_mask
from plait.files.reader import OpenFile, Schemas
from plait.files.roaring import Positions
from plait.model.plan import Snapshot
from plait.model.schema import WRITTEN_COLUMN, is_written
from plait.read.plan import ScanPlan
from plait.storage import local_root
from plait.storage.port import Store

if TYPE_CHECKING:
    import duckdb

    from plait.read.dataset import ScanDataset

FILES_MAX: Final = 1_000
"""Number of files of a scan above which Plait reads all of them: each is opened and compared."""
HIDDEN_MAX: Final = 1 << 22
"""Number of hidden rows whose positions are held; files beyond them are read by Plait."""
MASKED_ROWS_MAX: Final = 1 << 30
"""Number of rows in files with hidden rows. Polars is told of each, by a bit, if it is shown."""
_PATTERN: Final = frozenset("*?[]{}")
"""What a reader would take for a pattern of file names."""
_TOLD: Final = frozenset({"filename", "file_index", "file_row_number"})
"""Columns by which DuckDB tells where a row is from."""


class NativeFile(NamedTuple):
    """A file that another reader reads."""

    place: str
    """The file's path on the disk."""
    rows: int
    hidden: Positions | None
    """The positions of rows that are not to be shown, sorted; None if all rows are."""


@dataclass(frozen=True)
class NativeFiles:
    """Some files of a scan, and those that are left to Plait."""

    files: tuple[NativeFile, ...]
    rest: Snapshot
    """The version with the other files alone."""


def native_files(
    store: Store, snapshot: Snapshot, plan: ScanPlan, *, masked: bool = True
) -> NativeFiles | None:
    """Choose the files of a scan that another reader can read; None: none of them.

    Args:
        store: the table's.
        snapshot: the version.
        plan: the files to read, and the columns.
        masked: whether the reader can leave out hidden rows.

    Raises:
        CorruptMetadataError: a file or its deletion vector is not what the metadata says.
        StorageError: the store failed.
    """
    spec = snapshot.spec
    written = WRITTEN_COLUMN in plan.columns and is_written(WRITTEN_COLUMN, spec.schema)
    local = local_root(store.address) is not None
    if not local or plan.condition is not None or written or not plan.columns:
        return None
    if not 0 < plan.files.num_rows <= FILES_MAX:
        return None
    schemas = Schemas(spec.schema, snapshot.schemas)
    chosen: list[NativeFile] = []
    rest: list[bool] = []
    hidden_rows = masked_rows = 0
    for file in live_files(plan.files):
        place = store.location(file.path)
        within = not file.masked or (
            masked
            and hidden_rows + file.masked <= HIDDEN_MAX
            and masked_rows + file.rows <= MASKED_ROWS_MAX
        )
        alike = within and not _PATTERN & set(place)
        alike = _is_alike(store, file, schemas, plan.columns) and alike
        rest.append(not alike)
        if alike:
            chosen.append(NativeFile(place, file.rows, load_mask(store, file)))
            hidden_rows += file.masked
            masked_rows += file.rows if file.masked else 0
    if not chosen:
        return None
    others = plan.files.filter(pa.array(rest))
    return NativeFiles(tuple(chosen), replace(snapshot, files=others, total=None, unmatched=0))


def _is_alike(store: Store, file: LiveFile, schemas: Schemas, columns: Sequence[str]) -> bool:
    with OpenFile(store, file, schemas) as source:
        folded = {name.casefold() for name in source.names}
        # To DuckDB, names that differ by case are one name.
        clear = len(folded) == len(source.names) and not folded & _TOLD
        return clear and source.is_plain(columns)


def duckdb_relation(
    files: NativeFiles, rest: ScanDataset, connection: duckdb.DuckDBPyConnection
) -> duckdb.DuckDBPyRelation | None:
    """Return a relation over files and the dataset of the others; None if types would differ.

    The relation refers to the dataset, even if that has no file. So it holds the scan, and with it
    the read pin; so do relations and views that are made of it. DuckDB finds ``_plait_rest`` and
    ``_plait_hidden`` by these names in this frame.
    """
    names = ", ".join(f'"{name.replace(chr(34), chr(34) * 2)}"' for name in rest.schema.names)
    shown = [file for file in files.files if file.hidden is None]
    masked = [file for file in files.files if file.hidden is not None]
    parts: list[tuple[int, str]] = []
    if shown:
        text = f"SELECT {names} FROM {_read(shown)}"  # noqa: S608 - names are quoted
        parts.append((_rows(shown), text))
    if masked:
        text = (
            f"SELECT {names} FROM {_read(masked, ', file_row_number = true')} "  # noqa: S608
            "ANTI JOIN _plait_hidden ON file_index = _plait_hidden.plait_file "
            "AND file_row_number = _plait_hidden.plait_row"
        )
        parts.append((_rows(masked), text))
    _plait_hidden = _hidden(masked)
    _plait_rest = rest
    native = " UNION ALL ".join(text for _, text in parts)
    known = f"SELECT {names} FROM _plait_rest"  # noqa: S608 - names are quoted
    relations = connection.sql(native), connection.sql(known)
    if relations[0].types != relations[1].types or relations[0].columns != relations[1].columns:
        return None
    left = files.rest.files
    count = pc.sum(left["rows"]).as_py() or 0
    parts.append((count, known if left.num_rows else f"{known} WHERE false"))
    # DuckDB takes the number of rows of the first part for that of all when it orders joins.
    parts.sort(key=lambda part: part[0], reverse=True)
    return connection.sql(" UNION ALL ".join(text for _, text in parts))


def _rows(files: Iterable[NativeFile]) -> int:
    return sum(file.rows for file in files)


def _hidden(files: Iterable[NativeFile]) -> pa.Table:
    """Return the hidden rows of files: which of the files, and which of its rows."""
    found = [np.asarray(file.hidden, np.int64) for file in files]
    places = [np.full(len(rows), at) for at, rows in enumerate(found)]
    none = [np.zeros(0, np.int64)]
    columns = [np.concatenate(each or none) for each in (places, found)]
    return pa.table(columns, names=["plait_file", "plait_row"])


def _read(files: Iterable[NativeFile], more: str = "") -> str:
    quoted = ", ".join("'" + file.place.replace("'", "''") + "'" for file in files)
    return f"read_parquet([{quoted}], hive_partitioning = false, union_by_name = false{more})"
