"""What a writer has staged, bucket by bucket, so that single buckets can be done again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from plait.files.live import LiveFile
from plait.model.bucket import BucketId
from plait.model.changes import ADDED, MASKED, PATHS, TOUCHED, Changes, WriteStats
from plait.write.merge import Positions


@dataclass(slots=True)
class Staged:
    """The work on one bucket."""

    added: list[pa.Table] = field(default_factory=list)
    """One row of ADDED each."""
    removed: list[LiveFile] = field(default_factory=list)
    hidden: dict[str, Positions] = field(default_factory=dict)
    """By path: every row to be masked from now on. Empty once the masks are written."""
    masked: list[pa.Table] = field(default_factory=list)
    """One row of MASKED each."""
    touched: pa.Table | None = None
    """One row of TOUCHED; where the bucket stays as it is, only if the plan claims what came in."""
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def empty(self) -> bool:
        """Whether the bucket stays as it is."""
        return not (self.added or self.removed or self.hidden or self.masked)


def changes_of(staged: Mapping[BucketId, Staged], written: Iterable[str]) -> Changes:
    """Put the work on all buckets together; files that none of it names are garbage."""
    works = list(staged.values())
    added = _concat([table for work in works for table in work.added], ADDED)
    masked = _concat([table for work in works for table in work.masked], MASKED)
    touched = _concat([w.touched for w in works if w.touched is not None], TOUCHED)
    removed = [file.path for work in works for file in work.removed]
    used = {
        *added["path"].to_pylist(),
        *masked["dv_path"].to_pylist(),
        *touched["key_path"].to_pylist(),
    }
    garbage = sorted(set(written) - used)
    return Changes(
        added=added,
        masked=masked,
        touched=touched,
        removed=pa.table({"path": removed}, schema=PATHS),
        garbage=pa.table({"path": garbage}, schema=PATHS),
    )


def stats_of(staged: Mapping[BucketId, Staged], changes: Changes, base: WriteStats) -> WriteStats:
    """Count what was done; ``base`` has the counts that do not hang on buckets."""
    works = staged.values()
    return base + WriteStats(
        rows_inserted=sum(work.inserted for work in works),
        rows_updated=sum(work.updated for work in works),
        rows_deleted=sum(work.deleted for work in works),
        files_added=changes.added.num_rows,
        files_removed=changes.removed.num_rows,
        bytes_written=sum(changes.added["bytes"].to_pylist()),
    )


def _concat(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([schema.empty_table(), *tables]).combine_chunks()
