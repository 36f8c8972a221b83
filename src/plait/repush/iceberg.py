"""A source that is a snapshot of an Iceberg table, read by its metadata file."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Self, TypeAlias

import pyarrow as pa

from plait.errors import MissingDependencyError, SchemaMismatchError, TableError
from plait.model.consent import AllowedAddress, Consent
from plait.repush.imports import FOREIGN, Premises, place_of, reading, unreadable
from plait.repush.parts import (
    NO_ORIGIN,
    RowPart,
    SourceHistory,
    SourceOrigin,
    SourceVersion,
    spans,
)

if TYPE_CHECKING:
    from pyiceberg.io import FileIO, InputFile, OutputFile
    from pyiceberg.io.pyarrow import ArrowScan, PyArrowFile, PyArrowFileIO
    from pyiceberg.table import FileScanTask, StaticTable
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.types import IcebergType, NestedField

    _Opened: TypeAlias = tuple[TableMetadata, str, FileIO]

CATALOG: Final = "catalog://"
"""How the address of a table begins that a catalog knows by name."""
_METADATA = ".metadata.json"
_LENT = (
    "s3.access-key-id",
    "s3.secret-access-key",
    "s3.session-token",
    "adls.sas-token",
    "gcs.oauth2.token",
    "gcs.oauth2.token-expires-at",
)
"""What a server may lend for the files of a table; who else sets it cannot read more by it."""
_NO_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType({})
_HINT_MAX = 1000
"""Maximum size in bytes of the file that names the newest metadata file."""
_KEPT = "schema.name-mapping.default"
"""The one property of a table that a reader needs: which column is which in files without ids.

