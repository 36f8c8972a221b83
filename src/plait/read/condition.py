"""A predicate as files are read with it: evaluated for rows, and judged by bounds of columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import CorruptMetadataError
from plait.expr import TRUE, Predicate, Where, columns_read, parse_where
from plait.expr.evaluate import Sides, holds
from plait.expr.prune import Bounds, Flags, may_match
from plait.expr.tree import TARGET, Arrow, leaves
from plait.files.footer import Range
from plait.files.reader import OpenFile
from plait.model.schema import Schema
from plait.model.value import array_of, from_raws, is_plain

_TEXT: Final = r'null|"(?:[^"\\]|\\.)*"'
_T = pa.types


@dataclass(frozen=True)
class Condition:
    """Which rows are wanted."""

    predicate: Predicate
    schema: pa.Schema
    columns: tuple[str, ...]
    """What it looks at, in the schema's order."""

    @classmethod
    def of(cls, where: Where, schema: pa.Schema) -> Self | None:
        """Understand a predicate; None if it is true of every row.

        Raises:
            PredicateError: it cannot be understood, or does not fit the schema.
        """
        predicate = parse_where(where, schema)
        if predicate == TRUE:
            return None
        names = _looked_at(predicate, schema)
        columns = tuple(name for name in schema.names if name in names)
        return cls(predicate, schema, columns)

    def matches(self, rows: pa.RecordBatch) -> Flags:
        """Tell for each row whether the predicate is true of it."""
        looked_at = rows.select(list(self.columns))
        flags = holds(self.predicate, Sides({TARGET: looked_at}, rows.num_rows))
        answer: Flags = flags.to_numpy(zero_copy_only=False)
        return answer

    def groups(self, source: OpenFile) -> Sequence[int]:
        """Return the row groups of a file in which a row may match."""
        kinds = {
            name: kind for name in self.columns if is_plain(kind := self.schema.field(name).type)
        }
        count = source.group_count
        ranges = [
            (source.group_rows(group), source.group_ranges(group, tuple(kinds)))
            for group in range(count)
        ]
        bounds = group_bounds(ranges, kinds)
        chosen: list[int] = np.flatnonzero(may_match(self.predicate, bounds, count)).tolist()
        return chosen


def _looked_at(predicate: Predicate, schema: pa.Schema) -> frozenset[str]:
    """Name the columns to read; of a pyarrow expression those that it cannot do without."""
    names: set[str] = set()
    for leaf in leaves(predicate):
        if isinstance(leaf, Arrow):
            names.update(_named_in(leaf.expression, schema))
        else:
            names.update(columns_read(leaf) or ())
    return frozenset(names)


def _named_in(expression: pc.Expression, schema: pa.Schema) -> Sequence[str]:
    text = str(expression)
    fewer = pa.schema([field for field in schema if field.name in text])
    try:
        fewer.empty_table().filter(expression)
    except (pa.ArrowException, NotImplementedError):
        return list(schema.names)
    return list(fewer.names)


def file_bounds(files: pa.Table, columns: Sequence[str], schema: Schema) -> dict[str, Bounds]:
    """Return the bounds of columns in many files, from the ``stats`` of LIVE.

    No Python object is made for a file. The JSON is searched, not parsed: a quote inside a JSON
    text is always escaped, so ``"<field id>":[`` stands only where the bounds of a field begin.

    Raises:
        CorruptMetadataError: a bound is not the text of a value; names the file.
    """
    rows = files["rows"].combine_chunks()
    stats = files["stats"].combine_chunks()
    bounds = {}
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
            bounds[name] = Bounds(
                _values(pc.struct_field(parts, "l"), kind),
                _values(pc.struct_field(parts, "u"), kind),
                _unless(nulls, "null").cast(pa.int64()),
                rows,
            )
        except ValueError as error:
            raise _damaged(files, name, schema, error) from error
    return bounds


def group_bounds(
    groups: Sequence[tuple[int, Mapping[str, Range]]], kinds: Mapping[str, pa.DataType]
) -> dict[str, Bounds]:
    """Return the bounds of columns in row groups, each given as (rows, range by column)."""
    rows = pa.array([count for count, _ in groups], pa.int64())
    bounds = {}
    for name, kind in kinds.items():
        ranges = [known.get(name, Range()) for _, known in groups]
        bounds[name] = Bounds(
            from_raws((part.lower for part in ranges), kind),
            from_raws((part.upper for part in ranges), kind),
            pa.array([part.null_count for part in ranges], pa.int64()),
            rows,
        )
    return bounds


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
