"""A source that is a snapshot of an Iceberg table, read by its metadata file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from plait.errors import MissingDependencyError
from plait.repush.imports import reading, unreadable
from plait.repush.parts import RowPart, spans

if TYPE_CHECKING:
    from pyiceberg.io.pyarrow import ArrowScan
    from pyiceberg.table import FileScanTask


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
    place: str, options: Mapping[str, object], snapshot: int | None
) -> IcebergSource:
    """Read a snapshot, by default the current one.

    Args:
        place: the metadata file, or the directory of a table with a ``version-hint.text``.
        options: properties for the file system.
        snapshot: its id; 0 for a table that had none.

    Raises:
        MissingDependencyError: the package pyiceberg is not installed.
        OptionError: there is no Iceberg table.
        RepushRefusedError: the snapshot is gone.
    """
    try:
        from pyiceberg.exceptions import RESTError  # noqa: F401, PLC0415 - fails if it is not there
        from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow  # noqa: PLC0415 - the same
        from pyiceberg.table import StaticTable  # noqa: PLC0415 - the same
    except ImportError as error:
        message, hint = "this source needs pyiceberg", "pip install 'plait[iceberg]'"
        raise MissingDependencyError(
            message, hint=hint, library="pyiceberg", extra="iceberg"
        ) from error
    source = f"iceberg:{place}"
    try:
        table = StaticTable.from_metadata(
            place, {name: str(value) for name, value in options.items()}
        )
        current = table.current_snapshot()
        version = snapshot if snapshot is not None else current.snapshot_id if current else 0
        scan = table.scan(snapshot_id=version or None)
        tasks = (
            () if not version else tuple(sorted(scan.plan_files(), key=lambda t: t.file.file_path))
        )
        projection = scan.projection()
        reader = ArrowScan(table.metadata, table.io, projection, scan.row_filter)
        counts = tuple(_count(reader, task) for task in tasks)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise unreadable(source, snapshot, error) from error
    schema = schema_to_pyarrow(projection, include_field_ids=False)
    return IcebergSource(source, reader, schema, tasks, counts, version)


def _count(scan: ArrowScan, task: FileScanTask) -> int:
    """Count the rows of a file that are not deleted; only where some are is it read."""
    if not task.delete_files:
        return int(task.file.record_count)
    return sum(batch.num_rows for batch in scan.to_record_batches([task]))
