"""What a table is and was, for people and programs: nothing here changes anything."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping

from plait.errors import InstantNotFoundError
from plait.locks.port import SlotLender
from plait.model.history import HistoryEntry, TimelineView
from plait.model.instant import Instant, parse_moment
from plait.model.locks import LockHolder, LockState
from plait.model.plan import Snapshot
from plait.services.rollback import list_pending
from plait.txn.lease import Lease
from plait.txn.site import Site

Moment = str | int | dt.datetime | Instant


def load_timeline(site: Site) -> TimelineView:
    """Load every decision and what is pending."""
    state = site.cache.refresh()
    rows = state.commits(site.store).to_pylist()
    return TimelineView(tuple(map(_entry, rows)), list_pending(site))


def load_locks(site: Site) -> LockState:
    """Tell who holds the table's lock now, and who decides its slots.

    Raises:
        LockUnavailableError: the lock's service does not answer.
        MissingDependencyError: its library is not installed.
    """
    lock = site.cache.refresh().table.contract.lock
    found = site.lock.holder()
    holder = None
    if found is not None:
        holder = LockHolder(found.owner, found.since_ms, found.token, found.lost)
    lent = isinstance(site.lock, SlotLender) and site.lock.arbiter is not None
    return LockState(lock, site.lock.name, "lent" if lent else "store", holder)


def describe(site: Site) -> dict[str, object]:
    """Give what the table is, as plain values."""
    snapshot = site.cache.snapshot()
    state = site.cache.known()
    files = snapshot.files
    rows = sum(files["rows"].to_pylist()) - sum(files["masked"].to_pylist())
    table = state.table.to_dict()
    del table["schemas"]
    return {
        "uri": site.store.spec.uri,
        "version": snapshot.version,
        "horizon": state.horizon,
        "rows": rows,
        "files": files.num_rows,
        "bytes": sum(files["bytes"].to_pylist()),
        **table,
        "schema": snapshot.spec.schema.to_dict(),
    }


def pin(site: Site, version: int | None, as_of: Moment | None) -> tuple[Snapshot, Lease]:
    """Pin a version: the lease comes first, then the look at the head and the horizon (INV-05).

    Raises:
        InstantNotFoundError: no such version.
        InstantExpiredError: it was cleaned.
    """
    if as_of is not None:
        version = _version_at(site, as_of)
    known = site.cache.known().version
    lease = Lease(site, known if version is None else max(0, min(version, known)))
    try:
        return site.cache.snapshot(version=version), lease
    except BaseException:
        lease.release()
        raise


def _version_at(site: Site, as_of: Moment) -> int:
    time_ms = parse_moment(as_of)
    version = site.cache.refresh().find_version_at(site.store, time_ms)
    if version is None:
        message = f"the table is younger than {as_of}"
        raise InstantNotFoundError(message, hint="see Table.history()", as_of=str(as_of))
    return version


def _entry(row: Mapping[str, object]) -> HistoryEntry:
    return HistoryEntry(
        version=int(str(row["version"])),
        instant=Instant.parse(str(row["instant"])),
        action=str(row["action"]),
        operation=str(row["operation"]),
        outcome=str(row["outcome"]),
        completed_ms=int(str(row["completed_ms"])),
        base=int(str(row["base"])),
        commit_id=None if row["commit_id"] is None else str(row["commit_id"]),
        ended=None if row["ended"] is None else str(row["ended"]),
        stats=json.loads(str(row["stats"])),
        client=json.loads(str(row["client"])),
    )
