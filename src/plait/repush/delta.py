"""A source that is a version of a Delta table."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from plait.errors import MissingDependencyError, SchemaMismatchError, TableError
from plait.model.consent import AllowedAddress, Consent, absolute_path
from plait.model.schema import parts_of
from plait.repush.delta_vectors import DeltaVector, commit_facts, find_vectors
from plait.repush.imports import (
    FOREIGN,
    FileSource,
    Premises,
    place_of,
    read_options,
    reading,
    require_links_within,
    unreadable,
)
from plait.repush.parts import (
    RowPart,
    RowSource,
    SourceHistory,
    SourceOrigin,
    SourceVersion,
    spans,
)

if TYPE_CHECKING:
    import pyarrow.dataset as pads
    from deltalake import DeltaTable

_ID, _NAME = b"delta.columnMapping.id", b"delta.columnMapping.physicalName"
_FILE_ID = b"PARQUET:field_id"
_VECTORS = "deletionVectors"
_READ_HERE = frozenset((_VECTORS, "columnMapping"))
"""Features for which the library has no dataset: these files are read here."""
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
_UNSAID = {
    "rowTracking": "row ids and row tracking",
    "changeDataFeed": "change data",
    "clustering": "clustering columns: use the property cluster.by",
    "generatedColumns": "generated columns become plain columns",
    "identityColumns": "identity columns become plain columns",
    "allowColumnDefaults": "defaults of columns",
    "checkConstraints": "constraints: add them with `tablectl alter`",
}


def delta_source(
    allowed: AllowedAddress, options: Mapping[str, object], version: int | None, consent: Consent
) -> RowSource:
    """Read a version of a Delta table, by default the newest.

    Raises:
        ConsentError: a path or a link in it leads elsewhere.
        MissingDependencyError: the package deltalake is not installed.
        OptionError: there is no Delta table, or it cannot be read by that package.
        RepushRefusedError: the version is gone.
        SchemaMismatchError: its files have other names for columns than its log says.
    """
    try:
        import deltalake  # noqa: PLC0415 - the adapter's library, when it is used
        from deltalake.exceptions import DeltaError  # noqa: PLC0415 - the same
    except ImportError as error:
        message, hint = "this source needs deltalake", "pip install 'plait[delta]'"
        raise MissingDependencyError(
            message, hint=hint, library="deltalake", extra="delta"
        ) from error
    storage = {name: str(value) for name, value in options.items()}
    place = allowed.text
    source = f"delta:{place}"
    try:
        require_links_within(source, place, consent)
        table = deltalake.DeltaTable(place, version=version, storage_options=storage or None)
        origin = _origin(table)
        _require_no_binary_places(source, table)
        if _is_read_here(table):
            return _masked(source, place, table, origin, consent)
        dataset = table.to_pyarrow_dataset(parquet_read_options=read_options())
        return replace(FileSource.of(source, dataset, table.version()), origin=origin)
    except (DeltaError, *FOREIGN) as error:
        if isinstance(error, TableError):
            raise
        raise unreadable(source, version, error) from error


def delta_history(
    allowed: AllowedAddress, options: Mapping[str, object], consent: Consent
) -> SourceHistory:
    """Look which versions of a Delta table have the columns of the newest, and all their files.

    Raises:
        ConsentError: a path or a link in it leads elsewhere.
        OptionError: it cannot be read.
    """
    import deltalake  # noqa: PLC0415 - the adapter's library, when it is used
    from deltalake.exceptions import DeltaError  # noqa: PLC0415 - the same

    storage = {name: str(value) for name, value in options.items()}
    place = allowed.text
    try:
        require_links_within(f"delta:{place}", place, consent)
        open_at = functools.partial(deltalake.DeltaTable, place, storage_options=storage or None)
        newest = open_at()
        files, root = pafs.FileSystem.from_uri(place if "://" in place else absolute_path(place))
        premises = None
        if files.type_name == "local":
            premises = Premises(f"delta:{place}", place_of("file", root), consent)
        found: list[SourceVersion] = []
        there: set[str] = set()
        reason = ""
        for number in range(newest.version(), -1, -1):
            try:
                then = open_at(version=number)
            except (DeltaError, *FOREIGN):
                reason = "the log does not have them any more"
                break
            if _columns(then) != _columns(newest):
                reason = "their columns are not those of the newest version"
                break
            actions = pa.table(then.get_add_actions())["path"].to_pylist()
            paths = {_path(each, root, premises) for each in actions}.difference(there)
            infos = files.get_file_info(sorted(paths))
            if any(each.type is not pafs.FileType.File for each in infos):
                reason = "files of them are gone"
                break
            there |= paths
            found.append(_version(files, root, number))
    except (DeltaError, *FOREIGN) as error:
        if isinstance(error, TableError):
            raise
        raise unreadable(f"delta:{place}", None, error) from error
    if not found:
        raise unreadable(f"delta:{place}", None, OSError(reason))
    first = found[-1].number
    lost = (f"versions 0 to {first - 1} are not brought over: {reason}",) if reason else ()
    return SourceHistory(tuple(reversed(found)), lost)


def _columns(table: DeltaTable) -> tuple[object, ...]:
    fields = [_plain(each) for each in pa.schema(table.schema().to_arrow())]
    return (*((each.name, each.type) for each in fields), *table.metadata().partition_columns)


def _version(files: pafs.FileSystem, root: str, number: int) -> SourceVersion:
    """Return a version with what its commit says of it."""
    try:
        said = commit_facts(files, root, number)
    except FOREIGN:  # a checkpoint replaced it
        return SourceVersion(number, None)
    return SourceVersion(number, *said)


def _is_read_here(table: DeltaTable) -> bool:
    # Before tables had features, column mapping came with reader version 2, and a property alone
    # tells whether it is used. The library's dataset would show nulls for every mapped column.
    mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    features = table.protocol().reader_features or ()
    return mode != "none" or bool(_READ_HERE.intersection(features))


def _require_no_binary_places(source: str, table: DeltaTable) -> None:
    """Refuse partition columns of bytes: the library returns the escapes of the log as bytes.

    Raises:
        SchemaMismatchError: there is one.
    """
    schema = pa.schema(table.schema().to_arrow())
    for name in table.metadata().partition_columns:
        kind = schema.field(name).type
        if any(test(kind) for test in _BYTES):
            message = f"{source} is partitioned by {name!r} of type binary, which cannot be read"
            hint = "partition it by another column with the engine that wrote it, then import it"
            raise SchemaMismatchError(message, hint=hint, column=name, path=source)


def _origin(table: DeltaTable) -> SourceOrigin:
    said = table.protocol()
    features = [*(said.reader_features or ()), *(said.writer_features or ())]
    lost = [text for name, text in _UNSAID.items() if name in features]
    config = table.metadata().configuration
    lost += [
        f"the constraint {key.rpartition('.')[2]}: {text}"
        for key, text in config.items()
        if key.startswith("delta.constraints.")
    ]
    for field in json.loads(table.schema().to_json())["fields"]:
        text = field["metadata"].get("delta.generationExpression")
        if text is not None:
            lost.append(f"{field['name']} is generated as {text}; it becomes a plain column")
    lost.append("its properties are not brought over")
    older = "its older versions are not brought over"
    places = tuple(table.metadata().partition_columns)
    return SourceOrigin(places, lost=tuple(lost), older=older)


@dataclass(frozen=True, slots=True)
class _File:
    """A data file of the log."""

    path: str
    total: int
    """Number of its rows, by its footer."""
    placed: Mapping[str, object]
    """Values of partition columns, by their physical names; files do not have them."""
    vector: DeltaVector | None

    @property
    def rows(self) -> int:
        """Number of its rows that are not hidden."""
        return self.total - (0 if self.vector is None else self.vector.count)


@dataclass(frozen=True, slots=True)
class MaskedSource:
    """Files of a Delta table of which vectors hide rows, or whose columns have other names."""

    address: str
    schema: pa.Schema
    stored: pa.Schema
    """The columns under their physical names."""
    files: tuple[_File, ...]
    filesystem: pafs.FileSystem
    version: int
    origin: SourceOrigin
    locate: Callable[[str], str]
    """Returns where a file is that the log names."""
    digest: str = ""

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(each.rows for each in self.files)

    @property
    def pieces(self) -> list[str]:
        """Paths of the files, each with its vector."""
        return [f"{each.path} {each.vector}" for each in self.files]

    def only(self, pieces: Collection[str]) -> Self:
        """Return the source with some of its files."""
        named = zip(self.pieces, self.files, strict=True)
        return replace(self, files=tuple(file for name, file in named if name in pieces))

    def parts(self, rows: int) -> list[RowPart]:
        """Cut its files, in the order of their paths."""
        counts = [each.rows for each in self.files]
        return [
            RowPart(sum(counts[low:high]), functools.partial(self._read, low, high))
            for low, high in spans(counts, rows)
        ]

    def _read(self, low: int, high: int) -> pa.RecordBatchReader:
        def batches() -> Iterator[pa.RecordBatch]:
            for file in self.files[low:high]:
                yield from self._rows_of(file)

        found = reading(self.address, self.version, batches)
        return pa.RecordBatchReader.from_batches(self.schema, found)

    def _rows_of(self, file: _File) -> Iterator[pa.RecordBatch]:
        fragment = _fragment(file.path, self.filesystem)
        _require_names(file.path, fragment.physical_schema, self.stored)
        here = pa.schema([each for each in self.stored if each.name not in file.placed])
        at, hidden = 0, None
        if file.vector is not None:
            hidden = file.vector.load(self.filesystem, file.total, self.locate)
        for batch in fragment.to_batches(schema=here):
            count = batch.num_rows
            columns = [
                pa.repeat(pa.scalar(file.placed[each.name], each.type), count)
                if each.name in file.placed
                else batch.column(each.name)
                for each in self.stored
            ]
            arrays = [
                _renamed(column, each.type)
                for column, each in zip(columns, self.schema, strict=True)
            ]
            made = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
            if hidden is not None:
                low, high = np.searchsorted(hidden, [at, at + count])
                shown = np.ones(count, dtype=bool)
                shown[hidden[low:high] - np.uint64(at)] = False
                made = made.filter(pa.array(shown))
            at += count
            yield made

    def close(self) -> None:
        """Do nothing: no file is kept open."""


def _masked(
    source: str, place: str, table: DeltaTable, origin: SourceOrigin, consent: Consent
) -> MaskedSource:
    files, root = pafs.FileSystem.from_uri(place if "://" in place else absolute_path(place))
    premises = None
    if files.type_name == "local":
        premises = Premises(source, place_of("file", root), consent)
    # Arrow's schema in the protocol of the library, with the metadata of fields at every depth.
    schema = pa.schema(table.schema().to_arrow())
    stored = pa.schema([_physical(each) for each in schema])
    names = {_name(each): each.name for each in schema}
    locate = functools.partial(_path, root=root, premises=premises)
    actions = {locate(each["path"]): each for each in pa.table(table.get_add_actions()).to_pylist()}
    spell = functools.partial(_spelled, root=root, is_local=premises is not None)
    vectors = {}
    if _VECTORS in (table.protocol().reader_features or ()):
        vectors = find_vectors(files, root, table.version(), actions, spell)
    found = []
    for path, action in actions.items():
        total, vector = _fragment(path, files).count_rows(), vectors.get(path)
        if vector is not None and vector.count > total:
            raise ValueError(f"a vector hides {vector.count} rows of {path}, which has {total}")
        placed = {
            _name(schema.field(names.get(name, name))): value
            for name, value in (action.get("partition") or {}).items()
        }
        found.append(_File(path, total, placed, vector))
    found.sort(key=lambda each: each.path)
    plain = pa.schema([_plain(each) for each in schema])
    return MaskedSource(source, plain, stored, tuple(found), files, table.version(), origin, locate)


def _path(text: str, root: str, premises: Premises | None) -> str:
    """Return where a file is that the log names; raise ConsentError if it lies elsewhere."""
    path = _spelled(text, root, is_local=premises is not None)
    if premises is not None:
        premises.require(place_of("file", path))
    elif not path.startswith(root.rstrip("/") + "/") or ".." in path.split("/"):
        raise ValueError(f"the log names a file elsewhere: {path}")
    return path


def _spelled(text: str, root: str, *, is_local: bool) -> str:
    """Return a path of the log as it can be compared."""
    text = unquote(text)  # once, by the protocol: a path there is written as part of a URL
    if "://" in text:
        text = text.partition("://")[2]
    elif not text.startswith("/"):
        text = f"{root.rstrip('/')}/{text}"
    return os.path.realpath(text) if is_local else text


def _fragment(path: str, files: pafs.FileSystem) -> pads.ParquetFileFragment:
    import pyarrow.dataset as pads  # noqa: PLC0415 - it brings pandas along

    return pads.ParquetFileFormat(read_options=read_options()).make_fragment(path, files)


def _name(field: pa.Field) -> str:
    found: bytes = (field.metadata or {}).get(_NAME, field.name.encode())
    return found.decode()


def _physical(field: pa.Field) -> pa.Field:
    """Return a field as files have it, at every depth; it keeps its id."""
    number = (field.metadata or {}).get(_ID)
    note = None if number is None else {_FILE_ID: number}
    return pa.field(_name(field), _of_parts(field.type, _physical), metadata=note)


def _plain(field: pa.Field) -> pa.Field:
    """Return a field without what only Delta needs."""
    comment = (field.metadata or {}).get(b"comment")
    note = None if comment is None else {b"comment": comment}
    return pa.field(field.name, _of_parts(field.type, _plain), field.nullable, note)


def _of_parts(kind: pa.DataType, change: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    t = pa.types
    if t.is_struct(kind):
        return pa.struct([change(each) for each in parts_of(kind)])
    if t.is_map(kind):
        key, item = map(change, parts_of(kind))
        return pa.map_(key.with_nullable(nullable=False), item)
    return pa.list_(change(parts_of(kind)[0])) if t.is_list(kind) else kind


def _renamed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Give the parts of an array the names of a type that differs in names alone."""
    t = pa.types
    if t.is_struct(kind):
        parts = [_renamed(array.field(at), each.type) for at, each in enumerate(kind)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=array.is_null())
    if not t.is_nested(kind):
        return array.cast(kind)
    # A cast finds members of structs by name, and makes nulls of those that it does not find. And
    # the offsets of a slice are copied, since Arrow takes no nulls beside a slice of offsets.
    offsets, nulls = pa.array(array.offsets.to_numpy()), array.is_null()
    if t.is_map(kind):
        keys, items = _renamed(array.keys, kind.key_type), _renamed(array.items, kind.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, kind, mask=nulls)
    values = _renamed(array.values, kind.value_type)
    return pa.ListArray.from_arrays(offsets, values, kind, mask=nulls)


def _require_names(path: str, there: pa.Schema, stored: pa.Schema) -> None:
    """Refuse a file whose columns have other names than the log says; their ids tell.

    Raises:
        SchemaMismatchError: it has.
    """
    ids = {(each.metadata or {}).get(_FILE_ID): each.name for each in _every(there)}
    for field in _every(stored):
        number = (field.metadata or {}).get(_FILE_ID)
        if number is not None and ids.get(number, field.name) != field.name:
            message = f"{path} has column {field.name!r} of its log under the name {ids[number]!r}"
            hint = "rewrite the table with the engine that wrote it (OPTIMIZE), then import it"
            raise SchemaMismatchError(message, hint=hint, column=field.name, path=path)


def _every(fields: Iterable[pa.Field]) -> Iterator[pa.Field]:
    """Return fields at every depth."""
    for each in fields:
        yield each
        yield from _every(parts_of(each.type))
