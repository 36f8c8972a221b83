"""The bounds of columns in data files, typed: from JSON, or from columns of a table of files.

A decision says them as JSON (``stats``; files/footer.py). A checkpoint part has them typed too,
three columns a field: ``lower.<field id>``, ``upper.<field id>`` and ``nulls.<field id>``. So a
scan loads those that its predicate looks at, and no JSON.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import CorruptMetadataError
from plait.expr.prune import Bounds
from plait.files.footer import Range, bounded_columns
from plait.model.plan import TableSpec
from plait.model.schema import NO_NOTE, WRITTEN_FIELD, WRITTEN_ID, Schema, column_of
from plait.model.value import array_of, is_plain, to_raw

_MIDNIGHT: Final = "T00:00:00.000000"
_TEXT: Final = r'null|"(?:[^"\\]|\\.)*"'
_T = pa.types

Kinds = Mapping[int, pa.DataType]
"""By field id: the type of a column that may have bounds."""
WRITTEN_KINDS: Final[Kinds] = {WRITTEN_ID: WRITTEN_FIELD.type}


def plain_kinds(spec: TableSpec, schemas: Iterable[Schema]) -> dict[int, pa.DataType]:
    """Return the types of the fields that have bounds in files of any of these schemas.

    Of a widened field it is the newest.
    """
    kinds = {}
    for schema in sorted(schemas, key=lambda each: each.id):
        for name in bounded_columns(replace(spec, schema=schema)):
            kinds[schema.ids[name]] = schema.arrow.field(name).type
    return {**kinds, **WRITTEN_KINDS} if spec.keeps_row_version else kinds


def bound_fields(kinds: Kinds) -> list[pa.Field]:
    """Return the typed columns of these fields."""
    return [
        pa.field(f"{what}.{number}", pa.int64() if what == "nulls" else kind)
        for number, kind in sorted(kinds.items())
        for what in ("lower", "upper", "nulls")
    ]


def with_bounds(files: pa.Table, kinds: Kinds) -> pa.Table:
    """Return files with the bounds in their ``stats`` as typed columns, where any has some.

    Bounds that are no values of the field's type are left out: they say nothing (null).
    """
    stats = files["stats"].combine_chunks()
    for number, kind in sorted(kinds.items()):
        fields = bound_fields({number: kind})
        if _has(files, fields) and any(
            files[field.name].null_count < len(stats) for field in fields
        ):
            continue
        try:
            columns = _parsed(stats, number, kind)
        except ValueError:
            continue
        if all(column.null_count == len(stats) for column in columns):
            continue
        for field, column in zip(fields, columns, strict=True):
            files = _set(files, field, column)
    return files


def _has(files: pa.Table, fields: Sequence[pa.Field]) -> bool:
    return {field.name for field in fields} <= set(files.schema.names)


def _set(files: pa.Table, field: pa.Field, column: pa.Array) -> pa.Table:
    at = files.schema.get_field_index(field.name)
    return files.append_column(field, column) if at < 0 else files.set_column(at, field, column)


def file_bounds(files: pa.Table, columns: Sequence[str], schema: Schema) -> dict[str, Bounds]:
    """Return the bounds of columns in many files (LIVE), from typed columns or from ``stats``.

    No Python object is made for a file. The JSON is searched, not parsed: a quote inside a JSON
    text is always escaped, so ``"<field id>":[`` stands only where the bounds of a field begin.

    Raises:
        CorruptMetadataError: a bound is not the text of a value; names the file.
    """
    rows = files["rows"].combine_chunks()
    stats = files["stats"].combine_chunks()
    bounds = {}
    for name in columns:
        number, field = column_of(name, schema)
        kind = field.type
        if not is_plain(kind):
            continue
        try:
            recorded = _parsed(stats, number, kind)
        except ValueError as error:
            raise _damaged(files, name, schema, error) from error
        typed = bound_fields({number: kind})
        if _has(files, typed):
            known = (files[each.name].combine_chunks() for each in typed)
            recorded = tuple(pc.coalesce(*pair) for pair in zip(known, recorded, strict=True))
        lower, upper, nulls = recorded
        if schema.notes.get(number, NO_NOTE).was_float:
            lower, upper = _of_floats_too(lower, upper)
        bounds[name] = Bounds(lower, upper, nulls, rows)
    return bounds


def file_ranges(files: pa.Table, column: str, schema: Schema) -> dict[str, Range]:
    """Return the range of a key column in each of these files (LIVE), by path.

    Raises:
        CorruptMetadataError: as ``file_bounds``.
    """
    bounds = file_bounds(files, [column], schema).get(column)
    if bounds is None:
        return {}
    sides = ([to_raw(value) for value in side] for side in (bounds.lower, bounds.upper))
    ranges = itertools.starmap(Range, zip(*sides, strict=True))
    return dict(zip(files["path"].to_pylist(), ranges, strict=True))


def _parsed(stats: pa.Array, number: int, kind: pa.DataType) -> tuple[pa.Array, ...]:
    """Read the lower and the upper bound and the count of nulls of a field."""
    if stats.null_count == len(stats):
        return tuple(pa.nulls(len(stats), each) for each in (kind, kind, pa.int64()))
    pattern = rf'"{number}":\[(?P<l>{_TEXT}),(?P<u>{_TEXT}),(?P<n>null|\d{{1,18}})\]'
    parts = pc.extract_regex(stats, pattern=pattern)
    nulls = pc.struct_field(parts, "n")
    return (
        _values(pc.struct_field(parts, "l"), kind),
        _values(pc.struct_field(parts, "u"), kind),
        _unless(nulls, "null").cast(pa.int64()),
    )


def _of_floats_too(lower: pa.Array, upper: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return bounds that hold for doubles, and for floats from before the column was widened.

    Both have the fewest digits that read back: 0.1 is another number as a float.
    """
    as_floats = []
    for each in (lower, upper):
        single = each.cast(pa.float32(), safe=False).cast(pa.float64())
        # No float has a bound so great that it is none.
        as_floats.append(pc.if_else(pc.is_finite(single), single, each))
    return (
        pc.min_element_wise(lower, as_floats[0], skip_nulls=False),
        pc.max_element_wise(upper, as_floats[1], skip_nulls=False),
    )


def _damaged(files: pa.Table, name: str, schema: Schema, error: ValueError) -> CorruptMetadataError:
    """Say of which file the bounds of a column are damaged."""
    alone = [files.slice(at, 1) for at in range(files.num_rows)] if files.num_rows > 1 else []
    try:
        for file in alone:
            file_bounds(file, [name], schema)
    except CorruptMetadataError as found:
        return found
    path = files["path"][0].as_py()
    message = f"the bounds of column {name!r} of {path} are damaged: {error}"
    return CorruptMetadataError(message, hint="run tablectl verify", path=path, found=str(error))


def _unless(texts: pa.Array, word: str) -> pa.Array:
    return pc.if_else(pc.equal(texts, word), pa.scalar(None, pa.string()), texts)


def _values(quoted: pa.Array, kind: pa.DataType) -> pa.Array:
    """Read JSON texts of values; a null stays one."""
    quoted = _unless(quoted, "null")
    texts = pc.utf8_slice_codeunits(quoted, 1, -1)
    escaped = pc.match_substring(quoted, "\\")
    if pc.any(escaped).as_py():
        opened = [None if text is None else json.loads(text) for text in quoted.to_pylist()]
        texts = pa.array(opened, pa.string())
    if _T.is_string(kind):
        return texts
    if _T.is_timestamp(kind) and kind.tz is None:  # a date, from before the column was widened
        whole = pc.match_substring(texts, "T")
        texts = pc.if_else(whole, texts, pc.binary_join_element_wise(texts, _MIDNIGHT, ""))
    if not (_T.is_binary(kind) or _T.is_boolean(kind)):
        try:
            return texts.cast(kind)
        except pa.ArrowInvalid:  # beyond what Arrow reads, such as the year 10000
            pass
    return array_of(texts.to_pylist(), kind)
