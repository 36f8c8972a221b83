"""Compare the rows of two scans, in bounded memory, wherever their rows lie.

Rows are divided into parts by the hash of their key, so that a row and its changed version meet in
one part whatever the layouts of the two tables. A digest of each part does not depend on the order
of rows: their number, and the sum of 128 bits of hash of each. Only parts whose digests differ are
looked at again, some at a time; then the rows that differ are fetched by their hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from plait.arrow.engine import ArrowEngine
from plait.engine import engine_within
from plait.errors import OptionError, SchemaMismatchError
from plait.files.hash import Hashes, bucket_of, key_hashes, sorted_once
from plait.files.keys import Indices
from plait.model.plain import Plain
from plait.model.schema import type_name
from plait.model.value import plain_rows
from plait.read.equal import NO_PRINTS, Prints, fingerprints, unmatched
from plait.read.scan import Scan

_PART_ROWS: Final = 1 << 16
"""Approximate number of rows in a part."""
_PARTS_MAX: Final = 1 << 14
_ROWS_AT_ONCE: Final = 1 << 22
"""Maximum number of rows of each side that are compared at once: about 100 MB of hashes."""
_MISSING, _EXTRA, _BEFORE, _AFTER = "missing", "extra", "before", "after"
KIND: Final = "_difference"
"""The column that says what a differing row is."""


@dataclass(frozen=True, slots=True)
class Comparison(Plain):
    """How the rows of one scan differ from those of another."""

    KEYS = "equal rows other_rows missing extra changed"

    rows: int
    """Rows of the first scan."""
    other_rows: int
    """Rows of the second scan."""
    missing: int
    """Rows of the first whose key the second does not have."""
    extra: int
    """Rows of the second whose key the first does not have."""
    changed: int
    """Keys that both have, with other values."""
    sample: pa.Table
    """Some differing rows. ``_difference`` is ``missing`` or ``extra``, or ``before`` and ``after``
    for the row of a changed key in the first and in the second scan."""

    @property
    def equal(self) -> bool:
        """Whether both have the same rows, as often."""
        return not (self.missing or self.extra or self.changed)

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return Plain.to_dict(self) | {"sample": plain_rows(self.sample)}


def compare(one: Scan, other: Scan, *, limit: int = 20, spark: object = None) -> Comparison:
    """Compare the rows of two scans as multisets; each is read once, and again where they differ.

    Values are compared exactly: 0.0 differs from -0.0, and a NaN equals a NaN with its bits. Two
    different rows pass as equal if 128 bits of hash agree.

    Args:
        one: the rows to compare with, and whose record key tells a changed row from a missing one.
        other: the rows that should be the same; with the same columns, in any order.
        limit: how many differing rows to return at most.
        spark: a session whose executors read the rows; by default this process does.

    Raises:
        SchemaMismatchError: the columns differ, by name or type.
        OptionError: ``limit`` is negative, or no engine works in such a session.
    """
    engine_within(spark, ArrowEngine(store=one.store))  # refuses what is no session
    if limit < 0:
        raise OptionError(f"limit={limit} is negative", hint="0 or more", key="limit", value=limit)
    _require_same_columns(one.schema, other.schema)
    names = tuple(one.schema.names)
    whole = one.snapshot.spec.key
    key = whole if whole and set(whole) <= set(names) else ()
    sides = [_Side(scan, names, key, spark) for scan in (one, other)]
    parts = _parts_for(max(one.plan.rows, other.plan.rows))
    ours, theirs = (side.digests(parts) for side in sides)
    found = _Differences(limit)
    for group in _groups(ours, theirs):
        found.add(*(side.prints(parts, group) for side in sides))
    shown = (found.ours, found.theirs)
    rows = [side.rows(hashed.prints) for side, hashed in zip(sides, shown, strict=True)]
    return Comparison(
        int(ours.count.sum()),
        int(theirs.count.sum()),
        found.missing,
        found.extra,
        found.changed,
        found.sample(*rows),
    )


def _require_same_columns(one: pa.Schema, other: pa.Schema) -> None:
    left, right = ({f.name: type_name(f.type) for f in schema} for schema in (one, other))
    differing = sorted(n for n in {*left, *right} if left.get(n) != right.get(n))
    if differing:
        shown = [f"{n} ({left.get(n, 'absent')} / {right.get(n, 'absent')})" for n in differing]
        message = f"the columns differ: {', '.join(shown)}"
        raise SchemaMismatchError(message, hint="name the columns to compare", column=differing[0])


def _parts_for(rows: int) -> int:
    """Return into how many parts rows are divided: a power of two."""
    return min(_PARTS_MAX, 1 << max(0, rows // _PART_ROWS).bit_length())


@dataclass(slots=True)
class _Digests:
    """For each part, the number of its rows and the sums of their hashes."""

    count: npt.NDArray[np.int64]
    sums: Prints

    @classmethod
    def none(cls, parts: int) -> Self:
        return cls(np.zeros(parts, np.int64), np.zeros((parts, 2), np.uint64))

    def differing(self, other: _Digests) -> Indices:
        """Return the parts that differ."""
        same = (self.count == other.count) & (self.sums == other.sums).all(axis=1)
        return np.flatnonzero(~same)


def _groups(ours: _Digests, theirs: _Digests) -> Iterator[Indices]:
    """Divide the parts that differ into groups of which the rows of both sides fit in memory."""
    parts = ours.differing(theirs)
    rows = np.maximum(ours.count, theirs.count)[parts]
    start = total = 0
    for at, count in enumerate(rows.tolist()):
        if at > start and total + count > _ROWS_AT_ONCE:
            yield parts[start:at]
            start, total = at, 0
        total += count
    if len(parts):
        yield parts[start:]


# --- passes over the rows: from batches, here or in an executor, to a few columns -----------------

Pass = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class _Hasher:
    """Hashes rows: whole, and their keys."""

    names: tuple[str, ...]
    """The columns, in the order in which both sides are hashed."""
    key: tuple[str, ...]

    def hash(self, batch: pa.RecordBatch) -> tuple[Prints, Hashes]:
        """Return 128 bits for each row, and the hash that says in which part it is."""
        prints = fingerprints(batch.select(list(self.names)))
        return prints, key_hashes(batch, self.key) if self.key else prints[:, 0]

    def digests(self, batches: Iterable[pa.RecordBatch], parts: int) -> Iterator[pa.RecordBatch]:
        found = _Digests.none(parts)
        for batch in batches:
            prints, hashes = self.hash(batch)
            at = bucket_of(hashes, parts)
            found.count += np.bincount(at, minlength=parts)
            np.add.at(found.sums, at, prints)
        there = np.flatnonzero(found.count)
        yield _batch(part=there, count=found.count[there], **_halves(found.sums[there]))

    def prints(
        self, batches: Iterable[pa.RecordBatch], parts: int, group: Indices
    ) -> Iterator[pa.RecordBatch]:
        wanted = np.zeros(parts, np.bool_)
        wanted[group] = True
        for batch in batches:
            prints, hashes = self.hash(batch)
            inside = wanted[bucket_of(hashes, parts)]
            yield _batch(key=hashes[inside].view(np.int64), **_halves(prints[inside]))

    def rows(self, batches: Iterable[pa.RecordBatch], wanted: Prints) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            inside = np.isin(self.hash(batch)[0][:, 0], wanted[:, 0])
            if inside.any():
                yield batch.select(list(self.names)).filter(pa.array(inside))


_DIGESTS: Final = pa.schema([(name, pa.int64()) for name in ("part", "count", "low", "high")])
_PRINTS: Final = pa.schema([(name, pa.int64()) for name in ("key", "low", "high")])


def _batch(**columns: npt.NDArray[np.int64]) -> pa.RecordBatch:
    return pa.record_batch({name: pa.array(values, pa.int64()) for name, values in columns.items()})


def _halves(prints: Prints) -> Mapping[str, npt.NDArray[np.int64]]:
    """Return two columns of numbers that Spark knows too: signed ones."""
    return {"low": prints[:, 0].view(np.int64), "high": prints[:, 1].view(np.int64)}


def _prints_of(table: pa.Table) -> Prints:
    halves = [table[name].to_numpy().view(np.uint64) for name in ("low", "high")]
    return np.stack(halves, axis=1)


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two scans."""

    scan: Scan
    names: tuple[str, ...]
    key: tuple[str, ...]
    spark: object

    def digests(self, parts: int) -> _Digests:
        """Return the digests of all parts; those of tasks are added up."""
        rows = self._run(partial(self._hasher.digests, parts=parts), _DIGESTS)
        found = _Digests.none(parts)
        at = rows["part"].to_numpy()
        np.add.at(found.count, at, rows["count"].to_numpy())
        np.add.at(found.sums, at, _prints_of(rows))
        return found

    def prints(self, parts: int, group: Indices) -> _Hashed:
        """Return the hashes of the rows in some parts."""
        rows = self._run(partial(self._hasher.prints, parts=parts, group=group), _PRINTS)
        return _Hashed(rows["key"].to_numpy(), _prints_of(rows))

    def rows(self, wanted: Prints) -> pa.Table:
        """Return the rows with these hashes, with the columns of the comparison."""
        schema = pa.schema([self.scan.schema.field(name) for name in self.names])
        if not len(wanted):
            return schema.empty_table()
        rows = self._run(partial(self._hasher.rows, wanted=wanted), schema)
        return rows.cast(schema)  # Spark has other time zones

    @property
    def _hasher(self) -> _Hasher:
        return _Hasher(self.names, self.key)

    def _run(self, each: Pass, schema: pa.Schema) -> pa.Table:
        """Run a pass over all rows; ``schema``: that of what it gives."""
        if self.spark is None:
            return pa.Table.from_batches(list(each(self.scan.to_reader())), schema=schema)
        frame = self.scan.to_spark(self.spark)  # type: ignore[arg-type]  # a session
        kinds = ", ".join(f"`{each.name}` {type_name(each.type)}" for each in schema)
        return frame.mapInArrow(each, kinds).toArrow()


