"""Hide rows by their position in a file, natively: bitmaps that a filter looks a bit up in.

Each masked file has a bitmap of its rows in 64-bit words. The bitmaps are broadcast as a small
table, one row a file, and a scan joins them by the name of the file; on a disk by its size, which
Spark's reader tells of each row at no cost, unless two have one size. No shuffle, and no Python.
Measured on 5M rows in 53 masked files: to join by size costs what it costs to ask for the row index
(half as much again as the scan without), to join by name a third more; constants in the query, in
place of a join, cost twice as much, since every task gets and unpacks them anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from plait.files.data_file import LiveFile
from plait.files.deletion import load_mask
from plait.spark.frame import expression
from plait.storage import local_root
from plait.storage.port import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOADERS = 8
_FILE, _ROW, _MASKED, _WORDS = "__plait_file", "__plait_row", "__plait_masked", "__plait_words"
_HIDDEN = (
    f"{_FILE} = {_MASKED} AND "
    f"getbit(get({_WORDS}, cast(shiftright({_ROW}, 6) AS int)), cast({_ROW} & 63 AS int)) = 1"
)

Words = npt.NDArray[np.int64]


def without_hidden(
    rows: DataFrame, spark: SparkSession, store: Store, files: Sequence[LiveFile]
) -> DataFrame:
    """Filter the hidden rows out of a Parquet scan of just these files, all of them masked.

    The rows come with two columns more, which tell of their file.
    """
    words = _words_of(store, files)
    sizes = [file.size_bytes for file in files]
    by_size = len(set(sizes)) == len(files) and sizes == _sizes_there(store, files)
    names = [file.path.rsplit("/", 1)[-1] for file in files]
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in words])])
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(np.concatenate(words)))
    known = pa.array(sizes, pa.int64()) if by_size else pa.array(names)
    masks = spark.createDataFrame(pa.table({_MASKED: known, _WORDS: lists}))
    # Asked for this way it is Spark's, even if the table has a column of that name.
    place = rows.metadataColumn("_metadata")
    file = place.getField("file_size" if by_size else "file_name").alias(_FILE)
    tagged = rows.select("*", file, place.getField("row_index").alias(_ROW))
    # An anti join: no row carries the bitmap of its file any further.
    return tagged.join(masks.hint("broadcast"), expression(tagged, _HIDDEN), "left_anti")


def _sizes_there(store: Store, files: Sequence[LiveFile]) -> list[int] | None:
    """Look how large files are for Spark; None for an object store, whose clients may encrypt."""
    if local_root(store.spec) is None:
        return None
    try:
        return [Path(store.location(file.path)).stat().st_size for file in files]
    except OSError:
        return None  # Spark will say what is the matter


def _words_of(store: Store, files: Sequence[LiveFile]) -> list[Words]:
    """Load the bitmap of each file, several at once."""
    try:
        with ThreadPoolExecutor(max_workers=_LOADERS, thread_name_prefix="plait-masks") as pool:
            return list(pool.map(lambda file: _words(store, file), files))
    except RuntimeError:  # no thread can be had
        return [_words(store, file) for file in files]


def _words(store: Store, file: LiveFile) -> Words:
    """Return the bitmap of a file: bit ``row % 64`` of word ``row / 64`` hides the row."""
    flags = np.zeros(-(-file.rows // 64) * 64, dtype=np.bool_)
    hidden = load_mask(store, file)
    if hidden is not None:
        flags[hidden.astype(np.int64)] = True
    return np.packbits(flags, bitorder="little").view("<i8").astype(np.int64)
