"""Pin what a read is about: a version, or the commits between two. Its files stay until released.

Each goes through ``read_pinned``: the read pin comes first, then the look at the head (INV-05).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import OptionError
from plait.model.bucket import UNKEYED, partition_text
from plait.model.evolution import widest
from plait.model.instant import Action
from plait.model.plan import CHANGED, LIVE, ChangeWindow, Snapshot
from plait.read.plan import FileFilter, all_files
from plait.state.delta import IN_ORDER, changed_files, net_files
from plait.state.events import with_first_versions
from plait.state.state import TableState, files_returned
from plait.txn.read_pin import ReadPin, read_pinned
from plait.txn.table_handle import TableHandle
from plait.txn.time_travel import Bound, Moment, find_as_of, find_bound, require_version

_QUIET = tuple(
    each.value for each in (Action.COMPACTION, Action.CLUSTERING, Action.REPUSH, Action.REPAIR)
)
"""Operations that write rows anew and change none."""


def pin(
    handle: TableHandle,
    version: int | None,
    as_of: Moment | None,
    file_filter: FileFilter | None = None,
) -> tuple[Snapshot, ReadPin]:
    """Pin a version; the newest if neither a version nor a moment is given.

    ``file_filter``: what is looked at; of a large table no other files are loaded.

    Raises:
        InstantNotFoundError: no such version, instant, or time that has passed.
        InstantExpiredError: it was cleaned.
    """
    if as_of is not None:
        version = find_as_of(handle, handle.cache.refresh(), as_of)
    elif version is not None:
        version = require_version(version)
    asked = version

    def load(state: TableState) -> Snapshot:
        return state.snapshot(handle.store, version=asked, file_filter=file_filter)

    return read_pinned(handle, load, since=asked, version=asked)


def pin_changes(
    handle: TableHandle, since: Bound, until: Bound | None
) -> tuple[ChangeWindow, ReadPin]:
    """Pin the commits after one version up to another; the newest if that is None.

    Raises:
        InstantNotFoundError: no such version, or ``until`` is a time that is not settled.
        InstantExpiredError: what the table was before these commits was cleaned.
        OptionError: the end lies before the beginning, or a bound is none.
    """
    known = handle.cache.refresh()
    low = find_bound(handle, known, since)

    def load(state: TableState) -> ChangeWindow:
        state.folded(handle.store)  # anew if a checkpoint was collected
        state.require_readable(low, onwards=True)
        high = state.version if until is None else find_bound(handle, state, until, key="until")
        if high < low:
            message = f"until={until} is before since={since}"
            raise OptionError(
                message, hint="since must be before until", key="until", value=str(until)
            )
        return _window(handle, state, low, high)

    return read_pinned(handle, load, since=low)


def net_changes(handle: TableHandle, window: ChangeWindow) -> ChangeWindow:
    """Return the changes of a pinned window as those of one commit: what was undone is not there.

    The files of rows that services wrote anew are there too; their rows are no changes.
    """
    state, until = handle.cache.loaded(), window.until
    commits = state.commits(handle.store, since=until - 1, columns=("version", "completed_ms"))
    completed_ms = commits.filter(pc.equal(commits["version"], until))["completed_ms"][0].as_py()
    then, now = (
        state.snapshot(handle.store, version=each, file_filter=all_files).files
        for each in (window.since, until)
    )
    return replace(window, files=net_files(then, now, until, completed_ms))


def pin_rows(handle: TableHandle, version: int) -> tuple[ChangeWindow, ReadPin]:
    """Pin the rows of a version, as if one commit had inserted them all.

    Raises:
        InstantNotFoundError: no such version.
        InstantExpiredError: it was cleaned.
    """
    return read_pinned(handle, lambda state: _all_rows(handle, state, version), since=version)


def _window(handle: TableHandle, state: TableState, since: int, until: int) -> ChangeWindow:
    head = until == state.version
    snapshot = state.blank() if head else state.blank(handle.store, version=until)
    restored = bool(state.lineage.restores)
    commits = state.commits(handle.store, since=since - 1 if restored else since)
    commits = commits.filter(pc.less_equal(commits["version"], until))
    snapshot = _widened(snapshot, commits["schema_id"]) if restored else snapshot
    loud = pc.invert(pc.is_in(commits["action"], value_set=pa.array(_QUIET)))
    rows = commits.filter(pc.and_(pc.greater(commits["version"], since), loud))
    pairs = zip(rows["version"].to_pylist(), rows["completed_ms"].to_pylist(), strict=True)
    ends = (end for end in (since, until) if end >= state.horizons.final)
    folded = state.folded(handle.store, *ends)
    files = changed_files(folded, dict(pairs))
    if files_returned(state):
        files = with_first_versions(files, folded.files)
    last = [each for each in state.table.moves if since <= each < until]
    return ChangeWindow(since, snapshot, _whole(files, last), one_layout=not last)


def _widened(snapshot: Snapshot, schema_ids: pa.ChunkedArray) -> Snapshot:
    """Return a snapshot that has every value of its columns in versions before it.

    A restore may have given the table back a type that rows of the window do not fit.
    """
    spec, schemas = snapshot.spec, snapshot.schemas
    others = [schemas[each] for each in schema_ids.unique().to_pylist() if each != spec.schema.id]
    return replace(snapshot, spec=replace(spec, schema=widest(spec.schema, others)))


def _whole(files: pa.Table, last: Sequence[int]) -> pa.Table:
    """Put the files of a restore over a repush into one place: its keys were in others before.

    Args:
        files: of all commits (CHANGED).
        last: the last versions of former layouts.
    """
    swapped = pc.is_in(files["at"], value_set=pa.array([each + 1 for each in last], pa.int64()))
    if not pc.any(swapped).as_py():
        return files
    for name, value in (("partition", partition_text(())), ("bucket", UNKEYED)):
        at, field = files.schema.get_field_index(name), files.schema.field(name)
        one = pc.if_else(swapped, pa.scalar(value, field.type), files[name])
        files = files.set_column(at, field, one)
    return files


def _all_rows(handle: TableHandle, state: TableState, version: int) -> ChangeWindow:
    snapshot = state.snapshot(handle.store, version=version, file_filter=all_files)
    commits = state.commits(handle.store, since=version - 1)
    time_ms = commits.filter(pc.equal(commits["version"], version))["completed_ms"][0]
    count = snapshot.files.num_rows
    columns = {
        "at": pa.repeat(version, count),
        "completed_ms": pa.repeat(time_ms, count),
        "after": pa.repeat(pa.scalar(value=True), count),
    }
    columns |= {name: snapshot.files[name] for name in LIVE.names}
    files = pa.table(columns).cast(CHANGED).sort_by(IN_ORDER)
    return ChangeWindow(version, replace(snapshot, files=LIVE.empty_table()), files)
