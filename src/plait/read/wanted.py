"""Which files an operation has to know of: what is asked of the state of a large table."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from plait.expr import Where
from plait.expr.prune import Flags, may_match
from plait.files.bounds import Kinds, file_bounds
from plait.model.bucket import Partition, partition_text
from plait.model.plan import TableSpec
from plait.model.value import is_plain
from plait.read.condition import Condition
from plait.read.plan import judge_partitions


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which files are asked for, and what of them."""

    partitions: Callable[[pa.Array], Flags] | None = None
    """Given distinct partitions (``partition_text``), which of them; None: every one."""
    kinds: Kinds = field(default_factory=dict)
    """The fields whose bounds are asked for."""
    matching: Callable[[pa.Table], Flags] | None = None
    """Given the rows and typed bounds of files, which of them may match; None: every one."""


Wants: TypeAlias = Callable[[TableSpec], Wanted]
"""What is wanted of a version, given its columns."""


def everything(_: TableSpec) -> Wanted:
    """Ask for every file, and for no bounds."""
    return Wanted()


def wanted_where(where: Where) -> Wants:
    """Ask for the files in which a row may match.

    Raises:
        PredicateError: the predicate cannot be understood; when the files are loaded.
    """

    def wants(spec: TableSpec) -> Wanted:
        condition = Condition.of(where, spec.schema.arrow)
        if condition is None:
            return Wanted()
        looked_at = condition.columns
        by_partition = None
        if {*spec.partition_sources, *spec.decided_columns} & set(looked_at):

            def by_partition(texts: pa.Array) -> Flags:
                return judge_partitions(texts, condition, spec)

        schema = spec.schema
        kinds_of = {name: schema.arrow.field(name).type for name in looked_at}
        bounded = [
            n for n, kind in kinds_of.items() if n not in spec.decided_columns and is_plain(kind)
        ]
        kinds = {schema.field_id(name): kinds_of[name] for name in bounded}
        if not kinds:
            return Wanted(by_partition)

        def matching(files: pa.Table) -> Flags:
            told = files.append_column("stats", pa.nulls(files.num_rows, pa.string()))
            bounds = file_bounds(told, bounded, schema)
            return may_match(condition.predicate, bounds, files.num_rows)

        return Wanted(by_partition, kinds, matching)

    return wants


def wanted_in(partitions: Collection[Partition]) -> Wants:
    """Ask for the files of some partitions, and for no bounds."""
    chosen = pa.array([partition_text(each) for each in partitions], pa.string())

    def among(texts: pa.Array) -> Flags:
        flags: Flags = pc.is_in(texts, value_set=chosen).to_numpy(zero_copy_only=False)
        return flags

    return lambda _: Wanted(among)
