"""Leases: a reader says from which version on it needs files.

Taken before the head is looked at, like a writer's pending record, so that what the reader then
finds live stays until the lease is dropped or runs out. Losing one costs a retry of the read,
never a wrong answer: a missing file is an error, not an empty one (INV-05, INV-11).
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from plait.definition.table_def import require_not_dropped
from plait.errors import CorruptMetadataError, StorageError
from plait.model.document import Proof, open_record, seal_record
from plait.model.history import ReaderEntry
from plait.state.state import TableState
from plait.storage.port import FileInfo
from plait.timeline import paths
from plait.txn.liveness_cache import Silence
from plait.txn.table_handle import TableHandle, client

Found = TypeVar("Found")
_log = logging.getLogger(__name__)
_BYTES_MAX = 1 << 16
_HOST_MAX = 200
TTL_S = 600.0
TTL_S_MAX = 24 * 3600.0
RENEW_S = 60.0
_RENEWALS = 2
"""Number of intervals in which a living reader renews once its machine is awake again."""


@dataclass(frozen=True, slots=True)
class ReadPinInfo:
    """A lease as a cleaner sees it."""

    path: str
    version: int
    """Files that are live at this version or later are needed; 0 if it cannot be read."""
    expired: bool
    host: str = ""
    pid: int = 0
    modified_ms: int | None = None
    """When it was written or renewed, by the store's clock."""


class ReadPin:
    """A lease that is held and renewed until it is released; safe to release twice."""

    def __init__(self, handle: TableHandle, version: int) -> None:
        self.version = version
        self._handle = handle
        self._path = f"{paths.LEASES}/{version:020d}-{handle.ports.ids.nonce()}"
        self._cancel: Callable[[], None] | None = None
        self._dropped = False
        self._pid = os.getpid()
        self._body = seal_record(self._path, {"version": version, "ttl_s": TTL_S, **client()})
        try:
            handle.store.put(self._path, self._body)
        except StorageError as error:
            # a reader without the right to write can still read; retention alone protects it
            _log.info("reading without a read pin: %s", error)
            return
        self._cancel = handle.ports.background.every(RENEW_S, self._renew)

    def release(self) -> None:
        """Drop the lease."""
        cancel, self._cancel = self._cancel, None
        if cancel is None or self._pid != os.getpid():
            return  # released, or a forked child's copy of what its parent holds
        cancel()
        try:
            self._handle.store.delete([self._path])
        except StorageError as error:
            _log.info("a read pin was not deleted and will expire: %s", error)

    def drop(self) -> None:
        """Release it with the next renewal: for who may not wait, and has no thread."""
        self._dropped = True

    def _renew(self) -> None:
        if self._dropped:
            self.release()
        else:
            self._handle.store.put(self._path, self._body)


def read_pinned(
    handle: TableHandle,
    ask: Callable[[TableState], Found],
    *,
    since: int | None = None,
    version: int | None = None,
) -> tuple[Found, ReadPin]:
    """Ask the newest state for something that stays: the one way from a version to its files.

    The pin comes first, then the look at the head (INV-05). A clean whose decision was published
    before that look is part of the state, so it names none of the files that are condemned; a later
    clean lists the pin, and spares them. What ``ask`` does may rest on the state that it is given,
    and on no other: a later one may no longer know this version. It is asked again if others took
    away metadata on which its answer rests.

    Args:
        handle: the table.
        ask: gets the newest state.
        since: an older version whose files it needs too.
        version: the only one that it asks about, which may lie below damage of the timeline.

    Raises:
        InstantExpiredError: it asked for a version that was cleaned.
        TableDroppedError: the table was dropped. A pin that is older keeps the files, and a
            purge waits for it.
    """
    # An old version is fine: a pin protects its version and all newer ones, so it keeps more files
    # than needed, never fewer.
    known = handle.cache.known().version
    read_pin = ReadPin(handle, max(0, known if since is None else min(since, known)))
    try:
        found = handle.cache.ask(ask, version=version)
        require_not_dropped(handle.cache.known().table, handle.store.address.uri)
    except BaseException:
        read_pin.release()
        raise
    return found, read_pin


