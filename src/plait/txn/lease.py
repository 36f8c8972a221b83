"""Leases: a reader says from which version on it needs files.

Taken before the head is looked at, like a writer's pending record, so that what the reader then
finds live stays until the lease is dropped or runs out. Losing one costs a retry of the read,
never a wrong answer: a missing file is an error, not an empty one (INV-05, INV-11).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass

from plait.errors import CorruptMetadataError, StorageError
from plait.timeline import paths
from plait.txn.site import Site, client

_log = logging.getLogger(__name__)
_BYTES_MAX = 1 << 16
TTL_S = 600.0
RENEW_S = 60.0


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """A lease as a cleaner sees it."""

    path: str
    version: int
    """Files that are live at this version or later are needed; 0 if it cannot be read."""
    expired: bool
    owner: str


class Lease:
    """A lease that is held and renewed until it is released; safe to release twice."""

    def __init__(self, site: Site, version: int) -> None:
        self.version = version
        self._site = site
        self._path = f"{paths.LEASES}/{version:020d}-{site.ports.ids.nonce()}"
        self._cancel: Callable[[], None] | None = None
        self._pid = os.getpid()
        document = {"version": version, "ttl_s": TTL_S, **client()}
        self._body = json.dumps(document).encode()
        try:
            site.store.put(self._path, self._body)
        except StorageError as error:
            # a reader without the right to write can still read; retention alone protects it
            _log.info("reading without a lease: %s", error)
            return
        self._cancel = site.ports.background.every(RENEW_S, self._renew)

    def release(self) -> None:
        """Drop the lease."""
        cancel, self._cancel = self._cancel, None
        if cancel is None or self._pid != os.getpid():
            return  # released, or a forked child's copy of what its parent holds
        cancel()
        try:
            self._site.store.delete([self._path])
        except StorageError as error:
            _log.info("a lease is left to run out: %s", error)

    def _renew(self) -> None:
        self._site.store.put(self._path, self._body)


def release_with(owner: object, lease: Lease) -> None:
    """Release a lease when its owner is dropped.

    That may be in any thread, also in one that serves an event loop of the store's own client,
    which a release would then wait for.
    """
    weakref.finalize(owner, _release_anywhere, lease)


def _release_anywhere(lease: Lease) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        lease.release()
    else:
        threading.Thread(target=lease.release, name="plait-release", daemon=True).start()


def load_leases(site: Site) -> list[LeaseInfo]:
    """Load every lease. One that cannot be read protects everything until it runs out."""
    now = site.store.now_ms()
    leases = []
    for info in site.store.list(paths.LEASES):
        try:
            body = site.store.find(info.path, size_max=_BYTES_MAX)
        except CorruptMetadataError:  # too large to be one
            body = b""
        if body is None:
            continue
        version, ttl_s, owner = 0, TTL_S, "unknown"
        try:
            document = json.loads(body)
            version, ttl_s = int(document["version"]), float(document["ttl_s"])
            owner = f"{document['host']}:{document['pid']}"
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            _log.warning("lease %s cannot be read; it is honoured until it runs out", info.path)
        age_ms = 0 if info.modified_ms is None else now - info.modified_ms
        leases.append(LeaseInfo(info.path, version, age_ms > ttl_s * 1000, owner))
    return leases
