"""Which keys decisions wrote since the record index was last brought up to date (RFC 0028)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from plait.errors import CorruptMetadataError, InstantExpiredError
from plait.files.hash import Hashes
from plait.index.entries import IndexEntries, Places
from plait.index.lookup import find_entries
from plait.index.manifest import Manifest, load_hinted, load_newest
from plait.index.window import ENTRIES_MAX, LAG_MAX, KeyWindow
from plait.model.bucket import BucketId, partition_parse, partition_text
from plait.model.changes import KEYS_FILES, KEYS_INLINE, KEYS_NONE, KEYS_SIDECAR
from plait.model.decision import Decision
from plait.model.instant import Operation
from plait.state.state import TableState
from plait.timeline import paths
from plait.txn.keys import Keys
from plait.txn.matrix import KINDS, Kind
from plait.txn.table_handle import TableHandle

_log = logging.getLogger(__name__)
_MOVING: Final = (Kind.LAYOUT, Kind.RESET)
"""Operations after which digests of keys do not say where rows are."""
_QUIET: Final = (Kind.REWRITE, Kind.EXPIRE, Kind.NOTE, Kind.SHAPE)
"""Operations that bring no new key into a bucket."""
_NEAR: Final = 64
"""Number of decisions after the known manifest beyond which a newer one is looked for."""


@dataclass(frozen=True, slots=True)
class KnownKeys:
    """A record index and what came since: together every key that is live at a version."""

    manifest: Manifest
    window: KeyWindow

    @property
    def usable(self) -> bool:
        """Whether every live key is in one of the two."""
        return not self.window.lost


def load_known_keys(
    handle: TableHandle, state: TableState, *, newest: bool = False
) -> KnownKeys | None:
    """Load what the index of a table knows at a version; None if it was not built.

    Args:
        handle: the table.
        state: the version; the index may be behind it.
        newest: look for the newest manifest, to publish the next one.

    Raises:
        CorruptMetadataError: a decision is damaged.
        StorageError: the store failed.
    """
    if state.table.index is None or not state.table.spec.keyed:
        return None
    manifest = _manifest(handle, state, newest=newest)
    if manifest is None or manifest.version > state.version:
        return None
    return KnownKeys(manifest, _window(handle, state, manifest))


def load_newest_known_keys(handle: TableHandle, state: TableState) -> KnownKeys | None:
    """Do as ``load_known_keys`` with the newest manifest, to report what the index has.

    Raises:
        InstantExpiredError: the index has gone on to a version after the newest one that was seen.
    """
    known = load_known_keys(handle, state, newest=True)
    if known is None:
        require_newest(handle, state)
    return known


def require_newest(handle: TableHandle, state: TableState) -> None:
    """Say that the index may have gone on, before its manifest or its files are called missing.

    Raises:
        InstantExpiredError: the table did.
    """
    head = handle.cache.refresh().version
    if head > state.version:
        message = f"the record index may have gone on from version {state.version}"
        raise InstantExpiredError(message, version=state.version, oldest=head)


def _manifest(handle: TableHandle, state: TableState, *, newest: bool) -> Manifest | None:
    name, cache = str(state.table.index), handle.index_cache
    known = cache.manifest
    if newest:
        known = load_newest(handle.store, name)
    elif known is None or known.index != name or state.version - known.version > _NEAR:
        known = load_hinted(handle.store, name)
    cache.manifest = known
    return known


def entries_of(
    handle: TableHandle, known: KnownKeys, wanted: Hashes
) -> tuple[IndexEntries, Places]:
    """Return the newest entry of each hash and partition, and the partitions by number.

    Args:
        handle: the table.
        known: what its index knows.
        wanted: sorted hashes, each once.

    Raises:
        CorruptMetadataError: a file of the index is missing or damaged.
        StorageError: the store failed.
    """
    places, recent = known.window.places.copied(), known.window.entries
    footers = handle.index_cache.footers
    old = find_entries(handle.store, known.manifest, wanted, places, footers)
    if len(recent):
        recent = recent.take(np.isin(recent.hashes, wanted))
    return IndexEntries.concat([old, recent]).newest(), places


def is_of_index(error: CorruptMetadataError) -> bool:
    """Tell whether what is damaged is a file of a record index, which costs only time (INV-11)."""
    return str(error.facts.get("path", "")).startswith(f"{paths.INDEX}/")


def forget_index(handle: TableHandle) -> None:
    """Let go of the manifest that is known: files that it names are gone."""
    handle.index_cache.manifest = handle.index_cache.window = None


def is_decided(handle: TableHandle, version: int, checksum: str) -> bool:
    """Tell whether the timeline has this decision: an index may have been copied from elsewhere.

    Raises:
        StorageError: the store failed.
    """
    if version > handle.cache.refresh().version:
        return False
    try:
        found = next(iter(handle.cache.decisions(version - 1, limit=1)), None)
    except (InstantExpiredError, CorruptMetadataError):
        return False
    return found is not None and (found.version, found.checksum) == (version, checksum)


def _window(handle: TableHandle, state: TableState, manifest: Manifest) -> KeyWindow:
    # A cached window can be extended only if it begins at this manifest and does not reach beyond
    # the version that is asked for. Otherwise begin again at the manifest.
    window = handle.index_cache.window
    if (
        window is None
        or window.since != manifest.version
        or window.until > state.version
        or (window.since == window.until and window.decision != manifest.decision)
    ):
        window = KeyWindow(manifest.version, manifest.version, manifest.decision)
    if manifest.layout != state.table.spec.layout.buckets.id:
        window = window.losing("the table was laid out anew", window.until, window.decision)
    if state.version - window.since > LAG_MAX:
        why = f"it is {state.version - manifest.version} versions behind"
        return window.losing(why, state.version, state.checksum)
    if window.until == state.version:
        if window.decision != state.checksum:
            window = window.losing("it is that of another table", state.version, state.checksum)
    else:
        window = _extended(handle, state, window)
    handle.index_cache.window = window
    return window


def _extended(handle: TableHandle, state: TableState, window: KeyWindow) -> KeyWindow:
    # Its places may be in use by another thread.
    adding = _Adding(handle, state, replace(window, places=window.places.copied()))
    try:
        for decision in handle.cache.decisions(window.until, limit=state.version - window.until):
            adding.take(decision)
            if adding.window.lost:
                return adding.window.losing("", state.version, state.checksum)
    except (InstantExpiredError, CorruptMetadataError) as error:
        return window.losing(str(error), state.version, state.checksum)
    if adding.window.until != state.version:
        return window.losing("decisions are missing", state.version, state.checksum)
    return adding.window


@dataclass(slots=True)
class _Adding:
    """Adds decisions to a window, one by one."""

    handle: TableHandle
    state: TableState
    window: KeyWindow
    _keys: Keys = field(init=False)

    def __post_init__(self) -> None:
        table = self.state.table
        self._keys = Keys(self.handle.store, table.spec, table.schemas)

    def take(self, decision: Decision) -> None:
        window = self.window
        # Checksums prove that the window continues the decision from which the index was built. An
        # index that was copied from another table fails here; it must not hide keys of this one.
        if decision.previous != window.decision:
            why = "it is that of another table"
            self.window = window.losing(why, decision.version, decision.checksum)
            return
        kind = KINDS[decision.operation]
        window = replace(window, until=decision.version, decision=decision.checksum)
        if kind in _MOVING and decision.operation is not Operation.CREATE:
            why = f"{decision.operation} of version {decision.version} brought rows back"
            window = window.losing(why, decision.version, decision.checksum)
        elif kind not in _QUIET and not window.lost:
            window = self._with_keys(window, decision)
        self.window = window

    def _with_keys(self, window: KeyWindow, decision: Decision) -> KeyWindow:
        changes, parts = decision.changes, [window.entries]
        whole, listed = dict(window.whole), set[BucketId]()
        room = ENTRIES_MAX - len(window.entries)
        for row in changes.touched.to_pylist():
            bucket = partition_parse(row["partition"]), int(row["bucket"])
            listed.add(bucket)
            part = None
            if row["key_count"] <= room:
                part = self._entries(window, decision, bucket, row["keys"])
            if part is None:
                whole[bucket] = decision.version
            else:
                room -= len(part)
                parts.append(part)
        # Files of a bucket without a digest of keys may have any key: the bucket is read whole.
        for bucket in _buckets(changes.added):
            if bucket not in listed:
                whole[bucket] = decision.version
        entries = IndexEntries.concat(parts)
        return replace(window, entries=entries, whole=whole)

    def _entries(
        self, window: KeyWindow, decision: Decision, bucket: BucketId, kind: str
    ) -> IndexEntries | None:
        """Return the keys that a decision wrote in a bucket; None: any."""
        if kind not in (KEYS_FILES, KEYS_INLINE, KEYS_SIDECAR, KEYS_NONE):
            return None
        try:
            hashes = self._keys.of(decision.changes, bucket)
        except CorruptMetadataError as error:  # it was cleaned, or is damaged: the bucket is read
            _log.info("the keys of version %d are not known: %s", decision.version, error)
            return None
        if hashes is None:
            return None
        place = window.places.number(partition_text(bucket[0]))
        return IndexEntries.of(hashes, place, decision.version)


def _buckets(added: pa.Table) -> Iterator[BucketId]:
    pairs = added.select(["partition", "bucket"]).group_by(["partition", "bucket"]).aggregate([])
    for row in pairs.to_pylist():
        yield partition_parse(row["partition"]), int(row["bucket"])
