"""The footer of a Parquet file: its bytes, read once, hashed and parsed, and the bounds it tells.

A file's bounds are the JSON ``{field id: [lower, upper, null count]}`` beside it in the table's
metadata. They come from the footer, so they cost no pass over the data; but not those of floats. A
footer's bounds leave NaN out and do not say so, and Spark, to which NaN is the greatest number,
skips by them the very rows that it looks for. So files carry no statistics of floats. Their bounds
are taken while rows are written, and a column in which a NaN stands has none. A bound that is
missing (null) says nothing.

A footer has the name of its file (``named``). So no two files have one footer, however alike their
rows are, and the hash that the metadata has of it tells whether a file is the one that is meant
(RFC 0036).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from plait.files.data_file import own_name
from plait.model.plan import TableSpec
from plait.model.schema import WRITTEN_COLUMN, WRITTEN_FIELD, WRITTEN_ID
from plait.model.value import Raw, is_plain, raw_text

THRIFT_BYTES_MAX: Final = 64 << 20
_TAIL_BYTES = 64 << 10
"""Read at once, as Arrow does: most footers are smaller, and cost one request."""
_FOOTER_BYTES_MAX = 256 << 20
_GROWTH_FREE, _GROWTH_MAX = 16 << 20, 256
GROUP_BYTES_FREE: Final = 64 << 20
"""A row group may unpack to so many bytes, however few it takes: Zstandard knows no limit."""
_END_BYTES = 8
"""The length of what stands before it, little endian, and Parquet's magic."""
COLUMNS_MAX: Final = 32
"""Number of leading columns that get bounds, besides the key and the ordering field."""
LENGTH_MAX: Final = 64
"""Longer strings (characters) and binaries (bytes) are cut, upper bounds rounded up."""

_NAME: Final = "plait.file"
_LAST = "\U0010ffff"
_SURROGATES = (0xD800, 0xDFFF)
_T = pa.types