_KEY, _SECOND = "_key", "_second"


@dataclass(frozen=True, slots=True)
class _Hashed:
    """The hashes of some rows of one side."""

    keys: npt.NDArray[np.int64]
    prints: Prints

    def at(self, places: Indices) -> _Hashed:
        """Return some of them."""
        return _Hashed(self.keys[places], self.prints[places])

    def and_those_of(self, other: _Hashed, keys: npt.NDArray[np.int64]) -> _Hashed:
        """Return these and, of others, those with some keys."""
        more = other.at(np.flatnonzero(np.isin(other.keys, keys)))
        return _Hashed(
            np.concatenate([self.keys, more.keys]), np.concatenate([self.prints, more.prints])
        )

    def labelled(self, rows: pa.Table, other: _Hashed, *, alone: str, both: str) -> pa.Table:
        """Choose these among the rows that were fetched, and say what each of them is."""
        left: dict[tuple[int, ...], list[int]] = {}
        for key, row in zip(self.keys.tolist(), self.prints.tolist(), strict=True):
            left.setdefault(tuple(row), []).append(key)
        chosen: list[tuple[int, int]] = []  # of several equal rows, as many as have no equal
        batches = rows.combine_chunks().to_batches()
        found = fingerprints(batches[0]).tolist() if batches else []
        for at, row in enumerate(found):
            if keys := left.get(tuple(row)):
                chosen.append((at, keys.pop()))
        keys = [key for _, key in chosen]
        known = set(other.keys.tolist())
        return pa.table(
            {
                _SECOND: pa.repeat(0, len(keys)),
                _KEY: pa.array(keys, pa.int64()),
                KIND: pa.array([both if key in known else alone for key in keys], pa.string()),
                **_columns(rows.take(pa.array([at for at, _ in chosen], pa.int64()))),
            }
        )


