"""Find what has expired: by the values of a column, or by the commits that added files.

A file is judged by its bounds where these say enough. Null values never expire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from plait.arrow.existing import Existing, Matches
from plait.definition.create import fitting_ttl
from plait.definition.ttl import PARTITION, Ttl
from plait.expr.tree import Column, Compare, Literal
from plait.files.bounds import WRITTEN_KINDS, file_bounds
from plait.files.data_file import LiveFile, live_files, written_versions
from plait.files.roaring import Positions
from plait.model.bucket import Partition
from plait.model.plan import Snapshot, TableSpec
from plait.model.schema import WRITTEN_COLUMN, WRITTEN_FIELD
from plait.read.condition import Condition
from plait.read.plan import FileCriteria, all_files, filter_where, plan_scan
from plait.services.maintenance.ages import current_before
from plait.state.state import TableState
from plait.txn.table_handle import TableHandle

_NO, _MAYBE, _YES = 0, 1, 2
"""What the metadata says of a file: whether all of its rows have expired."""


@dataclass(frozen=True, slots=True)
class Expired:
    """What has expired at a version."""

    partitions: frozenset[Partition]
    """Where it is."""
    rows: Mapping[str, Positions | None]
    """By path of a file: the positions of its rows; None: every row."""
    by_value: bool = False
    """Whether the values of these partitions say it, and so of every file that they get."""


def limit_of(handle: TableHandle, state: TableState, ttl: Ttl, now_ms: int) -> int | None:
    """Return the value of the column, or the version, that divides old from young.

    Raises:
        ClockUnavailableError: the store reports no time.
        OptionError, SchemaMismatchError: the column is gone, or tells no time any more.
    """
    fitting_ttl(ttl, state.table.spec)
    if ttl.by_column:
        return ttl.cutoff(now_ms, state.table.spec.schema.arrow.field(ttl.by).type)
    return current_before(handle, state, ttl.after * 1000)


def find_candidates(handle: TableHandle, state: TableState, ttl: Ttl, limit: int) -> pa.Table:
    """Return the files that have expired with their partition, or in which rows may have (LIVE).

    Only files of which the metadata does not say enough are read.
    """
    spec = state.table.spec
    if ttl.by_row_written:
        return _written_before(state.snapshot(handle.store, file_filter=filter_written), limit)
    if ttl.by in spec.decided_columns or ttl.unit != PARTITION:
        return _matching(handle, state, _predicate(ttl, limit, spec)).plan.files
    by_written = spec.keeps_row_version and not ttl.by_column
    file_filter = filter_written if by_written else all_files
    snapshot = state.snapshot(handle.store, file_filter=file_filter)
    files = snapshot.files.append_column("expired", pa.array(_judged(snapshot, ttl, limit)))
    files = _whole_partitions(files)
    unknown = files.filter(pc.equal(files["expired"], _MAYBE))
    if unknown.num_rows:
        matches = _matching(handle, state, _predicate(ttl, limit, spec))
        young = [file.path for file in live_files(unknown) if not _all_match(matches, file)]
        kept = pc.is_in(files["path"], value_set=pa.array(young, pa.string()))
        judged = pc.if_else(kept, _NO, files["expired"])
        at = files.schema.get_field_index("expired")
        files = _whole_partitions(files.set_column(at, "expired", judged))
    return files.drop_columns(["expired"])


def find_expired(
    handle: TableHandle,
    state: TableState,
    ttl: Ttl,
    limit: int,
    *,
    planned: Callable[[LiveFile], bool],
    check_alive: Callable[[], None],
) -> Expired:
    """Find the rows that have expired in planned files that are live.

    Args:
        handle: the table.
        state: the version.
        ttl: what the table says.
        limit: see ``limit_of``.
        planned: tells which files are looked at.
        check_alive: called before each file; it raises if the work is in vain.
    """
    by_value = ttl.by in state.table.spec.decided_columns
    files = list(filter(planned, live_files(find_candidates(handle, state, ttl, limit))))
    rows: dict[str, Positions | None] = {}
    if by_value or ttl.unit == PARTITION:
        rows = dict.fromkeys((file.path for file in files), None)
    else:
        matches = _row_matches(handle, state, ttl, limit)
        for file in files:
            check_alive()
            whole = ttl.by_row_written and file.row_version <= limit
            rows.update({file.path: None} if whole else matches.hidden([file]))
    found = frozenset(file.partition for file in files if file.path in rows)
    return Expired(found, rows, by_value)


def _row_matches(handle: TableHandle, state: TableState, ttl: Ttl, limit: int) -> Matches:
    """Find rows by a column, or by the version that wrote them."""
    spec = state.table.spec
    if not ttl.by_row_written:
        return _matching(handle, state, _predicate(ttl, limit, spec))
    snapshot = state.snapshot(handle.store, file_filter=filter_written)
    snapshot = replace(snapshot, files=_written_before(snapshot, limit))
    column = Column((WRITTEN_COLUMN,), WRITTEN_FIELD.type)
    expired = Compare(column, "<=", Literal.of(limit, WRITTEN_FIELD.type))
    condition = Condition.of(expired, spec.schema.arrow.append(WRITTEN_FIELD))
    plan = replace(plan_scan(snapshot, columns=()), condition=condition)
    return Matches(Existing(handle.store, snapshot, spec), plan)


def filter_written(_: TableSpec) -> FileCriteria:
    """Ask for every file, and for the bounds of the versions that wrote its rows."""
    return FileCriteria(kinds=WRITTEN_KINDS)


def _written_before(snapshot: Snapshot, limit: int) -> pa.Table:
    """Return the files in which a version up to a limit may have written a row.

    What a file says of its rows is never newer than the file. Where its bounds are not known, it
    may say anything that is older.
    """
    files = snapshot.files
    bounds = file_bounds(files, [WRITTEN_COLUMN], snapshot.spec.schema)[WRITTEN_COLUMN]
    known = pc.is_valid(bounds.null_count)
    older = pc.fill_null(pc.less_equal(bounds.lower, limit), False)  # noqa: FBT003 - arrow's
    whole = pc.less_equal(written_versions(files), limit)
    return files.filter(pc.or_(whole, pc.or_(older, pc.invert(known))))


def _newest_written(snapshot: Snapshot) -> pa.ChunkedArray:
    """Return for each file a version such that no row of the file was written after it."""
    files, spec = snapshot.files, snapshot.spec
    if not spec.keeps_row_version:
        return written_versions(files)
    bounds = file_bounds(files, [WRITTEN_COLUMN], spec.schema)[WRITTEN_COLUMN]
    known = pc.if_else(pc.equal(bounds.null_count, 0), bounds.upper, pa.scalar(None, pa.int64()))
    return pc.coalesce(known, written_versions(files))


def _predicate(ttl: Ttl, limit: int, spec: TableSpec) -> Compare:
    kind = spec.schema.arrow.field(ttl.by).type
    return Compare(Column((ttl.by,), kind), "<", Literal.of(limit, kind))


def _matching(handle: TableHandle, state: TableState, expired: Compare) -> Matches:
    """Choose the files in which the predicate may hold."""
    snapshot = state.snapshot(handle.store, file_filter=filter_where(expired))
    existing = Existing(handle.store, snapshot, state.table.spec)
    return Matches(existing, plan_scan(snapshot, columns=(), where=expired))


def _all_match(matches: Matches, file: LiveFile) -> bool:
    found = matches.hidden([file]).get(file.path)
    return found is not None and len(found) == file.live_rows


def _judged(snapshot: Snapshot, ttl: Ttl, limit: int) -> npt.NDArray[np.int8]:
    """Judge each file by its metadata."""
    files = snapshot.files
    if not ttl.by_column:
        old = _newest_written(snapshot).to_numpy() <= limit
        return np.where(old, _YES, _NO).astype(np.int8)
    bounds = file_bounds(files, [ttl.by], snapshot.spec.schema)[ttl.by]
    wide = pa.int32() if pa.types.is_date32(bounds.upper.type) else pa.int64()
    known = pc.and_(pc.is_valid(bounds.upper), pc.is_valid(bounds.null_count))
    upper = pc.fill_null(bounds.upper.cast(wide), 0).to_numpy(zero_copy_only=False)
    nulls = pc.fill_null(bounds.null_count, 0).to_numpy(zero_copy_only=False)
    old = (upper < limit) & (nulls == 0)
    judged = np.where(known.to_numpy(zero_copy_only=False), np.where(old, _YES, _NO), _MAYBE)
    return judged.astype(np.int8)


def _whole_partitions(files: pa.Table) -> pa.Table:
    """Return the files of partitions of which no file is young."""
    lowest = files.group_by("partition").aggregate([("expired", "min")])
    old = lowest.filter(pc.greater(lowest["expired_min"], _NO))["partition"].combine_chunks()
    return files.filter(pc.is_in(files["partition"], value_set=old))