@contextmanager
def pinned(
    handle: TableHandle, ask: Callable[[TableState], Found], *, since: int | None = None
) -> Iterator[Found]:
    """Do as ``read_pinned``, and release the pin at the end of a ``with`` block."""
    found, read_pin = read_pinned(handle, ask, since=since)
    try:
        yield found
    finally:
        read_pin.release()


def release_with(owner: object, lease: ReadPin) -> None:
    """Release a lease when its owner is dropped.

    That may be in any thread, also in one that serves an event loop of the store's own client,
    which a release would then wait for.
    """
    weakref.finalize(owner, _release_anywhere, lease)


def _release_anywhere(lease: ReadPin) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        lease.release()
    else:
        try:
            threading.Thread(target=lease.release, name="plait-release", daemon=True).start()
        except RuntimeError:  # no thread can be had
            lease.drop()


def load_read_pins(handle: TableHandle) -> list[ReadPinInfo]:
    """Load every lease. One that does not prove itself protects everything until it runs out.

    An age that a sleep of this machine may explain counts only when the lease stays unrenewed.
    Other names than those of leases are ignored: they are nobody's.

    Raises:
        ClockUnavailableError: the store does not tell its time.
    """
    now = handle.store.now_ms()
    leases = []
    for info in handle.store.list(paths.LEASES):
        if not paths.is_lease(info.path):
            continue
        try:
            body = handle.store.find(info.path, size_max=_BYTES_MAX)
        except CorruptMetadataError:  # too large to be one
            body = b""
        if body is None:
            continue
        version, ttl_s, host, pid = _read(info.path, body)
        expired = _has_expired(handle, info, ttl_s, now)
        leases.append(ReadPinInfo(info.path, version, expired, host, pid, info.modified_ms))
    return leases


def _read(path: str, body: bytes) -> tuple[int, float, str, int]:
    """Return the version, the lifetime, and whose pin it is; of any other bytes the most careful.

    Its reader writes it again with each renewal. An older client does so without a seal.
    """
    proof, document = open_record(path, body)
    try:
        version, ttl_s = int(str(document["version"])), float(str(document["ttl_s"]))
        host, pid = str(document["host"])[:_HOST_MAX], int(str(document["pid"]))
        if version < 0 or not 0 < ttl_s <= TTL_S_MAX:
            raise ValueError(ttl_s)
    except (ValueError, KeyError, OverflowError):
        proof, host, pid = Proof.DAMAGED, "", 0
    if proof is Proof.SEALED:
        return version, ttl_s, host, pid
    _log.warning("read pin %s does not prove itself, and protects everything", path)
    return 0, TTL_S, host, pid


def oldest_pin(handle: TableHandle) -> int | None:
    """Return the oldest version that a read pin names, whether or not it ran out; None without one.

    It takes one listing, and no clock.

    Raises:
        StorageError: the store cannot list.
    """
    named = (info.path for info in handle.store.list(paths.LEASES) if paths.is_lease(info.path))
    return min((paths.lease_version(path) for path in named), default=None)


def list_readers(handle: TableHandle) -> tuple[ReaderEntry, ...]:
    """List who keeps versions from being cleaned, those of old versions first.

    Raises:
        ClockUnavailableError: the store does not tell its time.
    """
    now_ms, pins = handle.store.now_ms(), load_read_pins(handle)
    readers = [
        ReaderEntry(
            pin.version,
            pin.host,
            pin.pid,
            pin.modified_ms,
            None if pin.modified_ms is None else max(0, now_ms - pin.modified_ms),
            alive=not pin.expired,
        )
        for pin in pins
    ]
    return tuple(sorted(readers, key=lambda reader: (reader.version, reader.host, reader.pid)))


def _has_expired(handle: TableHandle, info: FileInfo, ttl_s: float, now_ms: int) -> bool:
    if info.modified_ms is None or now_ms - info.modified_ms <= ttl_s * 1000:
        return False
    silent_ms = now_ms - info.modified_ms
    silence = Silence(info.modified_ms, silent_ms, ttl_s * 1000, _RENEWALS * RENEW_S)
    return not handle.sleep_guard.is_inconclusive(handle.ports.clock, info.path, silence)
