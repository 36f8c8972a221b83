"""Change reads, the results of ``Table.changes()``: the rows that each commit changed."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from plait.definition.generated import ungenerated
from plait.expr import Predicate, Where, columns_read, parse_where
from plait.expr.tree import all_of, conjuncts
from plait.files.data_file import bucket_spans
from plait.model.plan import LIVE, UNIQUE_TABLE, ChangeWindow
from plait.model.schema import CHANGE_COLUMNS, WRITTEN_COLUMN, WRITTEN_FIELD, names_of
from plait.read.ahead import read_ahead
from plait.read.changed import CHANGE_TYPES, BucketChange, Changed
from plait.read.condition import Condition
from plait.read.frames import Frames
from plait.read.plan import plan_scan
from plait.read.scan import DEPTH, WIDTH_MAX, known_columns
from plait.read.slices import SliceReader
from plait.storage.port import Store

TYPE, VERSION, TIME = CHANGE_COLUMNS
ADDED_COLUMNS: Final = pa.schema(
    [
        pa.field(TYPE, pa.string(), nullable=False),
        pa.field(VERSION, pa.int64(), nullable=False),
        pa.field(TIME, pa.timestamp("us", "UTC"), nullable=False),
    ]
)
"""What a change read adds to the columns of the table."""

_ONE_CHANGE: Final = ("at", "partition", "bucket")
"""Files (CHANGED) with the same values here are of one commit and bucket."""
_ONE_NUMBER: Final = ("at", "bucket")
"""The same where a key names one row in all partitions: one that moves is in two of them."""
_FILE_BYTES: Final = 1 << 20
"""Opening a file counts like reading so much of it."""
_GROUP_BYTES: Final = 32 << 20


class ChangeScan(Frames):
    """The rows that the commits between two versions changed, commit by commit.

    ``_change_type`` is ``insert``, ``delete``, or, for an update of a table with a record key,
    ``update_preimage`` for the row before and, next to it, ``update_postimage`` for the row after
    the update. Rows that a commit rewrote without a change do not appear, nor does anything that
    compaction or clustering does. Commits appear in order; each changes a key at most once.

    Each method reads when it is called, and reads again on every call, in bounded memory. Rows
    have the columns of the last version. A column that had a wider type in an earlier one, which
    a restore took back, has a type that holds the values of both.
    """

    def __init__(
        self,
        store: Store,
        window: ChangeWindow,
        *,
        columns: str | Sequence[str] | None = None,
        where: Where = None,
        with_row_version: bool = False,
        rewritten: bool = True,
    ) -> None:
        """Say what to read.

        Args:
            store: the table's.
            window: the commits, and the files that they changed.
            columns: names of the table's, in this order; None: all. The three that a change read
                adds follow, unless some of them are named too.
            where: SQL text, a pyarrow expression or a predicate, on any of these columns. Each
                row is judged by itself, the two of an update too.
            with_row_version: add the version that wrote each row as the last column.
            rewritten: with these versions, a row that was written again as it was is an update too.

        Raises:
            SchemaMismatchError: there is no such column.
            PredicateError: the predicate cannot be understood.
        """
        table = window.snapshot.spec.schema.arrow
        self._fields = pa.schema([*table, *ADDED_COLUMNS])
        chosen = tuple(table.names) if columns is None else names_of(columns, "columns")
        if columns is None or not set(chosen) & set(ADDED_COLUMNS.names):
            columns = [*chosen, *ADDED_COLUMNS.names]
        self._columns = known_columns(columns, self._fields)
        self._compared: list[str] | None = None
        """The columns in which rows are compared; None: all of the table's."""
        if with_row_version:
            self._fields = self._fields.append(WRITTEN_FIELD)
            self._columns = (*self._columns, WRITTEN_COLUMN)
            self._compared = window.snapshot.spec.copied
        self._ignored = [] if rewritten else [WRITTEN_COLUMN]
        self._store, self._where = store, where
        self._condition = Condition.of(where, self._fields)
        self._places = _places(window)
        self._window = self._pruned(_in_order(window, self._places))
        self._reader = SliceReader.of(store, window.snapshot)

    @property
    def since(self) -> int:
        """The version after which commits are included."""
        return self._window.since

    @property
    def until(self) -> int:
        """The last version that is included."""
        return self._window.until

    @property
    def store(self) -> Store:
        """Where it is read from."""
        return self._store

    @property
    def window(self) -> ChangeWindow:
        """What is read, with just the files that are of use."""
        return self._window

    @property
    def with_row_version(self) -> bool:
        """Whether rows come with the version that wrote them."""
        return self._compared is not None

    @property
    def rewritten(self) -> bool:
        """Whether a row that was written again as it was is an update too."""
        return not self._ignored

    @property
    def where(self) -> Where:
        """Which rows are wanted."""
        return self._where

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return pa.schema([self._fields.field(name).remove_metadata() for name in self._columns])

    def count(self) -> dict[str, int]:
        """Count the rows by ``_change_type``."""
        only = ChangeScan(
            self._store,
            self._window,
            columns=[TYPE],
            where=self._where,
            with_row_version=self.with_row_version,
            rewritten=self.rewritten,
        )
        counts: Counter[str] = Counter(dict.fromkeys(CHANGE_TYPES, 0))
        for batch in only._batches():
            counts.update({v["values"]: v["counts"] for v in batch[0].value_counts().to_pylist()})
        return dict(counts)

    @property
    def cost(self) -> int:
        """About how many bytes are read, at most."""
        return int(np.sum(self._costs()))

    def divided(self, size_bytes: int) -> list[pa.Table]:
        """Divide the files (CHANGED) into shares that can be read apart, of about this size."""
        files, costs = self._window.files, self._costs()
        shares: list[pa.Table] = []
        start, size = 0, 0
        for low, high in bucket_spans(files, self._places):
            cost = int(costs[low:high].sum())
            if size and size + cost > size_bytes:
                shares.append(files.slice(start, low - start))
                start, size = low, 0
            size += cost
        return [*shares, files.slice(start)] if files.num_rows else []

    def __repr__(self) -> str:
        """Show what is read."""
        where = "" if self._where is None else f", where={str(self._where)!r}"
        span = f"since={self.since}, until={self.until}"
        return f"ChangeScan({span}, columns={list(self._columns)}{where})"

    # --- inside ----------------------------------------------------------------------------

    def _costs(self) -> npt.NDArray[np.int64]:
        costs: npt.NDArray[np.int64] = self._window.files["bytes"].to_numpy() + _FILE_BYTES
        return costs

    def _pruned(self, window: ChangeWindow) -> ChangeWindow:
        """Leave out commits of a bucket in whose files no row can match, before or after."""
        files = window.files
        predicate = _of_table(self._where, self._fields, window)
        if predicate is None or not files.num_rows or not window.one_layout:
            return window
        spec = window.snapshot.spec
        # What commits before took out may have been there before a column was generated.
        spec = replace(spec, schema=ungenerated(spec.schema))
        live = replace(window.snapshot, spec=spec, files=files.select(LIVE.names))
        plan = plan_scan(live, where=predicate)
        in_plan = pc.is_in(files["path"], value_set=plan.files["path"].combine_chunks())
        flags = in_plan.to_numpy()
        spans = bucket_spans(files, self._places)
        kept = np.repeat([flags[a:b].any() for a, b in spans], [b - a for a, b in spans])
        return replace(window, files=files.filter(pa.array(kept, pa.bool_())))

    def _batches(self) -> Iterator[pa.RecordBatch]:
        sources = [functools.partial(self._read, share) for share in self.divided(_GROUP_BYTES)]
        if len(sources) <= 1:
            for source in sources:
                yield from source()
            return
        yield from read_ahead(sources, width=min(WIDTH_MAX, os.cpu_count() or 1), depth=DEPTH)

    def _read(self, files: pa.Table) -> Iterator[pa.RecordBatch]:
        spec = self._window.snapshot.spec
        asked = {*self._columns, *(self._condition.columns if self._condition else ())}
        names = [name for name in self._compared or spec.schema.names if name in asked]
        # A file of which no column is wanted still tells how many rows there are.
        names = names or spec.schema.names[:1]
        for low, high in bucket_spans(files, self._places):
            work = BucketChange.of(files.slice(low, high - low))
            for changed in work.rows(self._reader, spec.key, names, self._compared, self._ignored):
                yield from self._shown(changed, work)

    def _shown(self, changed: Changed, work: BucketChange) -> Iterator[pa.RecordBatch]:
        """Add what the commit says, and leave out what is not asked for."""
        count = changed.rows.num_rows
        columns = dict(zip(changed.rows.schema.names, changed.rows.columns, strict=True))
        time_us = pa.scalar(work.completed_ms * 1000, pa.int64()).cast(
            ADDED_COLUMNS.field(TIME).type
        )
        columns[TYPE] = pa.array(CHANGE_TYPES).take(pa.array(changed.kinds))
        columns[VERSION] = pa.repeat(pa.scalar(work.version, pa.int64()), count)
        columns[TIME] = pa.repeat(time_us, count)
        rows = pa.RecordBatch.from_arrays([columns[n] for n in self._columns], schema=self.schema)
        if self._condition is not None:
            looked = self._condition.columns
            judged = pa.RecordBatch.from_arrays([columns[n] for n in looked], names=list(looked))
            rows = rows.filter(pa.array(self._condition.matches(judged)))
        if rows.num_rows:
            yield rows


def _places(window: ChangeWindow) -> Sequence[str]:
    """Return what files have in common that are read together.

    A row may have moved under an older layout, also where the last one has no other partition.
    """
    spec = window.snapshot.spec
    moved = spec.keyed and spec.unique == UNIQUE_TABLE and not window.one_layout
    return _ONE_NUMBER if spec.unique_in_table or moved else _ONE_CHANGE


def _in_order(window: ChangeWindow, places: Sequence[str]) -> ChangeWindow:
    """Put the files that are read together next to each other; they are by partition."""
    if places == _ONE_CHANGE:
        return window
    order = [(name, "ascending") for name in (*places, "partition", "version", "path")]
    return replace(window, files=window.files.sort_by(order).combine_chunks())


def _of_table(where: Where, fields: pa.Schema, window: ChangeWindow) -> Predicate | None:
    """Return the part of a predicate that looks at the table's columns alone; None for none."""
    if where is None:
        return None
    predicate = parse_where(where, fields)
    known = set(window.snapshot.spec.schema.names)
    read = [(item, columns_read(item)) for item in conjuncts(predicate)]
    kept = [item for item, names in read if names is not None and names <= known]
    return all_of(*kept) if kept else None
