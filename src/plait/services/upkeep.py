"""What comes along with writing: nothing of it can fail a commit."""

from __future__ import annotations

import logging

from plait.services.rollback import roll_back_failed
from plait.state.state import TableState
from plait.txn.table_handle import TableHandle

_log = logging.getLogger(__name__)


def after_commit(handle: TableHandle) -> None:
    """Write a checkpoint when one is due, and look for the dead when that is due.

    It is with a checkpoint, with the first commit of each ``recovery.interval``, and after a
    commit that had to pass over a silent writer. All but the last is read off the timeline, so it
    costs other commits nothing, and clients that live for one commit take their turn too.
    """
    try:
        state = handle.cache.known()
        due = _first_of_its_time(state)
        due |= handle.sightings.take_met_silence(
            handle.ports.clock, every_s=state.table.options.seconds("heartbeat.timeout")
        )
        due |= handle.cache.checkpoint(state.table.options.count("checkpoint.interval"))
        if due:
            roll_back_failed(handle, reason="dead when another writer came by")
    except Exception:  # noqa: BLE001 - the commit stands, whatever upkeep meets
        _log.warning("upkeep after a commit failed; the next one does it", exc_info=True)


def _first_of_its_time(state: TableState) -> bool:
    """Tell whether the newest decision is the first one in a while, or nobody can tell."""
    newest = state.recent(state.version - 2)
    if newest is None or len(newest) < 2:  # noqa: PLR2004 - the newest, and the one before
        return True
    span_ms = int(state.table.options.seconds("recovery.interval") * 1000)
    return newest[0].completed_ms // span_ms != newest[1].completed_ms // span_ms
