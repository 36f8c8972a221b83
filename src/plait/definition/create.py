"""What a table is to be: the arguments of its creation, options and time to live, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from plait.definition.changeable import refuse_defining
from plait.definition.constraints import create_checks
from plait.definition.generated import create_generated, placing_field
from plait.definition.policy import KEY, POLICIES, require_policy
from plait.definition.replicated_table import require_puts_in_order, with_replicas
from plait.definition.table_def import TableDef, with_options
from plait.definition.ttl import PARTITION, WRITTEN, Ttl, may_tell_time
from plait.errors import (
    OptionError,
    SchemaError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from plait.expr.ddl import parse_ddl
from plait.files.partition_values import require_function
from plait.model.bucket import BUCKETS_MAX, BucketSpec
from plait.model.contract import Contract, Options, one_of
from plait.model.order import check_order, recorded_order
from plait.model.partitioning import COLUMN, PartitionField, parse_field
from plait.model.plan import COW, UNIQUE_PARTITION, UNIQUE_TABLE, TableLayout, TableSpec
from plait.model.schema import FIELD_ID, WRITTEN_COLUMN, WRITTEN_OPTION, Schema, names_of, type_name
from plait.model.texts import texts_by_name
from plait.model.words import ISOLATIONS, TABLE_TYPES, UNIQUE

_BUCKETS_UNPARTITIONED = 8
_NOT_KEYS = (pa.types.is_floating, pa.types.is_nested)


def define_table(
    schema: object,
    *,
    record_key: str | Sequence[str] = (),
    partition_by: str | Sequence[str] = (),
    ordering: str | None = None,
    table_type: str = COW,
    buckets: int | None = None,
    bucket_by: str | Sequence[str] = (),
    lock: str = "file",
    policy: str = KEY,
    isolation: str = "snapshot",
    unique: str = UNIQUE_PARTITION,
    failed_writes: str = "lazy",
    concurrency: str = "multi_writer",
    properties: Mapping[str, object] | None = None,
    ttl: Ttl | str | None = None,
    replicas: Mapping[str, str] | None = None,
    checks: Mapping[str, str] | None = None,
    generated: Mapping[str, str] | None = None,
) -> TableDef:
    """Return the definition that version 0 of a new table holds, with everything checked.

    The arguments are those of ``Table.create``, except that sinks are addresses by name here.

    Raises:
        OptionError: a value that is not known, or does not fit another.
        SchemaError: a type that cannot be stored, a key or partition that cannot be one.
        PredicateError: a check or an expression is not understood, or does not fit the columns.
    """
    made = Schema.create(arrow_schema(schema))
    contract = Contract(concurrency, lock, failed_writes)
    contract.check()
    _check_policy(policy)
    one_of("isolation", isolation, ISOLATIONS)
    one_of("unique", unique, UNIQUE)
    key = _columns(made, names_of(record_key, "record_key"), "record_key")
    made = create_generated(_keys_required(made, key), texts_by_name(generated, "generated"), key)
    layout = define_layout(
        made,
        key,
        partition_by=names_of(partition_by, "partition_by"),
        ordering=ordering,
        table_type=table_type,
        buckets=buckets,
        bucket_by=names_of(bucket_by, "bucket_by"),
    )
    spec = TableSpec(create_checks(made, texts_by_name(checks, "checks")), layout, unique=unique)
    if unique == UNIQUE_TABLE and not key:
        message = "unique='table' requires a record key"
        raise OptionError(message, hint="add record_key", key="unique", value=unique)
    options = Options.of(properties or {})
    _check_order(options, spec)
    spec = with_options(spec, options)
    lifetime = Ttl.of(ttl)
    _check_written(spec, lifetime)
    fitting = None if lifetime is None else fitting_ttl(lifetime, spec)
    table = TableDef(
        spec, {spec.schema.id: spec.schema}, contract, options, policy, isolation, fitting
    )
    return with_replicas(table, replicas or {})


def define_layout(
    schema: Schema,
    key: tuple[str, ...],
    *,
    partition_by: tuple[str, ...],
    ordering: str | None,
    table_type: str,
    buckets: int | None,
    bucket_by: tuple[str, ...],
) -> TableLayout:
    """Return where the rows of a new table lie, or those of one that is laid out anew.

    Raises:
        OptionError: a value that is not known, or does not fit another.
        SchemaError: a key or partition that cannot be one.
    """
    one_of("table_type", table_type, TABLE_TYPES)
    places = tuple(_partition_field(schema, text) for text in partition_by)
    _no_twice("partition_by", places)
    for name in key:
        _check_plain(schema.arrow.field(name), "record key")
    if buckets is None and key:
        buckets = 1 if places else _BUCKETS_UNPARTITIONED
    found = _buckets(schema, key, buckets, bucket_by)
    return TableLayout(places, found, _ordering(schema, key, ordering), table_type)


def require_layout_fits(table: TableDef, layout: TableLayout, options: Options) -> None:
    """Refuse another layout and other options that the rest of a definition does not go with.

    Raises:
        OptionError, SchemaError: they do not fit the order of rows, the time to live or the sinks.
    """
    _check_policy(table.policy)
    spec = replace(table.spec, layout=layout)
    _check_order(options, spec)
    spec = with_options(spec, options)
    _check_written(spec, table.ttl)
    if table.ttl is not None:
        fitting_ttl(table.ttl, spec)
    if table.replicas:
        require_puts_in_order(replace(table, spec=spec))


def _ordering(schema: Schema, key: tuple[str, ...], given: str | None) -> str | None:
    if given is None:
        return None
    names = names_of(given, "ordering")
    if len(names) != 1:
        message = f"ordering takes one column, not {len(names)}"
        hint = "combine them in one column"
        raise OptionError(message, hint=hint, key="ordering", value=", ".join(names))
    ordering = _column(schema, names[0], "ordering")
    if not key:
        message = "an ordering column requires a record key"
        raise OptionError(message, hint="add record_key", key="ordering", value=ordering)
    if pa.types.is_nested(schema.arrow.field(ordering).type):
        message = f"column {ordering!r} cannot order rows, because its type is nested"
        raise SchemaError(message, column=ordering)
    return ordering


def _buckets(
    schema: Schema, key: tuple[str, ...], count: int | None, bucket_by: tuple[str, ...]
) -> BucketSpec:
    if not key:
        for name, value in (("buckets", count), ("bucket_by", bucket_by or None)):
            if value is not None:
                message = f"{name} requires a record key"
                raise OptionError(message, hint="add record_key", key=name, value=value)
        return BucketSpec(0, (), 0)
    most = require_whole("buckets", count, BUCKETS_MAX)
    return BucketSpec(0, key, most, _bucket_by(schema, key, bucket_by))


def _bucket_by(schema: Schema, key: tuple[str, ...], given: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns that are hashed, in the order of the key; () for all of them."""
    by = _columns(schema, given, "bucket_by")
    strange = [name for name in by if name not in key]
    if strange:
        message = f"bucket_by names {strange[0]!r}, which is no column of the record key"
        hint = f"name columns of the key: {', '.join(key)}"
        raise OptionError(message, hint=hint, key="bucket_by", value=", ".join(by))
    return () if len(by) == len(key) else tuple(name for name in key if name in by)


