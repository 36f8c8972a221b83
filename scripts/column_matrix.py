"""Changes of columns x work in flight: what becomes of the work, as data (RFC 0027).

docs/reference/column-changes.md and a test for each cell are made from ``BESIDE``. The verdicts
are those of the conflict matrix; this says what they come to for each kind of change.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class ColumnChange(enum.StrEnum):
    """What becomes different."""

    ADD = "a new column"
    BROUGHT = "a column that comes with rows"
    DROP = "a column goes"
    RENAME = "another name"
    RENAME_KEY = "another name in the record key"
    MOVE = "another place"
    WIDEN = "a wider type"
    RELAX = "null is allowed"
    REQUIRE = "null is refused"
    CHECK = "a new check"
    GENERATE = "a column is generated"
    NOTE = "a default or comment"


class WorkInFlight(enum.StrEnum):
    """What is under way."""

    APPEND = "append"
    INSERT = "insert"
    UPSERT = "upsert"
    PARTIAL = "upsert of some columns"
    EVOLVE = "upsert that brings a column"
    OVERWRITE = "overwrite"
    OVERWRITE_WHERE = "overwrite by predicate"
    DELETE = "delete by keys"
    DELETE_WHERE = "delete by predicate"
    UPDATE = "update"
    MERGE = "merge"
    BLOCK = "transaction"
    STREAM = "epoch of a stream"
    COMPUTED = "upsert with a named read"
    ALTER = "another change of columns"
    COMPACT = "compaction"
    READ = "scan or pinned snapshot"


class Upshot(enum.StrEnum):
    """What becomes of the work."""

    RESTAGED = "commits"
    """Its rows are staged again by themselves, as rows of the new columns."""
    JUDGED = "compared"
    """The same, and rows that break the constraint end it."""
    AGAIN = "again"
    """It ends, and would mean something else: the caller runs it again."""
    BOTH = "both"
    """Taken from the newest columns; both count."""
    UNTOUCHED = "goes on"
    """What it reads and writes stays under the columns that it began with."""


MEANING: Final[Mapping[Upshot, str]] = {
    Upshot.RESTAGED: "its rows are staged again under the new columns, and it commits.",
    Upshot.JUDGED: "as *commits*; if one of its rows breaks the constraint, it ends with "
    "`ConstraintError` or `BadRecordError`.",
    Upshot.AGAIN: "it ends with `RetryableConflictError`; run it again with the new columns.",
    Upshot.BOTH: "it is taken from the newest columns, and both changes count.",
    Upshot.UNTOUCHED: "it reads and writes files under the columns that it began with.",
}
_NAMED: Final = (ColumnChange.DROP, ColumnChange.RENAME, ColumnChange.RENAME_KEY)
_EXPRESSIONS: Final = (
    WorkInFlight.OVERWRITE_WHERE,
    WorkInFlight.DELETE_WHERE,
    WorkInFlight.UPDATE,
    WorkInFlight.MERGE,
)
"""They name columns, and a name may stand for another one now."""
_CONSTRAINTS: Final = (ColumnChange.REQUIRE, ColumnChange.CHECK, ColumnChange.GENERATE)
_WITHOUT_ROWS: Final = (WorkInFlight.DELETE, WorkInFlight.DELETE_WHERE)


def _outcome(change: ColumnChange, work: WorkInFlight) -> Upshot:
    if work in (WorkInFlight.COMPACT, WorkInFlight.READ):
        return Upshot.UNTOUCHED
    if work is WorkInFlight.ALTER:
        return Upshot.BOTH
    if work is WorkInFlight.COMPUTED and change is not ColumnChange.BROUGHT:
        return Upshot.AGAIN
    if work in _EXPRESSIONS and change in _NAMED:
        return Upshot.AGAIN
    judged = change in _CONSTRAINTS and work not in _WITHOUT_ROWS
    return Upshot.JUDGED if judged else Upshot.RESTAGED


BESIDE: Final[Mapping[tuple[ColumnChange, WorkInFlight], Upshot]] = {
    (change, work): _outcome(change, work) for change in ColumnChange for work in WorkInFlight
}
"""(what becomes different, what is under way) -> what becomes of it, with the Arrow engine."""
