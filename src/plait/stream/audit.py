"""Prove from the timeline alone that the epochs of an application follow each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from plait.model.decision import Decision, Token
from plait.model.stream import Audit, EpochEntry, StreamProblem, find_gap
from plait.state.lineage import Lineage
from plait.txn.table_handle import TableHandle


def audit(handle: TableHandle, application: str) -> Audit:
    """Read every decision, and check the tokens of one application against each other."""
    head = handle.cache.refresh().version
    return audit_of(application, handle.cache.timeline.load_after(-1, limit=head + 1))


def audit_of(application: str, decisions: Iterable[Decision]) -> Audit:
    """Check the tokens that decisions, oldest first, hold for an application."""
    epochs: list[EpochEntry] = []
    problems: list[StreamProblem] = []
    last: Token | None = None
    lineage, head = Lineage(), 0
    for decision in decisions:
        lineage, head = lineage.apply(decision), decision.version
        for back in () if decision.replayed is None else decision.replayed.applications:
            if back.application == application:
                # A replay sets the stream back on purpose: the next token must continue from there.
                last = back.token
        for token in decision.tokens:
            if token.application != application:
                continue
            epochs.append(_entry(token, decision))
            kind = break_of(last, token)
            if kind is not None:
                problems.append(
                    StreamProblem(kind, decision.version, describe_break(kind, last, token))
                )
            last = token
    marked = [replace(each, undone_by=lineage.undone_by(each.version, head)) for each in epochs]
    return Audit(application, tuple(marked), tuple(problems))


def _entry(token: Token, decision: Decision) -> EpochEntry:
    return EpochEntry(
        token.epoch,
        token.start,
        token.end,
        decision.version,
        decision.instant,
        decision.completed_ms,
        decision.stats.rows_in,
        token.offsets,
        token.digest,
    )


def break_of(last: Token | None, token: Token) -> str | None:
    """Return how a token fails to continue the last one; None if it continues it."""
    if last is None:
        return "gap" if token.start else None
    if token == last:
        return "repeat"
    if token.epoch <= last.epoch:
        return "rewind"
    if token.epoch > last.epoch + 1:
        return "jump"
    joined = token.start == last.end and find_gap(last, token) is None
    return None if joined else "gap"


def describe_break(kind: str, last: Token | None, token: Token) -> str:
    """Describe such a break."""
    before = "the beginning" if last is None else f"epoch {last.epoch}, which ended at {last.end!r}"
    text = f"{kind}: epoch {token.epoch} from {token.start!r} to {token.end!r} follows {before}"
    gap = find_gap(last, token) if last is not None and kind == "gap" else None
    if gap is None:
        return text
    source, ended, start = gap
    return f"{text}; source {source!r} ended at {ended!r} and goes on at {start!r}"
