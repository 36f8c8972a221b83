"""What a write takes as rows, as types: Arrow data by its interface, and a frame of Spark."""

from __future__ import annotations

from typing import Protocol, TypeAlias, runtime_checkable


@runtime_checkable
class ArrowStream(Protocol):
    """A table, a reader, or a frame of pandas or Polars: whatever gives an Arrow C stream."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the capsule of the stream."""
        ...


@runtime_checkable
class ArrowBatch(Protocol):
    """A record batch: whatever gives an Arrow C array."""

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Return the capsules of the schema and of the array."""
        ...


class SparkFrame(Protocol):
    """A DataFrame of Spark, classic or Connect."""

    @property
    def sparkSession(self) -> object:  # noqa: N802 - Spark's name
        """The session that it belongs to."""
        ...


Data: TypeAlias = ArrowStream | ArrowBatch | SparkFrame
"""Rows, as the writes of ``Table`` take them."""
