"""A table in plain Python: what each operation means when nobody else is there.

It shares nothing with the code under test. Rows have an identity: partition and record key, or
the key alone where there are no partitions or it is unique in all of them. In a table without a
key each row has an id of its own, so that a row can be told from others there too.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.differential.clauses import CLAUSES, SETS, Clause
from tests.differential.program import AGAIN, CHANGE, COLUMNS, Do, Row, Shape, Where

Ident = tuple[object, ...]
Rows = dict[Ident, Row]
Event = tuple[str, Ident]
"""``inserted``, ``updated`` or ``deleted``, and which row."""
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}


class DuplicateError(Exception):
    """Keys came in that are there and may not be."""

    def __init__(self, keys: Iterable[Ident]) -> None:
        super().__init__()
        self.keys = frozenset(keys)


@dataclass(frozen=True, slots=True)
class Saw:
    """Rows that a client was shown."""

    where: Where | None
    rows: tuple[Row, ...]
    version: int | None = None
    """Of the table; None inside of a transaction."""


@dataclass(slots=True)
class Ran:
    """What operations did, one after the other."""

    rows: Rows
    events: list[Event] = field(default_factory=list)
    saw: list[tuple[Row, ...]] = field(default_factory=list)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Count rows inserted, updated and deleted."""
        kinds = [kind for kind, _ in self.events]
        inserted, updated, deleted = map(kinds.count, ("inserted", "updated", "deleted"))
        return inserted, updated, deleted


def ident(shape: Shape, row: Row) -> Ident:
    """Tell a row from others."""
    return (row[1], row[0]) if shape.partitioned and not shape.unique else (row[0],)


def holds(where: Where | None, row: Row) -> bool:
    """Ask a predicate of a row; with null nothing holds."""
    if where is None:
        return True
    value = row[COLUMNS.index(where.column)]
    return value is not None and _SIGNS[where.sign](value, where.value)


def shown(rows: Rows, where: Where | None) -> tuple[Row, ...]:
    """Give the rows that a scan shows, in a fixed order."""
    return in_order(row for row in rows.values() if holds(where, row))


