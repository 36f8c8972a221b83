"""Why a transaction cannot commit: the reasons as control flow, and as errors with their facts.

The conflict checker and the commit loop find out that an attempt is over, but only the transaction
knows what it has to clean up first: it publishes its rollback before it deletes a file. So they
raise one of the exceptions below with what they found, and the transaction turns it into the error
that the caller sees. The module also looks up whether a commit id was committed. What a restore
undid is neither reported as applied nor applied again unasked, since it may have been undone on
purpose (INV-16).
"""

from __future__ import annotations

from collections.abc import Collection

from plait.definition.policy import Verdict
from plait.errors import (
    CommitError,
    CommitRetriesExhaustedError,
    ConflictError,
    ContractError,
    IncompatibleConflictError,
    RetryableConflictError,
    RolledBackError,
    StreamError,
    UndoneError,
)
from plait.model.bucket import BucketId, partition_path
from plait.model.contract import Contract
from plait.model.decision import ReadSet
from plait.model.instant import Instant
from plait.state.state import TableState
from plait.storage.port import Store
from plait.txn.conflict import Conflict


def contains(state: TableState, version: int) -> bool:
    """Tell whether the table contains what a version committed: no restore undid it."""
    return state.lineage.contains(version, state.version)


def find_commit(store: Store, state: TableState, commit_id: str) -> int | None:
    """Return the version of a commit id that the table contains; None if it may be committed.

    Raises:
        UndoneError: a restore undid it, and no replay names it since.
    """
    reverted: list[int] = []
    for version in state.find_commits(store, commit_id):
        if contains(state, version):
            return version
        reverted.append(version)
    if not reverted:
        return None
    replays = [at for at, name in state.lineage.replays if name == commit_id]
    # A replay counts if it came after the newest commit that was undone, and if no restore undid
    # the replay itself.
    if any(contains(state, at) and at > reverted[0] for at in replays):
        return None
    what = f"commit id {commit_id!r}"
    raise undone_error(what, state, reverted[0], commit_id=commit_id)


def find_undone_position(state: TableState, application: str) -> int | None:
    """Return what decided where a stream continues, if a restore undid that version."""
    last = state.streams.get(application)
    since = state.lineage.restarts.get(application) if last is None else last.source
    return None if since is None or contains(state, since) else since


def require_contained(state: TableState, version: int) -> None:
    """Refuse to report a version as applied that a restore undid; raise UndoneError."""
    if version <= state.version and not contains(state, version):
        what = f"version {version}"
        raise undone_error(what, state, version)


def undone_error(what: str, state: TableState, version: int, **facts: object) -> UndoneError:
    """Say which restore undid a version, and how to go on."""
    restore = state.lineage.undone_by(version, state.version)
    message = f"{what} was committed in version {version}, and undone by the restore {restore}"
    hint = (
        "to write it again, decide so first: Table.versions.replay(); "
        "to have it back, restore the version before the restore"
    )
    return UndoneError(message, hint=hint, version=version, restore=restore, **facts)


_SAMPLE = 5


class AlreadyCommitted(Exception):  # noqa: N818 - control flow, not an error: the result is there
    """The instant or its commit id was committed meanwhile; that result is to be given back."""

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.version = version


class Ended(Exception):  # noqa: N818 - control flow: the transaction cleans up, then raises
    """Somebody else rolled the instant back."""

    def __init__(self, version: int, reason: str) -> None:
        super().__init__(version, reason)
        self.version, self.reason = version, reason


class ContractChanged(Exception):  # noqa: N818 - control flow: the transaction rolls back first
    """The table has another contract than at the base."""

    def __init__(self, contract: Contract) -> None:
        super().__init__(contract)
        self.contract = contract


class Obsolete(Exception):  # noqa: N818 - control flow: the transaction rolls back first
    """A rewrite has nothing left to publish: others were at the same rows."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Refused(Exception):  # noqa: N818 - control flow: the transaction rolls back first
    """The commit cannot go through; ``error`` is to be raised."""

    def __init__(self, error: CommitError | StreamError) -> None:
        super().__init__(error)
        self.error = error


def rolled_back(instant: Instant, version: int | None, reason: str) -> RolledBackError:
    """Tell that somebody else ended the instant."""
    where = "" if version is None else f" in version {version}"
    message = f"instant {instant} was rolled back{where}: {reason}"
    hint = "none of its changes are visible; run the write again"
    by = None if version is None else str(version)
    return RolledBackError(
        message, hint=hint, instant=str(instant), version=version, by=by, reason=reason
    )


def contract_changed(ours: Contract, theirs: Contract) -> ContractError:
    """Tell that the table has another contract now."""
    message = "the table's contract changed since this client opened it"
    hint = "open the table again"
    return ContractError(message, hint=hint, ours=ours.to_dict(), theirs=theirs.to_dict())


def contract_differs(expected: Contract, found: Contract) -> ContractError:
    """Tell that the table has another contract than the caller takes it to have."""
    message = f"expected the contract {expected.to_dict()}, but the table has {found.to_dict()}"
    hint = "omit the expectation, or change the contract with Table.alter.contract()"
    return ContractError(message, hint=hint, ours=expected.to_dict(), theirs=found.to_dict())


def retries_exhausted(
    last: ConflictError | None, *, attempts: int, elapsed_s: float
) -> CommitRetriesExhaustedError:
    """Tell that the table allows no more attempts."""
    reason = last.message if last else "other writers took every slot"
    message = f"gave up after {attempts} attempts: {reason}"
    hint = "increase commit.retries or commit.deadline, or write less at once"
    return CommitRetriesExhaustedError(
        message, hint=hint, conflict=last, attempts=attempts, elapsed_ms=int(elapsed_s * 1000)
    )


def conflict_error(
    ours: Instant, conflicts: list[Conflict], read_set: ReadSet | None = None
) -> ConflictError:
    """Say who was first, where, and what it means: the worst of them first.

    Args:
        ours: which attempt it was.
        conflicts: what it met.
        read_set: what its rows were computed from; the same rows written again lose an update.
    """
    order = list(Verdict)
    conflicts = sorted(conflicts, key=lambda each: -order.index(each.verdict))
    first = conflicts[0]
    theirs = first.theirs
    shown = _places(first.buckets)
    retry = first.verdict is not Verdict.INCOMPATIBLE
    message = (
        f"version {theirs.version} ({theirs.operation} by {theirs.instant}) was first"
        + (f" in {', '.join(shown[:_SAMPLE])}" if shown else "")
        + (f" and {len(shown) - _SAMPLE} more" if len(shown) > _SAMPLE else "")
    )
    kind = RetryableConflictError if retry else IncompatibleConflictError
    hint = "run the write again, or use on_conflict='retry'"
    if not retry:
        hint = "check the table before you write again"
    elif read_set is not None and read_set.explicit:
        hint = (
            f"its rows depend on a read of version {read_set.version}; read and compute them again"
        )
    return kind(
        f"{message}: {first.reason}",
        hint=hint,
        ours=str(ours),
        theirs=str(theirs.instant),
        version=theirs.version,
        versions=[c.theirs.version for c in conflicts],
        file_groups=_places({b for c in conflicts for b in c.buckets}),
        verdict=first.verdict.value,
        operation=theirs.operation.value,
    )


def _places(buckets: Collection[BucketId]) -> list[str]:
    return [f"{partition_path(p)}/{bucket}" for p, bucket in sorted(buckets, key=str)]
