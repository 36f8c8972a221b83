"""The whole error tree of Plait.

Every error states what happened, to what, and what to do, and carries its facts as attributes::

    TableError                            code, retry, hint; facts as attributes; pickles
    |- OptionError(ValueError)            unknown or bad option
    |- TableNotFoundError                 no table at this place
    |- TableExistsError                   a table is there already
    |- MissingDependencyError(ImportError)  an extra is not installed
    |- FormatError                        the bytes of the table
    |  |- UnsupportedFeatureError         written by a newer Plait
    |  `- CorruptMetadataError            path, expected, found
    |- SchemaError                        columns and values
    |  |- SchemaMismatchError             the input does not have the table's columns
    |  `- BadRecordError                  column, sample
    |- PredicateError(ValueError)         a predicate that cannot be understood
    |- ContractError                      ours and the table's
    |  `- SingleWriterError               who is live: host, pid, since when
    |- PolicyError                        a conflict policy failed, or answered nonsense
    |- DuplicateKeyError                  keys (sample), partition
    |- StreamError
    |  |- DeletedRowsError                rows that a stream of rows cannot say
    |  |- CoordinatorFencedError
    |  |- EpochRewoundError
    |  |- EpochUnknownError
    |  `- OffsetGapError
    |- InstantError
    |  |- InstantNotFoundError
    |  |- InstantExpiredError             older than what the table retains
    |  `- IllegalTransitionError          rollback of the committed, commit of the rolled back
    |- CommitError
    |  |- ConflictError                   ours, theirs, file groups, verdict
    |  |  |- RetryableConflictError
    |  |  `- IncompatibleConflictError
    |  |- CommitRetriesExhaustedError     the last conflict, attempts, elapsed_ms
    |  |- CommitOutcomeUnknownError       nothing was deleted; look again
    |  |- RolledBackError                 by whom, when, why
    |  `- TransactionClosedError
    |- LockError
    |  |- LockTimeoutError(TimeoutError)
    |  `- LockUnavailableError
    |- PlanStaleError                     the table moved on since a service planned
    `- StorageError(OSError)
       |- CapabilityMissingError          e.g. the store lacks put-if-absent
       `- ClockUnavailableError           the store does not tell its time, or an absurd one

``InvariantError`` stands apart: it is a defect of Plait, never of its use.
"""

from __future__ import annotations

import enum
import re
from typing import ClassVar


class Retry(enum.StrEnum):
    """What a caller may do after an error."""

    NEVER = "never"
    SAME = "same"
    REPLAN = "replan"
    CHECK_FIRST = "check_first"


_SECRET = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]*)?://"
    r"(?:[^/?#\s'\"]+|[^/?#\s'\"@:]+:(?!\d+(?:\W|$))[^'\"\n]{1,200})@"
)
"""A user before a server; the password may hold what should have been encoded, a port is none."""
_SIGNED = re.compile(
    r"([?&;][\w.-]*(?:sig|token|secret|passw|credential|key)[\w.-]*=)[^&\s'\"]+", re.IGNORECASE
)
"""A parameter of a URL that lets in whoever has it, such as that of a link that somebody signed."""
_CONTAINER = re.compile(r"(abfss?|wasbs?)://[^:/@]+@", re.IGNORECASE)
"""What stands there is no user."""


def redacted(text: str) -> str:
    """Return a text without the user names, passwords and signatures of the URLs in it.

    >>> redacted("cannot open sftp://me:secret@host/table")
    'cannot open sftp://***@host/table'
    >>> redacted("abfss://container@account.dfs.core.windows.net/t")
    'abfss://container@account.dfs.core.windows.net/t'
    """
    return _SIGNED.sub(r"\1***", _SECRET.sub(_hidden, text))


def _hidden(found: re.Match[str]) -> str:
    return found[0] if _CONTAINER.fullmatch(found[0]) else f"{found[1] or ''}://***@"


class TableError(Exception):
    """Base of every error that Plait raises on purpose.

    Facts are given as keywords and become attributes; they survive pickling, so that an error
    raised on a Spark executor or in a pool reaches the caller whole.

    >>> error = TableError("table is gone", hint="create it first", uri="memory://t")
    >>> error.uri
    'memory://t'
    >>> str(error)
    'table is gone (create it first)'
    """

    code: ClassVar[str] = "table"
    retry: ClassVar[Retry] = Retry.NEVER

    def __init__(self, message: str, *, hint: str = "", **facts: object) -> None:
        self.message, self.hint = redacted(message), redacted(hint)
        super().__init__(self.message)
        self.facts = {
            key: redacted(value) if isinstance(value, str) else value
            for key, value in facts.items()
        }

    def __init_subclass__(cls, *, code: str = "", retry: Retry | None = None) -> None:
        """Set what tells this class from its base."""
        super().__init_subclass__()
        cls.code, cls.retry = code or cls.code, retry or cls.retry

    def __getattr__(self, name: str) -> object:
        """Return a fact by its name."""
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        message = f"{type(self).__name__} has no fact {name!r}"
        raise AttributeError(message)

    def __str__(self) -> str:
        """Return the message with its hint, on one line."""
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def to_dict(self) -> dict[str, object]:
        """Return the error as plain values, for JSON output."""
        return {
            "error": self.code,
            "type": type(self).__name__,
            "message": self.message,
            "hint": self.hint,
            "retry": self.retry.value,
            "facts": {key: _plain(value) for key, value in self.facts.items()},
        }


def _plain(value: object) -> object:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    return str(value)


class InvariantError(Exception):
    """A promise that Plait makes to itself is broken: a defect of ours, please report it."""