def footer_bytes(file: pa.NativeFile, size: int) -> bytes:
    """Read a file from the start of its footer to its end; fewer bytes if it declares nonsense."""
    count = min(size, _TAIL_BYTES)
    tail: bytes = file.read_at(count, size - count)
    declared = int.from_bytes(tail[-_END_BYTES : -_END_BYTES // 2], "little") + _END_BYTES
    if len(tail) < declared <= min(size, _FOOTER_BYTES_MAX):
        tail = file.read_at(declared, size - declared)
    return tail[-declared:]


def footer_hash(footer: bytes) -> int:
    """Return what a decision says of these bytes."""
    return xxhash.xxh64_intdigest(footer)


def named(path: str) -> dict[str, str]:
    """Return what the footer of a file says of the file itself: its name."""
    return {_NAME: own_name(path)}


def names_another(footer: pq.FileMetaData, path: str) -> bool:
    """Tell whether a footer is that of another file, or does not say whose it is."""
    said: bytes = (footer.metadata or {}).get(_NAME.encode(), b"")
    return said != own_name(path).encode()


def parse_footer(footer: bytes) -> pq.FileMetaData:
    """Parse a footer; raise what Arrow raises if it is none."""
    source = pa.BufferReader(footer)
    return pq.ParquetFile(source, thrift_string_size_limit=THRIFT_BYTES_MAX).metadata


def unpacked_bytes(footer: pq.FileMetaData) -> int:
    """Return how many bytes the columns of a file have before they are compressed."""
    total = 0
    for group in range(footer.num_row_groups):
        total += footer.row_group(group).total_byte_size
    return total


def unpacked_bytes_max(footer: pq.FileMetaData, size: int) -> int:
    """Return how many they may have in a file of a size, so that few bytes do not become many.

    Readers hold one row group at a time, so each may have some bytes however well it packs.
    """
    return _GROWTH_FREE + GROUP_BYTES_FREE * int(footer.num_row_groups) + _GROWTH_MAX * size


@dataclass(frozen=True, slots=True)
class Range:
    """What is known of the values of a column; None: nothing."""

    lower: Raw | None = None
    upper: Raw | None = None
    null_count: int | None = None

    def meets(self, other: Range) -> bool:
        """Tell whether a value may lie in both; what is not known may."""
        return not (_below(self.upper, other.lower) or _below(other.upper, self.lower))


def _below(upper: Raw | None, lower: Raw | None) -> bool:
    return upper is not None and lower is not None and upper < lower  # type: ignore[operator]  # one column, one type


def bounded_columns(spec: TableSpec) -> tuple[str, ...]:
    """Name the columns that get bounds: the first plain ones, the key, the ordering field."""
    plain = [field.name for field in spec.schema.arrow if is_plain(field.type)]
    wanted = {*plain[:COLUMNS_MAX], *spec.key, *filter(None, (spec.layout.ordering,))}
    return tuple(filter(wanted.__contains__, plain))


def leaf_indices(schema: pa.Schema) -> dict[str, int]:
    """Return for each top-level column the index of its first leaf in a Parquet file."""
    indices: dict[str, int] = {}
    leaf = 0
    for field in schema:
        indices[field.name] = leaf
        leaf += len(leaf_types(field))
    return indices


def leaf_types(field: pa.Field) -> dict[str, pa.DataType]:
    """Return the type of each leaf column of a column, by its path as Parquet names it.

    >>> leaf_types(pa.field("a", pa.list_(pa.int64())))
    {'a.list.element': DataType(int64)}
    """
    if _T.is_struct(field.type):
        children = [("", child) for child in field.type.fields]
    elif _T.is_list(field.type):
        children = [("list.", field.type.value_field.with_name("element"))]
    elif _T.is_map(field.type):
        pair = field.type.key_field.with_name("key"), field.type.item_field.with_name("value")
        children = [("key_value.", child) for child in pair]
    else:
        return {field.name: field.type}
    return {
        f"{field.name}.{between}{path}": kind
        for between, child in children
        for path, kind in leaf_types(child).items()
    }


def exact_leaves(schema: pa.Schema) -> list[str]:
    """Name the leaf columns whose statistics every engine reads alike: all but the floats."""
    return [path for path, kind in _leaves(schema) if not _T.is_floating(kind)]


def leaf_paths(schema: pa.Schema) -> list[str]:
    """Name all leaf columns, in their order."""
    return [path for path, _ in _leaves(schema)]


def _leaves(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    leaves: list[tuple[str, pa.DataType]] = []
    for field in schema:  # names may have dots, so two leaves may have one path
        leaves += leaf_types(field).items()
    return leaves


def group_range(chunk: pq.ColumnChunkMetaData, kind: pa.DataType) -> Range:
    """Return what a Parquet row group says of a plain column; of floats no bounds."""
    statistics = chunk.statistics
    if statistics is None:
        return Range()
    nulls = statistics.null_count if statistics.has_null_count else None
    if not statistics.has_min_max or _T.is_floating(kind):
        return Range(null_count=nulls)
    raw = _T.is_temporal(kind)  # datetime cannot hold every date and timestamp
    lower, upper = (
        (statistics.min_raw, statistics.max_raw) if raw else (statistics.min, statistics.max)
    )
    if _T.is_binary(kind) or _T.is_string(kind):
        lower, upper = _as(kind, lower), _as(kind, upper)
    return Range(lower, upper, nulls)


def _as(kind: pa.DataType, value: str | bytes) -> str | bytes:
    if _T.is_binary(kind):
        return value.encode() if isinstance(value, str) else value
    return value.decode() if isinstance(value, bytes) else value


def joined(ranges: Iterable[Range], rows: Iterable[int]) -> Range:
    """Return the range of several parts; a part of nothing but nulls needs no bounds."""
    lowers: list[Raw | None] = []
    uppers: list[Raw | None] = []
    nulls: int | None = 0
    for part, count in zip(ranges, rows, strict=True):
        nulls = None if nulls is None or part.null_count is None else nulls + part.null_count
        if part.null_count == count:
            continue
        lowers.append(part.lower)
        uppers.append(part.upper)
    # one part that does not say is enough, and then all of it is unknown
    lower = None if not lowers or None in lowers else min(lowers)  # type: ignore[type-var]
    upper = None if not uppers or None in uppers else max(uppers)  # type: ignore[type-var]
    return Range(lower, upper, nulls)


def file_stats(footer: pq.FileMetaData, spec: TableSpec, floats: Mapping[str, Range]) -> str:
    """Write the bounds of a data file as JSON.

    Args:
        footer: of the file, written with this spec's schema.
        spec: the table's.
        floats: what is known of its ``float_columns``.
    """
    schema = spec.schema.arrow
    leaves = leaf_indices(schema)
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    rows = [group.num_rows for group in groups]
    entries: dict[str, list[str | int | None]] = {}
    for name in bounded_columns(spec):
        kind = schema.field(name).type
        whole = floats.get(name)
        if whole is None:
            whole = joined([group_range(g.column(leaves[name]), kind) for g in groups], rows)
        entries[str(spec.schema.ids[name])] = _entry(whole, kind)
    last = footer.num_columns - 1
    if WRITTEN_COLUMN not in schema.names and footer.schema.column(last).path == WRITTEN_COLUMN:
        hidden = joined([group_range(g.column(last), WRITTEN_FIELD.type) for g in groups], rows)
        entries[str(WRITTEN_ID)] = _entry(hidden, WRITTEN_FIELD.type)
    elif spec.keeps_row_version:
        entries[str(WRITTEN_ID)] = [None, None, sum(rows)]
    return json.dumps(entries, separators=(",", ":"), ensure_ascii=False)


def _entry(whole: Range, kind: pa.DataType) -> list[str | int | None]:
    lower, upper = whole.lower, whole.upper
    if isinstance(lower, (str, bytes)):
        lower = lower[:LENGTH_MAX]
    if isinstance(upper, (str, bytes)) and len(upper) > LENGTH_MAX:
        upper = _cut_up(upper)
    return [
        None if lower is None else raw_text(lower, kind),
        None if upper is None else raw_text(upper, kind),
        whole.null_count,
    ]


def _cut_up(value: str | bytes) -> str | bytes | None:
    """Cut a long text to a bound that no value with this beginning exceeds; None: there is none."""
    if isinstance(value, bytes):
        head = value[:LENGTH_MAX].rstrip(b"\xff")
        return head[:-1] + bytes([head[-1] + 1]) if head else None
    text = value[:LENGTH_MAX].rstrip(_LAST)
    if not text:
        return None
    following = ord(text[-1]) + 1
    if _SURROGATES[0] <= following <= _SURROGATES[1]:
        following = _SURROGATES[1] + 1
    return text[:-1] + chr(following)


def float_columns(spec: TableSpec) -> tuple[str, ...]:
    """Name the columns with bounds in which a NaN may stand."""
    schema = spec.schema.arrow
    return tuple(n for n in bounded_columns(spec) if _T.is_floating(schema.field(n).type))


def float_range(values: pa.ChunkedArray) -> Range:
    """Return the range of floats: no bounds if a NaN is among them."""
    nulls: int = values.null_count
    if nulls == len(values) or pc.any(pc.is_nan(values)).as_py():
        return Range(null_count=nulls)
    ends = pc.min_max(values).as_py()
    lower, upper = ends["min"], ends["max"]
    # Whichever zero a bound names, both may be there.
    return Range(-0.0 if lower == 0 else lower, 0.0 if upper == 0 else upper, nulls)
