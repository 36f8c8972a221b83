"""Whether a stream token continues what its application has applied (INV-09, RFC 0007).

Judged on the base and on each decision of the window that carries a token of the same
application, so that of several who race with one application one wins, and the others hear of it.
"""

from __future__ import annotations

import pyarrow.compute as pc

from plait.errors import EpochRewoundError, EpochUnknownError, OffsetGapError, StreamError
from plait.model.decision import Token
from plait.state.state import State
from plait.storage.port import Store

_SHOWN = 120


def find_applied(store: Store, state: State, token: Token) -> int | None:
    """Find the version at which this very token was applied; None if it is the next to come.

    Raises:
        EpochRewoundError: its epoch was applied with other offsets.
        EpochUnknownError: it does not follow the last epoch, or there is none to follow.
        OffsetGapError: it does not start where the last one ended.
    """
    last = state.streams.get(token.application)
    if last is None:
        if token.start:
            hint = "the first epoch starts from ''; Stream.begin_at takes over what is elsewhere"
            raise _refusal(
                EpochUnknownError, token, None, "and the table knows none before it", hint
            )
        return None
    if token == last.token:
        return last.version
    if token.epoch <= last.epoch:
        return _look_up(store, state, token, last.token)
    if token.epoch > last.epoch + 1:
        hint = "an epoch in between is missing: go on from the table's position"
        raise _refusal(EpochUnknownError, token, last.token, "which is not the next", hint)
    if token.start != last.end:
        hint = "go on from where the table's last epoch ended"
        raise _refusal(OffsetGapError, token, last.token, "which does not start there", hint)
    return None


def _look_up(store: Store, state: State, token: Token, last: Token) -> int:
    rows = state.tokens(store)
    same = pc.and_(
        pc.equal(rows["application"], token.application), pc.equal(rows["epoch"], token.epoch)
    )
    for row in rows.filter(same).to_pylist():
        if (row["start"], row["end"]) == (token.start, token.end):
            return int(row["version"])
    hint = "another writer has this application's name, or the source was reset: use a new name"
    raise _refusal(EpochRewoundError, token, last, "which was applied with other offsets", hint)


def _refusal(
    kind: type[StreamError], token: Token, last: Token | None, why: str, hint: str
) -> StreamError:
    where = "" if last is None else f" after epoch {last.epoch}, which ended at {_short(last.end)}"
    span = f"from {_short(token.start)} to {_short(token.end)}"
    message = f"stream {token.application!r}: epoch {token.epoch} {span} came{where}, {why}"
    return kind(
        message,
        hint=hint,
        token=token.to_dict(),
        last=None if last is None else last.to_dict(),
    )


def _short(offsets: str) -> str:
    return repr(offsets if len(offsets) <= _SHOWN else offsets[:_SHOWN] + "...")