def in_order(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Sort rows; null comes first."""
    return tuple(sorted(rows, key=lambda row: (*row[:3], row[3] is not None, row[3] or 0)))


def derived(do: Do, read: Sequence[Row]) -> Do:
    """Give an operation with rows that follow from what was read."""
    if do.derive == "sum":
        more = sum(row[2] for row in read) + len(read)
        return replace(do, rows=tuple((i, p, v + more, n) for i, p, v, n in do.rows), derive="")
    if do.derive == "bump":
        bumped = {(p, i): (i, p, v + 1, n) for i, p, v, n in read}
        rest = [row for row in do.rows if (row[1], row[0]) not in bumped]
        return replace(do, rows=(*rest, *bumped.values()), derive="")
    return do


def run(shape: Shape, rows: Rows, steps: Sequence[Do | Saw]) -> Ran:
    """Run operations and reads one after the other; raise DuplicateError."""
    ran = Ran(dict(rows))
    for step in steps:
        if isinstance(step, Saw):
            ran.saw.append(shown(ran.rows, step.where))
        else:
            for event, row in list(_effects(shape, ran.rows, step)):
                ran.events.append(event)
                ran.rows.pop(event[1], None)
                if row is not None:
                    ran.rows[event[1]] = row
    return ran


Effects = Iterator[tuple[Event, Row | None]]


def _effects(shape: Shape, rows: Rows, do: Do) -> Effects:
    return _KINDS[do.kind](shape, rows, do)


def _skip(shape: Shape, rows: Rows, do: Do) -> Effects:
    for row in do.rows:
        if ident(shape, row) not in rows:
            yield ("inserted", ident(shape, row)), row


def _delete_keys(shape: Shape, rows: Rows, do: Do) -> Effects:
    """Delete by key: in every partition, unless the partition is given too and matters."""
    placed = do.placed and shape.partitioned and not shape.unique
    gone = {(row[1], row[0]) if placed else row[0] for row in do.rows}
    for at, row in rows.items():
        if ((row[1], row[0]) if placed else row[0]) in gone:
            yield ("deleted", at), None


def _delete_where(_shape: Shape, rows: Rows, do: Do) -> Effects:
    for at, row in rows.items():
        if holds(do.where, row):
            yield ("deleted", at), None


def _update(_shape: Shape, rows: Rows, do: Do) -> Effects:
    for at, row in rows.items():
        if holds(do.where, row):
            yield ("updated", at), SETS[do.values][1](row)


def _put(shape: Shape, rows: Rows, do: Do) -> Effects:
    """Add rows, some of the old ones going before; a key that stays is refused."""
    places = {row[1] for row in do.rows}
    goes: dict[str, Callable[[Row], bool]] = {
        "overwrite": lambda _: True,
        "overwrite_where": lambda row: holds(do.where, row),
        "overwrite_partitions": lambda row: row[1] in places,
    }
    gone = {at for at, row in rows.items() if do.kind in goes and goes[do.kind](row)}
    new = _chosen(shape, do.rows)
    met = (rows.keys() - gone) & new.keys()
    if met:
        raise DuplicateError(met)
    for at in gone:
        yield ("deleted", at), None
    for at, row in new.items():
        yield ("inserted", at), row


def _chosen(shape: Shape, given: Sequence[Row]) -> Rows:
    """Of the rows of one key in one write, take the one that the ordering column chooses."""
    chosen: Rows = {}
    for row in given:
        before = chosen.get(ident(shape, row))
        if before is None or not shape.ordering or _rank(row) >= _rank(before):
            chosen[ident(shape, row)] = row
    return chosen


def _rank(row: Row) -> tuple[bool, int]:
    return row[3] is not None, row[3] or 0


def _upsert(shape: Shape, rows: Rows, do: Do) -> Effects:
    """Replace rows, unless the ordering column says that the one that is there is newer."""
    won: Rows = {}
    for row in do.rows:
        at = ident(shape, row)
        before = won.get(at, rows.get(at))
        if before is None or not shape.ordering or _rank(row) >= _rank(before):
            won[at] = row
    for at, row in won.items():
        yield ("updated" if at in rows else "inserted", at), row


def _change(shape: Shape, rows: Rows, do: Do) -> Effects:
    """Upsert, but let the key of the first row go; with three rows it comes again."""
    first = [ident(shape, row) for row in do.rows[:1]]
    rest = tuple(row for row in do.rows if ident(shape, row) not in first)
    yield from _upsert(shape, rows, replace(do, rows=rest))
    for at in first:
        if len(do.rows) > AGAIN:
            yield ("updated" if at in rows else "inserted", at), do.rows[0]
        elif at in rows:
            yield ("deleted", at), None


def _merge(shape: Shape, rows: Rows, do: Do) -> Effects:
    source = {ident(shape, row): row for row in do.rows}
    parts: dict[str, list[Clause]] = {"matched": [], "not_matched": [], "not_matched_by_source": []}
    for name in do.clauses:
        parts[CLAUSES[name].part].append(CLAUSES[name])
    for at, row in rows.items():
        incoming = source.get(at, row)
        for clause in parts["matched" if at in source else "not_matched_by_source"]:
            if clause.when(incoming, row):
                made = clause.make(incoming, row)
                yield ("deleted" if made is None else "updated", at), made
                break
    for at, incoming in source.items():
        if at in rows:
            continue
        for clause in parts["not_matched"]:
            if clause.when(incoming, incoming):
                yield ("inserted", at), clause.make(incoming, incoming)
                break


_KINDS: dict[str, Callable[[Shape, Rows, Do], Effects]] = {
    "append": _put,
    "insert": _put,
    "overwrite": _put,
    "overwrite_where": _put,
    "overwrite_partitions": _put,
    "skip": _skip,
    "upsert": _upsert,
    CHANGE: _change,
    "delete_keys": _delete_keys,
    "delete_where": _delete_where,
    "update": _update,
    "merge": _merge,
}
