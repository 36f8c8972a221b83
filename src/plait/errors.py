"""The whole error tree of Plait.

Every error states what happened, to what, and what to do, and carries its facts as attributes::

    TableError                            code, retry, hint; facts as attributes; pickles
    |- OptionError(ValueError)            unknown or bad option
    |- TableNotFoundError                 no table at this place
    |  |- TableDroppedError               it was dropped, and its files are going
    |  `- NamespaceNotFoundError          a catalog has no such namespace
    |- NamespaceNotEmptyError             tables are in it
    |- TableExistsError                   the table exists
    |- MissingDependencyError(ImportError)  an extra is not installed
    |- FormatError                        the bytes of the table
    |  |- UnsupportedFeatureError         written by a newer Plait
    |  `- CorruptMetadataError            path, expected, found
    |- SchemaError                        columns and values
    |  |- SchemaMismatchError             the input does not have the table's columns
    |  `- BadRecordError                  column, sample
    |     `- ConstraintError              constraint, rows, sample
    |- PredicateError(ValueError)         a predicate that cannot be parsed
    |- ContractError                      ours and the table's
    |  `- SingleWriterError               who is live: host, pid, since when
    |- ConsentError                       the table names a place outside of it that nobody allowed
    |- FeatureError                       the table may not use it, or cannot be without it
    |- PolicyError                        a conflict policy failed, or its answer is invalid
    |- DuplicateKeyError                  keys (sample), partition
    |- StreamError
    |  |- DeletedRowsError                deleted rows, which a stream of rows cannot represent
    |  |- CoordinatorFencedError
    |  |- EpochRewoundError
    |  |- EpochUnknownError
    |  |- OffsetGapError
    |  |- OffsetsLostError                Kafka does not have the records that are next
    |  |- PartitionsAddedError            rows of a key may come out of order
    |  |- TopicReplacedError              a topic was deleted and made again
    |  `- UndecodableError                place, reason
    |- InstantError
    |  |- InstantNotFoundError
    |  |- InstantExpiredError             older than what the table retains
    |  `- IllegalTransitionError          roll back a committed instant, or the reverse
    |- CommitError
    |  |- ConflictError                   ours, theirs, file groups, verdict
    |  |  |- RetryableConflictError
    |  |  `- IncompatibleConflictError
    |  |- CommitRetriesExhaustedError     the last conflict, attempts, elapsed_ms
    |  |- CommitOutcomeUnknownError       nothing was deleted; look again
    |  |- UndoneError                     which restore undid what is sent again
    |  |- RolledBackError                 by whom, when, why
    |  `- TransactionClosedError
    |- LockError
    |  |- LockTimeoutError(TimeoutError)
    |  `- LockUnavailableError
    |- ReplicationError                   the outcome of every sink
    |- RepushError
    |  |- RepushOpenError                 another repush is open
    |  |- RepushCancelledError            somebody cancelled it
    |  `- RepushRefusedError              keys are not unique, or the source is gone
    |- PublishRefusedError                a published format cannot say a change
    |- PlanStaleError                     the table changed after a service planned
    |  `- RestoreRefusedError             commits that the plan did not show
    `- StorageError(OSError)
       |- AccessDeniedError               which rights are missing
       |- CapabilityMissingError          e.g. the store lacks put-if-absent
       `- ClockUnavailableError           the store reports no time, or an impossible one

``InvariantError`` is not in the tree: it is a defect of Plait, never of its use.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar
from urllib.parse import unquote


class Retry(enum.StrEnum):
    """What a caller may do after an error."""

    NEVER = "never"
    SAME = "same"
    REPLAN = "replan"
    CHECK_FIRST = "check_first"


_NAMES = re.compile(r"[?&;][\w.-]{1,100}=")
"""Names of parameters; a longer one is none of those that are hidden."""
_GRANTS = re.compile(r"(?i)sig|token|secret|passw|credential|key")
_USERS = frozenset({"user", "username", "uid"})
_VALUE = re.compile(r"[^&\s'\"]*+")
_AUTHORITY = re.compile(r"[^/?#\s'\"]*+")
_PORT = re.compile(r"\d++(?:\W|$)")
_QUOTE = re.compile(r"['\"\n]")
_SCHEME_MAX = 40
_CONTAINERS = frozenset({"abfs", "abfss", "wasb", "wasbs"})
"""The text before the @ is a container here, not a user."""
_SHOWN_MAX, _CAUSES_MAX = 2000, 10
_PIECE = re.compile(r"[\W_]")
"""Where a library may divide a URL that it does not understand."""
_PIECE_MIN = 4
"""Shorter pieces of a password may stand in any text, and tell nothing."""


def redacted(text: str) -> str:
    """Return a text without the user names, passwords and signatures of the URLs in it.

    Its time grows with the text alone, whatever stands in it.

    >>> redacted("cannot open sftp://me:secret@host/table")
    'cannot open sftp://***@host/table'
    >>> redacted("abfss://container@account.dfs.core.windows.net/t")
    'abfss://container@account.dfs.core.windows.net/t'
    """
    parts = text.split("://")
    shown = [parts[0]]
    for part in parts[1:]:
        shown.append(_without_user(part, _scheme_of(shown[-1])))
    return _without_grants("://".join(shown))


def redacted_url(url: str) -> str:
    """Return a text that is one URL as a whole, without anything in it that may be secret.

    A password may contain every character, so all that stands before the last ``@`` is hidden.

    >>> redacted_url("http://me:a#b/c@host/x")
    'http://***@host/x'
    """
    scheme, mark, rest = url.partition("://")
    if not mark:
        scheme, rest = "", url
    user, at, place = rest.rpartition("@")
    if not mark and ":" not in user:
        return url  # a path, such as /data/a@b
    if any(sign in url for sign in "\r\n\t\0'\""):
        return f"{scheme}{mark}***"
    grants = next(_granting(rest), None)
    if grants is not None:
        if "@" in rest[grants.start() :] or "://" in rest:
            return f"{scheme}{mark}***"  # nobody can tell where the password ends
        return f"{redacted_url(scheme + mark + rest[: grants.start()])}{grants[0]}***"
    if at and not (scheme.lower() in _CONTAINERS and ":" not in user):
        rest = f"***@{place}"
    return f"{scheme}{mark}{rest}"


def without_secrets(text: str, url: str) -> str:
    """Return what a library says of a URL without the user, the password and the keys in that."""
    rest = url.partition("://")[2] or url
    hidden = {rest.rpartition("@")[0], *(rest[name.end() :] for name in _granting(rest))}
    for secret in tuple(hidden):
        hidden.update((unquote(secret), *_PIECE.split(secret), *_PIECE.split(unquote(secret))))
    for secret in sorted(hidden, key=len, reverse=True):
        if len(secret) >= _PIECE_MIN:
            text = text.replace(secret, "***").replace(repr(secret)[1:-1], "***")
    return redacted(text)


def shown_cause(error: BaseException, url: str) -> BaseException | None:
    """Return an error of a library as a cause to be shown; None if it tells a secret of the URL."""
    seen: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if seen is None:
            return error
        text = f"{seen} {seen!r}"
        if without_secrets(text, url) != text:
            return None
        seen = seen.__cause__ or seen.__context__
    return None


def shortened(text: str, limit: int = 200) -> str:
    """Return a text of a stranger as a message shows it: the beginning, and how long it is.

    >>> shortened("a" * 300, 3)
    'aaa... (300 characters)'
    """
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


def _scheme_of(before: str) -> str:
    """Return the scheme that ends a text."""
    tail = before[-_SCHEME_MAX:]
    at = len(tail)
    while at and (tail[at - 1].isalnum() or tail[at - 1] in "+.-"):
        at -= 1
    return tail[at:].lower()


def _without_user(rest: str, scheme: str) -> str:
    """Hide what stands before a server, at the beginning of a text."""
    authority = _AUTHORITY.match(rest)
    named = authority[0] if authority else ""
    user, at, _ = named.rpartition("@")
    if at:
        if scheme in _CONTAINERS and ":" not in user:
            return rest
        return "***" + rest[len(user) :]
    name, colon, _ = named.partition(":")
    if not colon or _PORT.match(rest, len(name) + 1):
        return rest
    # A password with a slash, a question mark or a blank in it; a quote or a line ends the URL.
    end = _QUOTE.split(rest, maxsplit=1)[0].rfind("@")
    return rest if end < 0 else "***" + rest[end:]


def _without_grants(text: str) -> str:
    """Hide the parameters that name a user, or grant access to who has them, as signed links do."""
    shown, last = [], 0
    for value in _spans(text):
        shown.append(text[last : value.start])
        shown.append("***")
        last = value.stop
    return "".join([*shown, text[last:]])


def _spans(text: str) -> list[slice]:
    found, last = [], 0
    for name in _granting(text):
        value = _VALUE.match(text, name.end())
        if name.start() >= last and value is not None and value.start() < value.end():
            found.append(slice(value.start(), value.end()))
            last = value.end()
    return found


def _granting(text: str) -> Iterator[re.Match[str]]:
    """Find the names of parameters that name a user, or grant access."""
    for name in _NAMES.finditer(text):
        word = name[0][1:-1]
        if word.lower() in _USERS or _GRANTS.search(word):
            yield name


class TableError(Exception):
    """Base of every error that Plait raises on purpose.

    Facts are passed as keywords and become attributes. Each class declares its own, with their
    types; one that an error does not have is empty or None. They survive pickling, so an error that
    was raised on a Spark executor or in a pool reaches the caller complete.

    >>> error = TableNotFoundError("table is gone", hint="create it first", uri="memory://t")
    >>> error.uri
    'memory://t'
    >>> str(error)
    'table is gone (create it first)'
    """

    code: ClassVar[str] = "table"
    retry: ClassVar[Retry] = Retry.NEVER

    def __init__(self, message: str, *, hint: str = "", **facts: object) -> None:
        self.message, self.hint = _told(message), _told(hint)
        super().__init__(self.message)
        self.facts = {k: _told(v) if isinstance(v, str) else v for k, v in facts.items()}
        vars(self).update(self.facts)

    def __init_subclass__(cls, *, code: str = "", retry: Retry | None = None) -> None:
        """Set the attributes in which this class differs from its base."""
        super().__init_subclass__()
        cls.code, cls.retry = code or cls.code, retry or cls.retry

    def __str__(self) -> str:
        """Return the message with its hint, on one line."""
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def to_dict(self) -> dict[str, object]:
        """Return the error as plain values, for JSON output."""
        return {
            "error": self.code,
            "type": type(self).__name__,
            "message": plain(self.message),
            "hint": plain(self.hint),
            "retry": self.retry.value,
            "facts": {key: plain(value) for key, value in self.facts.items()},
        }


def _told(text: str) -> str:
    """Return a text as an error tells it: without secrets, and not longer than a person reads."""
    return shortened(redacted(text), _SHOWN_MAX)


def plain(value: object) -> object:
    r"""Return a value as JSON has it and nothing else: without NaN, and without half a character.

    >>> plain({"a": (float("nan"), b"\xff", "\ud800")})
    {'a': ['nan', 'ff', '\\ud800']}
    """
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return value if value.isascii() else value.encode(errors="backslashreplace").decode()
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if isinstance(value, dict):
        return {str(plain(str(key))): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return plain(str(value))


class InvariantError(Exception):
    """An internal invariant of Plait is broken. This is a bug in Plait; please report it."""


class OptionError(TableError, ValueError, code="option"):
    """An option is unknown or its value is not allowed. Facts: key, value, nearest."""

    key: str = ""
    value: object = None
    nearest: Sequence[str] = ()
    buckets: Sequence[object] = ()
    behind: Sequence[object] = ()
    sink: str | None = None


class TableNotFoundError(TableError, code="not_found"):
    """There is no table at this place. Facts: uri."""

    uri: str = ""
    path: str | None = None
    expected: object = None
    found: object = None


class TableDroppedError(TableNotFoundError, code="dropped"):
    """The table was dropped; until a purge it can be undropped. Facts: uri, dropped (when)."""

    dropped: str = ""


class NamespaceNotFoundError(TableNotFoundError, code="namespace_not_found"):
    """The catalog has no such namespace. Facts: uri, namespace."""

    namespace: str = ""


class NamespaceNotEmptyError(TableError, code="namespace_not_empty"):
    """A namespace cannot be dropped while tables are in it. Facts: uri, namespace, tables."""

    uri: str = ""
    namespace: str = ""
    tables: Sequence[str] = ()


class TableExistsError(TableError, code="exists"):
    """There is already a table at this place. Facts: uri."""

    uri: str = ""


class MissingDependencyError(TableError, ImportError, code="dependency"):
    """A library that belongs to an extra is not installed. Facts: library, extra."""

    library: str = ""
    extra: str = ""


class FormatError(TableError, code="format"):
    """The bytes of the table cannot be used."""


class UnsupportedFeatureError(FormatError, code="unsupported_feature"):
    """The table uses a feature that this Plait does not know. Facts: features."""

    features: Sequence[str] = ()
    feature: str | None = None
    path: str | None = None
    group: str | None = None
    limit: int | None = None
    found: object = None


class CorruptMetadataError(FormatError, code="corrupt"):
    """Metadata is damaged. Facts: path, expected, found."""

    path: str = ""
    expected: object = None
    found: object = None
    readable: int | None = None
    columns: Sequence[str] = ()
    before: object = None
    decision: str | None = None


class SchemaError(TableError, code="schema"):
    """Columns or values do not fit the table."""

    column: str = ""
    expected: object = None
    found: object = None
    constraint: str | None = None
    text: str | None = None
    position: int | None = None


class SchemaMismatchError(SchemaError, code="schema_mismatch"):
    """The input does not have the table's columns. Facts: column, expected, found."""

    nearest: Sequence[str] = ()
    missing: Sequence[str] = ()
    path: str | None = None
    version: int | None = None


