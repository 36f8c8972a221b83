"""Publish a run of the record index beside what other clients publish meanwhile (RFC 0028)."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from plait.errors import CorruptMetadataError, PlanStaleError, StorageError, TableNotFoundError
from plait.index.manifest import (
    IndexRun,
    Manifest,
    list_manifests,
    load_newest,
    publish_manifest,
    withdraw_manifest,
)
from plait.services.index.files import delete_old
from plait.txn.key_window import forget_index, is_decided, load_known_keys
from plait.txn.table_handle import TableHandle

_log = logging.getLogger(__name__)
ROUNDS_MAX: Final = 16
"""Lost races for the next number after which the run is given up. Each is lost to a client
that published between two calls of this one."""


@dataclass(frozen=True, slots=True)
class WrittenRun:
    """A run whose files are on the store; no manifest names them yet."""

    index: str
    layout: int
    """The id of the bucket spec under which keys were hashed."""
    run: IndexRun
    """The run. It starts at version 0 if it has the key of every row, as after a build."""
    decision: str
    """The checksum of the decision of its last version."""

    @property
    def built(self) -> bool:
        """Whether it needs no other run."""
        return self.run.first == 0

    def beside(self, manifest: Manifest | None, number: int) -> Manifest:
        """Return the manifest with it, and with what another one has beyond it.

        Both are right about every key that was live at their versions, and the newest entry of a
        key counts; so together they are right about the later of the two.
        """
        mine, others = self.run, () if manifest is None else manifest.runs
        version, decision = mine.last, self.decision
        if manifest is not None and manifest.version > version:
            version, decision = manifest.version, manifest.decision
        kept = [run for run in others if not (mine.first <= run.first and run.last <= mine.last)]
        runs = sorted([*kept, mine], key=lambda run: (run.last, run.first))
        named = tuple(run for run in runs if run.files)
        return Manifest(self.index, number, self.layout, version, decision, named)


def publish_run(handle: TableHandle, written: WrittenRun) -> Manifest | None:
    """Publish a run. Of clients that do so at once, each takes in what the others published.

    Hold the read pin under which the files were written until this returns: it keeps them. After
    that call ``delete_replaced``, which spares what other pins are as old as.

    Returns:
        The manifest that has it. None if the run is of no use any more, and its files are deleted:
        another client was first with the same, or the table was restored or laid out anew.

    Raises:
        PlanStaleError: others were always faster.
        StorageError: the store failed.
    """
    store, name = handle.store, written.index
    try:
        for _ in range(ROUNDS_MAX):
            # First the numbers: a damaged manifest has one too.
            number = max(list_manifests(store, name), default=-1) + 1
            newest = load_newest(store, name)
            if newest is not None and set(written.run.files) & set(newest.files):
                return newest  # the reply was lost when it was published
            manifest = _together(handle, written, newest, number)
            if manifest is None:
                _delete(handle, written)
                return None
            handle.ports.observer.phase("index")
            if publish_manifest(store, manifest):
                _require_same_table(handle, manifest)
                return manifest
    except TableNotFoundError:  # nobody else deletes it at a table that is gone
        _delete(handle, written)
        raise
    finally:
        forget_index(handle)
    _delete(handle, written)
    message = f"other clients published the record index {ROUNDS_MAX} times while this one tried"
    hint = "nothing is lost, and look-ups use what they published; run `tablectl index build` again"
    raise PlanStaleError(message, hint=hint)


def delete_replaced(handle: TableHandle, manifest: Manifest) -> None:
    """Delete what a manifest replaced that was published just now; the next one does it else."""
    try:
        delete_old(handle, manifest)
    except (CorruptMetadataError, StorageError) as error:
        _log.warning("old files of the record index were not deleted: %s", error)


def _together(
    handle: TableHandle, written: WrittenRun, newest: Manifest | None, number: int
) -> Manifest | None:
    """Return the manifest that is to be published; None if the run is of no use any more.

    After a restore or a repush only a build publishes, and it has a run from 0 on that goes further
    than this one. So no run of before is joined with one of after; but if the table was empty then,
    when entries that are over cost time only.
    """
    mine = written.run
    fits = False
    if newest is not None and newest.layout == written.layout:
        fits = is_decided(handle, newest.version, newest.decision)
    if written.built:
        if not fits or newest is None or newest.version <= mine.last:
            known = load_known_keys(handle, handle.cache.refresh(), newest=True)
            ahead = known is not None and known.usable and known.manifest.version > mine.last
            return None if ahead else written.beside(None, number)
        whole = any(run.first == 0 and run.last > mine.last for run in newest.runs)
        return None if whole else written.beside(newest, number)
    if not fits or newest is None or newest.version < mine.first - 1:
        return None
    had = any(run.first <= mine.first and mine.last <= run.last for run in newest.runs)
    return None if had else written.beside(newest, number)


def _require_same_table(handle: TableHandle, manifest: Manifest) -> None:
    """Take a manifest away that was published where the table is gone, or is another one."""
    try:
        handle.require_same_table()
    except TableNotFoundError:
        withdraw_manifest(handle.store, manifest)
        raise


def _delete(handle: TableHandle, written: WrittenRun) -> None:
    handle.store.delete([file.path for file in written.run.files])
