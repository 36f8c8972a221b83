"""Compare a record index with the rows of the table."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import numpy as np

from plait.errors import OptionError
from plait.files.hash import Hashes
from plait.index.builder import MEMORY_BYTES, RunBuilder
from plait.index.entries import IndexEntries, Places
from plait.index.merge import numbered, part_of, ranges
from plait.index.run_file import OpenRun, RunFile
from plait.model.plain import Plain
from plait.model.plan import Snapshot
from plait.read.plan import all_files
from plait.services.index.build import read_keys, require_index, take_window
from plait.state.state import TableState
from plait.storage.scratch import Scratch
from plait.txn.key_window import KnownKeys, load_newest_known_keys
from plait.txn.read_pin import pinned
from plait.txn.table_handle import TableHandle

_AT_ONCE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class IndexVerified(Plain):
    """What a comparison of a record index with the data found."""

    KEYS = "version rows entries missing ok"

    version: int
    rows: int
    """Live rows whose keys were looked up."""
    entries: int
    """Entries of the index, those included that are over."""
    missing: int
    """Rows that a look-up by the index would not find."""

    @property
    def ok(self) -> bool:
        """Whether every row would be found."""
        return not self.missing


def verify_index(handle: TableHandle) -> IndexVerified:
    """Look for every live key in the index of a table; see ``Table.index.verify``.

    Both sides are sorted on the local disk and compared range by range, in bounded memory.
    """
    require_index(handle.cache.refresh())
    with pinned(handle, lambda state: _compared(handle, state)) as found:
        return found


def _compared(handle: TableHandle, state: TableState) -> IndexVerified:
    """Compare at a version.

    Raises:
        InstantExpiredError: the index has gone on to a later version.
        OptionError: it is of no use.
    """
    known = load_newest_known_keys(handle, state)
    if known is None or not known.usable:
        why = "it was not built" if known is None else known.window.lost
        message = f"the record index is of no use now: {why}"
        hint = "build it with Table.index.build()"
        raise OptionError(message, hint=hint, key="index", value=require_index(state))
    with ExitStack() as stack:
        scratch = stack.enter_context(Scratch("index"))
        local = scratch.filesystem()
        snapshot = state.snapshot(handle.store, file_filter=all_files)
        rows, live = _live(handle, known, snapshot, scratch)
        held = [stack.enter_context(OpenRun(local, file)) for file in live]
        listed = [stack.enter_context(OpenRun(local, f)) for f in _recent(known, scratch)]
        remote = handle.store.filesystem()
        listed += [stack.enter_context(OpenRun(remote, f)) for f in known.manifest.files]
        missing = _missing(held, listed)
    return IndexVerified(state.version, rows, known.manifest.entries, missing)


def _live(
    handle: TableHandle, known: KnownKeys, snapshot: Snapshot, scratch: Scratch
) -> tuple[int, list[RunFile]]:
    """Sort the keys of all live rows, but of buckets that look-ups read whole; count the rows."""
    rows = 0
    with RunBuilder(MEMORY_BYTES) as builder:
        for keys, file, text in read_keys(handle, snapshot, snapshot.files):
            rows += len(keys)
            if (file.partition, file.bucket) not in known.window.whole:
                builder.add(keys, text, file.version)
        with scratch.alone():
            return rows, builder.write(scratch.filesystem(), lambda at: f"live-{at}")


def _recent(known: KnownKeys, scratch: Scratch) -> list[RunFile]:
    with RunBuilder(MEMORY_BYTES) as builder:
        take_window(builder, known.window)
        with scratch.alone():
            return builder.write(scratch.filesystem(), lambda at: f"recent-{at}")


def _missing(held: list[OpenRun], listed: list[OpenRun]) -> int:
    """Count live keys without an entry that leads to their file."""
    places = Places()
    of_held, of_listed = numbered(held, places), numbered(listed, places)
    count = 0
    for low, high in ranges([*held, *listed], _AT_ONCE):
        live = part_of(of_held, low, high)
        entries = part_of(of_listed, low, high)
        count += _without(live, entries)
    return count


def _without(live: IndexEntries, entries: IndexEntries) -> int:
    """Count live keys without an entry of their partition, or with one of a later version.

    A look-up opens the file that the version of the entry added, and files added later.
    """
    if not len(live):
        return 0
    width = max(int(live.places.max()), int(entries.places.max(initial=0))) + 1
    keys = np.unique(np.concatenate([live.hashes, entries.hashes]))
    mine, theirs = _codes(keys, live, width), _codes(keys, entries, width)
    order = np.argsort(theirs)
    at = np.searchsorted(theirs[order], mine)
    at[at == len(theirs)] = 0
    if not len(theirs):
        return len(live)
    found = theirs[order][at] == mine
    right = entries.versions[order][at] <= live.versions
    return int((~(found & right)).sum())


def _codes(keys: Hashes, entries: IndexEntries, width: int) -> Hashes:
    """Return one number for each hash and place."""
    return np.searchsorted(keys, entries.hashes).astype(np.uint64) * np.uint64(
        width
    ) + entries.places.astype(np.uint64)
