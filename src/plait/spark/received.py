"""What came from a query, compared with what came when it was run before."""

from __future__ import annotations

from collections.abc import Iterable

from plait.errors import RetryableConflictError
from plait.model.changes import Digest
from plait.spark.transfer import TaskReport

Total = tuple[int, int]
"""How many rows came, and the sum of the hashes of their keys."""


def require_same(before: TaskReport | None, after: TaskReport | None) -> None:
    """Refuse the second run of a task if other rows came than in the first.

    Raises:
        RetryableConflictError: the query gives others each time.
    """
    if _came(before) != _came(after):
        raise _changed(_came(before)[0], _came(after)[0])


def total(reports: Iterable[TaskReport]) -> Total:
    """Sum up what came, whichever tasks it came to."""
    came = [(report.rows, report.digest) for report in reports]
    return sum(rows for rows, _ in came), sum(digest for _, digest in came) % (1 << 64)


def require_total(expected: Total | None, reports: Iterable[TaskReport]) -> None:
    """Refuse other rows than are expected, if anything is.

    Raises:
        RetryableConflictError: the query gives others each time.
    """
    found = total(reports)
    if expected is not None and expected != found:
        raise _changed(expected[0], found[0])


def _came(report: TaskReport | None) -> tuple[int, int, Digest | None]:
    if report is None:
        return 0, 0, None
    return report.rows, report.digest, None if report.ledger is None else report.ledger.digest


def _changed(first: int, second: int) -> RetryableConflictError:
    message = (
        "another commit was first, and the DataFrame returned different rows the second time "
        f"({first} rows, then {second})"
    )
    hint = "persist or checkpoint it before writing, or run the whole job again"
    return RetryableConflictError(message, hint=hint, rows_before=first, rows_after=second)
