"""What comes along with writing: nothing of it can fail a commit."""

from __future__ import annotations

import logging

from plait.services.rollback import roll_back_failed
from plait.txn.site import Site

_log = logging.getLogger(__name__)


def before_writer(site: Site) -> None:
    """Roll back what failed before, where the contract says eager: there is one writer."""
    if site.cache.known().table.contract.failed_writes == "eager":
        roll_back_failed(site, reason="eager, before a new write", everything=True)


def after_commit(site: Site) -> None:
    """Write a checkpoint when one is due, and then also roll back the dead."""
    try:
        interval = site.cache.known().table.options.count("checkpoint.interval")
        if site.cache.checkpoint(interval):
            roll_back_failed(site, reason="dead when another writer came by")
    except Exception:  # noqa: BLE001 - the commit stands, whatever upkeep meets
        _log.warning("upkeep after a commit failed; the next one does it", exc_info=True)
