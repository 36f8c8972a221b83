"""How rows are laid out and compressed, and what is read and written: frozen, picklable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self, TypeAlias

import pyarrow as pa

from plait.errors import InvariantError, OptionError
from plait.model.bucket import BUCKETS_MAX, BucketSpec
from plait.model.changes import ADDED, MASKED
from plait.model.contract import CODECS, Options
from plait.model.partitioning import PartitionField, determines, parse_field, sources_of
from plait.model.schema import FIELDS_MAX, WRITTEN_COLUMN, WRITTEN_FIELD, Schema

CODEC_OPTION: Final = "file.compression"
LEVEL_OPTION: Final = "file.compression.level"
_LEVELS: Final = {"zstd": 22, "gzip": 9}
"""The highest level of each codec that has levels; the lowest is 1."""


@dataclass(frozen=True, slots=True)
class Compression:
    """A codec of Parquet, and its level."""

    codec: str = CODECS[0]
    level: int | None = None
    """Compression level; None for the codec's own default."""

    @classmethod
    def of(cls, options: Options) -> Self:
        """Return what a table's options say.

        Raises:
            OptionError: the codec has no such level.

        >>> Compression.of(Options.of({"file.compression": "zstd", "file.compression.level": 9}))
        Compression(codec='zstd', level=9)
        """
        codec, level = options.choice(CODEC_OPTION), options.count(LEVEL_OPTION)
        if not level:
            return cls(codec)
        most = _LEVELS.get(codec, 0)
        if level > most:
            message = f"{LEVEL_OPTION}={level} is not a level of {codec}"
            allowed = f"use 1 to {most}" if most else f"{codec} has no levels"
            hint = f"{allowed}; 0 leaves the level to the codec"
            raise OptionError(message, hint=hint, key=LEVEL_OPTION, value=str(level))
        return cls(codec, level)


