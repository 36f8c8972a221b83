"""Files that DuckDB's or Polars' own Parquet reader reads as ours does, and what it must not show.

Such a reader is several times as fast as batches that are handed over one by one, but knows nothing
of a table. So a file is given to it only if that makes no difference: the file is on a disk and is
the one that the metadata names, all columns are in it under the names and types of the version, and
the scan wants every row that is not hidden. Where rows are hidden they are left out by their
position. All other files are read by Plait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from plait.files.data_file import LiveFile, live_files
from plait.files.deletion import load_mask
from plait.files.reader import OpenFile, Schemas
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
_ROW_BITS: Final = 40
_PATTERN: Final = frozenset("*?[]{}")
"""What a reader would take for a pattern of file names."""
_TOLD: Final = frozenset({"filename", "file_index", "file_row_number"})
"""Columns by which DuckDB tells where a row is from."""


@dataclass(frozen=True)
class NativeFiles:
    """Some files of a scan, and those that are left to Plait."""

    places: tuple[str, ...]
    """Where files without hidden rows are."""
    masked: tuple[str, ...]
    """Where those with hidden rows are."""
    hidden: tuple[np.ndarray, ...]
    """The positions of their hidden rows, sorted."""
    rest: Snapshot
    """The version with the other files alone."""


def native_files(store: Store, snapshot: Snapshot, plan: ScanPlan) -> NativeFiles | None:
    """Choose the files of a scan that another reader can read; None: none of them.

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
    clean: list[str] = []
    masked: list[tuple[str, np.ndarray]] = []
    rest: list[bool] = []
    held = 0
    for file in live_files(plan.files):
        place = store.location(file.path)
        alike = not _PATTERN & set(place) and held + file.masked <= HIDDEN_MAX
        alike = _is_alike(store, file, schemas, plan.columns) and alike
        rest.append(not alike)
        if alike and file.masked:
            hidden = load_mask(store, file)
            masked.append((place, np.asarray(hidden, np.int64)))
            held += file.masked
        elif alike:
            clean.append(place)
    others = plan.files.filter(pa.array(rest))
    if others.num_rows == plan.files.num_rows:
        return None
    left = replace(snapshot, files=others, total=None, unmatched=0)
    places, hidden_rows = zip(*masked, strict=True) if masked else ((), ())
    return NativeFiles(tuple(clean), places, hidden_rows, left)


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
    parts = []
    if files.places:
        parts.append(f"SELECT {names} FROM {_read(files.places)}")  # noqa: S608 - names are quoted
    if files.masked:
        at = f"(file_index::BIGINT << {_ROW_BITS}) + file_row_number"
        parts.append(
            f"SELECT {names} FROM {_read(files.masked, ', file_row_number = true')} "  # noqa: S608
            f"ANTI JOIN _plait_hidden ON {at} = _plait_hidden.plait_row"
        )
    rows = [(at << _ROW_BITS) + each for at, each in enumerate(files.hidden)]
    _plait_hidden = pa.table({"plait_row": np.concatenate(rows) if rows else pa.array([], "int64")})
    _plait_rest = rest
    text = " UNION ALL ".join(parts)
    native = connection.sql(text)
    known = connection.sql(f"SELECT {names} FROM _plait_rest")  # noqa: S608 - names are quoted
    if native.types != known.types or native.columns != known.columns:
        return None
    none = "" if files.rest.files.num_rows else " WHERE false"
    rest_of_it = f"SELECT {names} FROM _plait_rest{none}"  # noqa: S608 - names are quoted
    return connection.sql(f"{text} UNION ALL {rest_of_it}")


def _read(places: Sequence[str], more: str = "") -> str:
    quoted = ", ".join("'" + place.replace("'", "''") + "'" for place in places)
    return f"read_parquet([{quoted}], hive_partitioning = false, union_by_name = false{more})"
