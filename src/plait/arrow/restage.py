"""Give back what a writer took in, in order, so that it can be staged again.

A repush gave the table another layout meanwhile, or its columns changed. Until its commit, a writer
that adds columns gives them ids that nobody else knows, and another commit may give the same ids to
other columns: so columns that rows bring along are told apart by their names (RFC 0027).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from plait.arrow.bucket_operations import StagedInput
from plait.arrow.existing import Existing, as_live
from plait.arrow.ingest import Group
from plait.arrow.sinks import LogSink
from plait.errors import RetryableConflictError
from plait.files.fitting import filled, fitted, sound
from plait.model.defaults import default_value
from plait.model.evolution import is_wider
from plait.model.instant import Operation
from plait.model.partitioning import PartitionField
from plait.model.plan import TableSpec
from plait.model.request import WritePlan
from plait.model.schema import FIELD_ID, Schema, id_of, ids_in, parts_of, type_name
from plait.model.value import array_of

NOT_DECIDED: Final = -1
"""The id of a schema that no decision has."""
_AGAIN: Final = "run the write again, with the columns that there are"
_T = pa.types


def remap_field_ids(old: Schema, added: Collection[int], new: Schema) -> Schema:
    """Return a schema whose own columns have the ids that they have in another one, by name.

    Args:
        old: the schema under which rows came.
        added: those of its ids that nobody else knows.
        new: the schema of the table, with the columns that the rows bring along.

    Raises:
        RetryableConflictError: a column of that name has a type now that does not hold its values,
            or is one that the rows have under another name, or what it was in is gone.
    """
    if not added:
        return old
    known = frozenset(ids_in(old.arrow)).difference(added)
    settling = _FieldIds(frozenset(added), known)
    fields = [settling.field(each, list(new.arrow), "") for each in old.arrow]
    return Schema(NOT_DECIDED, pa.schema(fields), old.notes)


@dataclass(frozen=True, slots=True)
class _FieldIds:
    added: frozenset[int]
    known: frozenset[int]
    """The other ids of the rows, which everybody knows."""

    def field(self, field: pa.Field, siblings: Sequence[pa.Field], path: str) -> pa.Field:
        path = f"{path}.{field.name}".lstrip(".")
        own, number = id_of(field) in self.added, id_of(field)
        if own:
            found = next((each for each in siblings if each.name == field.name), None)
            if found is None:
                message = f"column {path!r}, which the rows bring along, is in one that is gone"
                raise RetryableConflictError(message, hint=_AGAIN, columns=[path])
            number = id_of(found)
            _require_holding(field.type, found.type, path)
            if number in self.known:
                message = f"column {path!r}, which the rows bring along, is another column now"
                raise RetryableConflictError(message, hint=_AGAIN, columns=[path])
        else:
            found = next((each for each in siblings if id_of(each) == number), None)
        inner = () if found is None else parts_of(found.type)
        parts = [self.field(each, inner, path) for each in parts_of(field.type)]
        kind = _with(field.type, parts)
        return pa.field(field.name, kind, field.nullable, {FIELD_ID: str(number).encode()})


def _with(kind: pa.DataType, parts: Sequence[pa.Field]) -> pa.DataType:
    if _T.is_struct(kind):
        return pa.struct(parts)
    if _T.is_list(kind):
        return pa.list_(parts[0])
    return pa.map_(*parts) if _T.is_map(kind) else kind


def _require_holding(given: pa.DataType, there: pa.DataType, path: str) -> None:
    if _T.is_nested(given) and _T.is_nested(there) and type(given) is type(there):
        return  # their parts are compared
    if given == there or is_wider(there, given):
        return
    message = (
        f"column {path!r} was added by another commit as {type_name(there)}, and the rows bring it "
        f"as {type_name(given)}"
    )
    hint = "cast the column, and run the write again"
    raise RetryableConflictError(message, hint=hint, columns=[path])


def require_restageable(before: WritePlan, plan: WritePlan, *, removes: Callable[[], bool]) -> None:
    """Refuse what would mean something else under the new layout.

    Args:
        before: what was to be done, and under which layout it was staged.
        plan: what is to be done under the layout of the table.
        removes: tells whether keys of partitions are to be removed.

    Raises:
        RetryableConflictError: partitions are overwritten, or keys of partitions removed, and the
            table has other partitions now; or they are transforms, whose columns are not kept.
    """
    request, old, new = plan.request, before.spec, plan.spec
    places = [
        {spec.schema.ids[name] for name in spec.partition_columns if name not in spec.key}
        for spec in (old, new)
    ]
    if places[0] == places[1] and not old.transforms_outside_key and not new.transforms_outside_key:
        return
    what = ""
    moved = old.layout.buckets.id != new.layout.buckets.id
    if moved and request.operation is Operation.OVERWRITE and request.overwrite == "partitions":
        what = "it overwrites the partitions of its rows"
    elif removes():
        what = "it removes keys of partitions"
    if what:
        raise RetryableConflictError(
            f"the layout or the columns changed while this was written: {what}",
            hint="run the write again",
            partitions=list(new.layout.partition_by),
            before=list(old.layout.partition_by),
        )


def with_columns(rows: pa.Table, old: Schema, new: Schema, *, whole: bool) -> pa.Table:
    """Return rows that came under one schema as rows of another.

    Columns are told apart by their ids: renamed ones have their new name, dropped ones go. What was
    computed for whole rows is computed again, since the expression may be another one.

    Args:
        rows: some columns of the old schema, and maybe others, which stay as they are.
        old: the schema under which they came.
        new: the schema of the table.
        whole: whether columns that are new come in too, with their default.
    """
    if old is new or old.id == new.id:
        return rows
    there = {new.ids[name]: name for name in new.names}
    computed_then, computed_now = old.generated, new.generated
    names, columns = [], []
    for name in rows.column_names:
        known = name in old.names
        now = there.get(old.ids[name]) if known else name
        if now is None:
            continue
        column = rows[name]
        if whole and name in computed_then and now in computed_now:
            column = pa.nulls(rows.num_rows, new.arrow.field(now).type)
        elif known:
            stored, wanted = old.arrow.field(name), new.arrow.field(now)
            chunks = [sound(fitted(_as(c, stored), stored, wanted)) for c in column.chunks]
            column = pa.chunked_array(chunks, wanted.type)
        names.append(now)
        columns.append(column)
    before = {old.ids[name] for name in old.names}
    for number, name in there.items():
        if whole and number not in before:
            kind = new.arrow.field(name).type
            names.append(name)
            columns.append(filled(default_value(new, name), kind, rows.num_rows))
    return pa.table(columns, names=names)


def _as(chunk: pa.Array, stored: pa.Field) -> pa.Array:
    """Return values with the ids that their parts are known by; the values stay."""
    return chunk.cast(stored.type) if pa.types.is_nested(stored.type) else chunk


def replayed(
    came: StagedInput, existing: Existing, before: WritePlan, plan: WritePlan
) -> Iterator[tuple[pa.Table, bool]]:
    """Return everything that came in, bucket by bucket, each in its order, in today's columns.

    The flag tells keys that are removed from rows. The memory of a bucket is free again when the
    next one begins.

    Args:
        came: runs, logs and appended files; what is read from it is not there any more.
        existing: reads files of the writer's own layout.
        before: what was to be done with them.
        plan: what is to be done with them now.
    """
    new, request = plan.spec.schema, plan.request
    old = remap_field_ids(before.spec.schema, before.added, new)
    deletes = request.operation is Operation.DELETE
    for rows, removes in _as_it_came(came, existing, deletes=deletes):
        if request.operation is Operation.MERGE:  # its source has columns of its own
            yield rows, removes
            continue
        whole = not removes and request.clauses is None
        yield with_columns(rows, old, new, whole=whole), removes


def _as_it_came(
    came: StagedInput, existing: Existing, *, deletes: bool
) -> Iterator[tuple[pa.Table, bool]]:
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
    return any(group[0] is not None and _removes(came, group) for group in came.groups)


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

    def __init__(
        self, fields: Sequence[PartitionField], texts: Sequence[str | None], spec: TableSpec
    ) -> None:
        schema = spec.schema.arrow
        self._values = {
            field.sources[0]: array_of([text], field.kind(schema))
            for field, text in zip(fields, texts, strict=True)
            if field.is_column and field.sources[0] not in spec.key
        }

    def added_to(self, keys: pa.Table) -> pa.Table:
        """Return keys with the columns of their partition."""
        for name, value in self._values.items():
            column = pa.chunked_array([value.take(pa.array([0] * keys.num_rows))])
            keys = keys.append_column(name, column)
        return keys


def _columns_of(group: Group, spec: TableSpec) -> _PartitionColumns:
    return _PartitionColumns(spec.fields if group[0] else (), group[0] or (), spec)
