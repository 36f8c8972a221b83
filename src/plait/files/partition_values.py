"""Compute the partition values of rows, and what a value says of the columns it comes from."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import BadRecordError, OptionError, UnsupportedFeatureError
from plait.expr.prune import Bounds
from plait.files.hash import bucket_of, key_hashes
from plait.model.bucket import Partition
from plait.model.partitioning import BUCKET, PERIODS, TRUNCATE, PartitionField, parse_field
from plait.model.plan import TableSpec
from plait.model.value import array_of, texts_of

PartitionFunction: TypeAlias = Callable[..., "pa.Array | pa.ChunkedArray"]
ENTRY_POINTS: Final = "plait.partition_functions"
_FUNCTIONS: dict[str, PartitionFunction] = {}
_Numbers: TypeAlias = npt.NDArray[np.int64]
_HOUR_US: Final = 3_600_000_000
_DAY_US: Final = 24 * _HOUR_US


def register_partition_function(name: str, function: PartitionFunction) -> None:
    """Register a function of columns that ``partition_by`` can name, in this process.

    It takes an Arrow array for each column and returns one array of strings or integers, of the
    same length: always the same values for the same values. Each process that writes needs it, also
    executors; a package can offer it to all of them by an entry point in
    ``plait.partition_functions``. Readers do not need it.

    Raises:
        OptionError: the name is that of a transform, or no name.

    >>> import pyarrow.compute as pc
    >>> from plait import Table, register_partition_function
    >>> register_partition_function("initial", lambda names: pc.utf8_slice_codeunits(names, 0, 1))
    >>> t = Table.create("memory://doc-own", "name string", partition_by="initial(name)")
    >>> t.append(pa.table({"name": ["Ann", "Abe", "Bob"]})).version, t.inspect.files().num_rows
    (1, 2)
    """
    try:
        field = parse_field(f"{name}(c)")
    except ValueError:
        field = None
    if field is None or not field.is_custom or field.transform != name:
        message = f"{name!r} cannot be the name of a partition function"
        hint = f"use letters, digits and _, and none of {', '.join((*PERIODS, BUCKET, TRUNCATE))}"
        raise OptionError(message, hint=hint, key="name", value=name)
    _FUNCTIONS[name] = function


def require_function(name: str) -> PartitionFunction:
    """Return a registered function.

    Raises:
        UnsupportedFeatureError: nobody registered it in this process.
    """
    if name not in _FUNCTIONS:
        for found in entry_points(group=ENTRY_POINTS, name=name):
            _FUNCTIONS[name] = found.load()
    if name not in _FUNCTIONS:
        message = f"no partition function {name!r} is registered in this process"
        hint = f"call plait.register_partition_function({name!r}, ...) before you write"
        known = (*PERIODS, BUCKET, TRUNCATE)
        near = difflib.get_close_matches(name.lower(), known, n=1)
        if near:
            hint = f"did you mean {near[0]}? the transforms are {', '.join(known)}; or {hint}"
        raise UnsupportedFeatureError(message, hint=hint, feature=name)
    return _FUNCTIONS[name]


def is_computable(field: PartitionField) -> bool:
    """Tell whether this process can compute a field."""
    if field.is_custom:
        try:
            require_function(field.transform)
        except UnsupportedFeatureError:
            return False
    return True


def values_of(field: PartitionField, rows: pa.RecordBatch) -> pa.Array:
    """Return the value of a field for each row, whose columns have the table's types.

    Raises:
        UnsupportedFeatureError: it is a function that this process lacks.
        BadRecordError: such a function gave something else than a text or number for each row.
    """
    columns = [rows.column(name) for name in field.sources]
    if field.is_column:
        return columns[0]
    if field.is_custom:
        return _own(field, columns)
    if field.transform == BUCKET:
        return _buckets(columns[0], field.size)
    if field.transform == TRUNCATE:
        return _truncated(columns[0], field.size)
    return _floored(columns[0], field.transform)


def _own(field: PartitionField, columns: Sequence[pa.Array]) -> pa.Array:
    function = require_function(field.transform)
    try:
        found = function(*columns)
    except Exception as error:
        message = f"the partition function {field.transform!r} raised {error!r}"
        hint = "mend the function; no row of this batch was written"
        raise BadRecordError(message, hint=hint, column=field.text, sample={}) from error
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    kind = getattr(found, "type", None)
    sound = isinstance(found, pa.Array) and (pa.types.is_integer(kind) or _is_text(kind))
    if not sound or len(found) != len(columns[0]):
        message = f"the partition function {field.transform!r} gave no text or number for each row"
        hint = "return an Arrow array of strings or integers, as long as the columns"
        raise BadRecordError(message, hint=hint, column=field.text, sample={})
    return found.cast(pa.string())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _buckets(column: pa.Array, count: int) -> pa.Array:
    hashes = key_hashes(pa.table([column], names=["c"]), ["c"])
    numbers = pa.array(bucket_of(hashes, count), pa.int32())
    return pc.if_else(pc.is_valid(column), numbers, pa.scalar(None, pa.int32()))


def _truncated(column: pa.Array, width: int) -> pa.Array:
    kind = column.type
    if pa.types.is_string(kind):
        return pc.utf8_slice_codeunits(column, 0, width)
    if pa.types.is_binary(kind):
        return pc.binary_slice(column, 0, width)
    return _masked(_cut(_whole(column), width, kind), column, kind)


def _cut(numbers: _Numbers, width: int, kind: pa.DataType) -> _Numbers:
    """Go down to a multiple; the least value of the type is as far down as it goes."""
    least, _ = _limits(kind.bit_width)
    rest = np.mod(numbers, width)
    cut: _Numbers = np.where(numbers < least + rest, least, numbers - rest)
    return cut


def _floored(column: pa.Array, transform: str) -> pa.Array:
    """Go down to the beginning of a period, by the proleptic Gregorian calendar, in UTC."""
    numbers = _whole(column)
    if transform == "hour":
        return _masked(_cut(numbers, _HOUR_US, column.type), column, column.type)
    days = numbers if pa.types.is_date32(column.type) else numbers // _DAY_US
    return _masked(np.clip(_first_days(days, transform), *_limits(32)), column, pa.date32())


def _first_days(days: _Numbers, transform: str, *, after: int = 0) -> _Numbers:
    """Return the first day of the period of each day, or of a period after it."""
    periods = days.view("datetime64[D]").astype(f"datetime64[{PERIODS[transform]}]")
    first: _Numbers = (periods + after).astype("datetime64[D]").view(np.int64)
    return first


def _whole(column: pa.Array) -> _Numbers:
    """Return whole numbers, dates or timestamps as numbers; nulls are 0."""
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    numbers: _Numbers = column.cast(pa.int64()).fill_null(0).to_numpy()
    return numbers


def _masked(numbers: _Numbers, like: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return numbers as values of a type, null where another array is."""
    nulls = np.asarray(pc.is_null(like).to_numpy(zero_copy_only=False))
    if pa.types.is_date32(kind):
        return pa.array(numbers.astype(np.int32), pa.int32(), mask=nulls).cast(kind)
    return pa.array(numbers, pa.int64(), mask=nulls).cast(kind)


