"""Explain the conflicts of one instant, from the timeline."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.compute as pc

from plait.errors import FormatError, InstantNotFoundError, StorageError
from plait.model.bucket import partition_path
from plait.model.decision import Decision
from plait.model.instant import Instant
from plait.model.plain import Plain
from plait.state.events import ends
from plait.state.state import TableState
from plait.txn.conflict import touched_buckets
from plait.txn.keys import Keys
from plait.txn.table_handle import TableHandle

_SAMPLE = 5


@dataclass(frozen=True, slots=True)
class ExplainedConflict(Plain):
    """One conflict: the commit that was first, and the verdict."""

    version: int
    winner: str
    """The instant of the commit that was first."""
    operation: str
    verdict: str
    """``rebase``: the buckets were staged again. ``retry``: only with the caller's consent."""
    reason: str
    buckets: tuple[str, ...]
    """The first few buckets in conflict."""
    bucket_count: int
    keys: tuple[dict[str, object], ...]
    """Some record keys that both wrote, as far as the winner's files still show them."""


@dataclass(frozen=True, slots=True)
class Explanation(Plain):
    """The conflicts and the outcome of an instant."""

    KEYS = "instant version outcome reason attempts redone rebased conflicts=meetings"

    instant: Instant
    version: int
    outcome: str
    """``committed`` or ``rolled_back``."""
    reason: str
    """The reason of the rollback; empty for a commit."""
    attempts: int
    redone: int
    """The number of rounds that staged buckets again."""
    rebased: int
    """The number of buckets that were staged again, counted each time."""
    meetings: tuple[ExplainedConflict, ...]
    """The last few conflicts, oldest first."""


def explain(handle: TableHandle, instant: Instant) -> Explanation:
    """Return the conflicts and the outcome of an instant.

    Raises:
        InstantNotFoundError: nothing was decided about it.
    """
    state = handle.cache.refresh()
    decision = _decision_of(handle, state, instant)
    facts, ended = decision.client, decision.find_ended(instant)
    recorded = facts.get("conflicts")
    conflicts = recorded if isinstance(recorded, list) else []
    return Explanation(
        instant,
        decision.version,
        "committed" if ended is None else "rolled_back",
        "" if ended is None else ended.reason,
        _count(facts, "attempts"),
        _count(facts, "redone"),
        _count(facts, "rebased"),
        tuple(_meeting(handle, state, each) for each in conflicts if isinstance(each, dict)),
    )


def _decision_of(handle: TableHandle, state: TableState, instant: Instant) -> Decision:
    rows = state.commits(handle.store)
    mine = rows.filter(pc.or_(ends(rows, instant), pc.ends_with(rows["instant"], instant.nonce)))
    version = mine["version"][0].as_py() if mine.num_rows else None
    decision = None if version is None else handle.cache.timeline.find(version)
    if decision is None:
        message = f"there is no decision about instant {instant}"
        hint = "`tablectl timeline` lists decided and pending instants"
        raise InstantNotFoundError(message, hint=hint, instant=str(instant))
    return decision


def _meeting(
    handle: TableHandle, state: TableState, recorded: dict[str, object]
) -> ExplainedConflict:
    buckets, hashes = recorded.get("buckets"), recorded.get("keys")
    version = _count(recorded, "version")
    names = tuple(map(str, buckets)) if isinstance(buckets, list) else ()
    keys = _keys(handle, state, version, names, hashes if isinstance(hashes, list) else [])
    return ExplainedConflict(
        version,
        str(recorded.get("instant", "")),
        str(recorded.get("operation", "")),
        str(recorded.get("verdict", "")),
        str(recorded.get("reason", "")),
        names,
        _count(recorded, "bucket_count"),
        tuple(keys),
    )


def _keys(
    handle: TableHandle,
    state: TableState,
    version: int,
    names: tuple[str, ...],
    hashes: list[object],
) -> list[dict[str, object]]:
    """Find the keys of hashes in the files of the winner, which may be deleted."""
    wanted = {int(str(text), 16) for text in hashes}
    if not wanted:
        return []
    try:
        winner = handle.cache.timeline.find(version)
        if winner is None:
            return []
        keys = Keys(handle.store, state.table.spec, state.table.schemas)
        rows: list[dict[str, object]] = []
        for bucket in sorted(touched_buckets(winner.changes), key=str):
            if f"{partition_path(bucket[0])}/{bucket[1]}" in names:
                rows += keys.rows(winner.changes, bucket, wanted)
        return rows[:_SAMPLE]
    except (FormatError, StorageError):
        return []


def _count(facts: dict[str, object], name: str) -> int:
    value = facts.get(name, 0)
    return value if isinstance(value, int) else 0
