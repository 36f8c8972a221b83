"""Exit codes: which error ends ``tablectl`` in which code, in one table."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

import click

from plait import errors
from plait.cli.hints import in_commands
from plait.model.plain import Plain


class Exit(enum.IntEnum):
    """How ``tablectl`` ends. The numbers never change."""

    DONE = 0
    BUG = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    LOCK = 5
    UNKNOWN = 6
    FORMAT = 7
    PROBLEMS = 8
    REFUSED = 9
    STORAGE = 10
    INTERRUPTED = 130


MEANING: Mapping[Exit, str] = {
    Exit.DONE: "done; also when there was nothing to do",
    Exit.BUG: "a bug in Plait",
    Exit.USAGE: "the command, an option or a value is wrong, or an extra is not installed",
    Exit.NOT_FOUND: "no such table, version, instant or error code",
    Exit.CONFLICT: "another commit was first; run it again",
    Exit.LOCK: "the lock was not obtained in time",
    Exit.UNKNOWN: "the store did not say whether the commit succeeded; see `tablectl history`",
    Exit.FORMAT: "the table is damaged, or was written by a newer Plait",
    Exit.PROBLEMS: "`verify` found problems, or a checked result is wrong",
    Exit.REFUSED: "refused by a safety rule; nothing was done",
    Exit.STORAGE: "the store failed",
    Exit.INTERRUPTED: "interrupted",
}


class RefusedError(Exception):
    """A safety rule of ``tablectl`` itself refuses the command."""

    code = "refused"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class CheckFailedError(RefusedError):
    """A result that ``tablectl`` checked is wrong."""

    code = "wrong"


class NotKnownError(RefusedError):
    """Something with the given name does not exist."""

    code = "not_found"


EXITS: Mapping[type[BaseException], Exit] = {
    KeyboardInterrupt: Exit.INTERRUPTED,
    click.Abort: Exit.INTERRUPTED,
    click.ClickException: Exit.USAGE,
    RefusedError: Exit.REFUSED,
    CheckFailedError: Exit.PROBLEMS,
    NotKnownError: Exit.NOT_FOUND,
    errors.InvariantError: Exit.BUG,
    errors.OptionError: Exit.USAGE,
    errors.MissingDependencyError: Exit.USAGE,
    errors.PredicateError: Exit.USAGE,
    errors.SchemaError: Exit.USAGE,
    errors.ConsentError: Exit.REFUSED,
    errors.FeatureError: Exit.REFUSED,
    errors.PolicyError: Exit.REFUSED,
    errors.DuplicateKeyError: Exit.USAGE,
    errors.TableNotFoundError: Exit.NOT_FOUND,
    errors.TableExistsError: Exit.REFUSED,
    errors.NamespaceNotEmptyError: Exit.REFUSED,
    errors.InstantError: Exit.NOT_FOUND,
    errors.IllegalTransitionError: Exit.REFUSED,
    errors.FormatError: Exit.FORMAT,
    errors.ContractError: Exit.REFUSED,
    errors.StreamError: Exit.REFUSED,
    errors.CommitError: Exit.CONFLICT,
    errors.CommitOutcomeUnknownError: Exit.UNKNOWN,
    errors.UndoneError: Exit.REFUSED,
    errors.TransactionClosedError: Exit.BUG,
    errors.LockError: Exit.LOCK,
    errors.ReplicationError: Exit.STORAGE,
    errors.RepushError: Exit.REFUSED,
    errors.PublishRefusedError: Exit.REFUSED,
    errors.PlanStaleError: Exit.CONFLICT,
    errors.StorageError: Exit.STORAGE,
}
"""The nearest class decides. Anything else is a bug."""


def exit_for(kind: type[BaseException]) -> Exit:
    """Return the exit code for a class of errors; the nearest class in the table decides.

    >>> exit_for(errors.RetryableConflictError)
    <Exit.CONFLICT: 4>
    """
    return next((EXITS[base] for base in kind.__mro__ if base in EXITS), Exit.BUG)


@dataclass(frozen=True, slots=True)
class Failure(Plain):
    """An error as ``tablectl`` shows it."""

    KEYS = "error=code type=kind message hint retry exit facts"

    code: str
    message: str
    hint: str
    exit: Exit
    kind: str
    retry: str = errors.Retry.NEVER.value
    facts: dict[str, object] = field(default_factory=dict)


def failure_of(error: BaseException, *, command: str = "") -> Failure:
    """Describe any error that ended a command."""
    kind, code = type(error).__name__, exit_for(type(error))
    if isinstance(error, errors.TableError):
        plain = error.to_dict()
        facts = plain["facts"]
        return Failure(
            error.code,
            error.message,
            in_commands(error.hint) or f"tablectl explain {error.code}",
            code,
            kind,
            error.retry.value,
            facts if isinstance(facts, dict) else {},
        )
    if isinstance(error, RefusedError):
        return Failure(error.code, error.message, error.hint, code, kind)
    if code is Exit.INTERRUPTED:
        hint = "a commit in progress is either decided or rolled back; see `tablectl timeline`"
        return Failure("interrupted", "interrupted", hint, code, kind)
    if isinstance(error, click.ClickException):
        hint = f"see `tablectl {command} --help`" if command else "see `tablectl --help`"
        return Failure("usage", error.format_message(), hint, code, kind)
    hint = "this is a bug in Plait: run the command with --debug and report the output"
    return Failure("bug", f"{kind}: {error}", hint, Exit.BUG, kind)
