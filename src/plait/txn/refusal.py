"""Why a transaction cannot commit, as errors with their facts."""

from __future__ import annotations

from plait.errors import (
    CommitError,
    CommitRetriesExhaustedError,
    ConflictError,
    ContractError,
    RolledBackError,
    StreamError,
)
from plait.model.contract import Contract
from plait.model.instant import Instant


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
    hint = "omit the expectation, or change the contract with Table.change_contract"
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
