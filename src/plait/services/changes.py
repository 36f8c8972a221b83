"""Find the commits that a change read is about, and keep their files."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import FormatError, InstantNotFoundError, OptionError
from plait.model.bucket import BucketId
from plait.model.instant import Action, Instant, parse_moment
from plait.model.plan import CHANGED, LIVE, ChangeWindow
from plait.state.delta import IN_ORDER, changed_files
from plait.state.state import State
from plait.txn.lease import Lease
from plait.txn.site import Site

Bound = int | str | dt.datetime | Instant
"""A version, an instant, an aware datetime, or ISO text."""

_QUIET = (Action.COMPACTION.value, Action.CLUSTERING.value)
"""They write rows anew and change none."""


def pin_changes(site: Site, since: Bound, until: Bound | None) -> tuple[ChangeWindow, Lease]:
    """Pin the commits after one version up to another; the newest if that is None.

    The lease comes first, then the look at the head and the horizon (INV-05).

    Raises:
        InstantNotFoundError: no such version.
        InstantExpiredError: what the table was before these commits was cleaned.
        OptionError: the end lies before the beginning, or a bound is none.
    """
    known = site.cache.refresh()
    low = find_bound(site, known, since)
    lease = Lease(site, max(0, min(low, known.version)))
    try:
        site.cache.snapshot()  # loads the file events, anew if a checkpoint was collected
        state = site.cache.known()
        state.require_readable(low)
        high = state.version if until is None else find_bound(site, state, until, key="until")
        if high < low:
            message = f"until={until} lies before since={since}"
            raise OptionError(message, hint="since comes first", key="until", value=str(until))
        return _window(site, state, low, high), lease
    except BaseException:
        lease.release()
        raise


def find_bound(site: Site, state: State, bound: Bound, *, key: str = "since") -> int:
    """Give the version of a bound: that of an instant, or the newest one completed at a time.

    As ``since``, a time before the table was there means its beginning.

    Raises:
        InstantNotFoundError: no such instant, or, as ``until``, the table is younger.
        OptionError: it is no bound.
    """
    if isinstance(bound, str) and bound.isascii() and bound.isdigit():
        bound = int(bound)
    if isinstance(bound, int) and not isinstance(bound, bool):
        return bound
    instant = instant_of(bound)
    if instant is not None:
        found, name = state.find_instant(site.store, instant), "instant"
    else:
        found, name = state.find_version_at(site.store, time_of(bound, key)), key
        if found is None and key == "since":
            return 0
    if found is None:
        message = f"{key}={bound}: there is no such commit yet"
        raise InstantNotFoundError(message, hint="see Table.history()", **{name: str(bound)})
    return found


def instant_of(bound: object) -> Instant | None:
    """Give the instant that this is, or is the text of; None if it is neither."""
    try:
        return bound if isinstance(bound, Instant) else Instant.parse(str(bound))
    except FormatError:
        return None


def time_of(bound: object, key: str) -> int:
    """Give ms since the epoch; raise OptionError, naming the key, for what is no time."""
    try:
        return parse_moment(bound)
    except OptionError as error:
        message = f"{key} is neither a version nor a time with a zone"
        hint = "a version, an instant, an aware datetime, or ISO text such as 2026-01-01T00:00:00Z"
        raise OptionError(message, hint=hint, key=key, value=str(bound)) from error


def _window(site: Site, state: State, since: int, until: int) -> ChangeWindow:
    head = until == state.version
    nothing = frozenset[BucketId]()
    snapshot = state.blank() if head else state.snapshot(site.store, version=until, buckets=nothing)
    commits = state.commits(site.store, since=since)
    loud = pc.invert(pc.is_in(commits["action"], value_set=pa.array(_QUIET)))
    rows = commits.filter(pc.and_(pc.less_equal(commits["version"], until), loud))
    pairs = zip(rows["version"].to_pylist(), rows["completed_ms"].to_pylist(), strict=True)
    files = changed_files(state.folded(site.store), dict(pairs))
    return ChangeWindow(since, snapshot, files)


def pin_rows(site: Site, version: int) -> tuple[ChangeWindow, Lease]:
    """Pin the rows of a version, as if one commit had inserted them all.

    Raises:
        InstantNotFoundError: no such version.
        InstantExpiredError: it was cleaned.
    """
    lease = Lease(site, max(0, min(version, site.cache.refresh().version)))
    try:
        snapshot = site.cache.snapshot(version=version)
        state = site.cache.known()
        commits = state.commits(site.store, since=version - 1)
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
