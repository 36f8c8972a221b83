"""The one atomic step: put-if-absent of the next slot (INV-02).

Only ``txn`` imports this. A lost reply is resolved by reading the slot back: the attempt in it
says whether the bytes are ours (INV-10).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow.compute as pc

from plait.definition.features import features_of
from plait.definition.publishable import require_publishable
from plait.definition.table_def import TableDef
from plait.errors import (
    CommitOutcomeUnknownError,
    CorruptMetadataError,
    StorageError,
    TableError,
    TableNotFoundError,
)
from plait.model.decision import Decision
from plait.model.document import sealed_checksum
from plait.model.instant import after, time_ms, time_text
from plait.state.state import (
    TableState,
    features_in_use,
    require_usable,
    require_writable,
    statistics_after_decision,
)
from plait.storage.port import Store
from plait.timeline import codec, paths
from plait.txn.table_handle import TableHandle, require_atomic

_log = logging.getLogger(__name__)


_TRIES = 6
_PAUSE_S, _PAUSE_S_MAX = 0.05, 1.6


@dataclass(frozen=True, slots=True)
class Won:
    """Our decision stands."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class Lost:
    """Another decision stands in the slot."""

    theirs: Decision


def publish(
    handle: TableHandle,
    state: TableState,
    draft: Decision,
    manifests: Mapping[str, object] | None = None,
    *,
    just_read: bool = False,
) -> Won | Lost:
    """Try to make ``draft`` the decision after ``state``.

    What hangs on the slot is filled in here: version, completion time, the link to the decision
    before, the ids of the schema and layout that the table has from then on, and the sums over its
    live files. Every decision comes by here, so this is where the contract is judged: the one at
    ``state`` is the one at the new version, or the slot is lost (INV-12).

    ``just_read``: the newest decision of ``state`` was read a moment ago, from the slot we lost.

    Raises:
        ContractError: this client was opened under another contract; nothing was written.
        UnsupportedFeatureError: writers must know a feature that this one does not.
        FeatureError: the table may not use what the draft uses.
        ClockUnavailableError: the store does not tell its time; nothing was written.
        TableNotFoundError: the table was deleted, replaced or cut off; nothing of ours is there.
        CorruptMetadataError: the newest decision is damaged; nothing was written.
        CommitOutcomeUnknownError: the store does not say; nothing may be deleted.
    """
    # A change of the contract is a decision too. If one comes after `state`, it takes the slot that
    # we try, and we lose it: so nothing is decided under a contract that has ended (INV-12).
    handle.require_contract(state.table.contract)
    require_writable(state)
    now_ms, where = handle.store.now_ms(), paths.slot(state.version)
    table = state.table
    if draft.table is not None:
        table = TableDef.from_dict(draft.table, where="the new definition")
    decision = draft.in_slot(
        table.spec,
        version=state.version + 1,
        completed_ms=after(now_ms, state.completed_ms, where=where),
        attempt=handle.ports.ids.nonce(),
        previous=state.checksum,
    )
    if table.published and (draft.table is not None or draft.restored is not None):
        require_atomic(handle.plain_store)
        _require_publishable(handle.store, state, table, draft)
    needed = features_of(draft, features_in_use(state, table), table.allowed or ())
    require_usable(state, needed.used, table)
    live = statistics_after_decision(handle.store, state, draft.changes)
    decision = replace(decision, features=needed.readers, writer_features=needed.writers, live=live)
    body = codec.encode(decision, manifests)
    won = replace(decision, checksum=sealed_checksum(body))
    handle.ports.observer.phase("publish", version=decision.version, instant=str(draft.instant))
    if not just_read:
        with suppress(StorageError):  # the look after the put decides
            handle.cache.require_same_table(state)
    return _put(handle, state, won, body)


def _require_publishable(store: Store, state: TableState, table: TableDef, draft: Decision) -> None:
    """Refuse a definition that other engines would read wrong with the files that are live then.

    Raises:
        PublishRefusedError: with what the format cannot say.
    """
    live = state.folded(store).live(state.version).select(["path", "schema_id"])
    removed = draft.changes.removed["path"].combine_chunks()
    kept = live.filter(pc.invert(pc.is_in(live["path"], value_set=removed)))
    ids = {*kept["schema_id"].unique().to_pylist()}
    ids |= {*draft.changes.added["schema_id"].unique().to_pylist()}
    found = [table.schemas[each] for each in ids]
    require_publishable(table.published, table.spec.schema, found)


def _put(handle: TableHandle, state: TableState, decision: Decision, body: bytes) -> Won | Lost:
    """Put a decision into its slot, and make sure that it stands in the table it was made for.

    That is looked at after the put. A look before it alone would leave a moment in which the table
    can be deleted and made again, and then our decision would be a stranger in the timeline of
    another table for good (RFC 0032). The look before it serves where only the newest slot went:
    once ours lies above the hole, a table that is an older copy looks like one that lost a slot. A
    slot of another timeline is waited for: its writer finds out as we do, and takes it away.
    """
    error: TableError | None = None
    backoff = handle.ports.backoff(_PAUSE_S, _PAUSE_S_MAX)
    slot, ours = paths.slot(decision.version), False
    for _ in range(_TRIES):
        try:
            # After an error the bytes may be in the slot all the same. Another try is safe: the
            # slot then has our `attempt`, and the read below recognises it (INV-10).
            ours = ours or handle.store.put_if_absent(slot, body)
        except StorageError as problem:
            error = problem
        try:
            theirs = None if ours else handle.cache.timeline.find(decision.version)
            ours = ours or (theirs is not None and theirs.attempt == decision.attempt)
            # The slot is lost only to a decision that continues the same history. Any other one is
            # of another timeline, and its writer takes it away: wait, and look again.
            if theirs is not None and not ours and theirs.previous == state.checksum:
                return Lost(theirs)
            handle.cache.require_same_table(state)
            if ours:
                return Won(decision)
        except StorageError as problem:
            error = problem
        except TableNotFoundError:
            _withdraw(handle, slot, body)
            raise
        except CorruptMetadataError as problem:
            if not ours:
                raise
            error = problem
            break
        backoff.pause()
    raise CommitOutcomeUnknownError(
        f"the store did not say whether version {decision.version} was committed by us",
        hint="nothing was deleted; when the store answers, use find_commit or `tablectl history`",
        instant=str(decision.instant),
        version=decision.version,
        commit_id=decision.commit_id,
    ) from error


def _withdraw(handle: TableHandle, slot: str, body: bytes) -> None:
    """Take our decision out of a timeline that it does not belong to.

    Nobody can have built on it there, because it does not continue what is below it. And nobody
    else deletes it, so between our look and the deletion the name is not given anew.
    """
    store = handle.plain_store
    with suppress(StorageError, CorruptMetadataError):  # `repair` finds what cannot be deleted
        if store.find(slot, size_max=codec.SLOT_BYTES_MAX) == body:
            store.delete([slot])


def free_time(instant_time: str, taken: frozenset[str]) -> str:
    """Return the instant time, or the next that nobody has completed under."""
    while instant_time in taken:
        before = time_ms(instant_time)
        instant_time = time_text(after(before, before, where=instant_time))
    return instant_time