def _columns(rows: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(rows.schema.names, rows.columns, strict=True))


def _pairs(ours: npt.NDArray[np.int64], theirs: npt.NDArray[np.int64]) -> int:
    """Return how many rows of one side can be paired with a row of the other that has its key."""
    mine, my_counts = np.unique(ours, return_counts=True)
    others, their_counts = np.unique(theirs, return_counts=True)
    _, i, j = np.intersect1d(mine, others, assume_unique=True, return_indices=True)
    return int(np.minimum(my_counts[i], their_counts[j]).sum())


_NO_ROWS: Final = _Hashed(np.zeros(0, np.int64), NO_PRINTS)


@dataclass(slots=True)
class _Differences:
    """Counts rows that differ, and remembers the hashes of some."""

    limit: int
    """Keys to remember."""
    missing: int = 0
    extra: int = 0
    changed: int = 0
    ours: _Hashed = _NO_ROWS
    theirs: _Hashed = _NO_ROWS
    _keys: int = 0

    def add(self, ours: _Hashed, theirs: _Hashed) -> None:
        """Match the rows of some parts one to one; count what has no equal."""
        mine, others = unmatched(ours.prints, theirs.prints)
        ours, theirs = ours.at(mine), theirs.at(others)
        pairs = _pairs(ours.keys, theirs.keys)
        self.changed += pairs
        self.missing += len(ours.keys) - pairs
        self.extra += len(theirs.keys) - pairs
        keys = np.concatenate([ours.keys, theirs.keys]).view(np.uint64)
        chosen = sorted_once(keys)[: self.limit - self._keys].view(np.int64)
        self._keys += len(chosen)
        self.ours = self.ours.and_those_of(ours, chosen)
        self.theirs = self.theirs.and_those_of(theirs, chosen)

    def sample(self, ours: pa.Table, theirs: pa.Table) -> pa.Table:
        """Return the rows that were fetched, each with what it is; those of a key together."""
        one = self.ours.labelled(ours, self.theirs, alone=_MISSING, both=_BEFORE)
        other = self.theirs.labelled(theirs, self.ours, alone=_EXTRA, both=_AFTER)
        order = [(_KEY, "ascending"), (_SECOND, "ascending")]
        rows = pa.concat_tables([one, other.set_column(0, _SECOND, pa.repeat(1, other.num_rows))])
        return rows.sort_by(order).drop_columns([_KEY, _SECOND])
