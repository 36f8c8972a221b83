"""Hide rows by their position in a file, natively: bitmaps that a filter looks a bit up in.

Each masked file has a bitmap of its rows in 64-bit words. All bitmaps lie behind one another in
one constant array, so a row is found with ``word = start(file) + row index / 64``. ``start`` comes
from a second array, at ``xxhash64(file name) mod m``, where m is chosen so that no two files
meet (a perfect hash). Both arrays are constants of the query: no join, no shuffle, no Python.
Measured on 5M rows in 16 files, each with masked rows, this costs about a quarter of what a
broadcast anti-join on positions costs.

Beyond ``WORDS_MAX`` words the bitmaps are broadcast as a small table instead, one row a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from plait.errors import InvariantError
from plait.files.deletion import load_mask
from plait.files.hash import key_hashes
from plait.files.live import LiveFile
from plait.spark.route import quoted
from plait.storage.port import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WORDS_MAX = 1 << 17
"""8 million rows of masked files; more would make the query itself large."""
FILES_MAX = 128
"""A perfect hash for more files would need long arrays."""
_LOADERS = 8
_NAME, _ROW, _WORDS = "__plait_name", "__plait_row", "__plait_words"

Words = npt.NDArray[np.int64]


def without_hidden(
    rows: DataFrame, spark: SparkSession, store: Store, files: Sequence[LiveFile]
) -> DataFrame:
    """Filter the hidden rows out of a Parquet scan of just these files, all of them masked."""
    with ThreadPoolExecutor(max_workers=_LOADERS, thread_name_prefix="plait-masks") as pool:
        words = list(pool.map(lambda file: _words(store, file), files))
    names = [file.path.rsplit("/", 1)[-1] for file in files]
    # Asked for this way it is Spark's, even if the table has a column of that name.
    place = rows.metadataColumn("_metadata")
    tagged = rows.select(
        "*", place.getField("file_name").alias(_NAME), place.getField("row_index").alias(_ROW)
    )
    if len(files) <= FILES_MAX and sum(map(len, words)) <= WORDS_MAX:
        found = tagged.where(_constant(names, words))
    else:
        found = _joined(tagged, spark, names, words).where(_visible(_WORDS, "0"))
    return found.select(*map(quoted, rows.columns))


def _words(store: Store, file: LiveFile) -> Words:
    """Give the bitmap of a file: bit ``row % 64`` of word ``row / 64`` tells that it is hidden."""
    flags = np.zeros(-(-file.rows // 64) * 64, dtype=np.bool_)
    hidden = load_mask(store, file)
    if hidden is not None:
        flags[hidden.astype(np.int64)] = True
    return np.packbits(flags, bitorder="little").view("<i8").astype(np.int64)


def _constant(names: Sequence[str], words: Sequence[Words]) -> str:
    """Write the filter with the bitmaps as constants."""
    starts = np.concatenate([[0], np.cumsum([len(part) for part in words])[:-1]])
    hashes = key_hashes(pa.table({"name": pa.array(names)}), ["name"]).view(np.int64)
    slots = _perfect(hashes)
    table = np.zeros(slots, dtype=np.int64)
    table[np.remainder(hashes, slots)] = starts
    place = f"cast(pmod(xxhash64({_NAME}), {slots}) AS int)"
    start = f"get({_array(table)}, {place})"
    return _visible(_array(np.concatenate(words)), start)


def _perfect(hashes: Words) -> int:
    """Find the smallest modulus that keeps the hashes apart."""
    for slots in range(len(hashes), len(hashes) ** 2 + 64):
        if len(np.unique(np.remainder(hashes, slots))) == len(hashes):
            return slots
    message = f"no modulus keeps {len(hashes)} file names apart"
    raise InvariantError(message)


def _array(values: Words) -> str:
    """Write an array of longs that Spark folds into a constant when it plans."""
    return f"cast(split('{','.join(map(str, values.tolist()))}', ',') AS array<bigint>)"


def _visible(words: str, start: str) -> str:
    word = f"get({words}, cast({start} + shiftright({_ROW}, 6) AS int))"
    return f"getbit({word}, cast({_ROW} & 63 AS int)) = 0"


def _joined(
    rows: DataFrame, spark: SparkSession, names: Sequence[str], words: Sequence[Words]
) -> DataFrame:
    """Broadcast the bitmaps: each row gets that of its file."""
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in words])])
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(np.concatenate(words)))
    masks = spark.createDataFrame(pa.table({_NAME: pa.array(names), _WORDS: lists}))
    return rows.join(masks.hint("broadcast"), [_NAME])