class OptionError(TableError, ValueError, code="option"):
    """An option is unknown or its value is not allowed. Facts: key, value, nearest."""


class TableNotFoundError(TableError, code="not_found"):
    """There is no table at this place. Facts: uri."""


class TableExistsError(TableError, code="exists"):
    """There is a table at this place already. Facts: uri."""


class MissingDependencyError(TableError, ImportError, code="dependency"):
    """A library that belongs to an extra is not installed. Facts: library, extra."""


class FormatError(TableError, code="format"):
    """The bytes of the table cannot be used."""


class UnsupportedFeatureError(FormatError, code="unsupported_feature"):
    """The table uses a feature that this Plait does not know. Facts: features."""


class CorruptMetadataError(FormatError, code="corrupt"):
    """Metadata is damaged. Facts: path, expected, found."""


class SchemaError(TableError, code="schema"):
    """Columns or values do not fit the table."""


class SchemaMismatchError(SchemaError, code="schema_mismatch"):
    """The input does not have the table's columns. Facts: column, expected, found."""


class BadRecordError(SchemaError, code="bad_record"):
    """A value cannot be stored. Facts: column, sample (the row, shortened)."""


class PredicateError(TableError, ValueError, code="predicate"):
    """A predicate or a value cannot be parsed or does not fit. Facts: text, position."""


class ContractError(TableError, code="contract"):
    """The client disagrees with the table's contract. Facts: ours, theirs."""


class SingleWriterError(ContractError, code="single_writer", retry=Retry.SAME):
    """Another writer is live on a table for one. Facts: instant, host, pid, since, silent_ms."""


class PolicyError(TableError, code="policy"):
    """The table's own conflict policy failed, or gave an answer it may not give. Fact: policy."""


class DuplicateKeyError(TableError, code="duplicate_key"):
    """Keys are there already, or twice in the input. Facts: keys (sample), partition."""


class StreamError(TableError, code="stream"):
    """A stream cannot go on: its token does not continue the last one, or it cannot say a row."""


class DeletedRowsError(StreamError, code="deleted_rows"):
    """A stream that gives rows as inserted or updated met deleted ones. Facts: version, sample."""


class CoordinatorFencedError(StreamError, code="coordinator_fenced"):
    """Another coordinator has the stream: what this one had not decided was rolled back."""


class EpochRewoundError(StreamError, code="epoch_rewound"):
    """An epoch that was applied came again with other offsets, or with other rows."""


class EpochUnknownError(StreamError, code="epoch_unknown"):
    """An epoch is far from the last one that the table knows."""


class OffsetGapError(StreamError, code="offset_gap"):
    """The start offsets of an epoch are not the end offsets of the one before."""


class InstantError(TableError, code="instant"):
    """An instant or version cannot be used."""


class InstantNotFoundError(InstantError, code="instant_not_found"):
    """There is no such instant or version. Facts: instant or version."""


class InstantExpiredError(InstantError, code="instant_expired"):
    """The version is older than what the table retains. Facts: version, oldest."""


class IllegalTransitionError(InstantError, code="illegal_transition"):
    """An instant cannot go from its state to the one asked for. Facts: instant, state."""


class CommitError(TableError, code="commit"):
    """A commit did not go through."""


class ConflictError(CommitError, code="conflict"):
    """Another commit touched the same data. Facts: ours, theirs, version, file_groups, verdict.

    Nothing of the refused commit is visible; its files are deleted.
    """


class RetryableConflictError(ConflictError, code="conflict_retryable", retry=Retry.REPLAN):
    """Running the operation again from the new head may succeed."""


class IncompatibleConflictError(ConflictError, code="conflict_incompatible"):
    """The other commit made this operation meaningless; look at the table first."""


class CommitRetriesExhaustedError(CommitError, code="retries_exhausted", retry=Retry.REPLAN):
    """Every allowed attempt met a conflict. Facts: conflict, attempts, elapsed_ms."""


class CommitOutcomeUnknownError(CommitError, code="outcome_unknown", retry=Retry.CHECK_FIRST):
    """The store did not say whether the commit landed. Facts: instant, version, commit_id.

    Nothing was deleted. ``Table.find_commit`` or ``tablectl history`` tells once the store
    answers again.
    """


class RolledBackError(CommitError, code="rolled_back", retry=Retry.REPLAN):
    """The instant was rolled back by someone else. Facts: instant, by, version, reason.

    Nothing of it is visible. It happens to a writer that was silent for longer than its
    heartbeat time-out.
    """


class TransactionClosedError(CommitError, code="closed"):
    """The writer or transaction is used after its end."""


class LockError(TableError, code="lock", retry=Retry.SAME):
    """A lock could not be used. It costs time, never correctness."""


class LockTimeoutError(LockError, TimeoutError, code="lock_timeout"):
    """The lock was held by others for the whole wait. Facts: holder, waited_ms."""


class LockUnavailableError(LockError, code="lock_unavailable"):
    """The lock service cannot be reached."""


class PlanStaleError(TableError, code="plan_stale", retry=Retry.REPLAN):
    """The table moved on since the service planned. Plan again."""


class StorageError(TableError, OSError, code="storage", retry=Retry.SAME):
    """The store failed. Facts: path."""


class CapabilityMissingError(StorageError, code="capability", retry=Retry.NEVER):
    """The store cannot do what this needs. Facts: capability, uri."""


class ClockUnavailableError(StorageError, code="clock_unavailable"):
    """The store does not tell its time, or tells an absurd one. Facts: uri, found."""