def arrow_schema(schema: object) -> pa.Schema:
    """Return the Arrow schema of an Arrow schema, DDL text or Spark StructType."""
    if isinstance(schema, pa.Schema):
        return schema
    if isinstance(schema, str):
        return parse_ddl(schema)
    to_ddl = getattr(schema, "toDDL", None)
    if callable(to_ddl):
        return parse_ddl(str(to_ddl()))
    message = f"not a schema: {type(schema).__qualname__}"
    hint = "pass a pyarrow.Schema, a Spark StructType, or DDL text"
    raise OptionError(message, hint=hint, key="schema", value=type(schema).__qualname__)


def fitting_ttl(ttl: Ttl, spec: TableSpec) -> Ttl:
    """Return a time to live with its column as the table spells it.

    Raises:
        OptionError: it does not fit the table.
        SchemaMismatchError: the table has no such column.
    """
    ttl.checked()
    if ttl.unit == PARTITION and not spec.layout.partition_by:
        message = "the table has no partitions that could expire"
        raise OptionError(message, hint="use unit='row'", key="ttl", value=str(ttl))
    if not ttl.by_column:
        if WRITTEN in map(str.lower, spec.schema.names):
            message = f"ttl by {WRITTEN!r} could mean the column or the time of the commit"
            raise OptionError(message, hint="use another column", key="ttl", value=str(ttl))
        if ttl.by_row_written and not spec.keeps_row_version:
            message = "the table does not keep the time at which each row was written"
            hint = (
                f"set the property {WRITTEN_OPTION}=on first; or write the time into a column and "
                "name that, or let whole partitions expire (unit='partition')"
            )
            raise OptionError(message, hint=hint, key="ttl", value=str(ttl))
        return ttl
    name = _column(spec.schema, ttl.by, "ttl")
    kind = spec.schema.arrow.field(name).type
    if not may_tell_time(kind):
        message = f"column {name!r} of type {type_name(kind)} cannot tell when a row expires"
        hint = "use a date or a timestamp; for numbers and text nobody knows what they count"
        raise OptionError(message, hint=hint, key="ttl", value=str(ttl))
    return replace(ttl, by=name)


def _columns(schema: Schema, names: tuple[str, ...], what: str) -> tuple[str, ...]:
    """Return columns as the schema spells them, none twice."""
    spelled = tuple(_column(schema, name, what) for name in names)
    _no_twice(what, spelled)
    return spelled


