"""An Iceberg table of many files, in the shape that suits it best, and no data file.

Its manifests are sorted by partition and have the 8 MB that ``rewrite_manifests`` makes; all but
the newest snapshot are expired.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.peer_metadata import FILE_BYTES, FILE_ROWS, Pair

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestEntry
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

MANIFEST_FILES = 40_000
"""Entries of one manifest: about 8 MB."""
SNAPSHOT = 1
KINDS = {"int": "int", "bigint": "long", "double": "double", "date": "date", "string": "string"}


def build(uri: str, columns: str, places: Sequence[int], bounds: Sequence[Pair]) -> None:
    """Write the metadata of a table with these files."""
    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.manifest import write_manifest, write_manifest_list
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.serializers import ToOutputFile
    from pyiceberg.table.metadata import new_table_metadata
    from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
    from pyiceberg.table.snapshots import Operation, Snapshot, Summary
    from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
    from pyiceberg.transforms import IdentityTransform

    folder = Path(uri, "metadata")
    folder.mkdir(parents=True)
    schema = Schema(*_fields(columns))
    day = PartitionField(source_id=1, field_id=1000, transform=IdentityTransform(), name="day")
    spec, io = PartitionSpec(day), PyArrowFileIO()
    manifests = []
    order = np.argsort(np.array(places), kind="stable").tolist()
    for number, start in enumerate(range(0, len(order), MANIFEST_FILES)):
        out = io.new_output(str(folder / f"m{number}.avro"))
        with write_manifest(2, spec, schema, out, SNAPSHOT, "deflate") as writer:
            for entry in _entries(
                schema, uri, places, bounds, order[start : start + MANIFEST_FILES]
            ):
                writer.add(entry)
        manifests.append(writer.to_manifest_file())
    out = io.new_output(str(folder / "list.avro"))
    with write_manifest_list(2, out, SNAPSHOT, None, 1, "deflate") as listed:
        listed.add_manifests(manifests)
    told: dict[str, Any] = {
        "snapshot-id": SNAPSHOT,
        "sequence-number": 1,
        "manifest-list": str(folder / "list.avro"),
        "summary": Summary(Operation.APPEND),
        "schema-id": 0,
    }
    metadata = new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, uri, {"format-version": "2"})
    main: dict[str, Any] = {"snapshot-id": SNAPSHOT, "type": SnapshotRefType.BRANCH}
    changed = {
        "snapshots": [Snapshot(**told)],
        "current_snapshot_id": SNAPSHOT,
        "last_sequence_number": 1,
        "refs": {"main": SnapshotRef(**main)},
    }
    place = io.new_output(str(folder / "v1.metadata.json"))
    ToOutputFile.table_metadata(metadata.model_copy(update=changed), place)


def plan(uri: str) -> dict[str, object]:
    """Open the table and plan a scan of one partition."""
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(str(Path(uri, "metadata", "v1.metadata.json")))
    files = list(table.scan(row_filter="day = 7").plan_files())
    return {"files_read": len(files)}


def _fields(columns: str) -> Iterator[NestedField]:
    from pyiceberg.types import NestedField, TimestamptzType

    for number, (name, kind) in enumerate(map(str.split, columns.split(", ")), 1):
        known = TimestamptzType() if kind == "timestamp" else KINDS[kind]
        yield NestedField(field_id=number, name=name, field_type=known, required=False)


def _entries(
    schema: Schema, uri: str, places: Sequence[int], bounds: Sequence[Pair], chosen: Sequence[int]
) -> Iterator[ManifestEntry]:
    from pyiceberg.conversions import to_bytes
    from pyiceberg.expressions.literals import literal
    from pyiceberg.manifest import (
        DataFile,
        DataFileContent,
        FileFormat,
        ManifestEntry,
        ManifestEntryStatus,
    )
    from pyiceberg.typedef import Record

    fields = {field.name: field for field in schema.fields}

    def encoded(values: dict[str, str]) -> dict[int, bytes]:
        found = {}
        for name, text in values.items():
            kind: Any = fields[name].field_type
            found[fields[name].field_id] = to_bytes(
                kind, literal(_value(name, text)).to(kind).value
            )
        return found

    nulls = {field.field_id: 0 for field in fields.values()}
    counts = {field.field_id: FILE_ROWS for field in fields.values()}
    for n in chosen:
        least, most = bounds[n]
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{uri}/data/day={places[n]}/part-{n:09d}.parquet",
            file_format=FileFormat.PARQUET,
            partition=Record(places[n]),
            record_count=FILE_ROWS,
            file_size_in_bytes=FILE_BYTES,
            value_counts=counts,
            null_value_counts=nulls,
            lower_bounds=encoded(least),
            upper_bounds=encoded(most),
        )
        yield ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED,
            snapshot_id=SNAPSHOT,
            sequence_number=1,
            data_file=file,
        )


def _value(name: str, text: str) -> Any:  # noqa: ANN401 - any literal
    if name in ("day", "id", "c"):
        return int(text)
    if name in ("a", "b"):
        return float(text)
    return text.replace("Z", "+00:00")
