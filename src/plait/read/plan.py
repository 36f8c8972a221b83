"""Decide which files a scan reads: by partition, by bucket, by bounds. Nothing is read here."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import CorruptMetadataError
from plait.expr import Predicate, Where, columns_read, key_points
from plait.expr.prune import Flags, may_match
from plait.expr.tree import all_of, conjuncts
from plait.files.bounds import file_bounds
from plait.files.hash import Hashes, bucket_of, key_hashes, sorted_once
from plait.model.bucket import UNKEYED, partition_parse
from plait.model.plan import Snapshot, TableSpec
from plait.model.value import array_of, from_raws, is_plain
from plait.read.condition import Condition


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """Which files are read, and why the others are not."""

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

    @property
    def rows(self) -> int:
        """Rows in these files that are not hidden: the most that the scan can give."""
        return _sum(self.files["rows"]) - _sum(self.files["masked"])

    @property
    def size_bytes(self) -> int:
        """Bytes of these files."""
        return _sum(self.files["bytes"])

    def to_dict(self) -> dict[str, object]:
        """Return the report as plain values."""
        return {
            "version": self.version,
            "columns": list(self.columns),
            "files_total": self.files_total,
            "files_read": self.files.num_rows,
            "pruned_by_partition": self.pruned_by_partition,
            "pruned_by_bucket": self.pruned_by_bucket,
            "pruned_by_bounds": self.pruned_by_bounds,
            "rows_max": self.rows,
            "size_bytes": self.size_bytes,
        }


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
    condition = Condition.of(where, spec.schema.arrow)
    counts = [files.num_rows if snapshot.total is None else snapshot.total]
    if condition is not None and counts[0]:
        by_partition, rest = _by_partition(files, condition, spec)
        files = _kept(files, by_partition, counts)
        keys = _keys(condition.predicate, spec)
        files = _kept(files, _by_bucket(files, keys, spec), counts)
        counts[1:] = [count + snapshot.unmatched for count in counts[1:]]
        if rest is not None:
            bounds = file_bounds(files, rest.columns, spec.schema)
            files = _kept(files, may_match(rest.predicate, bounds, files.num_rows), counts)
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
    if not set(spec.partition_by) & set(condition.columns):
        return np.ones(files.num_rows, dtype=np.bool_), condition
    encoded = files["partition"].combine_chunks().dictionary_encode()
    flags = judge_partitions(encoded.dictionary, condition, spec)
    rest = Condition.of(_open(condition.predicate, frozenset(spec.partition_by)), spec.schema.arrow)
    return flags[encoded.indices.to_numpy()], rest


def judge_partitions(texts: pa.Array, condition: Condition, spec: TableSpec) -> Flags:
    """Tell in which of some distinct partitions a row may match.

    Raises:
        CorruptMetadataError: partition values in the metadata are damaged.
    """
    values = _partition_values(texts, spec)
    return may_match(condition.predicate, values, len(texts))


def _open(predicate: Predicate, known: frozenset[str]) -> Predicate:
    """Leave out the conditions that look at known columns alone."""
    read = [(item, columns_read(item)) for item in conjuncts(predicate)]
    return all_of(*(item for item, names in read if not names or not names <= known))


def _partition_values(texts: pa.Array, spec: TableSpec) -> Mapping[str, pa.Array]:
    """Read the values of distinct partitions, a column for each partition column."""
    names = spec.partition_by
    try:
        rows = [partition_parse(text) for text in texts.to_pylist()]
        if any(len(row) != len(names) for row in rows):
            message = f"a partition in the metadata lacks a value for one of {', '.join(names)}"
            raise ValueError(message)
        columns = list(zip(*rows, strict=True)) or [()] * len(names)
        kinds = [spec.schema.arrow.field(name).type for name in names]
        return {
            name: array_of(column, kind)
            for name, column, kind in zip(names, columns, kinds, strict=True)
        }
    except ValueError as error:
        message = f"partition values in the metadata are damaged: {error}"
        raise CorruptMetadataError(message, hint="run tablectl verify", found=str(error)) from error


def _keys(predicate: Predicate, spec: TableSpec) -> Hashes | None:
    """Return the hashes of the record keys that a predicate asks for, if it names them all."""
    points = key_points(predicate, spec.key)
    kinds = [spec.schema.arrow.field(name).type for name in spec.key]
    if points is None or not all(is_plain(kind) for kind in kinds):
        return None
    columns = list(zip(*points, strict=True)) or [()] * len(spec.key)
    arrays = [from_raws(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    return sorted_once(key_hashes(pa.table(arrays, names=list(spec.key)), spec.key))


def _by_bucket(files: pa.Table, keys: Hashes | None, spec: TableSpec) -> Flags:
    """Keep the buckets of some record keys; all buckets if they are not known."""
    if keys is None:
        return np.ones(files.num_rows, dtype=np.bool_)
    wanted = np.append(bucket_of(keys, spec.buckets.count), UNKEYED)
    flags: Flags = np.isin(files["bucket"].to_numpy(), wanted)
    return flags
