"""Whether a stream token continues what its application has applied (INV-09, RFC 0007, 0012).

Judged on the base and on each decision of the window that carries a token of the same
application, so that of several who race with one application one wins, and the others hear of it.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow.compute as pc

from plait.errors import EpochRewoundError, EpochUnknownError, OffsetGapError, StreamError
from plait.model.changes import Digest
from plait.model.decision import Token
from plait.model.stream import Position, find_gap
from plait.state.state import TableState
from plait.storage.port import Store
from plait.txn.refusal import contains, find_lost, undone_error

_SHOWN = 120
_NEW = (
    "to continue, restore the checkpoint that matches the table (tablectl stream audit); "
    "to write the rows again on purpose, use a new application name"
)


def sealed(token: Token, digest: Digest | None) -> Token:
    """Return a token with the digest of the rows that were staged for it."""
    return token if token.digest is not None else replace(token, digest=digest)


def find_applied(store: Store, state: TableState, token: Token) -> int | None:
    """Find the version at which this very token was applied; None if it is the next to come.

    Its epoch, its offsets and the digest of its rows must all be those that were applied. Where
    one side does not tell offsets or digest, the rest decides.

    Raises:
        EpochRewoundError: its epoch was applied with other offsets or other rows.
        EpochUnknownError: it does not follow the last epoch, or there is none to follow.
        OffsetGapError: it does not start where the last one ended.
        UndoneError: a restore undid it, or the last epoch of its stream, and no replay followed.
    """
    last = state.streams.get(token.application)
    lost = find_lost(state, token.application)
    if lost is not None:
        return _require_kept(store, state, token, lost)
    if last is None:
        if token.start:
            hint = (
                "the first epoch starts from ''; Stream.begin_at continues a stream from elsewhere"
            )
            raise _refusal(
                EpochUnknownError, token, None, "and the table knows none before it", hint
            )
        return None
    if token.epoch <= last.epoch:
        return _require_same(store, state, token, last)
    if token.epoch > last.epoch + 1:
        hint = "an epoch is missing; continue from the table's position"
        raise _refusal(EpochUnknownError, token, last.token, "but it is not the next one", hint)
    hint = "continue from the end of the table's last epoch"
    if token.start != last.end:
        raise _refusal(OffsetGapError, token, last.token, "but does not start there", hint)
    if (gap := find_gap(last.token, token)) is not None:
        source, ended, start = gap
        why = f"but source {source!r} starts at {_short(start)} instead of {_short(ended)}"
        raise _refusal(OffsetGapError, token, last.token, why, hint)
    return None


def _require_kept(store: Store, state: TableState, token: Token, lost: int) -> int:
    """Find a token that the table still contains, in a stream whose last position was undone."""
    found = _look_up(store, state, token)
    if found is not None:
        return _require_same(store, state, token, found)
    what = f"the position of stream {token.application!r}"
    raise undone_error(what, state, lost, token=token.to_dict())


def _require_same(store: Store, state: TableState, token: Token, last: Position) -> int:
    position = last if token.epoch == last.epoch else _look_up(store, state, token)
    if position is None:  # begin_at took the stream over after it
        why = "and is older than the first epoch that the table has of this stream"
        raise _refusal(EpochRewoundError, token, last.token, why, _NEW)
    applied = position.token
    if (token.start, token.end) != (applied.start, applied.end) or (
        token.offsets and applied.offsets and token.offsets != applied.offsets
    ):
        why = f"but was applied with other offsets in version {position.version}"
        raise _refusal(EpochRewoundError, token, last.token, why, _NEW, applied=applied)
    if token.digest and applied.digest and token.digest != applied.digest:
        why = (
            f"with {token.digest}, but was applied with other rows, {applied.digest}, "
            f"in version {position.version}"
        )
        raise _refusal(EpochRewoundError, token, last.token, why, _NEW, applied=applied)
    return position.version


def _look_up(store: Store, state: TableState, token: Token) -> Position | None:
    """Find an epoch that the table contains; raise UndoneError if it was undone."""
    rows = state.tokens(store)
    same = pc.and_(
        pc.equal(rows["application"], token.application), pc.equal(rows["epoch"], token.epoch)
    )
    undone: list[int] = []
    for row in rows.filter(same).to_pylist():
        version = int(row["version"])
        if contains(state, version):
            return Position(Token.from_dict(json.loads(row["token"])), version)
        undone.append(version)
    if undone:
        what = f"epoch {token.epoch} of stream {token.application!r}"
        raise undone_error(what, state, undone[-1], token=token.to_dict())
    return None


def _refusal(
    kind: type[StreamError],
    token: Token,
    last: Token | None,
    why: str,
    hint: str,
    *,
    applied: Token | None = None,
) -> StreamError:
    where = "" if last is None else f" after epoch {last.epoch}, which ended at {_short(last.end)}"
    span = f"from {_short(token.start)} to {_short(token.end)}"
    message = f"stream {token.application!r}: epoch {token.epoch} {span} arrived{where}, {why}"
    return kind(
        message,
        hint=hint,
        token=token.to_dict(),
        last=None if last is None else last.to_dict(),
        applied=None if applied is None else applied.to_dict(),
    )


def _short(offsets: str) -> str:
    return repr(offsets if len(offsets) <= _SHOWN else offsets[:_SHOWN] + "...")
