"""Look up the results of commit ids and stream epochs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pyarrow.compute as pc

from plait.arrow.engine import sum_removals
from plait.engine import Engine
from plait.errors import (
    CommitOutcomeUnknownError,
    CorruptMetadataError,
    InvariantError,
    StreamError,
    UndoneError,
)
from plait.model.changes import Digest, WriteStats
from plait.model.decision import CommitResult, Token
from plait.model.instant import Instant
from plait.model.request import WritePlan, WriteRequest
from plait.txn.refusal import find_commit, require_contained
from plait.txn.table_handle import TableHandle
from plait.txn.tokens import find_applied
from plait.txn.transaction import AlreadyCommitted, OptimisticTransaction
from plait.write.request import plan_of


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


@dataclass(slots=True)
class Replay:
    """An epoch that the table already has: its rows are summed up and not written."""

    handle: TableHandle
    request: WriteRequest
    token: Token
    digest: Digest = field(default_factory=Digest)

    def write(self, engine: Engine, data: object) -> None:
        """Sum rows up."""
        self.digest += engine.digest(data, self._plan())

    def remove(self, keys: object) -> None:
        """Sum up keys that are removed."""
        self.digest += sum_removals(keys, self._plan())

    def _plan(self) -> WritePlan:
        handle, known = self.handle, self.handle.cache.known()
        return plan_of(self.request, known.table, handle.store.spec, handle.new_instant(known))

    def result(self) -> CommitResult:
        """Return the result of the epoch.

        Raises:
            EpochRewoundError: it was applied with other rows.
            UndoneError: a restore undid it meanwhile, and a replay lets it be applied again.
        """
        result = find_epoch(self.handle, replace(self.token, digest=self.digest))
        if result is None:
            raise _let_through(self.request)
        return result


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
        message = f"version {version} is not among the commits"
        raise InvariantError(message)
    stats = WriteStats(**json.loads(found[0]["stats"]))
    return CommitResult(version, Instant.parse(found[0]["instant"]), stats)


def _first_result(handle: TableHandle, request: WriteRequest, version: int) -> CommitResult:
    """Return the result of the same commit id or token, which another commit had meanwhile.

    Raises:
        UndoneError: a restore undid it.
    """
    try:
        return result_at(handle, version)
    except UndoneError:
        if _is_free(handle, request):
            raise _let_through(request) from None
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


def _let_through(request: WriteRequest) -> UndoneError:
    """Say that a write was applied and undone, and may be applied again, all while it went on."""
    token = request.token
    what = f"commit id {request.commit_id!r}" if token is None else f"epoch {token.epoch}"
    message = f"{what} was applied by another writer, and undone meanwhile"
    hint = "nothing was written; a replay allows it again, so send it again"
    facts = {"commit_id": request.commit_id} if token is None else {"token": token.to_dict()}
    return UndoneError(message, hint=hint, **facts)


def commit_or_abort(
    handle: TableHandle,
    txn: OptimisticTransaction,
    commit: Callable[[], CommitResult],
    wrote: Callable[[], bool],
) -> CommitResult:
    """Commit. Return the first result if it was applied before; roll back after an error.

    ``wrote`` stops all writing, then returns whether a file may be on the store.

    A commit whose outcome is unknown is left to recovery, because it may have landed (INV-10).
    """
    try:
        with txn.standing():
            return commit()
    except AlreadyCommitted as applied:
        txn.abort("its commit id or token was applied meanwhile", wrote=wrote())
        return _first_result(handle, txn.request, applied.version)
    except CommitOutcomeUnknownError:
        raise
    except CorruptMetadataError:
        txn.abort("a file was damaged or missing", wrote=wrote())
        raise
    except BaseException as error:
        txn.abort(f"{type(error).__name__} while committing", wrote=wrote())
        raise
