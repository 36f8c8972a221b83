"""The Arrow engine: stages Arrow data, and anything that offers it, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from plait.arrow.check import prepare, prepare_removals, require_removals
from plait.arrow.clauses import rows_spec
from plait.arrow.ingest import Rows, accepts, open_rows
from plait.arrow.rewrite import rewrite_files
from plait.arrow.staging import ArrowStaging
from plait.arrow.task import Task
from plait.engine import Engine
from plait.files.digest import digest_of
from plait.model.bucket import Partition
from plait.model.changes import Digest, WriteStatus
from plait.model.plan import Snapshot
from plait.model.request import FileSet, WritePlan
from plait.model.schema import without_written
from plait.storage import open_store
from plait.storage.port import Store


class ArrowEngine(Engine):
    """Stages Arrow data, pandas and Polars frames, and anything with an Arrow C stream."""

    def __init__(self, *, store: Store | None = None, spill_directory: str | None = None) -> None:
        """Make the engine.

        Args:
            store: used instead of opening the store of each plan.
            spill_directory: where runs are spilled; by default where the system keeps
                temporary files.
        """
        self._store = store
        self._task = Task(spill_directory=spill_directory)

    @property
    def name(self) -> str:
        """The engine's name."""
        return ArrowStaging.engine

    def accepts(self, data: object) -> bool:
        """Tell whether this engine takes such data."""
        return accepts(data)

    def opened(self, data: object) -> tuple[Rows, pa.Schema]:
        """Return data that can be written, and its columns."""
        rows = open_rows(data)
        return rows, rows.schema

    def staging(
        self, plan: WritePlan, announce: Callable[[Iterable[Partition]], None]
    ) -> ArrowStaging:
        """Begin one writer's work."""
        return ArrowStaging(plan, announce, task=self._task, store=self._store)

    @property
    def width(self) -> int:
        """One set of files is rewritten at a time."""
        return 1

    def rewrite(
        self,
        plan: WritePlan,
        snapshot: Snapshot,
        sets: Sequence[FileSet],
        announce: Callable[[Iterable[Partition]], None],
    ) -> WriteStatus:
        """Put the visible rows of each set of files into one file."""
        store = self._store or open_store(plan.store)
        return rewrite_files(plan, snapshot, enumerate(sets), announce, store=store)

    def digest(self, data: object, plan: WritePlan) -> Digest:
        """Return the digest of rows; raise SchemaError for those that do not fit the table."""
        return sum_rows(data, plan)


def sum_rows(data: object, plan: WritePlan) -> Digest:
    """Return the digest of rows as a writer of the plan takes them in."""
    rows, layout = open_rows(data), plan.spec
    if plan.request.with_row_version:
        return digest_of(map(without_written, prepare(rows, layout.with_row_version())))
    if plan.request.joins:
        layout = rows_spec(plan.request.operation, plan.spec, rows.schema)
    return digest_of(prepare(rows, layout, plan.request.operation))


def sum_removals(data: object, plan: WritePlan) -> Digest:
    """Return the digest of removed keys as a writer of the plan takes them in."""
    require_removals(plan.request)
    return digest_of(prepare_removals(data, plan.spec), removes=True)
