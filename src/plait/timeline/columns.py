"""Small Arrow tables as JSON columns, large ones as Parquet: both bounded and checked.

Metadata is untrusted: sizes are checked before anything is allocated, types are cast to the
schema asked for, and every path must stay inside the table.
"""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from plait.errors import CorruptMetadataError
from plait.files.footer import THRIFT_BYTES_MAX
from plait.model.bucket import partition_parse
from plait.storage.port import Store, check_path

BYTES_MAX = 1 << 30
"""Largest metadata file that is read at all."""
_GROWTH_FREE, _GROWTH_MAX = 16 << 20, 256
"""A file may become so many bytes, and so many times its size."""
_ROWS_FREE, _ROWS_MAX = 4_096, 16
"""Rows that a file may always have, and rows that it may have for each of its bytes."""
_PATH_COLUMNS = ("path", "dv_path", "key_path", "map_path")
_COUNT_COLUMNS = (
    *("rows", "bytes", "dv_offset", "dv_bytes", "key_count", "version", "removed"),
    *("map_offset", "map_bytes", "group", "first"),
)
_LIVE = "live"
"""A table with this column adds to sums: below zero where more was removed than added."""
_BAD_PATH = r"^/|^$|\\|\x00|(^|/)\.{0,2}(/|$)|^[^/]*:"


def to_json(table: pa.Table) -> dict[str, list[object]]:
    """Write a table column by column; bytes as base64, columns of nulls left out."""
    result: dict[str, list[object]] = {}
    for field in table.schema:
        column = table.column(field.name)
        if field.nullable and column.null_count == len(column):
            continue
        values = column.to_pylist()
        if pa.types.is_binary(field.type):
            values = [None if v is None else base64.b64encode(v).decode() for v in values]
        result[field.name] = values
    return result


def from_json(value: object, schema: pa.Schema, *, where: str) -> pa.Table:
    """Read what ``to_json`` wrote; raise CorruptMetadataError for anything else."""
    try:
        if not isinstance(value, Mapping):
            raise TypeError(value)
        if unknown := set(value) - set(schema.names):
            raise ValueError(f"unknown columns {sorted(unknown)}")
        rows = len(next(iter(value.values()), []))
        columns = [_column(value.get(field.name), field, rows, where) for field in schema]
        return pa.Table.from_arrays(columns, schema=schema)
    except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
        message = f"{where} has unreadable columns: {error}"
        raise CorruptMetadataError(message, path=where, expected=str(schema.names)) from error


def other_columns(names: Iterable[str], schema: pa.Schema) -> list[str]:
    """Return the columns that a table has and the schema has not, and those that must be there."""
    given = set(names)
    lacking = [f"no {each.name}" for each in schema if not each.nullable and each.name not in given]
    return [*sorted(given - set(schema.names)), *(lacking if given else ())]


def strange_columns(error: CorruptMetadataError) -> list[str]:
    """Return in what a sound metadata file differs from the tables of this format, if it does."""
    named = error.facts.get("columns")
    return [str(each) for each in named] if isinstance(named, list) else []


def _has_nulls(field: pa.Field, where: str) -> CorruptMetadataError:
    message = f"{where}: column {field.name} has nulls"
    return CorruptMetadataError(message, path=where, found="null", expected=str(field.type))


def _below_zero(field: pa.Field, where: str) -> CorruptMetadataError:
    message = f"{where}: column {field.name} has negative counts"
    return CorruptMetadataError(message, path=where, expected="counts", found="less than 0")


def _column(values: object, field: pa.Field, rows: int, where: str) -> pa.Array:
    """Read one column, and check it as ``check_table`` does.

    The values themselves are looked at: few of them cost less so.
    """
    if values is None:
        if not field.nullable and rows:
            raise ValueError(f"column {field.name} is missing")
        return pa.nulls(rows, field.type)
    if not isinstance(values, list) or len(values) != rows:
        raise ValueError(f"column {field.name} has a different length")
    if pa.types.is_binary(field.type):
        values = [None if v is None else base64.b64decode(v, validate=True) for v in values]
    column = pa.array(values, field.type)
    if column.null_count and not field.nullable:
        raise _has_nulls(field, where)
    known: list[Any] = values
    if column.null_count:
        known = [value for value in values if value is not None]
    if field.name in _COUNT_COLUMNS and known and min(known) < 0:
        raise _below_zero(field, where)
    if field.name == "partition":
        _check_partitions(set(known), where)
    if field.name in _PATH_COLUMNS:
        for path in known:
            check_path(path)
    return column


def check_table(table: pa.Table, *, where: str) -> pa.Table:
    """Refuse nulls where there may be none, paths that leave the table, and other nonsense."""
    counted = () if _LIVE in table.schema.names else _COUNT_COLUMNS
    for field in table.schema:
        column = table.column(field.name)
        if not field.nullable and column.null_count:
            raise _has_nulls(field, where)
        if field.name in counted and pc.any(pc.less(column, 0)).as_py():
            raise _below_zero(field, where)
        if field.name == "partition":
            _check_partitions(pc.unique(column.drop_null()).to_pylist(), where)
        if field.name in _PATH_COLUMNS and len(column):
            bad = pc.match_substring_regex(column, _BAD_PATH).combine_chunks()
            if pc.any(bad).as_py():
                check_path(column.filter(bad)[0].as_py())
    return table


