"""Accept a loss: give up the rows of files that nothing can mend (RFC 0018, section 4.8).

A table with a lost file raises wherever that file is needed. One decision takes the files out of
the newest version, so that everything else can be read and written again. It is a delete of their
rows: writers of those buckets meet it as they would meet any. The versions before still need the
files, and so do changes that are read across it.
"""

from __future__ import annotations

import pyarrow as pa

from plait.files.data_file import LiveFile, live_files
from plait.model.changes import KEYS_ALL, PATHS, Changes, WriteStats, touched_whole
from plait.model.decision import Decision, Scope, action_of
from plait.model.instant import Operation
from plait.state.state import TableState
from plait.txn.service import publish_service
from plait.txn.table_handle import TableHandle, client


def files_needing(handle: TableHandle, state: TableState, path: str) -> tuple[LiveFile, ...]:
    """Return the live files that cannot be read without a data file or a file of vectors."""
    files = state.snapshot(handle.store).files
    return tuple(file for file in live_files(files) if path in (file.path, file.dv_path))


def accept_loss(handle: TableHandle, path: str) -> Decision | None:
    """Take the files that need a lost one out of the newest version; None if none does.

    Raises:
        ContractError: this client was opened under another contract.
        CommitRetriesExhaustedError: others were first for longer than ``commit.deadline``.
        CommitOutcomeUnknownError: the store does not say.
    """
    return publish_service(handle, lambda state: _draft(handle, state, path))


def _draft(handle: TableHandle, state: TableState, path: str) -> Decision | None:
    files = files_needing(handle, state, path)
    if not files:
        return None
    buckets = dict.fromkeys((file.partition, file.bucket) for file in files)
    scope, spec = Scope(), state.table.spec
    return Decision(
        instant=handle.new_instant(state),
        action=action_of(Operation.DELETE, scope, spec),
        operation=Operation.DELETE,
        base=state.version,
        changes=Changes(
            removed=pa.table([[file.path for file in files]], schema=PATHS),
            touched=touched_whole(buckets, KEYS_ALL),
        ),
        scope=scope,
        stats=WriteStats(
            rows_deleted=sum(file.live_rows for file in files), files_removed=len(files)
        ),
        client={**client(), "reason": f"accepted the loss of {path}"},
    )
