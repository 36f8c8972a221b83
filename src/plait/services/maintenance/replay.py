"""Replay: let streams and commit ids that restores undid be applied again (RFC 0018)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import pyarrow.compute as pc

from plait.errors import OptionError
from plait.model.decision import Decision, Replayed, SetBack, Token
from plait.model.instant import Action, Operation
from plait.model.plain import Plain
from plait.state.lineage import Versions
from plait.state.state import TableState
from plait.storage.port import Store
from plait.txn.service import publish_service
from plait.txn.table_handle import TableHandle, client


@dataclass(frozen=True, slots=True)
class ReplayPlan(Plain):
    """What a replay lets be applied again, as of a version."""

    version: int
    applications: tuple[SetBack, ...]
    """Streams, each with the epoch after which it continues."""
    commit_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReplayReport(Plain):
    """The result of a replay."""

    plan: ReplayPlan
    version: int | None
    """The version of its decision; None if there was nothing to decide."""


def plan_replay(
    handle: TableHandle,
    applications: Iterable[str] | None = None,
    commit_ids: Iterable[str] | None = None,
) -> ReplayPlan:
    """Plan a replay; write nothing. With neither argument: of everything that is undone.

    Raises:
        OptionError: nothing of that name is undone.
    """
    return _plan(handle, handle.cache.refresh(), applications, commit_ids)


def replay(
    handle: TableHandle,
    applications: Iterable[str] | None = None,
    commit_ids: Iterable[str] | None = None,
) -> ReplayReport:
    """Let streams continue after the last epoch that the table contains, and reuse commit ids.

    The rows that were undone do not come back by themselves: the jobs send them again. A restore
    may undo a replay too; then the stream stops once more.

    Raises:
        OptionError: nothing of that name is undone.
        CommitOutcomeUnknownError: the store does not say.
    """
    applications = None if applications is None else tuple(applications)
    commit_ids = None if commit_ids is None else tuple(commit_ids)
    done: list[ReplayPlan] = []

    def draft(state: TableState) -> Decision | None:
        plan = _plan(handle, state, applications, commit_ids)
        done[:] = [plan]
        if not (plan.applications or plan.commit_ids):
            return None
        return Decision(
            instant=handle.new_instant(state),
            action=Action.REPLAY,
            operation=Operation.REPLAY,
            base=state.version,
            replayed=Replayed(plan.applications, plan.commit_ids),
            client=client(),
        )

    decision = publish_service(handle, draft)
    return ReplayReport(done[0], None if decision is None else decision.version)


def _plan(
    handle: TableHandle,
    state: TableState,
    applications: Iterable[str] | None,
    commit_ids: Iterable[str] | None,
) -> ReplayPlan:
    every = applications is None and commit_ids is None
    kept = state.lineage.spans(state.version)
    lost = lost_streams(state, kept)
    chosen = lost if every else _require_among("applications", applications or (), lost)
    reverted = undone_commit_ids(handle.store, state, kept) if every or commit_ids else ()
    ids = reverted if every else _require_among("commit_ids", commit_ids or (), reverted)
    return ReplayPlan(state.version, set_back(handle.store, state, chosen, kept), ids)


def _require_among(key: str, names: Iterable[str], reverted: Collection[str]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(names))
    for name in names:
        if name not in reverted:
            message = f"{key} names {name!r}, which no restore undid"
            known = ", ".join(sorted(reverted)[:5]) or "none"
            raise OptionError(message, hint=f"undone: {known}", key=key, value=name)
    return names


def lost_streams(state: TableState, kept: Collection[Versions]) -> tuple[str, ...]:
    """Return the applications whose position is of none of these versions, by name."""
    since = {name: position.source for name, position in state.streams.items()}
    since |= state.lineage.restarts
    return tuple(sorted(name for name, at in since.items() if not _inside(at, kept)))


def set_back(
    store: Store, state: TableState, applications: Collection[str], kept: Collection[Versions]
) -> tuple[SetBack, ...]:
    """Return for each application its last token of these versions."""
    if not applications:
        return ()
    rows = state.tokens(store)
    last: dict[str, SetBack] = {name: SetBack(name) for name in applications}
    columns = (rows[name].to_pylist() for name in ("application", "version", "token"))
    for name, version, text in zip(*columns, strict=True):
        known = last.get(name)
        if known is not None and _inside(version, kept) and version > (known.version or -1):
            last[name] = SetBack(name, Token.from_dict(json.loads(text)), version)
    return tuple(last[name] for name in sorted(last))


def undone_commit_ids(
    store: Store, state: TableState, kept: Collection[Versions]
) -> tuple[str, ...]:
    """Return the commit ids that raise UndoneError if the table contains these versions."""
    rows = state.commits(store)
    named = rows.filter(pc.is_valid(rows["commit_id"]))
    newest: dict[str, int] = {}
    contained: set[str] = set()
    pairs = zip(named["commit_id"].to_pylist(), named["version"].to_pylist(), strict=True)
    for commit_id, version in pairs:
        newest[commit_id] = max(version, newest.get(commit_id, -1))
        if _inside(version, kept):
            contained.add(commit_id)
    allowed = {name: at for at, name in state.lineage.replays if _inside(at, kept)}
    return tuple(
        sorted(
            name
            for name, at in newest.items()
            if name not in contained and allowed.get(name, -1) <= at
        )
    )


def _inside(version: int, spans: Iterable[Versions]) -> bool:
    return any(first <= version <= last for first, last in spans)
