"""What was applied before: commit ids, and epochs of streams (INV-09, RFC 0007, 0012).

Whether a token continues what its application has applied is judged on the base and on each
decision of the window that carries a token of the same application. So if several writers race
with one application, one of them wins and the others get an error.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace

import pyarrow.compute as pc

from plait.errors import (
    EpochRewoundError,
    EpochUnknownError,
    InvariantError,
    OffsetGapError,
    StreamError,
    UndoneError,
)
from plait.model.changes import Digest, WriteStats
from plait.model.decision import CommitResult, Token
from plait.model.instant import Instant
from plait.model.request import WriteRequest
from plait.model.stream import Position, find_gap
from plait.state.state import TableState
from plait.storage.port import Store
from plait.txn.refusal import (
    contains,
    find_commit,
    find_undone_position,
    require_contained,
    undone_error,
)
from plait.txn.table_handle import TableHandle

_SHOWN = 120
_NEW = (
    "to continue, restore the checkpoint that matches the table (tablectl stream audit); "
    "to write the rows again on purpose, use a new application name"
)


def with_digest(token: Token, digest: Digest | None) -> Token:
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
    lost = find_undone_position(state, token.application)
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
    # An old epoch may be a repetition: it is answered by its first result, never applied again
    # (INV-09).
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
    reverted: list[int] = []
    for row in rows.filter(same).to_pylist():
        version = int(row["version"])
        if contains(state, version):
            return Position(Token.from_dict(json.loads(row["token"])), version)
        reverted.append(version)
    if reverted:
        what = f"epoch {token.epoch} of stream {token.application!r}"
        raise undone_error(what, state, reverted[-1], token=token.to_dict())
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
    return kind(
        f"stream {token.application!r}: epoch {token.epoch} {span} arrived{where}, {why}",
        hint=hint,
        token=token.to_dict(),
        last=None if last is None else last.to_dict(),
        applied=None if applied is None else applied.to_dict(),
    )


def _short(offsets: str) -> str:
    return repr(offsets if len(offsets) <= _SHOWN else offsets[:_SHOWN] + "...")


def find_result(handle: TableHandle, commit_id: str) -> CommitResult | None:
    """Return the result of a commit id; None if it did not commit.

    Raises:
        UndoneError: a restore undid it.
    """
    version = find_commit(handle.store, handle.cache.refresh(), commit_id)
    return None if version is None else result_at(handle, version)


def find_epoch(handle: TableHandle, token: Token) -> CommitResult | None:
    """Return the result of this epoch of a stream; None if it is the next one.

    Raises:
        StreamError: it does not continue the stream.
        UndoneError: a restore undid it, or the epoch before it.
    """
    with contextlib.suppress(StreamError, UndoneError):
        if find_applied(handle.store, handle.cache.known(), token) is None:
            return None
    # What is known may be old: an epoch may have been applied since, or undone (INV-16).
    version = find_applied(handle.store, handle.cache.refresh(), token)
    return None if version is None else result_at(handle, version)


def result_at(handle: TableHandle, version: int) -> CommitResult:
    """Return the result of the commit of a version.

    Raises:
        UndoneError: a restore undid it.
    """
    state = handle.cache.known()
    require_contained(state, version)
    columns = ("version", "instant", "stats")
    rows = state.commits(handle.store, since=version - 1, columns=columns)
    found = rows.filter(pc.equal(rows["version"], version)).to_pylist()
    if not found:
        raise InvariantError(f"version {version} is not among the commits")
    stats = WriteStats(**json.loads(found[0]["stats"]))
    return CommitResult(version, Instant.parse(found[0]["instant"]), stats)


def first_result(handle: TableHandle, request: WriteRequest, version: int) -> CommitResult:
    """Return the result of the same commit id or token, which another commit had meanwhile.

    Raises:
        UndoneError: a restore undid it.
    """
    try:
        return result_at(handle, version)
    except UndoneError:
        if _is_free(handle, request):
            raise replayed_meanwhile(request) from None
        raise


def _is_free(handle: TableHandle, request: WriteRequest) -> bool:
    """Tell whether a commit id or token may be committed, as far as is known."""
    store, state = handle.store, handle.cache.known()
    with contextlib.suppress(StreamError, UndoneError):
        if request.token is not None:
            return find_applied(store, state, request.token) is None
        return (
            request.commit_id is not None and find_commit(store, state, request.commit_id) is None
        )
    return False


def replayed_meanwhile(request: WriteRequest) -> UndoneError:
    """Say that a write was applied and undone, and may be applied again, all while it went on."""
    token = request.token
    what = f"commit id {request.commit_id!r}" if token is None else f"epoch {token.epoch}"
    message = f"{what} was applied by another writer, and undone meanwhile"
    hint = "nothing was written; a replay allows it again, so send it again"
    facts = {"commit_id": request.commit_id} if token is None else {"token": token.to_dict()}
    return UndoneError(message, hint=hint, **facts)
