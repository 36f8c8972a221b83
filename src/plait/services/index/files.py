"""Files of record indexes that nobody needs any more (RFC 0028)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from plait.errors import CorruptMetadataError
from plait.index.manifest import Manifest, list_manifests, load_manifest
from plait.timeline import paths
from plait.txn.read_pin import oldest_pin
from plait.txn.table_handle import TableHandle

_KEPT: Final = 2
"""Manifests that stay, with their runs: a look-up may be at work with the one before the newest."""


def delete_old(handle: TableHandle, newest: Manifest) -> int:
    """Delete what a manifest that was just published replaced; return how many files.

    A run goes if no manifest that stays names it, and one that goes does. So does a run that nobody
    will name any more: it goes up to a version that this manifest has, and there is no read pin of
    that version or an older one, under which a client may be about to publish it.

    Raises:
        CorruptMetadataError: a manifest that stays is damaged; nothing was deleted.
        StorageError: the store failed.
    """
    store, name = handle.store, newest.index
    numbers = list_manifests(store, name)
    kept = numbers[-_KEPT:]
    if numbers[-1:] != [newest.number]:
        return 0  # there is a newer one, and whoever published it deletes what it replaced
    staying = [newest, *(load_manifest(store, name, number) for number in kept[:-1])]
    named = {file.path for each in staying if each is not None for file in each.files}
    replaced = _named_before(handle, name, numbers[:-_KEPT]) - named
    needed = oldest_pin(handle)
    doomed = []
    for info in store.list(paths.index(name)):
        number, version = paths.index_manifest_of(info.path), paths.index_run_of(info.path)
        old = number is not None and number < kept[0]
        over = version is not None and version <= newest.version and info.path not in named
        alone = over and (needed is None or version is None or version < needed)
        if old or alone or info.path in replaced:
            doomed.append(info.path)
    store.delete(doomed)
    return len(doomed)


def _named_before(handle: TableHandle, name: str, numbers: Sequence[int]) -> set[str]:
    """Return the files that manifests name which go now; one that is damaged names none."""
    found: set[str] = set()
    for number in numbers:
        with suppress(CorruptMetadataError):
            manifest = load_manifest(handle.store, name, number)
            found |= set() if manifest is None else {file.path for file in manifest.files}
    return found


def delete_dropped(handle: TableHandle) -> int:
    """Delete the files of indexes that decisions dropped; return how many.

    Whoever still adds to such an index leaves files that the next clean deletes.
    """
    state = handle.cache.refresh()
    doomed = [
        info.path
        for name in state.table.dropped_indexes
        if name != state.table.index
        for info in handle.store.list(paths.index(name))
        if paths.index_of(info.path) == name
    ]
    handle.store.delete(doomed)
    return len(doomed)
