"""Check a write request against the table before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from plait.arrow.clauses import parsed, partial
from plait.arrow.merge_into import Merging
from plait.definition.evolving import with_columns_of
from plait.definition.table_def import TableDef
from plait.errors import (
    BadRecordError,
    OptionError,
    PredicateError,
    RetryableConflictError,
    SchemaError,
)
from plait.expr import Where, parse_where, retyped, to_json
from plait.files.partition_values import partitions_in
from plait.model.bucket import Partition, partition_parse
from plait.model.changes import WriteStatus
from plait.model.clauses import Clauses, Update
from plait.model.contract import one_of
from plait.model.decision import (
    SCOPE_APPEND,
    SCOPE_BUCKETS,
    SCOPE_PARTITIONS,
    SCOPE_TABLE,
    ReadSet,
    Scope,
    Token,
)
from plait.model.instant import Instant, Operation
from plait.model.plan import TableSpec
from plait.model.request import WritePlan, WriteRequest
from plait.model.schema import Schema, ids_by_path, ids_in, names_of
from plait.model.steps import path_parts
from plait.model.store_address import StoreAddress
from plait.model.words import EVOLVE, MISSING_COLUMNS, ON_CONFLICT, ON_DUPLICATE, WRITE_OPERATIONS
from plait.read.scan import Pinned, Scan
from plait.txn.table_handle import TableHandle


def partitions_of(rows: pa.Table, spec: TableSpec) -> tuple[Partition, ...]:
    """Return the partitions of rows that have the columns for it; () if they lack one."""
    names = list(spec.partition_sources)
    if not names or not set(names) <= set(rows.column_names):
        return ()
    distinct = rows.select(names).group_by(names).aggregate([]).combine_chunks()
    return tuple(dict.fromkeys(p for b in distinct.to_batches() for p in partitions_in(b, spec)))


def write_request(  # noqa: PLR0913 - each by name, as every write
    operation: str,
    spec: TableSpec,
    *,
    commit_id: str | None = None,
    on_conflict: str = "raise",
    on_duplicate: str = "raise",
    where: Where = None,
    partitions: str | None = None,
    missing_columns: str = "raise",
    read_set: ReadSet | None = None,
    token: Token | None = None,
    evolve: str = "none",
) -> WriteRequest:
    """Check the arguments of ``Table.writer`` against the table.

    Raises:
        OptionError: one of them is unknown, or they do not go together.
        PredicateError: ``where`` is not understood.
    """
    one_of("operation", operation, WRITE_OPERATIONS)
    wanted = Operation(operation)
    if wanted is Operation.APPEND and spec.keyed:
        wanted = Operation.INSERT
    if partitions not in (None, "dynamic"):
        message = f"partitions={partitions!r} is unknown"
        raise OptionError(message, hint="use dynamic", key="partitions", value=partitions)
    takes_where = wanted in (Operation.OVERWRITE, Operation.DELETE)
    if (where is not None or partitions) and not takes_where:
        message = f"{operation} does not take where or partitions"
        raise OptionError(message, hint="use overwrite or delete", key="where", value="given")
    if where is not None and partitions:
        message = "where and partitions cannot be combined"
        raise OptionError(message, hint="pass one of them", key="partitions", value=partitions)
    one_of("missing_columns", missing_columns, MISSING_COLUMNS)
    if missing_columns == "keep" and wanted is not Operation.UPSERT:
        message = f"missing_columns='keep' works with upsert, not with {operation}"
        hint = "an insert sets missing columns to null"
        raise OptionError(message, hint=hint, key="missing_columns", value=missing_columns)
    one_of("evolve", evolve, EVOLVE)
    if evolve == "add" and wanted is Operation.DELETE:
        message = "evolve='add' does not go with delete, which brings keys alone"
        raise OptionError(message, hint="omit it", key="evolve", value=evolve)
    request = WriteRequest(
        wanted,
        commit_id,
        on_conflict,
        on_duplicate,
        "predicate" if where is not None else "partitions" if partitions else "table",
        None if where is None else to_json(parse_where(where, spec.schema.arrow)),
        columns=None if where is None else spec.schema,
        read_set=read_set,
        token=token,
        clauses=partial(spec) if missing_columns == "keep" else None,
        adds_columns=evolve == "add",
    )
    return _checked(request, spec)


def update_request(
    values: Mapping[str, object],
    spec: TableSpec,
    *,
    where: Where = None,
    commit_id: str | None = None,
    on_conflict: str = "raise",
    read_set: ReadSet | None = None,
) -> WriteRequest:
    """Check an update against the table; raise before anything is written.

    Raises:
        OptionError: nothing is assigned, or a column of the key or of the partitions.
        PredicateError: a value or ``where`` is not understood.
        SchemaMismatchError: a column is not there, or a value does not fit it.
    """
    if not values:
        message = "an update needs values"
        raise OptionError(message, hint="update({column: value})", key="values", value="{}")
    predicate = to_json(parse_where(where, spec.schema.arrow))
    clauses = parsed(Clauses(by_source=(Update(values),), merges=False))
    Merging.bind(clauses, spec, None)
    request = WriteRequest(
        Operation.UPDATE,
        commit_id,
        on_conflict,
        predicate=predicate,
        read_set=read_set,
        clauses=clauses,
        columns=spec.schema,
    )
    return _checked(request, spec)


def merge_request(
    clauses: Clauses,
    on: str | Sequence[str] | None,
    spec: TableSpec,
    *,
    commit_id: str | None = None,
    on_conflict: str = "raise",
    read_set: ReadSet | None = None,
) -> WriteRequest:
    """Check a merge against the table, as far as possible without its source.

    Raises:
        OptionError: there is no clause or no key, or rows are matched by something else.
        PredicateError: a value or a condition is not understood.
    """
    if not (clauses.matched or clauses.not_matched or clauses.by_source):
        hint = "for example matched=[Update()], not_matched=[Insert()]"
        raise OptionError("a merge needs clauses", hint=hint, key="matched", value="[]")
    if clauses.by_source and spec.unique_in_table:
        message = "not_matched_by_source is not possible where keys are unique in the table"
        hint = "delete(where=...) or update(..., where=...) in the same transaction()"
        raise OptionError(message, hint=hint, key="not_matched_by_source", value="given")
    if not spec.keyed:
        message = "merge needs a record key, but the table has none"
        hint = "create the table with record_key=[...], or use update and append"
        raise OptionError(message, hint=hint, key="operation", value="merge")
    allowed = ({*spec.key}, {*spec.key, *spec.partition_sources})
    if on is not None and set(names_of(on, "on")) not in allowed:
        message = f"merge matches rows by the record key, not by {on!r}"
        names = ", ".join(spec.key)
        hint = f"omit on, or pass [{names}]; put further conditions in when="
        raise OptionError(message, hint=hint, key="on", value=str(on))
    clauses = parsed(clauses)
    Merging.bind(clauses, spec, None)
    request = WriteRequest(
        Operation.MERGE,
        commit_id,
        on_conflict,
        read_set=read_set,
        clauses=clauses,
        columns=spec.schema,
    )
    return _checked(request, spec)


def _checked(request: WriteRequest, spec: TableSpec) -> WriteRequest:
    one_of("on_conflict", request.on_conflict, ON_CONFLICT)
    one_of("on_duplicate", request.on_duplicate, ON_DUPLICATE)
    one_of("overwrite", request.overwrite, ("table", "partitions", "predicate"))
    if request.read_set is not None and request.on_conflict == "retry":
        message = "rows that were computed from a read cannot be retried automatically"
        hint = "omit on_conflict; after a conflict, read again and write again"
        raise OptionError(message, hint=hint, key="on_conflict", value="retry")
    if not spec.keyed and request.operation in (Operation.UPSERT, Operation.INSERT):
        message = f"{request.operation} needs a record key, but the table has none"
        hint = "use append, or create the table with record_key=[...]"
        raise OptionError(message, hint=hint, key="operation", value=request.operation.value)
    if request.overwrite == "partitions" and not spec.layout.partition_by:
        message = "partitions='dynamic' needs a partitioned table"
        raise OptionError(message, hint="omit it", key="partitions", value="dynamic")
    return request


def require_one(where: object, keys: object) -> None:
    """Raise OptionError for a delete without ``where`` and ``keys``, or with both."""
    if (where is None) == (keys is None):
        message = "delete needs either where or keys"
        hint = "delete(where='true') deletes every row"
        raise OptionError(message, hint=hint, key="where", value=str(where))


def read_set_of(handle: TableHandle, read_from: Scan | Pinned | int | None) -> ReadSet | None:
    """Return the read set of ``read_from``; raise InstantError if it is no longer readable."""
    if read_from is None:
        return None
    version = read_from if isinstance(read_from, int) else read_from.version
    uri = handle.store.address.uri if isinstance(read_from, int) else read_from.store.address.uri
    if uri != handle.store.address.uri:
        message = f"read_from is a scan or snapshot of another table: {uri}"
        hint = "pass a scan or snapshot of the table that you write"
        raise OptionError(message, hint=hint, key="read_from", value=version)
    known = handle.cache.known()
    state = known if version <= known.version else handle.cache.refresh()
    state.require_readable(version, onwards=True)
    read = read_from.read_predicate if isinstance(read_from, Scan) else None
    return ReadSet(version, (read,))


def plan_of(
    request: WriteRequest,
    table: TableDef,
    store: StoreAddress,
    instant: Instant,
    *,
    step: int = 0,
    reads: bool = False,
) -> WritePlan:
    """Return the plan that engines work by.

    Args:
        request: the caller's request.
        table: the table at the base.
        store: the table's store.
        instant: the instant of the commit.
        step: distinguishes the operations of one instant.
        reads: whether keys that change nothing are to be told: the caller may still name a read
            that the operation depends on, or sinks get the rows.

    Raises:
        OptionError: the table was laid out anew since the request was checked, and it makes no
            sense any more.
        SchemaError: columns that the rows bring along cannot be added.
        RetryableConflictError: columns that it names have been renamed or dropped since.
    """
    known, added = table.spec.schema, frozenset[int]()
    if request.added_columns:
        table = with_columns_of(table, request)
        added = _brought_ids(request, table.spec.schema)
        added |= frozenset(ids_in(table.spec.schema.arrow)).difference(ids_in(known.arrow))
    spec = replace(table.spec, rejects_nan_in=request.rejects_nan_in)
    return WritePlan(
        _checked(_by_columns(_by_layout(request, spec), known), spec),
        store,
        instant,
        spec,
        table.options,
        step=step,
        claims=reads or request.read_set is not None or table.isolation == "serializable",
        digests=request.token is not None and request.token.digest is None,
        added=added,
        indexed=table.index is not None,
    )


def _brought_ids(request: WriteRequest, schema: Schema) -> frozenset[int]:
    """Return the ids of what the rows bring along, also if another commit added it meanwhile.

    Nobody promised the rows these ids: they follow the names of the columns.
    """
    added = {tuple(path_parts(each.path)) for each in request.added_columns or ()}
    return frozenset(
        number
        for path, number in ids_by_path(schema.arrow)
        if any(tuple(path[:end]) in added for end in range(1, len(path) + 1))
    )


def _by_layout(request: WriteRequest, spec: TableSpec) -> WriteRequest:
    """Return the request as this layout makes it: the newest ordering column decides who wins."""
    if request.operation is Operation.UPSERT and request.clauses is not None:
        return replace(request, clauses=partial(spec))
    return request


def _by_columns(request: WriteRequest, schema: Schema) -> WriteRequest:
    """Return the request in the types that its columns have now.

    Raises:
        RetryableConflictError: a name stands for another column now, or for none.
    """
    known, predicate = request.columns, request.predicate
    if known is None or known.id == schema.id:
        return request
    ids = dict(ids_by_path(schema.arrow))
    other = [".".join(path) for path, n in ids_by_path(known.arrow) if ids.get(path) != n]
    if other:
        message = f"column {other[0]!r} was renamed or dropped while this write ran"
        hint = "run the write again, with the columns that there are"
        raise RetryableConflictError(message, hint=hint, columns=other)
    if predicate is not None:
        predicate = retyped(predicate, known.arrow, schema.arrow)
    return replace(request, predicate=predicate, columns=schema)


@contextmanager
def as_the_table_is_now() -> Iterator[None]:
    """Let a request that does not fit the layout or columns that the table has now be run again.

    Raises:
        RetryableConflictError: it lacks a column, or makes no sense there.
        BadRecordError: a row cannot be stored as the table is now, or breaks a constraint.
    """
    try:
        yield
    except BadRecordError:
        raise  # rows that no run of the write could bring in
    except (OptionError, PredicateError, SchemaError) as error:
        message = f"the table's layout or columns changed during this write: {error.message}"
        raise RetryableConflictError(
            message, hint="run the write again; it may need other columns or arguments"
        ) from error


def write_scope(request: WriteRequest, spec: TableSpec, status: WriteStatus) -> Scope:
    """Return the scope of an operation that staged these changes."""
    predicate = None if request.predicate is None else dict(request.predicate)
    if request.operation is Operation.MERGE and request.clauses and request.clauses.by_source:
        predicate = {"always": True}  # every row may be one that the source lacks
    if request.operation is Operation.APPEND and not spec.keyed:
        return Scope(SCOPE_APPEND)
    if request.operation is not Operation.OVERWRITE:
        return Scope(SCOPE_BUCKETS, predicate=predicate)
    if request.overwrite == "table":
        return Scope(SCOPE_TABLE)
    if request.overwrite == "predicate":  # what it replaces are rows, wherever they are
        return Scope(SCOPE_PARTITIONS, predicate=predicate)
    texts = sorted(set(status.changes.touched["partition"].to_pylist()))
    return Scope(SCOPE_PARTITIONS, tuple(map(partition_parse, texts)))
