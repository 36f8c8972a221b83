"""Casts of input columns to the table's types that lose nothing.

Which pairs of types go together is decided from the types alone (``fit``); whether each value
goes through is found while casting (``apply``).
"""

from __future__ import annotations

import enum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.model.schema import LISTS, is_plain_extension, is_tagged

_INT64_DIGITS = 20
_FLOAT_BITS = {pa.float16(): 11, pa.float32(): 24, pa.float64(): 53}
_T = pa.types


class Fit(enum.IntEnum):
    """How a cast between two types may go; the worst of the parts stands for the whole."""

    TOTAL = 0
    """Every value goes through."""
    CHECKED = 1
    """Arrow's own safe cast refuses the values that would change."""
    ROUND_TRIP = 2
    """Arrow would round in silence: cast back and compare."""
    NEVER = 3
    """Values of this type do not belong there; the caller must say what is meant."""


class LossyError(ValueError):
    """A value would change."""


def fit(source: pa.DataType, target: pa.DataType) -> Fit:
    """Tell whether values of a type can be kept in a column of another.

    >>> fit(pa.uint8(), pa.int64()), fit(pa.int64(), pa.int32()), fit(pa.string(), pa.int64())
    (<Fit.TOTAL: 0>, <Fit.CHECKED: 1>, <Fit.NEVER: 3>)
    """
    if source == target or _T.is_null(source):
        return Fit.TOTAL
    if _T.is_dictionary(source) or _T.is_run_end_encoded(source):
        return fit(source.value_type, target)
    if isinstance(source, pa.BaseExtensionType):
        return fit(source.storage_type, target) if is_plain_extension(source) else Fit.NEVER
    if _T.is_nested(target):
        return _fit_nested(source, target)
    for rule in (_fit_text, _fit_number, _fit_time):
        how = rule(source, target)
        if how is not None:
            return how
    return Fit.NEVER


