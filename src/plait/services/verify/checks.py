"""Verify: check INV-01 to INV-09, INV-11, INV-14 and INV-16 on storage; change nothing."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import (
    ClockUnavailableError,
    CorruptMetadataError,
    FormatError,
    StorageError,
    TableNotFoundError,
)
from plait.model.instant import AHEAD_MS_MAX
from plait.model.plan import Snapshot
from plait.read.plan import all_files
from plait.services.verify.archived import check_archive
from plait.services.verify.contents import SideFiles, check_files, check_keys, check_older
from plait.services.verify.history import LiveFiles, Windows
from plait.services.verify.instants import Instants
from plait.services.verify.report import Findings, Note, Problem, VerifyReport
from plait.services.verify.slots import Walk
from plait.services.verify.state_replay import Checkpoints, StateReplay
from plait.services.verify.stored import Explained, Listing, Needed, note_records
from plait.state.cache import StateCache
from plait.state.events import Folded
from plait.state.state import TableState
from plait.timeline import paths
from plait.timeline.pending import load_pending
from plait.txn.read_pin import ReadPin
from plait.txn.table_handle import TableHandle

__all__ = ["Note", "Problem", "VerifyReport", "verify"]


def verify(handle: TableHandle, *, data: bool = True, history: bool = False) -> VerifyReport:
    """Check the table; damage is reported by invariant and path, never raised.

    It works beside writers and cleans: a read pin keeps the files that it reads. It does not use
    the client's cache, so it can verify a table that cannot be opened. Its memory is bounded by
    the size of the metadata, not of the data.

    Args:
        handle: the table.
        data: read every live file; otherwise check only that it exists with its size.
        history: check only the timeline: every commit was isolated, no update was lost and no
            instant was decided twice.

    Raises:
        TableNotFoundError: there is no timeline here.
        StorageError: the store cannot list.
    """
    lease = ReadPin(handle, 0)
    try:
        verification = _Verification(handle, data=data)
        report = verification.run_history() if history else verification.run()
        if handle.cache.identity is not None:  # a client, which may have outlived its table
            with suppress(CorruptMetadataError):  # the report tells
                handle.require_same_table()
        return report
    finally:
        lease.release()


class _Verification:
    """One run, step by step; each step adds to the findings."""

    def __init__(self, handle: TableHandle, *, data: bool) -> None:
        self._ports, self._store, self._data = handle.ports, handle.store, data
        self._findings = Findings()
        self._walk = Walk(self._store, self._findings)
        self._instants = Instants()
        self._side_files = SideFiles()

    def run(self) -> VerifyReport:
        replayed = self._read_timeline()
        listing = Listing.take(self._store, self._findings)
        state = replayed or self._fall_back()
        folded = None if state is None else self._fold(state)
        needed: Needed | None = None
        if state is not None and folded is not None:
            shown = state.lineage.readable(state.horizons.final, state.table.kept)
            needed = Needed.of(folded, shown)
            needed.check(listing, self._findings)
        if state is not None:
            check_archive(self._store, state, self._walk, self._findings)
        checkpoints = Checkpoints(self._store, self._findings)
        condemned = [] if folded is None else folded.condemned["path"].to_pylist()
        checkpoints.check(replayed, set(condemned), data=self._data)
        if replayed is not None:
            self._explain(replayed, listing, checkpoints.named)
        if state is not None:
            self._note_future(state)
        note_records(self._store, self._findings)
        if self._data and state is not None and needed is not None:
            self._read_data(state.snapshot(self._store, file_filter=all_files), needed, listing)
        self._instants.judge(self._findings)
        return self._findings.report()

    def run_history(self) -> VerifyReport:
        self._read_timeline()
        self._instants.judge(self._findings)
        return self._findings.report()

    def _read_timeline(self) -> TableState | None:
        """Read every slot; give the state that follows, if none is damaged."""
        windows = Windows(self._store, self._findings)
        files = LiveFiles(self._findings)
        replay = StateReplay(self._store, self._findings)
        for decision in self._walk.decisions():
            self._instants.take(decision, self._findings)
            self._side_files.take(decision)
            if self._walk.whole:
                files.take(decision)
                replay.take(decision)
            windows.take(decision, replay.state)
        if self._walk.head < 0:
            uri = self._store.address.uri
            raise TableNotFoundError(f"there is no table at {uri}", hint="check the path", uri=uri)
        return replay.state if self._walk.whole and replay.whole else None

    def _fall_back(self) -> TableState | None:
        """Load the state as a client would: from a checkpoint after the damage, if there is one."""
        self._findings.note(
            paths.TIMELINE, "the state is damaged, so unknown files were not searched"
        )
        try:
            return StateCache(self._store, self._ports).refresh()
        except (FormatError, StorageError, TableNotFoundError) as error:
            self._findings.note(paths.CHECKPOINTS, f"no files were checked: {error.message}")
            return None

    def _note_future(self, state: TableState) -> None:
        """Note that the table saw a clock that was ahead."""
        try:
            ahead_ms = state.completed_ms - self._store.now_ms()
        except ClockUnavailableError as error:
            self._findings.note(paths.TIMELINE, f"times were not checked: {error.message}")
            return
        if ahead_ms > AHEAD_MS_MAX:
            message = (
                f"it completed {ahead_ms // 1000} s ahead of the store's clock, and so do later "
                "commits; read by version or instant, not by time"
            )
            self._findings.note(paths.slot(state.version), message)

    def _fold(self, state: TableState) -> Folded | None:
        try:
            return state.folded(self._store)
        except (FormatError, StorageError) as error:
            self._findings.damage("INV-04", paths.CHECKPOINTS, error)
            return None

    def _explain(self, state: TableState, listing: Listing, checkpoint_files: set[str]) -> None:
        """Look for files that nothing explains.

        Records are loaded after the listing, and decisions after the records: whatever was in
        the listing had a record before, or has a decision by now.
        """
        pending = load_pending(self._store)
        for decision in self._walk.newer():
            self._instants.take(decision, self._findings)
            state = state.apply(decision, where=paths.slot(decision.version))
        folded = state.folded(self._store)
        columns = (folded.files["path"], folded.masks["dv_path"], folded.aux["path"])
        chunks = [chunk for column in columns for chunk in column.chunks]
        named = pa.concat_arrays([*chunks, *folded.condemned["path"].chunks])
        archive = {file.path for file in state.archive.files}
        archive |= {path for path in folded.condemned["path"].to_pylist() if paths.archive_of(path)}
        Explained(
            named=named,
            meta=frozenset(checkpoint_files | self._walk.manifests | archive),
            late=frozenset(entry.nonce for entry in state.late),
            pending=frozenset(entry.instant.nonce for entry in pending),
            committed=self._instants.committed.numbers()[0],
            ended=self._instants.ended.numbers()[0],
            repushes=state.table.repush_directories,
        ).judge(listing, self._findings)

    def _read_data(self, snapshot: Snapshot, needed: Needed, listing: Listing) -> None:
        check_files(self._store, snapshot, self._findings)
        check_older(self._store, needed.older, snapshot, self._findings)
        names = self._side_files.paths
        present, shown = (_common(names, named["path"]) for named in (listing.data, needed.others))
        self._side_files.check(self._store, present - set(listing.odd), shown, self._findings)
        if snapshot.spec.keyed:
            check_keys(self._store, snapshot, self._findings)


def _common(names: pa.Array, named: pa.ChunkedArray) -> set[str]:
    return set(names.filter(pc.is_in(names, value_set=named.combine_chunks())).to_pylist())