def _column(schema: Schema, name: str, what: str) -> str:
    spelled = [known for known in schema.names if known.lower() == name.lower()]
    if not spelled:
        message = f"{what} names column {name!r}, which the schema does not have"
        hint = f"columns: {', '.join(schema.names)}"
        raise SchemaMismatchError(message, hint=hint, column=name, expected=schema.names)
    return spelled[0]


def _partition_field(schema: Schema, text: str) -> str:
    """Return a partition field as definitions have it."""
    if text.lower() in map(str.lower, schema.names):
        field = PartitionField(COLUMN, (text,))
    else:
        try:
            field = parse_field(text)
        except ValueError as error:
            hint = "name a column, or a transform such as day(c), bucket(16, c) or truncate(4, c)"
            raise OptionError(str(error), hint=hint, key="partition_by", value=text) from error
    names = tuple(_column(schema, name, "partition_by") for name in field.sources)
    field = placing_field(schema, replace(field, sources=names))
    if field.is_column:
        _check_plain(schema.arrow.field(field.sources[0]), "partition")
    elif field.is_custom:
        require_function(field.transform)
    try:
        field.kind(schema.arrow)
    except ValueError as error:
        found = type_name(schema.arrow.field(field.sources[0]).type)
        raise SchemaError(str(error), column=field.sources[0], found=found) from error
    return field.text


def _no_twice(what: str, names: tuple[str, ...]) -> None:
    if len(set(names)) != len(names):
        raise OptionError(f"{what} names a column twice: {', '.join(names)}", key=what, value=names)


def require_whole(key: str, value: object, most: int) -> int:
    """Return a whole number from 1 to ``most``; raise OptionError for anything else."""
    if type(value) is not int or not 1 <= value <= most:
        hint = f"use a whole number from 1 to {most}"
        raise OptionError(f"{key}={value!r} is not allowed", hint=hint, key=key, value=str(value))
    return value


def _check_plain(column: pa.Field, what: str) -> None:
    if any(test(column.type) for test in _NOT_KEYS):
        message = f"column {column.name!r} of type {type_name(column.type)} cannot be a {what}"
        hint = "equality of floats and nested values is not exact; use a string, integer or decimal"
        raise SchemaError(message, hint=hint, column=column.name, found=type_name(column.type))


def _keys_required(schema: Schema, key: tuple[str, ...]) -> Schema:
    """Make key columns not null: a row without its identity is refused anyway."""
    fields = [
        pa.field(f.name, f.type, f.nullable and f.name not in key, {FIELD_ID: f.metadata[FIELD_ID]})
        for f in schema.arrow
    ]
    return Schema(schema.id, pa.schema(fields))


def _check_policy(name: str) -> None:
    """Refuse a policy that is none of Plait's and not installed; raise OptionError."""
    try:
        require_policy(name)
    except UnsupportedFeatureError as error:
        message = f"policy={name!r} is unknown: {error.message}"
        hint = f"one of {', '.join(POLICIES)}, or your own: {error.hint}"
        raise OptionError(message, hint=hint, key="policy", value=name) from error


def _check_order(options: Options, spec: TableSpec) -> None:
    """Refuse an order that rows of the table cannot be put in; raise OptionError."""
    order = recorded_order(options)
    if order is not None:
        check_order(order, spec, "cluster.by")


def _check_written(spec: TableSpec, ttl: Ttl | None) -> None:
    """Refuse to keep, or to stop keeping, the version that wrote a row; raise OptionError."""
    if spec.keeps_row_version and WRITTEN_COLUMN in map(str.lower, spec.schema.names):
        message = f"{WRITTEN_OPTION}=on needs the name {WRITTEN_COLUMN}, which a column has"
        hint = "use a table without a column of that name"
        raise OptionError(message, hint=hint, key=WRITTEN_OPTION, value="on")
    if not spec.keeps_row_version and ttl is not None and ttl.by_row_written:
        message = (
            f"rows expire by the time at which they were written, so {WRITTEN_OPTION} must be on"
        )
        hint = f"set {WRITTEN_OPTION}=on, or change the time to live"
        raise OptionError(message, hint=hint, key=WRITTEN_OPTION, value="off")


def with_properties(table: TableDef, values: Mapping[str, object]) -> TableDef:
    """Return a definition with some options; those not named stay as they are.

    Raises:
        OptionError: a key or value that is not known, or is changed otherwise.
    """
    refuse_defining(values)
    options = table.options.merged(values)
    _check_order(options, table.spec)
    spec = with_options(table.spec, options)
    _check_written(spec, table.ttl)
    return replace(table, options=options, spec=spec)


def with_ttl(table: TableDef, ttl: Ttl | None) -> TableDef:
    """Return a definition with a time to live; None: rows live for ever.

    Raises:
        OptionError, SchemaMismatchError: it does not fit the table.
    """
    fitting = None if ttl is None else fitting_ttl(ttl, table.spec)
    return with_replicas(replace(table, ttl=fitting), table.replicas)
