"""Bring the record index of a table up to date: build it, or make runs of what came since."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import OptionError
from plait.files.data_file import LiveFile, files_in, live_files
from plait.files.hash import Hashes, key_hashes
from plait.index.builder import MEMORY_BYTES, RunBuilder
from plait.index.manifest import IndexRun, Manifest
from plait.index.run_file import RunFile
from plait.index.window import FOLD_LAG_MAX, KeyWindow
from plait.model.bucket import partition_text
from plait.model.changes import KEYS_FILES, KEYS_SIDECAR
from plait.model.decision import Decision
from plait.model.plain import Plain
from plait.model.plan import Snapshot
from plait.read.plan import all_files, filter_partitions
from plait.read.slices import SliceReader
from plait.services.index.publish import WrittenRun, delete_replaced, publish_run
from plait.state.state import TableState
from plait.timeline import paths
from plait.txn.key_window import KnownKeys, load_known_keys
from plait.txn.read_pin import pinned
from plait.txn.table_handle import TableHandle

_GROWTH: Final = 4
"""A run is taken into the new one if it has at most so many times its entries."""
_UNTOLD: Final = (KEYS_FILES, KEYS_SIDECAR)
"""A bucket in which any key may have been written is not among them: to fold it reads it whole."""
WRITER_ENTRIES_MAX: Final = 1 << 20
"""A writer takes in no run that is larger: it must not pay for the size of the table."""


@dataclass(frozen=True, slots=True)
class IndexReport(Plain):
    """What was done to a record index."""

    KEYS = "version built added entries runs bytes=size_bytes"

    version: int
    """Version of which the index has every live key."""
    built: bool
    """Whether the keys of all data files were read."""
    added: int
    """Entries of the new run, those of older runs that it took in included."""
    entries: int
    runs: int
    size_bytes: int


def build_index(handle: TableHandle, *, memory_bytes: int = MEMORY_BYTES) -> IndexReport | None:
    """Read the keys of all rows and make the index of a table anew, beside its writers.

    Args:
        handle: the table.
        memory_bytes: about how much is sorted in memory at once.

    Returns:
        What was done. None if it is of no use: another client made all of it anew meanwhile, or
        the table was restored or laid out anew.

    Raises:
        OptionError: the table has no record index.
        PlanStaleError: others were always faster with the next manifest.
        CorruptMetadataError: a data file is damaged.
        StorageError: the store failed.
    """

    def everything_of(state: TableState) -> tuple[TableState, str, Snapshot]:
        name = require_index(state)
        return state, name, state.snapshot(handle.store, file_filter=all_files)

    require_index(handle.cache.refresh())
    with pinned(handle, everything_of) as (state, name, snapshot):
        with RunBuilder(memory_bytes) as builder:
            for keys, file, text in read_keys(handle, snapshot, snapshot.files):
                builder.add(keys, text, file.version)
            files = _write(handle, name, state.version, builder, ())
        run = IndexRun(0, state.version, tuple(files))
        manifest = _published(handle, name, state, run)
    return _finished(handle, manifest, run)


def fold_index(
    handle: TableHandle, *, most: int | None = None, memory_bytes: int = MEMORY_BYTES
) -> IndexReport | None:
    """Make a run of what decisions wrote since the index was last brought up to date.

    Args:
        handle: the table.
        most: take in no older run with more entries; None: whatever their size.
        memory_bytes: about how much is sorted in memory at once.

    Returns:
        What was done; None if there was nothing to do, another client was first, or the index has
        to be built.

    Raises:
        PlanStaleError: others were always faster with the next manifest.
        CorruptMetadataError: a decision or a data file is damaged.
        StorageError: the store failed.
    """
    with pinned(handle, lambda state: _due(handle, state, most)) as due:
        if due is None:
            return None
        state, known, files = due
        window, manifest = known.window, known.manifest
        with RunBuilder(memory_bytes) as builder:
            take_window(builder, window)
            count = len(window.entries)
            for keys, file, text in read_keys(handle, files, files.files):
                builder.add(keys, text, file.version)
                count += len(keys)
            kept = _kept(manifest.runs, count, most)
            older = manifest.runs[kept:]
            taken = [file for run in older for file in run.files]
            written = _write(handle, manifest.index, state.version, builder, taken)
        first = older[0].first if older else manifest.version + 1
        run = IndexRun(first, state.version, tuple(written))
        published = _published(handle, manifest.index, state, run)
    return _finished(handle, published, run)


def _due(
    handle: TableHandle, state: TableState, most: int | None
) -> tuple[TableState, KnownKeys, Snapshot] | None:
    """Return what the index knows, and the files whose keys no decision tells; None if too much."""
    known = load_known_keys(handle, state, newest=True)
    if known is None or not known.usable or known.window.until == known.manifest.version:
        return None
    buckets = known.window.whole
    if not buckets:
        return state, known, state.blank()
    file_filter = filter_partitions({partition for partition, _ in buckets})
    snapshot = state.snapshot(handle.store, file_filter=file_filter)
    files = files_in(snapshot.files, buckets)
    if most is not None and int(pc.sum(files["rows"]).as_py() or 0) > most:
        return None
    return state, known, replace(snapshot, files=files)


def falls_due(handle: TableHandle, decision: Decision) -> bool:
    """Tell whether the client that has just committed should make a run of what came since.

    It falls to whoever published a multiple of ``FOLD_LAG_MAX``, or rows whose keys the decision
    itself does not tell; and to anyone who finds that nobody did for two intervals.
    """
    window, known = handle.index_cache.window, handle.index_cache.manifest
    if window is not None and window.lost:
        return False  # only a build helps
    touched = decision.changes.touched["keys"].to_pylist()
    if decision.version % FOLD_LAG_MAX == 0 or any(keys in _UNTOLD for keys in touched):
        return True
    return known is not None and decision.version - known.version >= 2 * FOLD_LAG_MAX


def require_index(state: TableState) -> str:
    """Return the name of the record index; raise OptionError if the table has none."""
    if state.table.index is None:
        message = "the table has no record index"
        raise OptionError(
            message, hint="create it with Table.index.create()", key="index", value="none"
        )
    return state.table.index


def take_window(builder: RunBuilder, window: KeyWindow) -> None:
    """Add the keys that decisions told."""
    entries = window.entries
    order = entries.newest()
    for place, text in enumerate(window.places.texts):
        of_place = order.take(order.places == place)
        for version in dict.fromkeys(of_place.versions.tolist()):
            keys = of_place.hashes[of_place.versions == version]
            builder.add(keys, text, version)


def _kept(runs: Sequence[IndexRun], entries: int, most: int | None) -> int:
    """Count the older runs that stay as they are: each entry is written again O(log n) times."""
    kept = len(runs)
    while kept and runs[kept - 1].entries <= _GROWTH * max(entries, 1):
        size = runs[kept - 1].entries
        if most is not None and entries + size > most:
            break
        kept -= 1
        entries += size
    return kept


def read_keys(
    handle: TableHandle, snapshot: Snapshot, files: pa.Table
) -> Iterator[tuple[Hashes, LiveFile, str]]:
    """Read the keys of all rows of some files (LIVE), each with its file and its partition's text.

    Raises:
        CorruptMetadataError: a file is damaged.
        StorageError: the store failed.
    """
    reader, key = SliceReader.of(handle.store, snapshot), snapshot.spec.key
    for file in live_files(files):
        text = partition_text(file.partition)
        for rows in reader.rows(file, columns=key):
            yield key_hashes(rows, key), file, text


def _write(
    handle: TableHandle, name: str, version: int, builder: RunBuilder, older: Sequence[RunFile]
) -> list[RunFile]:
    nonce, store = handle.ports.ids.nonce(), handle.store
    files = builder.write(
        store.filesystem(), lambda at: paths.index_run(name, version, nonce, at), older
    )
    store.persist([file.path for file in files])
    return files


def _published(handle: TableHandle, name: str, state: TableState, run: IndexRun) -> Manifest | None:
    layout = state.table.spec.layout.buckets.id
    return publish_run(handle, WrittenRun(name, layout, run, state.checksum))


def _finished(handle: TableHandle, manifest: Manifest | None, run: IndexRun) -> IndexReport | None:
    """Delete what was replaced, and report."""
    if manifest is None:
        return None
    delete_replaced(handle, manifest)
    size, runs = manifest.size_bytes, len(manifest.runs)
    return IndexReport(manifest.version, run.first == 0, run.entries, manifest.entries, runs, size)
