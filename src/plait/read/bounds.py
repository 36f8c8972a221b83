"""Read the bounds of many files at once: no Python object a file."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import CorruptMetadataError
from plait.model.schema import Schema
from plait.model.value import array_of, is_plain
from plait.read.prune import Bounds

_TEXT = r'null|"(?:[^"\\]|\\.)*"'
_T = pa.types


def file_bounds(files: pa.Table, columns: Sequence[str], schema: Schema) -> dict[str, Bounds]:
    """Give the bounds of columns in many files, from the ``stats`` of LIVE.

    The JSON is searched, not parsed: a quote inside a JSON text is always escaped, so
    ``"<field id>":[`` stands nowhere but where the bounds of that field begin.

    Raises:
        CorruptMetadataError: a bound is not the text of a value.
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
            message = f"the bounds of column {name!r} in the metadata are damaged: {error}"
            hint = "run tablectl verify"
            raise CorruptMetadataError(message, hint=hint, found=str(error)) from error
    return found


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