def apply(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast; the result has exactly the values that came.

    Raises:
        LossyError: a value would change.
    """
    array = _plain(array)
    source = array.type
    if source == target:
        return array
    if _T.is_nested(target):
        return _apply_nested(array, target)
    try:
        if _T.is_integer(source) and _T.is_decimal(target):
            array = array.cast(pa.decimal128(_INT64_DIGITS, 0))
        cast = array.cast(target)
        if fit(source, target) is Fit.ROUND_TRIP and not _same(array, cast.cast(source)):
            raise LossyError
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise LossyError(str(error)) from error
    return cast


def _apply_nested(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast the parts of nested values, each as a column of its type is cast."""
    if _T.is_null(array.type):
        return pa.nulls(len(array), target)
    nulls = array.is_null() if array.null_count else None
    if _T.is_struct(target):
        given = {field.name: at for at, field in enumerate(array.type.fields)}
        parts = array.flatten()  # null where the struct is
        made = [
            apply(parts[given[child.name]], child.type)
            if child.name in given
            else pa.nulls(len(array), child.type)
            for child in target.fields
        ]
        return pa.StructArray.from_arrays(made, fields=list(target.fields), mask=nulls)
    offsets = np.zeros(len(array) + 1, np.int64)
    if _T.is_map(target):
        array = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    np.cumsum(pc.list_value_length(array).fill_null(0).to_numpy(), out=offsets[1:])
    starts, values = pa.array(offsets).cast(pa.int32()), array.flatten()
    if _T.is_map(target):
        keys, items = values.flatten()
        kinds = (target.key_type, target.item_type)
        keys, items = (apply(*pair) for pair in zip((keys, items), kinds, strict=True))
        return pa.MapArray.from_arrays(starts, keys, items, type=target, mask=nulls)
    values = apply(values, target.value_type)
    return pa.ListArray.from_arrays(starts, values, type=target, mask=nulls)


def apply_or_null(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast rows that are not checked yet: nulls if one of them will be refused."""
    try:
        return apply(array, target)
    except LossyError:
        return pa.nulls(len(array), target)


def missing_value(array: pa.Array, field: pa.Field) -> str | None:
    """Return the path of a field that may not be null and is, here or deeper; None if all is well.

    >>> missing_value(pa.array([1, None]), pa.field("a", pa.int64(), nullable=False))
    'a'
    """
    if not field.nullable and array.null_count:
        return str(field.name)
    kind = field.type
    if not _demanding_type(kind):
        return None
    children: list[tuple[pa.Array, pa.Field]] = []
    if _T.is_struct(kind):
        array = array.filter(array.is_valid()) if array.null_count else array
        children = [(pc.struct_field(array, [i]), child) for i, child in enumerate(kind.fields)]
    elif _T.is_list(kind):
        children = [(array.flatten(), kind.value_field)]
    else:
        entries = array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field]))).flatten()
        pair = (kind.key_field, kind.item_field)
        children = [(pc.struct_field(entries, [i]), child) for i, child in enumerate(pair)]
    for values, child in children:
        path = missing_value(values, child)
        if path is not None:
            return f"{field.name}.{path}"
    return None


def demanding(field: pa.Field) -> bool:
    """Tell whether a field, or one inside of its type, may not be null."""
    return not field.nullable or _demanding_type(field.type)


def _demanding_type(kind: pa.DataType) -> bool:
    if _T.is_struct(kind):
        return any(demanding(child) for child in kind.fields)
    if _T.is_list(kind):
        return demanding(kind.value_field)
    if _T.is_map(kind):
        # The keys of a map are never null, in Arrow itself.
        return demanding(kind.item_field)
    return False


def _plain(array: pa.Array) -> pa.Array:
    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif isinstance(array, pa.DictionaryArray):
            array = _decoded(array)
        elif _T.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        else:
            return array


def _decoded(array: pa.DictionaryArray) -> pa.Array:
    """Return the values of a dictionary; Arrow cannot take from one of views."""
    values = _plain(array.dictionary)
    whole = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(values.type)
    if whole is not None or values.type != array.dictionary.type:
        values = values if whole is None else values.cast(whole)
        array = pa.DictionaryArray.from_arrays(array.indices, values)
    return array.dictionary_decode()


def _same(left: pa.Array, right: pa.Array) -> bool:
    if left.equals(right):
        return True
    equal = pc.equal(left, right)
    if _T.is_floating(left.type):
        equal = pc.or_(equal, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    return pc.all(equal).as_py() is not False


def _fit_nested(source: pa.DataType, target: pa.DataType) -> Fit:
    fits: list[Fit] = []
    if _T.is_struct(target) and _T.is_struct(source):
        theirs = {child.name: child for child in source.fields}
        if (
            is_tagged(source)
            or len(theirs) != source.num_fields
            or set(theirs) - {f.name for f in target.fields}
        ):
            return Fit.NEVER
        for child in target.fields:
            if child.name in theirs:
                fits.append(fit(theirs[child.name].type, child.type))
            else:
                fits.append(Fit.TOTAL if child.nullable else Fit.NEVER)
    elif _T.is_list(target) and any(test(source) for test in LISTS):
        fits = [fit(source.value_type, target.value_type)]
    elif _T.is_map(target) and _T.is_map(source):
        fits = [fit(source.key_type, target.key_type), fit(source.item_type, target.item_type)]
    return max(fits, default=Fit.NEVER)


def _fit_text(source: pa.DataType, target: pa.DataType) -> Fit | None:
    if _T.is_string(target):
        text = _T.is_large_string(source) or _T.is_string_view(source)
        return Fit.TOTAL if text else Fit.NEVER
    if _T.is_binary(target):
        some = (_T.is_large_binary, _T.is_binary_view, _T.is_fixed_size_binary)
        return Fit.TOTAL if any(test(source) for test in some) else Fit.NEVER
    return None


def _fit_number(source: pa.DataType, target: pa.DataType) -> Fit | None:
    if _T.is_integer(target):
        if _T.is_integer(source):
            spare = target.bit_width - source.bit_width
            signed = _T.is_signed_integer(source)
            return Fit.TOTAL if spare > 0 or (spare == 0 and signed) else Fit.CHECKED
        return Fit.CHECKED if _T.is_floating(source) or _T.is_decimal(source) else Fit.NEVER
    if _T.is_floating(target):
        if _T.is_integer(source):
            return Fit.TOTAL if source.bit_width < _FLOAT_BITS[target] else Fit.CHECKED
        if _T.is_floating(source):
            return Fit.TOTAL if source.bit_width < target.bit_width else Fit.ROUND_TRIP
        return Fit.NEVER
    if _T.is_decimal(target):
        return Fit.CHECKED if _T.is_integer(source) or _T.is_decimal(source) else Fit.NEVER
    return None


def _fit_time(source: pa.DataType, target: pa.DataType) -> Fit | None:
    if _T.is_timestamp(target):
        if _T.is_timestamp(source) and (source.tz is None) == (target.tz is None):
            return Fit.TOTAL if source.unit == target.unit else Fit.CHECKED
        return Fit.CHECKED if _T.is_date(source) and target.tz is None else Fit.NEVER
    if _T.is_date(target):
        if _T.is_timestamp(source) and source.tz is None:
            return Fit.ROUND_TRIP
        return Fit.CHECKED if _T.is_date(source) else Fit.NEVER
    return None
