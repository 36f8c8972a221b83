"""Rebuild: tell the bounds of files again that the table's metadata does not have.

Decisions lack them while ``metadata.statistics`` is off. They follow from the files, so they live
in a checkpoint alone: if it is lost, scans read more files, and that is all (INV-11).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import CorruptMetadataError, OptionError
from plait.files.data_file import live_files, unmasked
from plait.files.reader import load_stats
from plait.model.decision import Decision
from plait.model.instant import Action, Operation
from plait.model.plain import Plain
from plait.read.ahead import read_ahead
from plait.state.checkpoint import list_checkpoints, rewrite_checkpoint
from plait.state.state import TableState
from plait.timeline import paths
from plait.txn.read_pin import pinned
from plait.txn.service import publish_service
from plait.txn.table_handle import TableHandle, client

_OPTION: Final = "metadata.statistics"
_WIDTH, _AT_ONCE = 8, 64
"""Number of threads that read ahead, and number of files that each of them reads at once."""


@dataclass(frozen=True, slots=True)
class RebuildPlan(Plain):
    """The number of files whose bounds the metadata lacks, as of a version."""

    version: int
    files: int
    """Files of the versions that can be read, or be made readable again."""
    missing: int
    """Number of files whose bounds are unknown. A rebuild opens each of them."""


@dataclass(frozen=True, slots=True)
class RebuildReport(Plain):
    """The result of a rebuild."""

    plan: RebuildPlan
    rebuilt: int
    """Files whose bounds are known now; none if others wrote newer checkpoints meanwhile."""
    unread: tuple[str, ...]
    """Files that are missing or damaged; ``verify`` says more of those that a version needs."""
    version: int | None
    """The version of its decision, and of its checkpoint if any is known now; None: no decision."""


def plan_rebuild(handle: TableHandle) -> RebuildPlan:
    """Count the files whose bounds are not known; write nothing.

    Raises:
        OptionError: the table is not to have them.
    """
    return _plan(handle.cache.refresh(), handle)[0]


def rebuild(handle: TableHandle) -> RebuildReport:
    """Read the bounds that are missing from the files, and write them into a checkpoint.

    Clients that are open find them in the next checkpoint that they write, or when they open
    the table again. It is safe to run it twice, also at once.

    Raises:
        OptionError: the table is not to have them.
        StorageError: the store failed; nothing was written, or a decision that changes nothing.
    """
    oldest = handle.cache.known().horizon
    with pinned(handle, lambda state: _plan(state, handle), since=oldest) as (plan, missing):
        stats, unread = _read(handle, missing)
    if not stats.num_rows:
        handle.require_same_table()  # files of a table that is gone cannot be read either
        return RebuildReport(plan, 0, unread, None)
    heads: list[TableState] = []

    def draft(state: TableState) -> Decision:
        heads[:] = [state]
        return Decision(
            instant=handle.new_instant(state),
            action=Action.PROPERTY,
            operation=Operation.REBUILD,
            base=state.version,
            client=client(),
        )

    decision = publish_service(handle, draft)
    if decision is None:
        return RebuildReport(plan, 0, unread, None)
    state = heads[0].apply(decision, where=paths.slot(decision.version))
    written = _write(handle, state, stats)
    if written is None:
        return RebuildReport(plan, 0, unread, decision.version)
    handle.cache.offer(written, same_version=True)
    return RebuildReport(plan, stats.num_rows, unread, decision.version)


def _write(handle: TableHandle, state: TableState, stats: pa.Table) -> TableState | None:
    """Write the checkpoint; None if others were quicker.

    Somebody else wrote that one. Or others wrote newer ones, and a clean collected its parts before
    they were read back: nobody needs an older checkpoint then.
    """
    try:
        return rewrite_checkpoint(handle.store, state, stats, handle.ports)
    except CorruptMetadataError:
        if max(list_checkpoints(handle.store), default=-1) > state.version:
            return None
        raise


def _plan(state: TableState, handle: TableHandle) -> tuple[RebuildPlan, pa.Table]:
    """Return the plan, and the files whose bounds are not known."""
    if state.table.options.choice(_OPTION) == "off":
        message = f"{_OPTION} is off, so the table has no bounds of columns"
        hint = f"set it first: tablectl set URI {_OPTION}=on"
        raise OptionError(message, hint=hint, key=_OPTION, value="off")
    files = state.folded(handle.store, bounds=True).files
    missing = files.filter(pc.is_null(files["stats"]))
    return RebuildPlan(state.version, files.num_rows, missing.num_rows), missing


def _read(handle: TableHandle, missing: pa.Table) -> tuple[pa.Table, tuple[str, ...]]:
    """Read the bounds of files: ``path`` and ``stats``; and the files that cannot be read."""
    files, table = unmasked(missing, version=0), handle.cache.known().table

    def told(start: int) -> Iterator[tuple[str, str | None]]:
        for file in live_files(files.slice(start, _AT_ONCE)):
            try:
                yield file.path, load_stats(handle.store, file, table.spec, table.schemas)
            except CorruptMetadataError:
                yield file.path, None

    starts = range(0, files.num_rows, _AT_ONCE)
    if len(starts) <= 1:
        found = dict(told(0))
    else:
        sources = (functools.partial(told, start) for start in starts)
        found = dict(read_ahead(sources, width=_WIDTH, depth=_AT_ONCE))
    columns = [pa.array(column, pa.string()) for column in (found, found.values())]
    stats = pa.table(columns, names=["path", "stats"])
    unread = tuple(path for path, text in found.items() if text is None)
    return stats.filter(pc.is_valid(stats["stats"])), unread
