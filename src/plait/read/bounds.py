"""Bounds of columns in many files or row groups, as pruning takes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import CorruptMetadataError
from plait.expr.prune import Bounds
from plait.files.stats import Range
from plait.model.schema import Schema
from plait.model.value import array_of, from_raws, is_plain

_TEXT = r'null|"(?:[^"\\]|\\.)*"'
_T = pa.types


def file_bounds(files: pa.Table, columns: Sequence[str], schema: Schema) -> dict[str, Bounds]:
    """Return the bounds of columns in many files, from the ``stats`` of LIVE.

    No Python object is made for a file. The JSON is searched, not parsed: a quote inside a JSON
    text is always escaped, so ``"<field id>":[`` stands only where the bounds of a field begin.

    Raises:
        CorruptMetadataError: a bound is not the text of a value; names the file.
    """
    rows = files["rows"].combine_chunks()
    stats = files["stats"].combine_chunks()
    found = {}
    for name in columns:
        kind = schema.arrow.field(name).type
        if not is_plain(kind):
            continue
        pattern = (
            rf'"{schema.field_id(name)}":\[(?P<l>{_TEXT}),(?P<u>{_TEXT}),(?P<n>null|\d{{1,18}})\]'
        )
        parts = pc.extract_regex(stats, pattern=pattern)
        nulls = pc.struct_field(parts, "n")
        try:
            found[name] = Bounds(
                _values(pc.struct_field(parts, "l"), kind),
                _values(pc.struct_field(parts, "u"), kind),
                _unless(nulls, "null").cast(pa.int64()),
                rows,
            )
        except ValueError as error:
            raise _damaged(files, name, schema, error) from error
    return found


def group_bounds(
    groups: Sequence[tuple[int, Mapping[str, Range]]], kinds: Mapping[str, pa.DataType]
) -> dict[str, Bounds]:
    """Return the bounds of columns in row groups, each given as (rows, range by column)."""
    rows = pa.array([count for count, _ in groups], pa.int64())
    found = {}
    for name, kind in kinds.items():
        ranges = [known.get(name, Range()) for _, known in groups]
        found[name] = Bounds(
            from_raws((part.lower for part in ranges), kind),
            from_raws((part.upper for part in ranges), kind),
            pa.array([part.null_count for part in ranges], pa.int64()),
            rows,
        )
    return found


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
    hint = "run tablectl verify"
    return CorruptMetadataError(message, hint=hint, path=path, found=str(error))


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
    if not (_T.is_binary(kind) or _T.is_boolean(kind)):
        try:
            return texts.cast(kind)
        except pa.ArrowInvalid:  # beyond what Arrow reads, such as the year 10000
            pass
    return array_of(texts.to_pylist(), kind)
