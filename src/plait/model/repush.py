"""How a table is laid out now, how it was, and the repush that is to lay it out anew (RFC 0021)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from plait.model.bucket import BucketSpec
from plait.model.plan import COW, MOR, TableSpec
from plait.model.schema import Schema

REPUSH_STREAM: Final = "repush"
"""The application of whose tokens the table in the directory tells how far it is."""
_DIRECTORY = re.compile(r"repush-[0-9a-f]{16}", re.ASCII)


def repush_directory(nonce: str) -> str:
    """Name the directory of a repush by the nonce of the instant that began it.

    >>> repush_directory("00000000000000ab")
    'repush-00000000000000ab'
    """
    return f"repush-{nonce}"


def is_repush_directory(name: str) -> bool:
    """Tell whether this is the name of a repush's directory."""
    return _DIRECTORY.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class TableLayout:
    """Where rows lie: what only a repush can change."""

    partition_by: tuple[str, ...]
    buckets: BucketSpec
    """Its id is that of the layout; no id ever stands for two layouts."""
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
        return cls(
            _names(value["partition_by"]),
            BucketSpec(int(bucket["id"]), key, count),
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


@dataclass(frozen=True, slots=True)
class OpenRepush:
    """A repush that was begun, and neither swapped in nor cancelled."""

    directory: str
    """Of the table that it builds, in the table's own directory."""
    base: int
    """The version whose rows it loads; every version from there on stays readable."""
    layout: TableLayout
    """What it leads to."""
    rows_per_task: int
    """How many rows one commit of the load takes, about."""
    properties: Mapping[str, object]
    """Options that change with the swap."""

    def to_dict(self) -> dict[str, object]:
        """Write it as JSON values."""
        return {
            "directory": self.directory,
            "base": self.base,
            "layout": self.layout.to_dict(),
            "rows_per_task": self.rows_per_task,
            "properties": dict(self.properties),
        }

    @classmethod
    def from_dict(cls, value: object) -> OpenRepush:
        """Read what ``to_dict`` wrote; raise KeyError, TypeError or ValueError."""
        if not isinstance(value, dict):
            raise TypeError(value)
        directory, layout, properties = (
            value[name] for name in ("directory", "layout", "properties")
        )
        if not isinstance(layout, dict) or not isinstance(properties, dict):
            raise TypeError(value)
        if not isinstance(directory, str) or not is_repush_directory(directory):
            message = f"{directory!r} is not the directory of a repush"
            raise ValueError(message)
        return cls(
            directory,
            int(value["base"]),
            TableLayout.from_dict(layout),
            int(value["rows_per_task"]),
            properties,
        )
