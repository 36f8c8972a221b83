"""Decide which files a scan reads: by partition, by bucket, by bounds. Nothing is read here.

Of a large table not even the metadata is loaded whole: ``FileCriteria`` says what an operation
has to know of, and the state loads that alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import CorruptMetadataError
from plait.expr import Predicate, Where, columns_read, key_points
from plait.expr.prune import Flags, may_match, satisfied
from plait.expr.tree import all_of, conjuncts
from plait.files.bounds import Kinds, file_bounds
from plait.files.hash import Hashes, bucket_of, key_hashes, sorted_once
from plait.files.partition_values import decided_in, known_of, values_of
from plait.model.bucket import UNKEYED, Partition, partition_parse, partition_text
from plait.model.partitioning import PartitionField
from plait.model.plain import Plain
from plait.model.plan import Snapshot, TableSpec
from plait.model.schema import is_written
from plait.model.value import from_raws, is_plain, texts_of
from plait.read.condition import Condition


@dataclass(frozen=True, slots=True)
class FileCriteria:
    """Which files are asked for, and what of them."""

    partitions: Callable[[pa.Array], Flags] | None = None
    """Given distinct partitions (``partition_text``), which of them; None: every one."""
    kinds: Kinds = field(default_factory=dict)
    """The fields whose bounds are asked for."""
    matching: Callable[[pa.Table], Flags] | None = None
    """Given the rows and typed bounds of files, which of them may match; None: every one."""


FileFilter: TypeAlias = Callable[[TableSpec], FileCriteria]
"""What is wanted of a version, given its columns."""


def all_files(_: TableSpec) -> FileCriteria:
    """Ask for every file, and for no bounds."""
    return FileCriteria()


def filter_where(where: Where) -> FileFilter:
    """Ask for the files in which a row may match.

    Raises:
        PredicateError: the predicate cannot be understood; when the files are loaded.
    """

    def file_filter(spec: TableSpec) -> FileCriteria:
        condition = Condition.of(where, spec.readable)
        if condition is None:
            return FileCriteria()
        looked_at = condition.columns
        by_partition = None
        if {*spec.partition_sources, *spec.decided_columns} & set(looked_at):

            def by_partition(texts: pa.Array) -> Flags:
                return judge_partitions(texts, condition, spec)

        schema = spec.schema
        kinds_of = {name: schema.arrow.field(name).type for name in _stored(looked_at, spec)}
        bounded = [
            n for n, kind in kinds_of.items() if n not in spec.decided_columns and is_plain(kind)
        ]
        kinds = {schema.ids[name]: kinds_of[name] for name in bounded}
        if not kinds:
            return FileCriteria(by_partition)

        def matching(files: pa.Table) -> Flags:
            with_stats = files.append_column("stats", pa.nulls(files.num_rows, pa.string()))
            bounds = file_bounds(with_stats, bounded, schema)
            return may_match(condition.implied, bounds, files.num_rows)

        return FileCriteria(by_partition, kinds, matching)

    return file_filter


def filter_partitions(partitions: Collection[Partition]) -> FileFilter:
    """Ask for the files of some partitions, and for no bounds."""
    chosen = pa.array([partition_text(each) for each in partitions], pa.string())

    def among(texts: pa.Array) -> Flags:
        flags: Flags = pc.is_in(texts, value_set=chosen).to_numpy(zero_copy_only=False)
        return flags

    return lambda _: FileCriteria(among)


@dataclass(frozen=True, slots=True)
class ScanPlan(Plain):
    """Which files are read, and why the others are not."""

    KEYS = (
        "version columns files_total files_read=files.num_rows pruned_by_partition "
        "pruned_by_bucket pruned_by_bounds pruned_by_limit rows_max=rows size_bytes"
    )

    version: int
    columns: tuple[str, ...]
    files: pa.Table
    """LIVE, in the order in which they are read: partition, bucket, path."""
    condition: Condition | None
    """What is still to be asked of their rows; None: every row is wanted."""
    files_total: int
    pruned_by_partition: int
    pruned_by_bucket: int
    pruned_by_bounds: int
    pruned_by_limit: int = 0
    """Files that are not needed for the rows of a limit; known only where every row is wanted."""

    def limited(self, rows: int) -> ScanPlan:
        """Return a plan that reads the first files in which there are so many rows."""
        if self.condition is not None:
            return self
        live = pc.cumulative_sum(pc.subtract(self.files["rows"], self.files["masked"]))
        # The files before the one in which the last of these rows is, and that one.
        needed = (_sum(pc.less(live, rows).cast(pa.int64())) + 1) if rows else 0
        kept = self.files.slice(0, needed)
        return replace(self, files=kept, pruned_by_limit=self.files.num_rows - kept.num_rows)

    def counted(self, spec: TableSpec) -> tuple[int, ScanPlan]:
        """Count the rows of files of which bounds prove that every row matches.

        Return a plan of the others, too. Bounds say what is in a file, also of its hidden rows.

        Raises:
            CorruptMetadataError: bounds in the metadata are damaged.
        """
        if self.condition is None:
            return self.rows, replace(self, files=self.files.slice(0, 0))
        bounds = file_bounds(self.files, _stored(self.condition.columns, spec), spec.schema)
        flags = satisfied(self.condition.predicate, bounds, self.files.num_rows)
        proven = replace(self, files=self.files.filter(pa.array(flags)))
        return proven.rows, replace(self, files=self.files.filter(pa.array(~flags)))

    @property
    def rows(self) -> int:
        """Rows in these files that are not hidden: the most that the scan can give."""
        return _sum(self.files["rows"]) - _sum(self.files["masked"])

    @property
    def size_bytes(self) -> int:
        """Bytes of these files."""
        return _sum(self.files["bytes"])


def plan_scan(
    snapshot: Snapshot, *, columns: Sequence[str] | None = None, where: Where = None
) -> ScanPlan:
    """Choose the files in which a row may match.

    Args:
        snapshot: the version to read.
        columns: what is read, in this order; None: all columns.
        where: the predicate; None: every row.

    Raises:
        PredicateError: the predicate cannot be understood.
        CorruptMetadataError: partition values or bounds in the metadata are damaged.
    """
    spec, files = snapshot.spec, snapshot.files
    names = tuple(spec.schema.names if columns is None else columns)
    condition = None if where is None else Condition.of(where, spec.readable)
    counts = [files.num_rows if snapshot.total is None else snapshot.total]
    if condition is not None and counts[0]:
        by_partition, rest = _by_partition(files, condition, spec)
        files = _kept(files, by_partition, counts)
        keys = _hashes(condition.implied, spec, spec.key)
        files = _kept(files, _by_bucket(files, condition.implied, spec), counts)
        counts[1:] = [count + snapshot.unmatched for count in counts[1:]]
        if rest is not None:
            bounds = file_bounds(files, _stored(rest.columns, spec), spec.schema)
            files = _kept(files, may_match(rest.implied, bounds, files.num_rows), counts)
        condition = None if rest is None else replace(rest, keys=keys)
    pruned = [before - after for before, after in itertools.pairwise(counts)]
    by_reason = dict(zip(("partition", "bucket", "bounds"), pruned, strict=False))
    order = [("partition", "ascending"), ("bucket", "ascending"), ("path", "ascending")]
    return ScanPlan(
        version=snapshot.version,
        columns=names,
        files=files.take(pc.sort_indices(files.select(["partition", "bucket", "path"]), order)),
        condition=condition,
        files_total=counts[0],
        pruned_by_partition=by_reason.get("partition", 0),
        pruned_by_bucket=by_reason.get("bucket", 0),
        pruned_by_bounds=by_reason.get("bounds", 0),
    )


def _stored(names: Sequence[str], spec: TableSpec) -> list[str]:
    """Leave out the hidden column: its bounds leave out the rows that their own commit wrote."""
    return [name for name in names if not is_written(name, spec.schema)]


def _kept(files: pa.Table, flags: Flags, counts: list[int]) -> pa.Table:
    kept = files if bool(flags.all()) else files.filter(pa.array(flags))
    counts.append(kept.num_rows)
    return kept


def _sum(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column).as_py() or 0)


def _by_partition(
    files: pa.Table, condition: Condition, spec: TableSpec
) -> tuple[Flags, Condition | None]:
    """Judge each distinct partition once.

    Conditions on partition columns alone are decided here for good; the rest is given back.
    """
    if not {*spec.partition_sources, *spec.decided_columns} & set(condition.columns):
        return np.ones(files.num_rows, dtype=np.bool_), condition
    encoded = files["partition"].combine_chunks().dictionary_encode()
    flags = judge_partitions(encoded.dictionary, condition, spec)
    undecided = _open(condition.predicate, frozenset(spec.decided_columns))
    rest = Condition.of(undecided, spec.readable)
    return flags[encoded.indices.to_numpy()], rest


def judge_partitions(texts: pa.Array, condition: Condition, spec: TableSpec) -> Flags:
    """Tell in which of some distinct partitions a row may match.

    Raises:
        CorruptMetadataError: partition values in the metadata are damaged.
    """
    partitions = _partitions(texts, spec)
    try:
        known = known_of(partitions, spec) | decided_in(partitions, spec)
    except ValueError as error:
        raise _damaged(error) from error
    flags = may_match(condition.implied, known, len(texts))
    for at, part in enumerate(spec.fields):
        # A function of one's own may be another one in each process, so no file is skipped by it.
        judged = part.is_ordered or part.is_custom
        named = None if judged else _values_asked(part, condition.implied, spec)
        if named is not None:
            flags = flags & np.array([each[at] in named for each in partitions], np.bool_)
    return flags


def _values_asked(
    field: PartitionField, predicate: Predicate, spec: TableSpec
) -> frozenset[str | None] | None:
    """Return the values of a field for what a predicate asks for; None if it does not say."""
    kinds = [spec.schema.arrow.field(name).type for name in field.sources]
    points = key_points(predicate, field.sources)
    if points is None or not all(map(_is_exact, kinds)):
        return None
    columns = list(zip(*points, strict=True)) or [()] * len(kinds)
    arrays = [from_raws(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    rows = pa.RecordBatch.from_arrays(arrays, names=list(field.sources))
    return frozenset(texts_of(values_of(field, rows)))


def _is_exact(kind: pa.DataType) -> bool:
    """Tell whether values that are equal are the same: floats have two zeros."""
    return is_plain(kind) and not pa.types.is_floating(kind)


def _open(predicate: Predicate, known: frozenset[str]) -> Predicate:
    """Leave out the conditions that look at known columns alone."""
    read = [(item, columns_read(item)) for item in conjuncts(predicate)]
    return all_of(*(item for item, names in read if not names or not names <= known))


def _partitions(texts: pa.Array, spec: TableSpec) -> list[Partition]:
    """Read the values of distinct partitions."""
    try:
        found = [partition_parse(text) for text in texts.to_pylist()]
    except ValueError as error:
        raise _damaged(error) from error
    if any(len(each) != len(spec.fields) for each in found):
        names = ", ".join(spec.layout.partition_by)
        raise _damaged(ValueError(f"a partition in the metadata lacks a value for one of {names}"))
    return found


def _damaged(error: ValueError) -> CorruptMetadataError:
    message = f"partition values in the metadata are damaged: {error}"
    return CorruptMetadataError(message, hint="run tablectl verify", found=str(error))


def _hashes(predicate: Predicate, spec: TableSpec, names: tuple[str, ...]) -> Hashes | None:
    """Return the hashes of the values that a predicate asks for, if it names all the columns."""
    points = key_points(predicate, names)
    kinds = [spec.schema.arrow.field(name).type for name in names]
    if points is None or not all(is_plain(kind) for kind in kinds):
        return None
    columns = list(zip(*points, strict=True)) or [()] * len(names)
    arrays = [from_raws(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    return sorted_once(key_hashes(pa.table(arrays, names=list(names)), names))


def _by_bucket(files: pa.Table, predicate: Predicate, spec: TableSpec) -> Flags:
    """Keep the buckets in which rows may match; all buckets if the predicate does not say."""
    hashes = _hashes(predicate, spec, spec.layout.buckets.hashed)
    if hashes is None:
        return np.ones(files.num_rows, dtype=np.bool_)
    wanted = np.append(bucket_of(hashes, spec.layout.buckets.count), UNKEYED)
    flags: Flags = np.isin(files["bucket"].to_numpy(), wanted)
    return flags
