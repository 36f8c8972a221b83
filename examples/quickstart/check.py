"""What must come out, computed from the source alone, and the comparison with what did.

Nothing here shares code with the processes that wrote the table. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from examples.quickstart.roles import (
    CORRECTED,
    CORRECTED_MONTH,
    CORRECTION_MINUTES,
    INGESTED,
    KEY,
    ORDERING,
)
from plait.model.history import HistoryEntry, TimelineView

_SAMPLES = 5


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the table compares with what it must hold, row by row and value by value."""

    expected: int
    correct: int
    missing: int
    surplus: int
    wrong: tuple[str, ...] = ()
    """Columns that differ somewhere, with how often."""

    @property
    def lost(self) -> int:
        """Rows that are not there, or not as they must be."""
        return self.expected - self.correct

    @property
    def passed(self) -> bool:
        """Whether every value is right, and no row is too many."""
        return not (self.lost or self.surplus)


def expect(source: pa.Table) -> pa.Table:
    """Return the rows that the table must hold: corrected where the corrections say so."""
    corrected = pc.equal(source["month"], pa.scalar(CORRECTED_MONTH, pa.int32()))
    for column in ("dep_delay", "arr_delay"):
        later = pc.add(source[column], pa.scalar(CORRECTION_MINUTES, pa.int32()))
        place = source.column_names.index(column)
        source = source.set_column(place, column, pc.if_else(corrected, later, source[column]))
    revision = pc.if_else(
        corrected, pa.scalar(CORRECTED, pa.int32()), pa.scalar(INGESTED, pa.int32())
    )
    return source.append_column(ORDERING, revision)


def compare(actual: pa.Table, expected: pa.Table) -> Comparison:
    """Compare every value of two tables, whatever the order of rows and columns.

    Rows meet by key; a key that is there twice counts as surplus, and as wrong.
    """
    left = actual.select(expected.column_names).cast(_plain(expected.schema))
    right = expected.cast(_plain(expected.schema))
    values = [name for name in right.column_names if name not in KEY]
    left = left.append_column("_there", pa.repeat(pa.scalar(1), left.num_rows))
    joined = right.join(left, list(KEY), right_suffix="_actual", join_type="left outer")
    there = pc.is_valid(joined["_there"])
    same, wrong = there, []
    for name in values:
        equal = _same(joined[name], joined[f"{name}_actual"])
        differs = _count(pc.and_(there, pc.invert(equal)))
        if differs:
            wrong.append(f"{name} ({differs:,} times)")
        same = pc.and_(same, equal)
    missing = joined.num_rows - _count(there)
    doubled = joined.num_rows - right.num_rows
    surplus = left.num_rows - (right.num_rows - missing)
    correct = _count(same) - doubled
    return Comparison(right.num_rows, correct, missing, surplus, tuple(wrong[:_SAMPLES]))


def _plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def _same(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.or_(both_null, pc.fill_null(pc.equal(left, right), pa.scalar(value=False)))


def _count(mask: pa.ChunkedArray) -> int:
    return int(pc.sum(mask.cast(pa.int64())).as_py() or 0)


@dataclass(frozen=True, slots=True)
class Overlap:
    """What the timeline says of the processes of a run."""

    committed: tuple[HistoryEntry, ...]
    rollback: HistoryEntry | None
    problems: tuple[str, ...]


def check_overlap(timeline: TimelineView, writers: dict[str, str], doomed: str) -> Overlap:
    """Check that all writers were at work before any of them published, and how each ended.

    Args:
        timeline: of the table.
        writers: name and instant of each process.
        doomed: the name of the one that was killed.

    """
    nonces = {name: instant.rsplit("-", 1)[-1] for name, instant in writers.items()}
    found = {entry.instant.nonce: entry for entry in timeline.decided}
    ended = {each.nonce: entry for entry in timeline.decided for each in entry.ended}
    committed = [found[n] for name, n in nonces.items() if name != doomed and n in found]
    problems = [
        f"{name} did not commit" for name, n in nonces.items() if name != doomed and n not in found
    ]
    first = min((entry.version for entry in committed), default=0)
    problems += [
        f"version {entry.version} began after version {first} was published"
        for entry in committed
        if entry.began >= first
    ]
    rollback = ended.get(nonces[doomed])
    if nonces[doomed] in found:
        problems.append(f"{doomed} was killed, and yet committed")
    elif rollback is None:
        problems.append(f"{doomed} was killed, and not rolled back")
    return Overlap(tuple(sorted(committed, key=lambda e: e.version)), rollback, tuple(problems))
