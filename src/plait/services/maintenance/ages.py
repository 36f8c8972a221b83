"""The ages of versions, also if decisions claim times in the future (RFC 0013).

Completion times only grow. So after one commit by a clock that is a year ahead, all later versions
are "completed" in a year, each a millisecond after the other. Their age is then the age of their
slots, by the file times of the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from plait.model.instant import AHEAD_MS_MAX
from plait.state.state import TableState
from plait.timeline import paths
from plait.txn.table_handle import TableHandle


def current_before(handle: TableHandle, state: TableState, age_ms: int) -> int | None:
    """Return the version that was current at that age; None if the table did not exist yet.

    Raises:
        ClockUnavailableError: the store reports no time.
    """
    now_ms = handle.store.now_ms()
    cutoff_ms = now_ms - age_ms
    current = state.find_version_at(handle.store, cutoff_ms)
    if state.completed_ms <= now_ms + AHEAD_MS_MAX:
        return current
    credible = state.find_version_at(handle.store, now_ms + AHEAD_MS_MAX)
    if current != credible:
        return current  # a version of that age is followed by one that is younger
    for version, since_ms in _since(handle, state, credible, now_ms):
        if since_ms > cutoff_ms:
            break
        current = version
    return current


def _since(
    handle: TableHandle, state: TableState, credible: int | None, now_ms: int
) -> Iterator[tuple[int, int]]:
    """Return the versions after one, oldest first, each with a time by which it was there.

    A slot that is stamped with a time that has not come was there before the next one.
    """
    first = 0 if credible is None else credible + 1
    stamps = _stamps(handle, first, state.version)
    since: dict[int, int] = {}
    bound_ms = now_ms
    for version in range(state.version, first - 1, -1):
        stamp_ms = stamps.get(paths.slot(version))
        if stamp_ms is not None and stamp_ms <= now_ms:
            bound_ms = stamp_ms
        since[version] = bound_ms
    yield from sorted(since.items())


def _stamps(handle: TableHandle, first: int, last: int) -> Mapping[str, int | None]:
    """Return when the store wrote the slots, by path; others of their directories come along."""
    slots = (paths.slot(version) for version in range(first, last + 1))
    directories = dict.fromkeys(slot.rsplit("/", 1)[0] for slot in slots)
    listed = (handle.store.list(directory) for directory in directories)
    return {info.path: info.modified_ms for infos in listed for info in infos}
