"""Find the commits that a change read is about, and keep their files."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import OptionError
from plait.model.bucket import BucketId
from plait.model.instant import Action
from plait.model.plan import CHANGED, LIVE, ChangeWindow
from plait.read.moments import Bound, find_bound
from plait.state.delta import IN_ORDER, changed_files
from plait.state.state import TableState
from plait.txn.read_pin import ReadPin
from plait.txn.table_handle import TableHandle

_QUIET = (Action.COMPACTION.value, Action.CLUSTERING.value)
"""They write rows anew and change none."""


def pin_changes(
    handle: TableHandle, since: Bound, until: Bound | None
) -> tuple[ChangeWindow, ReadPin]:
    """Pin the commits after one version up to another; the newest if that is None.

    The lease comes first, then the look at the head and the horizon (INV-05).

    Raises:
        InstantNotFoundError: no such version, or ``until`` is a time that is not settled.
        InstantExpiredError: what the table was before these commits was cleaned.
        OptionError: the end lies before the beginning, or a bound is none.
    """
    known = handle.cache.refresh()
    low = find_bound(handle, known, since)
    lease = ReadPin(handle, max(0, min(low, known.version)))
    try:
        handle.cache.snapshot()  # loads the file events, anew if a checkpoint was collected
        state = handle.cache.known()
        state.require_readable(low)
        high = state.version if until is None else find_bound(handle, state, until, key="until")
        if high < low:
            message = f"until={until} lies before since={since}"
            raise OptionError(message, hint="since comes first", key="until", value=str(until))
        return _window(handle, state, low, high), lease
    except BaseException:
        lease.release()
        raise


def _window(handle: TableHandle, state: TableState, since: int, until: int) -> ChangeWindow:
    head = until == state.version
    nothing = frozenset[BucketId]()
    snapshot = (
        state.blank() if head else state.snapshot(handle.store, version=until, buckets=nothing)
    )
    commits = state.commits(handle.store, since=since)
    loud = pc.invert(pc.is_in(commits["action"], value_set=pa.array(_QUIET)))
    rows = commits.filter(pc.and_(pc.less_equal(commits["version"], until), loud))
    pairs = zip(rows["version"].to_pylist(), rows["completed_ms"].to_pylist(), strict=True)
    files = changed_files(state.folded(handle.store), dict(pairs))
    return ChangeWindow(since, snapshot, files)


def pin_rows(handle: TableHandle, version: int) -> tuple[ChangeWindow, ReadPin]:
    """Pin the rows of a version, as if one commit had inserted them all.

    Raises:
        InstantNotFoundError: no such version.
        InstantExpiredError: it was cleaned.
    """
    lease = ReadPin(handle, max(0, min(version, handle.cache.refresh().version)))
    try:
        snapshot = handle.cache.snapshot(version=version)
        state = handle.cache.known()
        commits = state.commits(handle.store, since=version - 1)
        time_ms = commits.filter(pc.equal(commits["version"], version))["completed_ms"][0]
        count = snapshot.files.num_rows
        said = {
            "at": pa.repeat(version, count),
            "completed_ms": pa.repeat(time_ms, count),
            "after": pa.repeat(pa.scalar(value=True), count),
        }
        said |= {name: snapshot.files[name] for name in LIVE.names}
        files = pa.table(said).cast(CHANGED).sort_by(IN_ORDER)
        head = replace(snapshot, files=LIVE.empty_table())
        return ChangeWindow(version, head, files), lease
    except BaseException:
        lease.release()
        raise