class BadRecordError(SchemaError, code="bad_record"):
    """A value cannot be stored. Facts: column, sample (the row, shortened)."""

    sample: object = None


class ConstraintError(BadRecordError, code="constraint"):
    """Rows break a constraint. Facts: constraint, predicate, rows (a number), column, sample."""

    predicate: str = ""
    rows: int = 0


class PredicateError(TableError, ValueError, code="predicate"):
    """A predicate or a value cannot be parsed or does not fit. Facts: text, position."""

    text: str = ""
    position: int | None = None
    column: str | None = None


class ContractError(TableError, code="contract"):
    """The client disagrees with the table's contract. Facts: ours, theirs."""

    ours: Mapping[str, object] | None = None
    theirs: Mapping[str, object] | None = None
    live: Sequence[str] = ()


class SingleWriterError(ContractError, code="single_writer", retry=Retry.SAME):
    """Another writer is live on a single-writer table.

    Facts: instant, host, pid, since, silent_ms.
    """

    instant: str = ""
    host: str = ""
    pid: int = 0
    since: str | None = None
    silent_ms: int | None = None
    timeout_s: float | None = None


class ConsentError(TableError, code="consent"):
    """Metadata names a place outside of its table, and the caller did not allow it.

    Nothing was contacted or written. Facts: address, kind (sink, lock, source, file), named_by.
    """

    address: str = ""
    kind: str = ""
    named_by: str = ""


