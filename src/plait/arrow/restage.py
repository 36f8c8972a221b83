"""Give back what a writer took in, in order, so that it can be staged under another layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from plait.arrow.existing import Existing, as_live
from plait.arrow.ingest import Group
from plait.arrow.operations import StagedInput
from plait.arrow.sinks import LogSink
from plait.errors import RetryableConflictError
from plait.model.instant import Operation
from plait.model.plan import TableSpec
from plait.model.request import WriteRequest
from plait.model.value import array_of


def require_restageable(
    request: WriteRequest, old: TableSpec, new: TableSpec, *, removes: Callable[[], bool]
) -> None:
    """Refuse what would mean something else under the new layout.

    Args:
        request: what is written.
        old: the layout under which it was staged.
        new: the layout of the table.
        removes: tells whether keys of partitions are to be removed.

    Raises:
        RetryableConflictError: partitions are overwritten, or keys of partitions removed, and the
            table has other partitions now.
    """
    if set(old.partition_by) - set(old.key) == set(new.partition_by) - set(new.key):
        return
    what = ""
    if request.operation is Operation.OVERWRITE and request.overwrite == "partitions":
        what = "it overwrites the partitions of its rows"
    elif removes():
        what = "it removes keys of partitions"
    if what:
        message = f"a repush gave the table other partitions while this was written: {what}"
        raise RetryableConflictError(
            message,
            hint="run the write again",
            partitions=list(new.partition_by),
            before=list(old.partition_by),
        )


def replayed(
    came: StagedInput, existing: Existing, *, deletes: bool
) -> Iterator[tuple[pa.Table, bool]]:
    """Return everything that came in, bucket by bucket, each in its order.

    The flag tells keys that are removed from rows. The memory of a bucket is free again when the
    next one begins.

    Args:
        came: runs, logs and appended files; what is read from it is not there any more.
        existing: reads files of the writer's own layout.
        deletes: whether all that came are keys to remove.
    """
    spec = existing.spec
    for group in sorted(came.groups, key=str):
        partition = _columns_of(group, spec)
        if came.appends is not None:
            for record in came.appends.records.get((group[0] or (), group[1]), ()):
                yield from ((rows, False) for rows in _rows_in(record, existing))
            continue
        if came.logs is not None:
            yield from _logged(came.logs, group, existing, partition)
        for source in came.runs.sources(group):
            removes = source.removes or deletes
            for block in source.blocks:
                yield (partition.added_to(block.rows) if removes else block.rows), removes
        came.runs.forget(group)


def removes_in_partitions(came: StagedInput, *, deletes: bool) -> bool:
    """Tell whether keys to remove came whose place the partitions decide.

    A delete without partitions looks everywhere; a removal among rows looks in its partition alone.
    """
    if deletes:
        return any(group[0] for group in came.groups)
    return any(_removes(came, group) for group in came.groups)


def _removes(came: StagedInput, group: Group) -> bool:
    logged = came.logs is not None and bool(came.logs.removals.get((group[0] or (), group[1])))
    return logged or any(each.removes for each in came.runs.sources(group))


def _logged(
    logs: LogSink, group: Group, existing: Existing, partition: _PartitionColumns
) -> Iterator[tuple[pa.Table, bool]]:
    bucket = (group[0] or (), group[1])
    files = logs.logs.get(bucket, [])
    for number in range(len(files) + 1):
        for run in logs.removed(bucket, number):
            yield from ((partition.added_to(block), True) for block in run.blocks())
        if number < len(files):
            yield from ((rows, False) for rows in _rows_in(files[number].record, existing))


def _rows_in(record: pa.Table, existing: Existing) -> Iterator[pa.Table]:
    names = existing.spec.schema.names
    return (block.rows for block in existing.blocks(as_live(record), names))


class _PartitionColumns:
    """The partition columns of keys that name them, which no run has."""

    def __init__(self, names: Sequence[str], texts: Sequence[str | None], spec: TableSpec) -> None:
        kinds = [spec.schema.arrow.field(name).type for name in names]
        self._values = {
            name: array_of([text], kind)
            for name, text, kind in zip(names, texts, kinds, strict=True)
            if name not in spec.key
        }

    def added_to(self, keys: pa.Table) -> pa.Table:
        """Return keys with the columns of their partition."""
        for name, value in self._values.items():
            column = pa.chunked_array([value.take(pa.array([0] * keys.num_rows))])
            keys = keys.append_column(name, column)
        return keys


def _columns_of(group: Group, spec: TableSpec) -> _PartitionColumns:
    return _PartitionColumns(spec.partition_by if group[0] else (), group[0] or (), spec)
