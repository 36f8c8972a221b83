"""Instants: one attempted change, from its request to its decision."""

from __future__ import annotations

import datetime as dt
import enum
import re
from dataclasses import dataclass
from typing import Self

from plait.errors import FormatError, OptionError

_TEXT = re.compile(r"(\d{17})-([0-9a-f]{16})", re.ASCII)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class State(enum.StrEnum):
    """How far an instant has come; it never goes back."""

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
    CLEAN = "clean"
    SAVEPOINT = "savepoint"
    ROLLBACK = "rollback"
    RESTORE = "restore"
    ARCHIVE = "archive"
    SCHEMA = "schema"
    PROPERTY = "property"
    RESERVATION = "reservation"
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
    CLEAN = "clean"
    SAVEPOINT = "savepoint"
    RESTORE = "restore"
    ROLLBACK = "rollback"
    ARCHIVE = "archive"
    RESERVE = "reserve"


def time_text(time_ms: int) -> str:
    """Write a time in ms since the epoch as 17 digits, UTC.

    >>> time_text(0)
    '19700101000000000'
    """
    moment = _EPOCH + dt.timedelta(milliseconds=time_ms)
    return moment.strftime("%Y%m%d%H%M%S").rjust(14, "0") + f"{moment.microsecond // 1000:03d}"


def time_ms(text: str) -> int:
    """Read 17 digits (UTC, ms) as ms since the epoch.

    >>> time_ms("19700101000000001")
    1
    """
    try:
        moment = dt.datetime.strptime(text[:14], "%Y%m%d%H%M%S").replace(tzinfo=dt.UTC)
        return (moment - _EPOCH) // dt.timedelta(milliseconds=1) + int(text[14:17])
    except ValueError as error:
        message = f"not an instant time: {text!r}"
        raise FormatError(message, hint="expected 17 digits, yyyyMMddHHmmssSSS") from error


@dataclass(frozen=True, slots=True, order=True)
class Instant:
    """A time and the random mark of its writer; ``str()`` gives ``<time>-<nonce>``.

    >>> Instant.parse("20260101000000000-0123456789abcdef").nonce
    '0123456789abcdef'
    """

    time: str
    nonce: str

    def __str__(self) -> str:
        """Write it as it stands in file names."""
        return f"{self.time}-{self.nonce}"

    @property
    def time_ms(self) -> int:
        """The time in ms since the epoch."""
        return time_ms(self.time)

    @classmethod
    def at(cls, ms: int, nonce: str) -> Self:
        """Make an instant at a time in ms since the epoch."""
        return cls(time_text(ms), nonce)

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
    """Give ms since the epoch of an instant, aware datetime, ISO text, or ms.

    Raises:
        OptionError: anything else, or a time without zone.

    >>> parse_moment("1970-01-01T00:00:01Z")
    1000
    """
    if isinstance(value, Instant):
        return value.time_ms
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        if _TEXT.fullmatch(value):
            return Instant.parse(value).time_ms
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError:
            value = None
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // dt.timedelta(milliseconds=1)
    message = "as_of is not a time with a zone"
    hint = "an instant, an aware datetime, ISO text such as 2026-01-01T00:00:00Z, or ms"
    raise OptionError(message, hint=hint, key="as_of", value=str(value))