All others go, since the library does what they say: they name classes to import, servers, and
where to sign requests.
"""


@dataclass(frozen=True, slots=True)
class IcebergSource:
    """The files of a snapshot, in the order of their paths."""

    address: str
    scan: ArrowScan
    schema: pa.Schema
    tasks: tuple[FileScanTask, ...]
    counts: tuple[int, ...]
    version: int
    digest: str = ""
    origin: SourceOrigin = NO_ORIGIN

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(self.counts)

    @property
    def pieces(self) -> list[str]:
        """Paths of the files, each with those that hide rows of it."""
        return [_piece(each) for each in self.tasks]

    def only(self, pieces: Collection[str]) -> Self:
        """Return the source with some of its files."""
        kept = [at for at, each in enumerate(self.pieces) if each in pieces]
        tasks, counts = tuple(self.tasks[at] for at in kept), tuple(self.counts[at] for at in kept)
        return replace(self, tasks=tasks, counts=counts)

    def parts(self, rows: int) -> list[RowPart]:
        """Cut its files, in the order of their paths."""
        return [self._part(low, high) for low, high in spans(self.counts, rows)]

    def _part(self, low: int, high: int) -> RowPart:
        def rows() -> Iterator[pa.RecordBatch]:
            for batch in self.scan.to_record_batches(self.tasks[low:high]):
                yield batch.cast(self.schema)

        def read() -> pa.RecordBatchReader:
            batches = reading(self.address, self.version, rows)
            return pa.RecordBatchReader.from_batches(self.schema, batches)

        return RowPart(sum(self.counts[low:high]), read)

    def close(self) -> None:
        """Do nothing: no file is kept open."""


def iceberg_source(
    allowed: AllowedAddress,
    options: Mapping[str, object],
    snapshot: int | None,
    consent: Consent,
) -> IcebergSource:
    """Read a snapshot, by default the current one.

    Args:
        allowed: the metadata file, the directory of a table with a ``version-hint.text``, or
            ``catalog://CATALOG/NAMESPACE.TABLE``.
        options: properties for the file system, and of the catalog.
        snapshot: its id; 0 for a table that had none.
        consent: which files elsewhere the table may name.

    Raises:
        ConsentError: it names a file outside of its directory that the caller did not allow.
        MissingDependencyError: the package pyiceberg is not installed.
        OptionError: there is no Iceberg table.
        RepushRefusedError: the snapshot is gone.
        SchemaMismatchError: the library would read nulls of a column as something else.
    """
    try:
        from pyiceberg.exceptions import RESTError  # noqa: F401, PLC0415 - fails if it is not there
        from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow  # noqa: PLC0415 - the same
    except ImportError as error:
        message, hint = "this source needs pyiceberg", "pip install 'plait[iceberg]'"
        raise MissingDependencyError(
            message, hint=hint, library="pyiceberg", extra="iceberg"
        ) from error
    source = f"iceberg:{allowed.text}"
    try:
        table = _open(allowed, {name: str(value) for name, value in options.items()}, consent)
        current = table.current_snapshot()
        version = snapshot if snapshot is not None else current.snapshot_id if current else 0
        scan = table.scan(snapshot_id=version or None)
        tasks = (
            () if not version else tuple(sorted(scan.plan_files(), key=lambda t: t.file.file_path))
        )
        projection = scan.projection()
        _require_nulls_are_kept(source, projection.fields)
        reader = ArrowScan(table.metadata, table.io, projection, scan.row_filter)
        counts = tuple(_count(reader, task) for task in tasks)
        schema = schema_to_pyarrow(projection, include_field_ids=False)
    except FOREIGN as error:
        if isinstance(error, TableError):
            raise
        raise unreadable(source, snapshot, error) from error
    return IcebergSource(source, reader, schema, tasks, counts, version, origin=_origin(table))


def _piece(task: FileScanTask) -> str:
    # Vectors of many files may be in one, each at its own offset.
    hiding = ((d.file_path, getattr(d, "content_offset", None)) for d in task.delete_files)
    return " ".join([task.file.file_path, *map(str, sorted(hiding, key=str))])


def iceberg_history(
    allowed: AllowedAddress, options: Mapping[str, object], consent: Consent
) -> SourceHistory:
    """Look which snapshots led to the current one, with its columns.

    Raises:
        ConsentError, OptionError: the table cannot be read.
    """
    source = f"iceberg:{allowed.text}"
    try:
        table = _open(allowed, {name: str(value) for name, value in options.items()}, consent)
        schemas = table.schemas()
        now, snapshot = table.schema().fields, table.current_snapshot()
        found: list[SourceVersion] = []
        reason = ""
        while snapshot is not None:
            then = schemas.get(-1 if snapshot.schema_id is None else snapshot.schema_id)
            if then is None or then.fields != now:
                reason = "their columns are not those of the current snapshot"
                break
            operation = None if snapshot.summary is None else snapshot.summary.operation
            same = operation is not None and operation.value == "replace"
            found.append(SourceVersion(snapshot.snapshot_id, snapshot.timestamp_ms, same))
            number, parent = snapshot.sequence_number, snapshot.parent_snapshot_id
            snapshot = None if parent is None else table.metadata.snapshot_by_id(parent)
            # Some libraries forget the parent, too, when they expire it.
            if snapshot is None and (parent is not None or (number or 0) > 1):
                reason = "they have expired"
    except FOREIGN as error:
        if isinstance(error, TableError):
            raise
        raise unreadable(source, None, error) from error
    if not found:
        raise unreadable(source, None, OSError(reason or "it has no snapshot"))
    first = found[-1].number
    lost = (f"snapshots before {first} are not brought over: {reason}",) if reason else ()
    return SourceHistory(tuple(reversed(found)), lost)


_TRANSFORMS = re.compile(r"(?:year|month|day|hour|truncate\[(\d+)\])", re.ASCII)


def _origin(table: StaticTable) -> SourceOrigin:
    """Return the partition fields that a table of Plait has too, and what it will lack."""
    metadata, places, lost = table.metadata, [], []
    schema = metadata.schema()
    for field in metadata.spec().fields:
        column, how = schema.find_column_name(field.source_id) or "", str(field.transform)
        match = _TRANSFORMS.fullmatch(how)
        if how == "identity" and "." not in column:
            places.append(column)
        elif match and "." not in column:
            places.append(f"truncate({match[1]}, {column})" if match[1] else f"{how}({column})")
        else:
            lost.append(f"the partition field {how} of {column} is left out")
    count = len(metadata.snapshots) - 1
    older = f"{count} older snapshots are not brought over" if count > 0 else ""
    if metadata.sort_order().fields:
        lost.append("its sort order is not brought over: use the property cluster.by")
    if any(each.write_default is not None for each in schema.fields):
        lost.append("defaults of columns are not brought over")
    directory = _root(table.metadata_location).removeprefix("file://")
    return SourceOrigin(tuple(places), lost=tuple(lost), directory=directory, older=older)


_INNER = ("element_field", "key_field", "value_field")
"""What lists and maps have inside: of a map the values last."""


def _require_nulls_are_kept(source: str, columns: Iterable[NestedField]) -> None:
    """Refuse a column in which the library would read null as empty.

    It builds lists of structs, and maps to structs, anew without their nulls, at every depth
    (https://github.com/apache/iceberg-python/issues/3833).

    Raises:
        SchemaMismatchError: there is one.
    """
    for column in columns:
        if _loses_nulls(column):
            message = (
                f"{source} has column {column.name!r} with lists of structs, or maps to structs, "
                "that may be null: pyiceberg would read null as empty"
            )
            hint = "write its rows as Parquet with the engine that wrote them, and take those"
            raise SchemaMismatchError(message, hint=hint, column=column.name, path=source)


def _loses_nulls(field: NestedField) -> bool:
    kind = field.field_type
    inner = [getattr(kind, name) for name in _INNER if hasattr(kind, name)]
    anew = bool(inner) and bool(_members(inner[-1].field_type))
    return (anew and not field.required) or any(map(_loses_nulls, (*_members(kind), *inner)))


def _members(kind: IcebergType) -> tuple[NestedField, ...]:
    return getattr(kind, "fields", ())


def _open(allowed: AllowedAddress, options: dict[str, str], consent: Consent) -> StaticTable:
    """Open a table, without the properties that stand in its metadata."""
    from pyiceberg.catalog.noop import NoopCatalog  # noqa: PLC0415 - the adapter's library
    from pyiceberg.table import StaticTable  # noqa: PLC0415 - the same

    opening = _open_by_name if allowed.text.startswith(CATALOG) else _open_by_place
    found, place, files = opening(allowed.text, options, consent)
    # Whoever wrote the metadata chose these properties. The library would import classes and ask
    # servers that they name, so all but one are dropped before it sees them.
    kept = {name: text for name, text in found.properties.items() if name == _KEPT}
    metadata = found.model_copy(update={"properties": kept})
    return StaticTable(("static-table", place), metadata, place, files, NoopCatalog("static-table"))


def _open_by_place(place: str, options: dict[str, str], consent: Consent) -> _Opened:
    """Read the metadata file that a caller named, or that of a directory."""
    from pyiceberg.serializers import FromInputFile  # noqa: PLC0415 - the adapter's library

    named, opening = place, _guarded(options, place, place, consent)
    if not place.endswith(_METADATA):
        place = f"{place.rstrip('/')}/metadata/{_hinted(opening.new_input, place)}"
    files = _guarded(options, named, _root(place), consent)
    return FromInputFile.table_metadata(files.new_input(place)), place, files


def _open_by_name(place: str, options: dict[str, str], consent: Consent) -> _Opened:
    """Ask a catalog that the library is configured for.

    Raises:
        OSError: the catalog cannot be reached, or has no such table.
        ValueError: it is no name.
    """
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - the adapter's library

    name, _, table = place.removeprefix(CATALOG).partition("/")
    if not (name and table):
        raise ValueError("a table of a catalog is named catalog://CATALOG/NAMESPACE.TABLE")

    def file_io(
        properties: Mapping[str, str] = _NO_PROPERTIES, location: str | None = None
    ) -> PyArrowFileIO:
        # The catalog passes what the table's metadata says and what its server lends, mixed. Only
        # credentials are taken of it: the caller chose the catalog, and not who writes its tables.
        lent = {each: properties[each] for each in _LENT if each in properties}
        return _guarded({**catalog.properties, **lent}, place, _root(str(location)), consent)

    try:
        # A catalog in a database would make its tables there, if they are missing.
        with closing(load_catalog(name, **{"init_catalog_tables": "false", **options})) as catalog:
            # Else the library would import the class that the table's metadata names.
            catalog._load_file_io = file_io  # type: ignore[method-assign]  # noqa: SLF001
            found = catalog.load_table(table)
    except TableError:
        raise
    except Exception as error:
        # Catalogs are plug-ins: each raises what its client raises.
        raise OSError(f"{type(error).__name__}: {error}") from error
    return found.metadata, found.metadata_location, found.io


def _root(metadata: str) -> str:
    """Return the directory of a table by the place of its metadata file."""
    return metadata.rpartition("/")[0].removesuffix("/metadata")


def _hinted(read: Callable[[str], InputFile], place: str) -> str:
    """Return the name of the newest metadata file, which a file beside it tells.

    Raises:
        ValueError: it tells a path.
    """
    with read(f"{place.rstrip('/')}/metadata/version-hint.text").open() as stream:
        hint = stream.read(_HINT_MAX).decode("utf-8").strip()
    if "/" in hint or not hint:
        raise ValueError(f"version-hint.text does not name a version: {hint!r}")
    if hint.endswith(_METADATA):
        return hint
    return f"v{hint}{_METADATA}" if hint.isdecimal() else f"{hint}{_METADATA}"


def _guarded(options: dict[str, str], source: str, root: str, consent: Consent) -> PyArrowFileIO:
    """Return the library's file system with the options of the caller alone, for one directory."""
    from pyiceberg.io.pyarrow import PyArrowFileIO  # noqa: PLC0415 - the adapter's library

    class GuardedFileIO(PyArrowFileIO):
        """Opens the files of a source, and writes none."""

        def new_input(self, location: str) -> PyArrowFile:
            """Open a file below the source, or one that the caller allowed."""
            premises.require(_place(self, location))
            return super().new_input(location)

        def new_output(self, location: str) -> PyArrowFile:
            """Refuse to write."""
            raise PermissionError(location)

        def delete(self, location: str | InputFile | OutputFile) -> None:
            """Refuse to delete."""
            raise PermissionError(str(location))

    def _place(files: PyArrowFileIO, location: str) -> str:
        scheme, server, path = files.parse_location(location, files.properties)
        return place_of(scheme, f"{server}{path}" if scheme in ("hdfs", "viewfs") else path)

    files = GuardedFileIO(options)
    premises = Premises(f"iceberg:{source}", _place(files, root), consent)
    return files


def _count(scan: ArrowScan, task: FileScanTask) -> int:
    """Count the rows of a file that are not deleted; only where some are is it read."""
    if not task.delete_files:
        return int(task.file.record_count)
    return sum(batch.num_rows for batch in scan.to_record_batches([task]))
