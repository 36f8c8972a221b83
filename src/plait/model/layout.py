"""How the rows of a table are laid out, and how they were (RFC 0021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from plait.model.bucket import BUCKETS_MAX, BucketSpec
from plait.model.plan import COW, MOR, TableSpec
from plait.model.schema import FIELDS_MAX, Schema

Spans: TypeAlias = tuple[tuple[int, int], ...]
"""Versions: the first and the last of each span of them."""
_ID_MAX, _VERSION_MAX = (1 << 31) - 1, (1 << 63) - 1


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
        key = _names(bucket["key"])
        number = whole(bucket["id"], most=_ID_MAX)
        count = whole(bucket["count"], least=1 if key else 0, most=BUCKETS_MAX)
        by = _names(bucket.get("by", []))
        if by and (by == key or by != tuple(name for name in key if name in by)):
            message = f"buckets by {by} of the key {key}"
            raise ValueError(message)
        return cls(
            _names(value["partition_by"]),
            BucketSpec(number, key, count, by),
            None if ordering is None else str(ordering),
            kind,
        )


def whole(value: object, *, least: int = 0, most: int) -> int:
    """Return a whole number of metadata; raise ValueError if it is none, or no sensible one.

    >>> whole(3, most=8)
    3
    """
    if type(value) is not int or not least <= value <= most:
        message = f"expected a whole number from {least} to {most}, found {value!r:.40}"
        raise ValueError(message)
    return value


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        message = f"expected names, found {value!r:.80}"
        raise TypeError(message)
    if len(value) > FIELDS_MAX:
        message = f"{len(value)} names"
        raise ValueError(message)
    return tuple(value)


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
