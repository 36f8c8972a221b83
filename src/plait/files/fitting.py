"""Values of a column as they stand in a file, as the columns of a newer schema.

Ids decide inside structs, lists and maps too, or names where a file has no ids.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import SchemaMismatchError
from plait.model.evolution import is_wider
from plait.model.schema import FIELD_ID, type_name

_T = pa.types


def field_id(field: pa.Field) -> int | None:
    """Return the id of a field; None if it carries none.

    >>> field_id(pa.field("a", pa.int64(), metadata={"PARQUET:field_id": "7"}))
    7
    """
    text = (field.metadata or {}).get(FIELD_ID)
    if text is None or not text.isdigit():
        return None
    return int(text)


def filled(value: pa.Scalar | None, kind: pa.DataType, count: int) -> pa.Array:
    """Return a column with one value in every row; None for null."""
    return sound(pa.nulls(count, kind)) if value is None else pa.repeat(value, count)


def sound(array: pa.Array) -> pa.Array:
    """Return the same values, with a value for each required member that lies below a null.

    A struct may be null though a member of it may not. Arrow then has null or anything there, but
    writes no Parquet file, and makes no table, of a required member with nulls.
    """
    if not _requires(array.type):
        return array
    if _T.is_struct(array.type):
        nulls, parts = array.is_null(), []
        for index, child in enumerate(array.type.fields):
            part = sound(array.field(index))
            parts.append(part if child.nullable else _below_nulls(part, nulls))
        mask = nulls if array.null_count else None
        return pa.StructArray.from_arrays(parts, fields=list(array.type.fields), mask=mask)
    # Of a slice, only its own values: others share the memory.
    start, stop = (array.offsets[at].as_py() for at in (0, -1))
    offsets = pc.subtract(array.offsets, pa.scalar(start, pa.int32()))
    mask = array.is_null() if array.null_count else None
    if _T.is_map(array.type):
        own = (each.slice(start, stop - start) for each in (array.keys, array.items))
        return pa.MapArray.from_arrays(offsets, *map(sound, own), type=array.type, mask=mask)
    values = sound(array.values.slice(start, stop - start))
    return pa.ListArray.from_arrays(offsets, values, type=array.type, mask=mask)


@functools.lru_cache(maxsize=1024)
def _requires(kind: pa.DataType) -> bool:
    """Tell whether some struct in a type has a member that may not be null."""
    if _T.is_struct(kind):
        return any(not child.nullable or _requires(child.type) for child in kind.fields)
    return _T.is_nested(kind) and any(_requires(child.type) for child in _children(kind))


def _below_nulls(part: pa.Array, nulls: pa.BooleanArray) -> pa.Array:
    """Put some value of the type where the struct is null; a null elsewhere stays one."""
    bad = pc.and_(part.is_null(), nulls).to_numpy(zero_copy_only=False)
    if not bad.any():
        return part
    # Arrow makes one itself: that of a required member of a null.
    any_value = pa.array([None], pa.struct([pa.field("", part.type, nullable=False)])).field(0)
    places = np.where(bad, len(part), np.arange(len(part)))
    return pa.concat_arrays([part, any_value]).take(pa.array(places))


def fitted(array: pa.Array, stored: pa.Field, wanted: pa.Field) -> pa.Array:
    """Return the values of a column of type ``stored`` as ``wanted``.

    Raises:
        SchemaMismatchError: the column was wider once, and a value does not fit.
        pa.ArrowInvalid, pa.ArrowNotImplementedError: a value or type does not fit.
    """
    source, target = stored.type, wanted.type
    if source == target and _same_ids(stored, wanted):
        return array
    if _T.is_struct(source) and _T.is_struct(target):
        return _fit_struct(array, target)
    if _T.is_list(source) and _T.is_list(target):
        values = fitted(array.values, source.value_field, target.value_field)
        return _rebuilt(array, target, values)
    if _T.is_map(source) and _T.is_map(target):
        return _fit_map(array, target)
    return _narrowed(array, wanted) if is_wider(source, target) else array.cast(target)


def _narrowed(array: pa.Array, wanted: pa.Field) -> pa.Array:
    """Return values of a wider type, none of them altered: a cast alone cuts times and rounds."""
    try:
        narrow = array.cast(wanted.type)
        same = pc.equal(narrow.cast(array.type), array)
        if _T.is_floating(array.type):
            same = pc.or_(same, pc.is_nan(array))
        fits = pc.all(same).as_py() is not False
    except pa.ArrowInvalid:
        fits = False
    if fits:
        return narrow
    found, expected = type_name(array.type), type_name(wanted.type)
    message = f"column {wanted.name!r} has values of {found} that {expected} does not have"
    hint = f"read them as of a version in which the column is {found}"
    raise SchemaMismatchError(
        message, hint=hint, column=wanted.name, expected=expected, found=found
    )


def _same_ids(stored: pa.Field, wanted: pa.Field) -> bool:
    """Tell whether equal types mean equal fields: no child was replaced by a namesake."""
    if not _T.is_nested(stored.type):
        return True
    pairs = zip(_children(stored.type), _children(wanted.type), strict=True)
    return all(
        (field_id(a) is None or field_id(a) == field_id(b)) and _same_ids(a, b) for a, b in pairs
    )


def _children(kind: pa.DataType) -> list[pa.Field]:
    if _T.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.field(index) for index in range(kind.num_fields)]


def find_child(children: Sequence[pa.Field], wanted: pa.Field) -> int | None:
    """Find a member by its id, or by its name among those without ids; return its place."""
    for index, child in enumerate(children):
        number = field_id(child)
        same = child.name == wanted.name if number is None else number == field_id(wanted)
        if same:
            return index
    return None


def _fit_struct(array: pa.Array, target: pa.DataType) -> pa.Array:
    children = _children(array.type)
    parts = []
    for wanted in _children(target):
        index = find_child(children, wanted)
        if index is None:
            parts.append(filled(None, wanted.type, len(array)))
        else:
            child = array.field(index)  # with the struct's offset applied
            parts.append(fitted(child, children[index], wanted))
    nulls = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(parts, fields=_children(target), mask=nulls)


def _fit_map(array: pa.Array, target: pa.DataType) -> pa.Array:
    keys = fitted(array.keys, array.type.key_field, target.key_field)
    items = fitted(array.items, array.type.item_field, target.item_field)
    entries = pa.StructArray.from_arrays(
        [keys, items],
        fields=[
            pa.field("key", target.key_type, nullable=False),
            target.item_field.with_name("value"),
        ],
    )
    return _rebuilt(array, target, entries)


def _rebuilt(array: pa.Array, target: pa.DataType, values: pa.Array) -> pa.Array:
    """Put new values under the offsets of a list or map array."""
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(
        target,
        len(array),
        [validity, offsets],
        null_count=array.null_count,
        offset=array.offset,
        children=[values],
    )