def _check_partitions(texts: Iterable[str], where: str) -> None:
    for text in texts:
        try:
            partition_parse(text)
        except (ValueError, RecursionError) as error:
            message = f"{where}: {text[:80]!r} are not partition values"
            raise CorruptMetadataError(
                message, path=where, expected="partition values", found=text[:80]
            ) from error


def to_parquet(table: pa.Table) -> bytes:
    """Write a table as one Parquet file."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", row_group_size=65_536)
    return sink.getvalue()


def from_parquet(body: bytes, schema: pa.Schema, *, where: str) -> pa.Table:
    """Read a metadata table; raise CorruptMetadataError if it is not one."""
    with readable(schema, where=where):
        file = open_parquet(pa.BufferReader(body), schema)
        return read_groups(file, schema, size=len(body), where=where)


@contextmanager
def readable(schema: pa.Schema, *, where: str) -> Iterator[None]:
    """Turn what Arrow says of a file that is no metadata table into CorruptMetadataError."""
    try:
        yield
    except (KeyError, ValueError, OSError, pa.ArrowException) as error:
        message = f"{where} is not a metadata table: {error}"
        raise CorruptMetadataError(message, path=where, expected=str(schema.names)) from error


def open_parquet(
    source: pa.NativeFile, schema: pa.Schema, *, footer: pq.FileMetaData | None = None
) -> pq.ParquetFile:
    """Open a metadata table; nothing but its footer is read."""
    known = pq.read_metadata(source) if footer is None else footer
    there = set(known.schema.names)
    texts = [f.name for f in schema if f.type in (pa.string(), pa.binary()) and f.name in there]
    # texts are kept as a dictionary until it is known how large they become
    return pq.ParquetFile(
        source,
        metadata=known,
        read_dictionary=texts,
        pre_buffer=True,
        page_checksum_verification=True,
        thrift_string_size_limit=THRIFT_BYTES_MAX,
    )


def read_groups(
    file: pq.ParquetFile,
    schema: pa.Schema,
    *,
    size: int,
    where: str,
    groups: Sequence[int] | None = None,
) -> pa.Table:
    """Read the columns of a schema from some row groups, by default all, of a file of this size.

    Raises:
        CorruptMetadataError: they are not what the schema says.
    """
    chosen = range(file.num_row_groups) if groups is None else groups
    names = file.schema_arrow.names
    if len(set(names)) < len(names):
        raise ValueError(f"a column occurs twice: {names}")
    lacking = [f"no {each.name}" for each in schema if not (each.nullable or each.name in names)]
    if lacking:
        message = f"{where} is not a metadata table: {', '.join(lacking)}"
        expected = str(schema.names)
        raise CorruptMetadataError(message, path=where, expected=expected, columns=lacking)
    wanted = [name for name in schema.names if name in names]
    _require_bounded(file.metadata, chosen, size)
    table = file.read_row_groups(chosen, wanted, use_threads=False)
    _require_small(table, _bound(size))
    columns = [
        table.column(f.name) if f.name in names else pa.nulls(table.num_rows, f.type)
        for f in schema
    ]
    table = pa.table(columns, names=schema.names).cast(schema)
    return check_table(table, where=where)


def _bound(size: int) -> int:
    """Return how many bytes a metadata file of this size may become: entries differ by a name."""
    return min(BYTES_MAX, _GROWTH_FREE + _GROWTH_MAX * size)


def _require_bounded(footer: pq.FileMetaData, chosen: Sequence[int], size: int) -> None:
    """Refuse what a few bytes declare to be very much, before anything is made of it."""
    groups = [footer.row_group(i) for i in chosen]
    bytes_ = sum(group.total_byte_size for group in groups)
    rows = sum(group.num_rows for group in groups)
    if len(groups) == footer.num_row_groups:
        rows = max(rows, footer.num_rows)
    if bytes_ > _bound(size) or not 0 <= rows <= _ROWS_FREE + _ROWS_MAX * size:
        raise ValueError(f"{rows} rows and {bytes_} bytes in a file of {size} bytes")


def _require_small(table: pa.Table, limit: int) -> None:
    """Refuse texts that become too large when they are written out."""
    total = 0
    for column in table.columns:
        for chunk in column.chunks:
            if not pa.types.is_dictionary(chunk.type) or not len(chunk):
                continue
            lengths = pc.take(pc.binary_length(chunk.dictionary), chunk.indices)
            total += pc.sum(pc.cast(lengths, pa.int64())).as_py() or 0
    if total > limit:
        raise ValueError(f"{total} bytes of text")


def load_parquet(
    store: Store, path: str, schema: pa.Schema, *, rows: int | None = None, sha256: str = ""
) -> pa.Table:
    """Load a metadata table, checked against what its reference says of it."""
    body = store.find(check_path(path), size_max=BYTES_MAX)
    if body is None:
        raise CorruptMetadataError(f"{path} is missing", path=path, expected="a file", found="none")
    computed = hashlib.sha256(body).hexdigest()
    if sha256 and computed != sha256:
        message = f"{path} is damaged: its checksum differs"
        raise CorruptMetadataError(message, path=path, expected=sha256, found=computed)
    table = from_parquet(body, schema, where=path)
    if rows is not None and table.num_rows != rows:
        message = f"{path} has {table.num_rows} rows, but {rows} are declared"
        raise CorruptMetadataError(message, path=path, expected=rows, found=table.num_rows)
    return table