class FeatureError(TableError, code="feature"):
    """The table may not use a feature, or something needs it. Facts: features, uses, live."""

    features: Sequence[str] = ()
    uses: Sequence[Mapping[str, str]] = ()
    live: Sequence[str] = ()


class PolicyError(TableError, code="policy"):
    """The table's custom conflict policy failed, or its answer is invalid. Facts: policy."""

    policy: str = ""


class DuplicateKeyError(TableError, code="duplicate_key"):
    """Keys exist already, or are twice in the input. Facts: keys (sample), partition."""

    keys: object = None
    partition: object = None


class StreamError(TableError, code="stream"):
    """A stream cannot continue: its token does not follow the last one, or a row was deleted."""

    application: str | None = None
    uri: str | None = None
    version: int | None = None
    head: int | None = None
    table: str | None = None
    other: str | None = None
    token: Mapping[str, object] | None = None
    last: Mapping[str, object] | None = None
    applied: Mapping[str, object] | None = None


class DeletedRowsError(StreamError, code="deleted_rows"):
    """A stream of inserted and updated rows found deleted rows. Facts: version, sample."""

    sample: object = None


class CoordinatorFencedError(StreamError, code="coordinator_fenced"):
    """A newer coordinator took the stream over; what this one had not decided was rolled back."""

    position: object = None


