"""Plans for writers and readers on the driver and on executors: frozen, picklable."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa

from plait.errors import InvariantError, redacted_url
from plait.model.bucket import BucketSpec
from plait.model.changes import ADDED, MASKED
from plait.model.compression import Compression
from plait.model.partitioning import PartitionField, determines, parse_field, sources_of
from plait.model.schema import Schema
from plait.model.written import WRITTEN_COLUMN, WRITTEN_FIELD

COW, MOR = "cow", "mor"
UNIQUE_PARTITION, UNIQUE_TABLE = "partition", "table"

LIVE = pa.schema(
    [
        *ADDED,
        pa.field("version", pa.int64(), nullable=False),  # that added the file
        pa.field("masked", pa.int64(), nullable=False),  # rows hidden by the deletion vector
        *[field for field in MASKED if field.name not in ("path", "rows")],
        pa.field("first_version", pa.int64()),  # that added the file, if it was added again
    ]
)
"""One row a live file: as added, with its current deletion vector."""

CHANGED = pa.schema(
    [
        pa.field("at", pa.int64(), nullable=False),  # the version whose commit changed the file
        pa.field("completed_ms", pa.int64(), nullable=False),  # when that commit was visible
        pa.field("after", pa.bool_(), nullable=False),  # the file as that version shows it
        *LIVE,
    ]
)
"""One row a file and side: as it was before a commit that changed it, or as it is after."""


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """Where a store is and how to reach it; executors open their own from it."""

    uri: str
    options: tuple[tuple[str, object], ...] = ()

    def __repr__(self) -> str:
        """Hide secrets: the options and the users of URLs."""
        return f"StoreSpec({redacted_url(self.uri)!r})"


@dataclass(frozen=True, slots=True)
class TableSpec:
    """How rows of a table are laid out."""

    schema: Schema
    partition_by: tuple[str, ...]
    buckets: BucketSpec
    ordering: str | None
    table_type: str  # COW | MOR
    statistics: bool = field(default=True, compare=False)
    """Whether bounds of new files are told: no change of the layout, either way is right."""
    written: bool = field(default=False, compare=False)
    """Whether files that copy rows say which version wrote each (``model/written.py``)."""
    compression: Compression = field(default=Compression(), compare=False)
    """Of new files: readers take any."""
    unique: str = field(default=UNIQUE_PARTITION, compare=False)
    """Where keys are unique: in their partition, or in the table (RFC 0030)."""
    finite: str | None = field(default=None, compare=False)
    """A column without NaN although it orders nothing here: it will where the rows go next."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the record key; () if the table has none."""
        return self.buckets.key

    @property
    def fields(self) -> tuple[PartitionField, ...]:
        """What makes the partition of a row, in the order of the values."""
        return tuple(map(parse_field, self.partition_by))

    @property
    def partition_sources(self) -> tuple[str, ...]:
        """The columns from which the partition of a row is computed."""
        return sources_of(self.fields)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns whose values are themselves partition values."""
        return sources_of([field for field in self.fields if field.is_column])

    @property
    def decided_columns(self) -> tuple[str, ...]:
        """The columns whose values a partition says: its own, and those that it generates."""
        made = {each.text for each in self.fields if not each.is_column}
        generated = (name for name, text in self.schema.generated.items() if text in made)
        return (*self.partition_columns, *(generated if made else ()))

    @property
    def transforms_outside_key(self) -> tuple[PartitionField, ...]:
        """Transforms that can put rows with the same record key into different partitions."""
        own = (each for each in self.fields if not each.is_column)
        return tuple(each for each in own if not determines((), self.key, each))

    @property
    def keyed(self) -> bool:
        """Whether rows have an identity."""
        return self.buckets.keyed

    @property
    def across(self) -> bool:
        """Whether a key names one row in all partitions, and does not say in which it is.

        Where the key decides the partition, it is unique in the table by being so in that.
        """
        if self.unique != UNIQUE_TABLE or not self.keyed:
            return False
        return not all(determines((), self.key, each) for each in self.fields)

    @property
    def copied(self) -> list[str]:
        """What is read of rows that go into another file: all columns, the hidden one too."""
        names: list[str] = list(self.schema.names)
        return [*names, WRITTEN_COLUMN] if self.written else names

    def dated(self) -> TableSpec:
        """Return the layout of rows that come with the version that wrote them.

        Raises:
            InvariantError: the table does not keep it.
        """
        if not self.written:
            message = f"rows with {WRITTEN_COLUMN} for a table that does not keep it"
            raise InvariantError(message)
        fields = self.schema.arrow.append(WRITTEN_FIELD)
        return replace(self, schema=replace(self.schema, arrow=fields))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The table at a version: what reading and merging need."""

    version: int
    spec: TableSpec
    schemas: dict[int, Schema]
    files: pa.Table = field(default_factory=LIVE.empty_table)
    """Live files (LIVE), or only those that are looked at; with typed bounds (files/bounds.py)."""
    total: int | None = None
    """How many files are live, if these are not all of them."""
    unmatched: int = 0
    """How many of the others were left out because of their bounds."""

    def dated(self) -> Snapshot:
        """Return it for reads of the versions that wrote rows, also if that is kept no longer.

        Files tell as much of it as they do: copies that were made since count as written then.
        """
        return replace(self, spec=replace(self.spec, written=True))


@dataclass(frozen=True, slots=True)
class ChangeWindow:
    """The commits after one version up to another: what reading their changes needs."""

    since: int
    snapshot: Snapshot
    """The last version, without files: rows are read with its columns, or wider ones."""
    files: pa.Table = field(default_factory=CHANGED.empty_table)
    """CHANGED, by version, partition and bucket; only some of them where a task needs no more."""
    one_layout: bool = True
    """Whether all files lie where the last version would have them."""

    @property
    def until(self) -> int:
        """The last version in it."""
        return self.snapshot.version