# --- what a value says of its sources -----------------------------------------------------------


def known_of(partitions: Sequence[Partition], spec: TableSpec) -> dict[str, Bounds | pa.Array]:
    """Return what is known of columns in some partitions: the value itself, or its bounds.

    Raises:
        ValueError: a text is no value of its field.
    """
    known: dict[str, Bounds | pa.Array] = {}
    columns = list(zip(*partitions, strict=True)) or [()] * len(spec.fields)
    for field, texts in zip(spec.fields, columns, strict=True):
        values = array_of(texts, field.kind(spec.schema.arrow))
        (name, *_) = field.sources
        if field.is_column:
            known[name] = values
        elif field.is_ordered and not isinstance(known.get(name), pa.Array):
            kind = spec.schema.arrow.field(name).type
            found = _bounds(field, values, kind)
            before = cast("Bounds | None", known.get(name))
            known[name] = found if before is None else _narrower(before, found)
    return known


def decided_in(partitions: Sequence[Partition], spec: TableSpec) -> dict[str, pa.Array]:
    """Return the values of generated columns that some partitions decide.

    They hold for rows that were written, or looked at, since the column is generated.

    Raises:
        ValueError: a text is no value of its field.
    """
    places = {field.text: at for at, field in enumerate(spec.fields) if not field.is_column}
    schema, found = spec.schema, dict[str, pa.Array]()
    for name, text in schema.generated.items() if places else ():
        if text in places:
            texts = [each[places[text]] for each in partitions]
            found[name] = array_of(texts, schema.arrow.field(name).type)
    return found


def _bounds(field: PartitionField, values: pa.Array, kind: pa.DataType) -> Bounds:
    nulls = pc.is_null(values)
    counts = nulls.cast(pa.int64())
    lower, upper = _ends(field, values, kind)
    return Bounds(lower, upper, counts, pa.array(np.ones(len(values), np.int64)))


def _narrower(one: Bounds, other: Bounds) -> Bounds:
    # Element-wise extremes know no time zones.
    above, below = pc.greater(other.lower, one.lower), pc.less(other.upper, one.upper)
    lower = pc.if_else(
        above.fill_null(fill_value=False), other.lower, pc.coalesce(one.lower, other.lower)
    )
    upper = pc.if_else(
        below.fill_null(fill_value=False), other.upper, pc.coalesce(one.upper, other.upper)
    )
    return Bounds(lower, upper, one.null_count, one.rows)


def _ends(field: PartitionField, values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """Return the least and the largest value that a source may have; null: nothing is known."""
    if field.transform == TRUNCATE and not pa.types.is_integer(kind):
        lengths = pc.binary_length(values) if pa.types.is_binary(kind) else pc.utf8_length(values)
        cut = pc.greater_equal(lengths, field.size)
        return values, pc.if_else(cut, pa.scalar(None, kind), values)
    numbers = _whole(values)
    if field.transform in (TRUNCATE, "hour"):
        _, most = _limits(kind.bit_width)
        more = (field.size or _HOUR_US) - 1
        top = np.where(numbers > most - more, most, numbers + more)  # the last stretch ends early
        return values, _masked(top, values, kind)
    following = _first_days(numbers, field.transform, after=1)
    if pa.types.is_date32(kind):
        return values, _masked(np.clip(following - 1, *_limits(32)), values, kind)
    least, most = _limits(64)
    first_day, last_day = least // _DAY_US, most // _DAY_US  # of which timestamps have a part
    first = np.clip(numbers, first_day + 1, last_day) * _DAY_US
    last = np.clip(following, first_day + 1, last_day) * _DAY_US - 1
    first[numbers <= first_day], last[following > last_day] = least, most
    return _masked(first, values, kind), _masked(last, values, kind)


@functools.cache
def _limits(width: int) -> tuple[int, int]:
    return -(1 << (width - 1)), (1 << (width - 1)) - 1


def partitions_in(rows: pa.RecordBatch, spec: TableSpec) -> list[Partition]:
    """Return the partition of each of a few rows, whose columns have the table's types."""
    columns = [texts_of(values_of(field, rows)) for field in spec.fields]
    return list(zip(*columns, strict=True))