class EpochRewoundError(StreamError, code="epoch_rewound"):
    """An applied epoch was sent again with other offsets or other rows."""


class EpochUnknownError(StreamError, code="epoch_unknown"):
    """An epoch does not follow the last one that the table knows."""

    end: str = ""


class OffsetGapError(StreamError, code="offset_gap"):
    """The start offsets of an epoch are not the end offsets of the one before."""

    expected: str = ""
    given: str = ""
    source: str | None = None


class OffsetsLostError(StreamError, code="offsets_lost"):
    """Kafka does not have the records that are next. Facts: source, next, first, end."""

    source: str = ""
    next: int = 0
    first: int = 0
    end: int = 0


class TopicReplacedError(StreamError, code="topic_replaced"):
    """A topic was deleted and made again under its name. Facts: source, ours, theirs."""

    source: str = ""
    ours: str = ""
    theirs: str = ""


class UndecodableError(StreamError, code="undecodable"):
    """A record cannot be decoded, or too many cannot. Facts: place, reason."""

    place: str = ""
    reason: str = ""


class PartitionsAddedError(StreamError, code="partitions_added"):
    """New partitions of a topic may hold older rows of a key than the table has. Facts: sources."""

    sources: Sequence[str] = ()


class InstantError(TableError, code="instant"):
    """An instant or version cannot be used."""


