"""Compare a sink with a table row by row, in bounded memory."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from plait.files.digest import row_hashes
from plait.files.keys import Indices
from plait.read.equal import NO_PRINTS, Prints, among, unmatched
from plait.replicate.sink import SinkSchema
from plait.storage.scratch import Scratch

PART_ROWS: Final = 500_000
"""Rows of the table that are compared at once."""
_PARTS_MAX: Final = 256
"""Each part is an open file while both sides are divided."""
_TABLE, _SINK = "table", "sink"


@dataclass(frozen=True, slots=True)
class Differences:
    """What is different in one part of the keys."""

    wanted: pa.Table
    """Rows of the table that the sink does not hold as they are."""
    missing: int
    """How many of them have a key that the sink does not have."""
    extra: pa.Table
    """Rows of the sink with a key that the table does not have."""


def compare(
    table: Iterable[pa.RecordBatch],
    sink: Iterable[pa.RecordBatch],
    schema: SinkSchema,
    *,
    rows: int,
    part_rows: int = PART_ROWS,
) -> Iterator[Differences]:
    """Read both sides once, and return their differences, one part of the keys after the other.

    Both are divided by a hash of the key into local files, one part of which is held at a time.
    Values are the same if 128 bits of hash are; every NaN is one, and so are both zeros.

    Args:
        table: the rows of the table, with the columns of the schema.
        sink: the rows of the sink.
        schema: the columns and the key.
        rows: about how many rows the table has.
        part_rows: about how many rows of the table a part should have.
    """
    parts = min(_PARTS_MAX, max(1, math.ceil(rows / part_rows)))
    with Scratch("compare") as scratch:
        for side, batches in ((_SINK, sink), (_TABLE, table)):
            _divide(batches, schema, scratch, side, parts)
        for part in range(parts):
            ours, theirs = (scratch.table(f"{side}-{part}") for side in (_TABLE, _SINK))
            yield _differences(ours, theirs, schema)


def _divide(
    batches: Iterable[pa.RecordBatch], schema: SinkSchema, scratch: Scratch, side: str, parts: int
) -> None:
    with contextlib.ExitStack() as stack:
        names = [f"{side}-{part}" for part in range(parts)]
        writers = [stack.enter_context(scratch.writer(name, schema.arrow)) for name in names]
        for batch in batches:
            hashes = row_hashes(batch.select(list(schema.key))) % np.uint64(parts)
            for part, writer in enumerate(writers):
                chosen = np.flatnonzero(hashes == part)
                if len(chosen):
                    writer.write(batch.take(pa.array(chosen)))


def _differences(table: pa.Table, sink: pa.Table, schema: SinkSchema) -> Differences:
    """Compare a part. A sink may show a row twice, or as it was and as it is.

    Only a key that the table does not have is one too many: the others are put again.
    """
    keys, prints, shown = list(schema.key), _prints(table), _prints(sink)
    ours, theirs = unmatched(prints, shown)
    theirs = theirs[~among(shown[theirs], prints)]
    loose = _chosen(sink, theirs)
    if not loose.num_rows:
        return Differences(_chosen(table, ours), len(ours), loose)
    looked_for, found = _prints(table.select(keys)), _prints(loose.select(keys))
    doubtful = among(looked_for, found)
    missing = int((~doubtful[ours]).sum())
    doubtful[ours] = True
    extra = np.flatnonzero(~among(found, looked_for))
    _, once = np.unique(found[extra], axis=0, return_index=True)
    return Differences(
        _chosen(table, np.flatnonzero(doubtful)), missing, _chosen(loose, extra[once])
    )


def _prints(rows: pa.Table) -> Prints:
    """Return 128 bits for each row."""
    every = [
        np.stack([row_hashes(batch, seed=seed) for seed in (0, 1)], axis=1)
        for batch in rows.to_batches()
    ]
    return np.concatenate([NO_PRINTS, *every])


def _chosen(rows: pa.Table, at: Indices) -> pa.Table:
    flags = np.zeros(rows.num_rows, dtype=np.bool_)
    flags[at] = True
    return rows.filter(pa.array(flags))