_ID_MAX, _VERSION_MAX = (1 << 31) - 1, (1 << 63) - 1
Spans: TypeAlias = tuple[tuple[int, int], ...]
"""Versions: the first and the last of each span of them."""
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
class TableLayout:
    """Where rows lie: what only a repush can change.

    It is a part of what engines see of a table (``TableSpec.layout``). ``define_layout`` makes it
    for a new table and for a repush, and ``from_dict`` from a definition. A definition keeps those
    that older versions have (``FormerLayout``), and that of an open repush.
    """

    partition_by: tuple[str, ...]
    """The columns and transforms whose values are a row's partition, as text."""
    buckets: BucketSpec
    """Bucket spec with the layout's id; two layouts with one id differ in column names alone."""
    ordering: str | None
    """The column that decides which of two rows with one key wins; None: the later one."""
    table_type: str  # COW | MOR

    @property
    def id(self) -> int:
        """The number by which decisions name it."""
        return self.buckets.id

    def same_buckets(self, other: TableLayout) -> bool:
        """Tell whether each row is in the same partition and bucket in both."""
        alike = self.partition_by == other.partition_by
        return alike and replace(self.buckets, id=other.id) == other.buckets

    def same_place(self, other: TableLayout) -> bool:
        """Tell whether rows lie alike in both, whatever their ids are."""
        return replace(self, buckets=replace(self.buckets, id=other.id)) == other

    def to_dict(self) -> dict[str, object]:
        """Write it as JSON values."""
        return {
            "partition_by": list(self.partition_by),
            "bucket_spec": {
                "id": self.buckets.id,
                "key": list(self.buckets.key),
                "count": self.buckets.count,
                **({"by": list(self.buckets.by)} if self.buckets.by else {}),
            },
            "ordering": self.ordering,
            "table_type": self.table_type,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, object]) -> TableLayout:
        """Read what ``to_dict`` wrote.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        bucket, ordering, kind = value["bucket_spec"], value["ordering"], str(value["table_type"])
        if not isinstance(bucket, dict) or kind not in (COW, MOR):
            raise TypeError(value)
        key = _names(bucket["key"])
        number = whole(bucket["id"], most=_ID_MAX)
        count = whole(bucket["count"], least=1 if key else 0, most=BUCKETS_MAX)
        by = _names(bucket.get("by", []))
        if by and (by == key or by != tuple(name for name in key if name in by)):
            raise ValueError(f"buckets by {by} of the key {key}")
        return cls(
            _names(value["partition_by"]),
            BucketSpec(number, key, count, by),
            None if ordering is None else str(ordering),
            kind,
        )


@dataclass(frozen=True, slots=True)
class FormerLayout:
    """A layout that the table had, and the last version that had it."""

    layout: TableLayout
    until: int

    def to_dict(self) -> dict[str, object]:
        """Write it as JSON values."""
        return {"until": self.until, **self.layout.to_dict()}

    @classmethod
    def from_dict(cls, value: object) -> FormerLayout:
        """Read what ``to_dict`` wrote; raise KeyError, TypeError or ValueError."""
        if not isinstance(value, dict):
            raise TypeError(value)
        return cls(TableLayout.from_dict(value), whole(value["until"], least=-1, most=_VERSION_MAX))


def whole(value: object, *, least: int = 0, most: int) -> int:
    """Return a whole number of metadata; raise ValueError if it is none, or no sensible one.

    >>> whole(3, most=8)
    3
    """
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"expected a whole number from {least} to {most}, found {value!r:.40}")
    return value


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise TypeError(f"expected names, found {value!r:.80}")
    if len(value) > FIELDS_MAX:
        raise ValueError(f"{len(value)} names")
    return tuple(value)


@dataclass(frozen=True, slots=True)
class TableSpec:
    """What reading and writing rows needs to know of a table; executors get it pickled.

    It is the part of a definition (``TableDef.spec``) that engines see. ``define_table`` makes it
    for a new table and ``TableDef.from_dict`` for one that is there; what a writer or a read needs
    otherwise, ``replace`` makes from the table's own.
    """

    schema: Schema
    layout: TableLayout
    statistics: bool = field(default=True, compare=False)
    """Whether bounds of new files are told: no change of the layout, either way is right."""
    keeps_row_version: bool = field(default=False, compare=False)
    """Whether files that copy rows say which version wrote each (``model/schema.py``)."""
    compression: Compression = field(default=Compression(), compare=False)
    """Compression of new files; readers accept every codec."""
    unique: str = field(default=UNIQUE_PARTITION, compare=False)
    """Where keys are unique: in their partition, or in the table (RFC 0030)."""
    rejects_nan_in: str | None = field(default=None, compare=False)
    """A column without NaN although it orders nothing here: it will where the rows go next."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the record key; () if the table has none."""
        return self.layout.buckets.key

    @property
    def fields(self) -> tuple[PartitionField, ...]:
        """What makes the partition of a row, in the order of the values."""
        return tuple(map(parse_field, self.layout.partition_by))

    @property
    def partition_sources(self) -> tuple[str, ...]:
        """The columns from which the partition of a row is computed."""
        return sources_of(self.fields) if self.layout.partition_by else ()

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
        return self.layout.buckets.keyed

    @property
    def unique_in_table(self) -> bool:
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
        return [*names, WRITTEN_COLUMN] if self.keeps_row_version else names

    @property
    def readable(self) -> pa.Schema:
        """The columns that can be read: all columns, the hidden one too."""
        known = self.schema.arrow
        hidden = self.keeps_row_version and WRITTEN_COLUMN not in known.names
        return known.append(WRITTEN_FIELD) if hidden else known

    def with_row_version(self) -> TableSpec:
        """Return it for rows that come with the version that wrote them.

        Raises:
            InvariantError: the table does not keep it.
        """
        if not self.keeps_row_version:
            raise InvariantError(f"rows with {WRITTEN_COLUMN} for a table that does not keep it")
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

    def with_row_version(self) -> Snapshot:
        """Return it for reads of the versions that wrote rows, also if that is kept no longer.

        Files tell as much of it as they do: copies that were made since count as written then.
        """
        return replace(self, spec=replace(self.spec, keeps_row_version=True))


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