class InstantNotFoundError(InstantError, code="instant_not_found"):
    """There is no such instant or version. Facts: instant or version."""

    instant: str | None = None
    version: int | None = None
    savepoint: str | None = None
    since: str | None = None
    until: str | None = None
    as_of: str | None = None


class InstantExpiredError(InstantError, code="instant_expired"):
    """The version is older than what the table retains. Facts: version, oldest."""

    version: int = 0
    oldest: int | None = None


class IllegalTransitionError(InstantError, code="illegal_transition"):
    """An instant cannot go from its state to the one asked for. Facts: instant, state."""

    instant: str = ""
    state: str = ""


class CommitError(TableError, code="commit"):
    """A commit failed, or its outcome is unknown."""

    bytes: int | None = None
    bytes_max: int | None = None


class ConflictError(CommitError, code="conflict"):
    """Another commit touched the same data. Facts: ours, theirs, version, file_groups, verdict.

    Of several, ``version`` was the worst; ``file_groups`` are the places of all ``versions``.
    Nothing of the refused commit is visible; its files are deleted.
    """

    ours: str | None = None
    theirs: str | None = None
    version: int | None = None
    file_groups: Sequence[str] = ()
    verdict: str | None = None
    versions: Sequence[int] = ()
    operation: str | None = None


class RetryableConflictError(ConflictError, code="conflict_retryable", retry=Retry.REPLAN):
    """Running the operation again from the new head may succeed."""

    sinks: Sequence[str] = ()
    columns: Sequence[str] = ()
    partitions: Sequence[str] = ()
    before: Sequence[str] = ()
    rows_before: int | None = None
    rows_after: int | None = None


class IncompatibleConflictError(ConflictError, code="conflict_incompatible"):
    """The other commit made this operation invalid; check the table first."""


class CommitRetriesExhaustedError(CommitError, code="retries_exhausted", retry=Retry.REPLAN):
    """Every allowed attempt met a conflict. Facts: conflict, attempts, elapsed_ms."""

    conflict: ConflictError | None = None
    attempts: int = 0
    elapsed_ms: int = 0


class CommitOutcomeUnknownError(CommitError, code="outcome_unknown", retry=Retry.CHECK_FIRST):
    """The store did not say whether the commit landed. Facts: instant, version, commit_id.

    Nothing was deleted. When the store answers again, ``Table.inspect.find_commit`` or
    ``tablectl history`` shows the outcome.
    """

    instant: str = ""
    version: int = 0
    commit_id: str | None = None


