"""How the rows of a table are laid out, and how they were (RFC 0021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from plait.model.bucket import BucketSpec
from plait.model.plan import COW, MOR, TableSpec
from plait.model.schema import Schema


@dataclass(frozen=True, slots=True)
class TableLayout:
    """Where rows lie: what only a repush can change."""

    partition_by: tuple[str, ...]
    buckets: BucketSpec
    """Its id is that of the layout; two layouts with one id differ in names of columns alone."""
    ordering: str | None
    table_type: str

    @classmethod
    def of(cls, spec: TableSpec) -> TableLayout:
        """Take the layout out of a spec."""
        return cls(spec.partition_by, spec.buckets, spec.ordering, spec.table_type)

    @property
    def id(self) -> int:
        """The number by which decisions name it."""
        return self.buckets.id

    def applied(self, spec: TableSpec, schema: Schema) -> TableSpec:
        """Return a spec of this layout and a schema."""
        return replace(
            spec,
            schema=schema,
            partition_by=self.partition_by,
            buckets=self.buckets,
            ordering=self.ordering,
            table_type=self.table_type,
        )

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
        key, count = _names(bucket["key"]), int(bucket["count"])
        if key and count < 1:
            message = f"{count} buckets"
            raise ValueError(message)
        by = _names(bucket.get("by", []))
        if by and (by == key or by != tuple(name for name in key if name in by)):
            message = f"buckets by {by} of the key {key}"
            raise ValueError(message)
        return cls(
            _names(value["partition_by"]),
            BucketSpec(int(bucket["id"]), key, count, by),
            None if ordering is None else str(ordering),
            kind,
        )


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(value)
    return tuple(str(name) for name in value)


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
        return cls(TableLayout.from_dict(value), int(value["until"]))
