"""Instants: one attempted change, from its request to its decision."""

from __future__ import annotations

import datetime as dt
import enum
import re
from dataclasses import dataclass
from typing import Final, Self

from plait.errors import CorruptMetadataError, FormatError, OptionError

_TEXT = re.compile(r"(\d{17})-([0-9a-f]{16})", re.ASCII)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
CLOCK_MS_MAX: Final = 253_370_764_799_999
"""The end of the year 9998: a clock that says more is wrong."""
AHEAD_MS_MAX: Final = 60_000
"""By how much a time may lie beyond the store's clock: the clocks of callers differ a little."""
_MOMENT_MS_MAX: Final = 1 << 53
TIME_MS_MAX: Final = CLOCK_MS_MAX + 364 * 86_400_000
"""What a decision may claim at most: there is room for those that follow it."""


class State(enum.StrEnum):
    """The state of an instant; it never goes back."""

    REQUESTED = "requested"
    INFLIGHT = "inflight"
    COMPLETED = "completed"


class Outcome(enum.StrEnum):
    """What a decision says of its instant."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"


class Action(enum.StrEnum):
    """What kind of change an instant is; the word never changes with its state."""

    COMMIT = "commit"
    DELTA_COMMIT = "delta_commit"
    REPLACE_COMMIT = "replace_commit"
    COMPACTION = "compaction"
    CLUSTERING = "clustering"
    EXPIRY = "expiry"
    CLEAN = "clean"
    SAVEPOINT = "savepoint"
    ROLLBACK = "rollback"
    RESTORE = "restore"
    REPLAY = "replay"
    ARCHIVE = "archive"
    SCHEMA = "schema"
    PROPERTY = "property"
    RESERVATION = "reservation"
    REPUSH = "repush"
    REPAIR = "repair"
    CREATE = "create"


class Operation(enum.StrEnum):
    """What the caller asked for; conflicts are decided between operations."""

    CREATE = "create"
    APPEND = "append"
    INSERT = "insert"
    UPSERT = "upsert"
    UPDATE = "update"
    DELETE = "delete"
    OVERWRITE = "overwrite"
    MERGE = "merge"
    TRANSACTION = "transaction"
    SCHEMA = "schema"
    PROPERTY = "property"
    COMPACT = "compact"
    CLUSTER = "cluster"
    EXPIRE = "expire"
    CLEAN = "clean"
    SAVEPOINT = "savepoint"
    RESTORE = "restore"
    REPLAY = "replay"
    ROLLBACK = "rollback"
    ARCHIVE = "archive"
    RESERVE = "reserve"
    REBUILD = "rebuild"
    BEGIN_REPUSH = "begin-repush"
    REPUSH = "repush"
    """The swap: every file is replaced, and the layout with them."""
    REPUSH_SOURCE = "repush-source"
    """The swap of a repush from a source: the rows are others too."""
    CANCEL_REPUSH = "cancel-repush"
    REPAIR = "repair"


def time_text(time_ms: int) -> str:
    """Write a time in ms since the epoch as 17 digits, UTC.

    >>> time_text(0)
    '19700101000000000'
    """
    if not 0 <= time_ms <= TIME_MS_MAX:
        message = f"{time_ms} ms since 1970 is not a valid instant time"
        raise FormatError(message, hint="correct the clock of the machine that stores the files")
    moment = _EPOCH + dt.timedelta(milliseconds=time_ms)
    return moment.strftime("%Y%m%d%H%M%S").rjust(14, "0") + f"{moment.microsecond // 1000:03d}"


def time_ms(text: str) -> int:
    """Read 17 digits (UTC, ms) as ms since the epoch.

    >>> time_ms("19700101000000001")
    1
    """
    try:
        moment = dt.datetime.strptime(text[:14], "%Y%m%d%H%M%S").replace(tzinfo=dt.UTC)
        ms = (moment - _EPOCH) // dt.timedelta(milliseconds=1) + int(text[14:17])
        if not 0 <= ms <= TIME_MS_MAX:
            raise ValueError(ms)
    except ValueError as error:
        hint = "expected 17 digits, yyyyMMddHHmmssSSS, of 1970 to 9999-12-30"
        raise FormatError(f"not an instant time: {text!r}", hint=hint) from error
    return ms


def after(now_ms: int, before_ms: int, *, where: str) -> int:
    """Return the time now, or just after the one before; raise CorruptMetadataError if none is.

    Args:
        now_ms: by the store's clock.
        before_ms: the newest time that is taken.
        where: what has it.
    """
    ms = max(now_ms, before_ms + 1)
    if ms > TIME_MS_MAX:
        message = f"{where} has a time so late that no later time exists"
        raise CorruptMetadataError(message, path=where, expected=now_ms, found=before_ms)
    return ms


@dataclass(frozen=True, slots=True, order=True)
class Instant:
    """A time and the random nonce of its writer; ``str()`` returns ``<time>-<nonce>``.

    >>> Instant.parse("20260101000000000-0123456789abcdef").nonce
    '0123456789abcdef'
    """

    time: str
    nonce: str

    def __str__(self) -> str:
        """Return the form used in file names."""
        return f"{self.time}-{self.nonce}"

    @property
    def time_ms(self) -> int:
        """The time in ms since the epoch."""
        return time_ms(self.time)

    @classmethod
    def at(cls, ms: int, nonce: str) -> Self:
        """Return an instant at a time in ms since the epoch."""
        return cls(time_text(ms), nonce)

    @classmethod
    def of(cls, value: str | Instant) -> Instant:
        """Return the instant, parsed if it is text; raise FormatError for invalid text."""
        return value if isinstance(value, Instant) else cls.parse(value)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``<time>-<nonce>``; raise FormatError for anything else."""
        match = _TEXT.fullmatch(text)
        if match is None:
            message = f"not an instant: {text[:80]!r}"
            raise FormatError(message, hint="expected <17 digits>-<16 hex digits>")
        time_ms(match[1])
        return cls(match[1], match[2])


def parse_moment(value: object) -> int:
    """Return ms since the epoch of an aware datetime, ISO text, or ms.

    Raises:
        OptionError: anything else, a time without a zone, or one outside of the years 1970 to 9998.

    >>> parse_moment("1970-01-01T00:00:01Z")
    1000
    """
    ms = _moment_ms(value)
    if ms is not None and abs(ms) <= _MOMENT_MS_MAX:
        return ms
    hint = "an instant, an aware datetime, ISO text such as 2026-01-01T00:00:00Z, or ms"
    raise OptionError("as_of is not a time with a zone", hint=hint, key="as_of", value=str(value))


def _moment_ms(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // dt.timedelta(milliseconds=1)
    return None
