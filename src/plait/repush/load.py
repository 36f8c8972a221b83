"""Load: the rows of the base version, or of a source, in tasks that a kill does not undo."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, cast

import pyarrow as pa

from plait.errors import DuplicateKeyError, RepushRefusedError
from plait.model.data import Data
from plait.model.schema import WRITTEN_FIELD
from plait.repush.parts import RowPart, RowSource
from plait.repush.shadow import Shadow, ShadowProgress
from plait.repush.source import open_source
from plait.txn.table_handle import TableHandle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Load:
    """What is loaded, cut into tasks, always alike."""

    source: RowSource
    parts: tuple[RowPart, ...]
    """The tasks; at least one, maybe without rows."""
    row_version: int | None
    """Version recorded for rows that name none; None if rows are stored without a version."""

    @classmethod
    def of(
        cls,
        handle: TableHandle,
        shadow: Shadow,
        spark: SparkSession | None = None,
        options: Mapping[str, object] | None = None,
    ) -> Self:
        """Open what a repush loads, and cut it into tasks of about so many rows.

        Args:
            handle: the table.
            shadow: what the rows go into.
            spark: whose executors do the work; None: this process.
            options: to reach a source, see ``WantedSource``.

        Raises:
            RepushRefusedError: the source is gone, or it has changed.
        """
        opened = shadow.repush
        known = opened.source
        far = None if shadow.with_row_version else spark
        source = open_source(
            handle, opened, options or {}, with_row_version=shadow.with_row_version, spark=far
        )
        names_versions = known is None or known.address.own
        row_version = opened.base + 1 if shadow.with_row_version and not names_versions else None
        return cls(source, tuple(source.parts(opened.rows_per_task)), row_version)

    def close(self) -> None:
        """Let go of the source."""
        self.source.close()

    def run(self, shadow: Shadow, progress: ShadowProgress) -> int:
        """Load the next task; return how many rows it had.

        Raises:
            RepushRefusedError: a key comes twice under the new layout, or a row cannot be in it.
            StreamError: another process loaded this task.
        """
        task = progress.task
        part = self.parts[task]
        after = task + 1
        last = after == len(self.parts)
        try:
            with (
                shadow.refusing(shadow.repush.source_name),
                shadow.load_writer(progress, after, last=last) as writer,
            ):
                writer.write(self._read(part))
                # Inside the writer's block, so a source that changed fails the commit of the task.
                part.check()
        except DuplicateKeyError as error:
            # A repeated key usually means that another process loaded this task a moment ago. Only
            # if the shadow has not moved on are the keys repeated in the rows themselves.
            if shadow.progress() != progress:
                return 0  # they are the rows of another process, which loaded this task
            raise repeated_keys(shadow, error) from error
        # If another process committed this very task first, its result is ours too.
        return writer.result.stats.rows_in if writer.result.instant == writer.instant else 0

    def _read(self, part: RowPart) -> Data:
        data = cast("Data", part.read())
        if self.row_version is None or not isinstance(data, pa.RecordBatchReader):
            return data
        schema = data.schema.append(WRITTEN_FIELD)
        dated = _with_row_version(data, schema, self.row_version)
        return cast("Data", pa.RecordBatchReader.from_batches(schema, dated))


def _with_row_version(
    batches: pa.RecordBatchReader, schema: pa.Schema, version: int
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        written = pa.repeat(pa.scalar(version, WRITTEN_FIELD.type), batch.num_rows)
        yield pa.RecordBatch.from_arrays([*batch.columns, written], schema=schema)


def repeated_keys(shadow: Shadow, error: DuplicateKeyError) -> RepushRefusedError:
    """Return the error for rows whose keys are not unique under the layout."""
    places = list(shadow.repush.layout.partition_by)
    key = next(iter(error.keys), "") if isinstance(error.keys, list) else ""
    example = f", such as {key}" if key else ""
    if shadow.repush.source is not None:
        message = f"{shadow.repush.source_name} has rows that share a key{example}"
        hint = "cancel the repush, and remove one of the rows from the source"
        return RepushRefusedError(message, hint=hint, partition_by=places)
    names = ", ".join(places) or "no column"
    message = f"the table has rows that share a key once it is partitioned by {names}{example}"
    hint = "cancel the repush; remove one of the rows, or keep the column in partition_by"
    return RepushRefusedError(message, hint=hint, partition_by=places)
