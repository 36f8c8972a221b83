"""Describe a table, its timeline and its locks; change nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow.compute as pc

from plait.errors import TableNotFoundError, redacted
from plait.interop.publication import list_publications
from plait.locks.port import ExternalCommitLock
from plait.model.history import HistoryEntry, LockHolder, LockState, TimelineView
from plait.model.instant import Instant
from plait.model.repush import REPUSH_STREAM, OpenRepush
from plait.read.plan import all_files
from plait.state.state import TableState
from plait.storage.nested import NestedStore
from plait.txn.recovery import show_pending
from plait.txn.table_handle import TableHandle, open_handle


def load_timeline(handle: TableHandle) -> TimelineView:
    """Load every decision and the pending instants."""
    state = handle.cache.refresh()
    rows = state.commits(handle.store).to_pylist()
    return TimelineView(tuple(_entry(row, state) for row in rows), show_pending(handle))


def load_history(handle: TableHandle, limit: int | None) -> list[HistoryEntry]:
    """Load the newest decisions, all by default, newest first."""
    state = handle.cache.refresh()
    since = -1 if limit is None else max(-1, state.version - limit)
    rows = state.commits(handle.store, since=since).to_pylist()
    return [_entry(row, state) for row in reversed(rows)]


def load_locks(handle: TableHandle) -> LockState:
    """Return who holds the table's lock now, and who decides its slots.

    Raises:
        LockUnavailableError: the lock's service does not answer.
        MissingDependencyError: its library is not installed.
    """
    lock = handle.cache.refresh().table.contract.lock
    held = handle.lock.holder()
    holder = None
    if held is not None:
        holder = LockHolder(held.owner, held.since_ms, held.token, held.lost)
    lent = isinstance(handle.lock, ExternalCommitLock) and handle.lock.arbiter is not None
    return LockState(lock, handle.lock.name, "lent" if lent else "store", holder)


def describe(handle: TableHandle) -> dict[str, object]:
    """Return the definition and the size of the table as plain values."""
    snapshot = handle.cache.snapshot(file_filter=all_files)
    state = handle.cache.known()
    files = snapshot.files
    rows, masked, size = (pc.sum(files[n]).as_py() or 0 for n in ("rows", "masked", "bytes"))
    table = state.table.to_dict()
    del table["schemas"]
    if state.table.published:
        found = list_publications(handle)
        table["published"] = {each.target: each.to_dict() for each in found}
    opened = state.table.repush
    if opened is not None:
        table["repush"] = {**opened.to_dict(), "position": _position(handle, opened)}
    return {
        "uri": redacted(handle.store.address.uri),
        "version": snapshot.version,
        "horizon": state.horizon,
        "rows": rows - masked,
        "files": files.num_rows,
        "bytes": size,
        **table,
        "schema": snapshot.spec.schema.to_dict(),
    }


def _position(handle: TableHandle, opened: OpenRepush) -> str | None:
    """Tell how far an open repush is: ``load 3`` (tasks) or ``version 17``; None: not begun."""
    try:
        store = NestedStore(handle.plain_store, opened.directory)
        inner = open_handle(store, handle.ports, handle.consent)
    except TableNotFoundError:
        return None
    position = inner.cache.refresh().streams.get(REPUSH_STREAM)
    return None if position is None else position.end


def _entry(row: Mapping[str, object], state: TableState) -> HistoryEntry:
    version = int(str(row["version"]))
    return HistoryEntry(
        version=version,
        undone_by=state.lineage.undone_by(version, state.version),
        instant=Instant.parse(str(row["instant"])),
        action=str(row["action"]),
        operation=str(row["operation"]),
        completed_ms=int(str(row["completed_ms"])),
        base=int(str(row["base"])),
        commit_id=None if row["commit_id"] is None else str(row["commit_id"]),
        ended=tuple(map(Instant.parse, str(row["ended"] or "").split())),
        stats=json.loads(str(row["stats"])),
        client=json.loads(str(row["client"])),
    )