class RolledBackError(CommitError, code="rolled_back", retry=Retry.REPLAN):
    """Another client rolled the instant back. Facts: instant, by, version, reason.

    None of its rows is visible. The writer was silent for longer than its heartbeat time-out.
    """

    instant: str = ""
    by: object = None
    version: int | None = None
    reason: str = ""


class UndoneError(CommitError, code="undone"):
    """A restore undid this commit id or epoch; see ``Versions.replay``. Facts: version, restore."""

    version: int | None = None
    restore: int | None = None
    commit_id: str | None = None
    token: Mapping[str, object] | None = None


class TransactionClosedError(CommitError, code="closed"):
    """The writer or transaction is used after its end."""


class LockError(TableError, code="lock", retry=Retry.SAME):
    """A lock could not be used. This costs time, never correctness."""


class LockTimeoutError(LockError, TimeoutError, code="lock_timeout"):
    """The lock was held by others for the whole wait. Facts: holder, waited_ms."""

    holder: object = None
    waited_ms: int = 0


class LockUnavailableError(LockError, code="lock_unavailable"):
    """The lock service cannot be reached."""


class ReplicationError(TableError, code="replication", retry=Retry.SAME):
    """A sink of a dual write failed; nothing was committed. Facts: instant, outcomes.

    ``outcomes`` has one entry for each sink: what it acknowledged, or why it failed.
    """

    instant: str | None = None
    outcomes: Sequence[Mapping[str, object]] = ()


class RepushError(TableError, code="repush", retry=Retry.NEVER):
    """A repush cannot go on; the table is as it was."""


class RepushOpenError(RepushError, code="repush_open", retry=Retry.NEVER):
    """Another repush of the table is open. Facts: directory, base."""

    directory: str = ""
    base: int = 0


class PublishRefusedError(TableError, code="publish_refused"):
    """A published format cannot say a change. Facts: target, change, column."""

    target: str = ""
    change: str = ""
    column: str = ""


class RepushCancelledError(RepushError, code="repush_cancelled", retry=Retry.NEVER):
    """Somebody cancelled the repush while it ran. Facts: directory, base, version."""

    directory: str = ""
    base: int = 0
    version: int = 0


class RepushRefusedError(RepushError, code="repush_refused", retry=Retry.NEVER):
    """Rows share a key or cannot be in the new layout, or the source is gone or does not fit.

    Facts: partition_by, or rows, found; column; source, version; operations, since; commit_id.
    """

    directory: str | None = None
    partition_by: Sequence[str] = ()
    column: str | None = None
    columns: Sequence[str] = ()
    rows: int | None = None
    loaded: int | None = None
    found: object = None
    source: str | None = None
    version: int | None = None
    operations: Sequence[object] = ()
    since: int | None = None
    until: int | None = None
    commit_id: str | None = None


class PlanStaleError(TableError, code="plan_stale", retry=Retry.REPLAN):
    """The table changed after the service planned. Plan again."""


class RestoreRefusedError(PlanStaleError, code="restore_refused", retry=Retry.REPLAN):
    """Rows were committed since the restore was planned. Facts: planned, version, versions."""

    planned: int = 0
    version: int = 0
    versions: Sequence[int] = ()


class StorageError(TableError, OSError, code="storage", retry=Retry.SAME):
    """The store failed. Facts: path."""

    path: str = ""
    uri: str | None = None
    endpoint: str | None = None
    bucket: str | None = None
    status: int | None = None
    free_bytes: int | None = None
    task: object = None


class AccessDeniedError(StorageError, code="access_denied", retry=Retry.NEVER):
    """The brokers do not grant a right that a Kafka sink needs. Facts: missing."""

    missing: Sequence[object] = ()


class CapabilityMissingError(StorageError, code="capability", retry=Retry.NEVER):
    """The store cannot do what this needs. Facts: capability, uri."""

    capability: str = ""


class ClockUnavailableError(StorageError, code="clock_unavailable"):
    """The store reports no time, or an impossible one. Facts: uri, found."""

    found: int | None = None
