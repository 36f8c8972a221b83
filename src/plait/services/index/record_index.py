"""``Table.index``, the record index: create, drop, bring up to date, compare with the data."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Final

from plait.definition.table_def import TableDef
from plait.errors import CorruptMetadataError, OptionError, PlanStaleError
from plait.model.decision import CommitResult
from plait.model.plain import Plain
from plait.services.index.build import IndexReport, build_index, fold_index, require_index
from plait.services.index.verify import IndexVerified, verify_index
from plait.state.state import TableState
from plait.timeline import paths
from plait.txn.key_window import (
    KnownKeys,
    is_of_index,
    load_known_keys,
    load_newest_known_keys,
    require_newest,
)
from plait.txn.table_decisions import change_table
from plait.txn.table_handle import Namespace, TableHandle

_log = logging.getLogger(__name__)
_FOLDS_MAX: Final = 8
"""A build is followed by so many rounds of catching up at most: writers go on."""
_BUILDS_MAX: Final = 3
"""Maximum number of builds, if a restore or a repush makes each one useless at once."""


@dataclass(frozen=True, slots=True)
class IndexStatus(Plain):
    """What a record index knows."""

    KEYS = "name version built usable reason lag entries runs files bytes=size_bytes"

    name: str | None
    """Name of the index; None if the table has none."""
    version: int
    """The newest version of the table."""
    built: int | None = None
    """The version that its runs go up to; None if it was not built."""
    usable: bool = False
    """Whether look-ups use it."""
    reason: str = ""
    """Why they do not."""
    lag: int = 0
    """How many decisions are in no run yet."""
    entries: int = 0
    runs: int = 0
    files: int = 0
    size_bytes: int = 0


class RecordIndex(Namespace):
    """``Table.index``, the record index of a table: which file has the row of a key."""

    def create(self) -> IndexReport | None:
        """Give the table a record index, and build it beside the writers.

        One decision says that the table has it. Then the keys of all rows are read, and those of
        commits that came meanwhile. Until the build is over, look-ups go by buckets. If it is
        killed, ``build`` begins again.

        Returns:
            What was built; None if the table has an index that is up to date.

        Raises:
            OptionError: the table has no record key.
            PlanStaleError: see ``build``.

        >>> import pyarrow as pa
        >>> from plait import Table
        >>> t = Table.create(
        ...     "memory://doc-index", "id bigint, day string", record_key="id", partition_by="day"
        ... )
        >>> t.upsert(pa.table({"id": [1, 2], "day": ["a", "b"]})).version
        1
        >>> t.index.create().entries
        2
        >>> t.get([2]).to_pylist()
        [{'id': 2, 'day': 'b'}]
        >>> t.index.drop().version
        3
        """
        _declare(self._handle)
        return self.build()

    def build(self, *, anew: bool = False) -> IndexReport | None:
        """Bring the record index up to date; build it if it is of no use.

        Writers go on, and make runs of their own meanwhile: what they publish is taken in.

        Args:
            anew: build it in any case.

        Returns:
            What was done; None if there was nothing to do, or another client did it meanwhile.

        Raises:
            OptionError: the table has no record index.
            PlanStaleError: a restore or a repush made what was built useless, three times; or other
                clients published first, sixteen times. Nothing is lost; call it again.
        """
        return bring_up_to_date(self._handle, anew=anew)

    def drop(self) -> CommitResult:
        """Drop the record index in one decision; the next clean deletes its files.

        Raises:
            OptionError: the table has no record index.
        """
        return _drop(self._handle)

    def status(self) -> IndexStatus:
        """Tell what the record index knows, and how far it is behind."""
        return index_status(self._handle)

    def verify(self) -> IndexVerified:
        """Look the key of every live row up in the record index; change nothing.

        Raises:
            OptionError: the table has no record index, or it was not built.
            CorruptMetadataError: a run is damaged; ``build(anew=True)`` makes the index anew.
        """
        return verify_index(self._handle)


def _declare(handle: TableHandle) -> CommitResult | None:
    """Decide that a table has a record index; None if it has one."""
    state = handle.cache.refresh()
    if not state.table.spec.keyed:
        message = "a record index needs a record key, which the table does not have"
        hint = "create a table with record_key"
        raise OptionError(message, hint=hint, key="index", value="record")
    if state.table.index is not None:
        return None
    name = handle.ports.ids.nonce()

    def declared(table: TableDef) -> TableDef:
        return table if table.index is not None else replace(table, index=name)

    return change_table(handle, declared)


def _drop(handle: TableHandle) -> CommitResult:
    require_index(handle.cache.refresh())

    def without(table: TableDef) -> TableDef:
        if table.index is None:
            return table
        return replace(table, index=None, dropped_indexes=(*table.dropped_indexes, table.index))

    return change_table(handle, without)


def bring_up_to_date(
    handle: TableHandle, *, anew: bool = False, most: int | None = None
) -> IndexReport | None:
    """Build the index if it is of no use, then add what came meanwhile; see ``RecordIndex.build``.

    Raises:
        PlanStaleError: it was built for nothing, or others were always faster.
    """
    state = handle.cache.refresh()
    require_index(state)
    report = None
    if anew or not _is_of_use(handle, state):
        report = _built(handle)
    for _ in range(_FOLDS_MAX):
        try:
            folded = fold_index(handle, most=most)
        except CorruptMetadataError as error:
            if report is not None or not is_of_index(error):
                raise
            _log.warning("the record index is damaged, and is built anew: %s", error)
            folded = report = _built(handle)
        if folded is None:
            break
        report = replace(folded, built=report is not None and report.built)
    return report


def _built(handle: TableHandle) -> IndexReport | None:
    """Build the index, and again if the table was restored or laid out anew meanwhile.

    Returns:
        What was built; None if another client did it meanwhile.

    Raises:
        PlanStaleError: that happened each time, or others were always faster.
    """
    for _ in range(_BUILDS_MAX):
        report = build_index(handle)
        state = handle.cache.refresh()
        if _is_of_use(handle, state):
            return report
    known = load_known_keys(handle, state, newest=True)
    why = "it is not there" if known is None else known.window.lost
    message = f"the record index was built {_BUILDS_MAX} times, and is of no use each time: {why}"
    hint = "nothing is lost: look-ups read buckets; run `tablectl index build` once that is over"
    raise PlanStaleError(message, hint=hint)


def _is_of_use(handle: TableHandle, state: TableState) -> bool:
    known = load_known_keys(handle, state, newest=True)
    return known is not None and known.usable and _is_whole(handle, known)


def _is_whole(handle: TableHandle, known: KnownKeys) -> bool:
    """Tell whether every file of an index is there."""
    there = {info.path: info.size for info in handle.store.list(_directory(known))}
    return all(there.get(file.path) == file.size_bytes for file in known.manifest.files)


def _directory(known: KnownKeys) -> str:
    return paths.index(known.manifest.index)


def index_status(handle: TableHandle) -> IndexStatus:
    """Tell what the index of a table knows; see ``RecordIndex.status``."""
    return handle.cache.ask(lambda state: _status(handle, state))


def _status(handle: TableHandle, state: TableState) -> IndexStatus:
    status = IndexStatus(state.table.index, state.version)
    if status.name is None:
        return replace(status, reason="the table has no record index")
    known = load_newest_known_keys(handle, state)
    if known is None:
        return replace(status, reason="it was not built", lag=state.version + 1)
    manifest, whole = known.manifest, _is_whole(handle, known)
    if not whole:
        require_newest(handle, state)
    return replace(
        status,
        built=manifest.version,
        usable=known.usable and whole,
        reason=known.window.lost or ("" if whole else "files of it are missing"),
        lag=state.version - manifest.version,
        entries=manifest.entries,
        runs=len(manifest.runs),
        files=len(manifest.files),
        size_bytes=manifest.size_bytes,
    )
