"""A source that is a snapshot of an Iceberg table, read by its metadata file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from plait.errors import MissingDependencyError, SchemaMismatchError, TableError
from plait.model.consent import AllowedAddress, Consent
from plait.repush.imports import FOREIGN, Premises, place_of, reading, unreadable
from plait.repush.parts import NO_ORIGIN, RowPart, SourceOrigin, spans

if TYPE_CHECKING:
    from pyiceberg.io import InputFile, OutputFile
    from pyiceberg.io.pyarrow import ArrowScan, PyArrowFile, PyArrowFileIO
    from pyiceberg.table import FileScanTask, StaticTable
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.types import IcebergType, NestedField

_METADATA = ".metadata.json"
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
        allowed: the metadata file, or the directory of a table with a ``version-hint.text``.
        options: properties for the file system.
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
    return IcebergSource(
        source, reader, schema, tasks, counts, version, origin=_origin(table.metadata)
    )


_TRANSFORMS = re.compile(r"(?:year|month|day|hour|truncate\[(\d+)\])", re.ASCII)


def _origin(metadata: TableMetadata) -> SourceOrigin:
    """Return the partition fields that a table of Plait has too, and what it will lack."""
    places, lost = [], []
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
    if len(metadata.snapshots) > 1:
        lost.append(f"{len(metadata.snapshots) - 1} older snapshots are not brought over")
    if metadata.sort_order().fields:
        lost.append("its sort order is not brought over: use the property cluster.by")
    if any(each.write_default is not None for each in schema.fields):
        lost.append("defaults of columns are not brought over")
    return SourceOrigin(tuple(places), lost=tuple(lost))


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
    """Open a table by its metadata file, without the properties that stand in it."""
    from pyiceberg.catalog.noop import NoopCatalog  # noqa: PLC0415 - the adapter's library
    from pyiceberg.serializers import FromInputFile  # noqa: PLC0415 - the same
    from pyiceberg.table import StaticTable  # noqa: PLC0415 - the same

    place = allowed.text
    opening = _guarded(options, place, place, consent)
    if not place.endswith(_METADATA):
        place = f"{place.rstrip('/')}/metadata/{_hinted(opening.new_input, place)}"
    root = place.rpartition("/")[0]
    root = root.removesuffix("/metadata")
    files = _guarded(options, allowed.text, root, consent)
    found = FromInputFile.table_metadata(files.new_input(place))
    # Whoever wrote the metadata chose these properties. The library would import classes and ask
    # servers that they name, so all but one are dropped before it sees them.
    kept = {name: text for name, text in found.properties.items() if name == _KEPT}
    metadata = found.model_copy(update={"properties": kept})
    return StaticTable(("static-table", place), metadata, place, files, NoopCatalog("static-table"))


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
