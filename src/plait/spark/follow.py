"""Follow a table commit by commit: what each batch of a stream takes in (RFC 0006).

Nothing here knows Spark: offsets go in, offsets and windows of commits come out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from plait.errors import (
    InstantExpiredError,
    InstantNotFoundError,
    OptionError,
    SchemaMismatchError,
    StreamError,
)
from plait.locks.identity import table_name
from plait.model.evolution import widest
from plait.model.plan import ChangeWindow
from plait.model.schema import Schema
from plait.queries.pins import pin_changes, pin_rows
from plait.state.state import TableState
from plait.txn.read_pin import ReadPin
from plait.txn.table_handle import TableHandle
from plait.txn.time_travel import find_before, find_bound, instant_of

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
Pin = tuple[ChangeWindow, ReadPin]


@dataclass(frozen=True, slots=True)
class Offset:
    """Commits up to ``version`` are delivered.

    Spark does not keep a stream's first offset, and asks for it again if it must repeat the first
    batch. So the first one says nothing, and every other says where the stream began too.
    """

    version: int = -1
    """-1: nothing yet."""
    began: int = -1
    """The version after which the stream began; -1: with all rows of a version."""
    files: int | None = None
    """Number of files of the first rows that are delivered; None for all."""
    table: str = ""
    """The identity of the table: another one in its place has other versions."""

    @property
    def first(self) -> bool:
        """Whether the stream has not begun."""
        return self.version < 0

    def to_dict(self) -> dict[str, int | str]:
        """Write it as JSON values."""
        if self.first:
            return {"version": -1}
        known: dict[str, int | str] = {"version": self.version, "began": self.began}
        if self.files is not None:
            known["files"] = self.files
        return {**known, "table": self.table}

    @classmethod
    def from_dict(cls, value: Mapping[str, object]) -> Offset:
        """Read what ``to_dict`` wrote; raise OptionError for anything else."""
        try:
            numbers = {name: _number(value[name]) for name in value if name != "table"}
            return cls(**numbers, table=str(value.get("table", "")))
        except TypeError as error:
            message = (
                f"the checkpoint contains {str(value)[:120]}, which is not an offset of a table"
            )
            hint = "use the stream's previous checkpoint, or a new one"
            raise OptionError(message, hint=hint, key="offset", value=str(value)) from error


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """The most that one batch takes in; None: no limit. One commit is never divided."""

    versions: int | None = None
    files: int | None = None
    bytes: int | None = None

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return (self.versions, self.files, self.bytes) != (None, None, None)

    def fitting(self, files: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> int:
        """Count how many of these, from the first, go into one batch; at least one."""
        count = len(files)
        if self.versions is not None:
            count = min(count, self.versions)
        for limit, costs in ((self.files, files), (self.bytes, sizes)):
            if limit is not None:
                count = min(count, int(np.searchsorted(np.cumsum(costs), limit, side="right")))
        return max(1, count)


class Follower:
    """Plans the batches of one stream, and keeps the files that the next ones need."""

    def __init__(
        self, handle: TableHandle, schema: Schema, start: str | None, limits: ReadLimits
    ) -> None:
        """Begin to follow.

        Args:
            handle: the table.
            schema: the columns that the stream was loaded with.
            start: where a stream without a checkpoint begins.
            limits: of one batch.
        """
        self._handle, self._schema, self._start, self._limits = handle, schema, start, limits
        self._lease: ReadPin | None = None
        self._target: int | None = None
        self._table = table_name(handle.store)
        self.seen: int = -1
        """The newest version that was met."""

    def stop_at_head(self) -> None:
        """Take in nothing that is committed from now on."""
        self._target = self._head().version

    def next(self, offset: Offset, *, limited: bool) -> Offset:
        """Return the end of the batch after an offset; the offset itself if there is nothing new.

        Raises:
            InstantExpiredError: what the stream needs next was cleaned.
            SchemaMismatchError: the next commit has newer columns.
            StreamError: the offset is not one of this table.
        """
        state = self._head()
        self._require_ours(offset, state)
        head = state.version if self._target is None else min(state.version, self._target)
        if offset.first:
            offset = replace(self._begin(state, head), table=self._table)
        self.hold(offset.version)
        if offset.files is not None:
            return self._rows(offset, limited=limited)
        return self._commits(offset, head, limited=limited) if offset.version < head else offset

    def window(self, start: Offset, end: Offset) -> ChangeWindow:
        """Return what a batch reads; the same whenever it is asked (INV-01).

        Raises:
            InstantExpiredError: it was cleaned.
            SchemaMismatchError: columns of it had wider types than those of the stream have.
            StreamError: the offsets are not those of this table.
        """
        self._require_ours(end, self._head())
        if end.began < 0 and (start.first or start.files is not None):
            window = self._pinned(lambda: pin_rows(self._handle, end.version), end.version)
            low = start.files or 0
            high = window.files.num_rows if end.files is None else end.files
            window = replace(window, files=window.files.slice(low, high - low))
        else:
            since = end.began if start.first else start.version
            window = self._changes(since, end.version)
        snapshot = window.snapshot
        if widest(self._schema, [snapshot.spec.schema]) != self._schema:
            raise self._columns_changed(end.version)
        schemas = {**snapshot.schemas, self._schema.id: self._schema}
        spec = replace(snapshot.spec, schema=self._schema)
        return replace(window, snapshot=replace(snapshot, spec=spec, schemas=schemas))

    def hold(self, version: int) -> None:
        """Keep the files of a version, and no longer those of versions before."""
        if self._lease is None or self._lease.version != version:
            self._hold(ReadPin(self._handle, version))

    def close(self) -> None:
        """Keep nothing any more."""
        self._hold(None)

    # --- inside ----------------------------------------------------------------------------

    def _head(self) -> TableState:
        state = self._handle.cache.refresh()
        self.seen = state.version
        return state

    def _require_ours(self, offset: Offset, state: TableState) -> None:
        """Refuse a checkpoint that another table left, or a later state of this one."""
        if offset.first or (offset.table == self._table and offset.version <= state.version):
            return
        uri, head = self._handle.store.address.uri, state.version
        message = f"the checkpoint is at version {offset.version}, which {uri} does not have"
        if offset.table != self._table:
            message = f"the checkpoint belongs to another table than the one at {uri}"
        hint = "use this table's checkpoint, or a new one"
        raise StreamError(message, hint=hint, uri=uri, version=offset.version, head=head)

    def _begin(self, state: TableState, head: int) -> Offset:
        """Decide where a stream without a checkpoint begins."""
        start = self._start
        if start is None or start == EARLIEST:
            if state.table.spec.schema.id > self._schema.id:
                raise self._columns_changed(state.version)
            return Offset(head if start is None else state.horizon, files=0)
        if start == LATEST:
            return Offset(head, head)
        after = self._before(state, start)
        if after > head:
            message = f"start={start}: no such version exists, and it is not the next one"
            hint = f"the newest is {head}; start=latest waits for later commits"
            raise InstantNotFoundError(message, hint=hint, version=after + 1)
        return Offset(after, after)

    def _before(self, state: TableState, start: str) -> int:
        """Return the version before the first commit to be delivered."""
        if start.isascii() and start.isdigit():
            return max(0, int(start) - 1)
        instant = instant_of(start)
        if instant is not None:
            return find_bound(self._handle, state, instant, key="start") - 1
        return find_before(self._handle, state, start, key="start")

    def _rows(self, offset: Offset, *, limited: bool) -> Offset:
        """Take in the rows of the first version, or more of their files."""
        files = self._pinned(lambda: pin_rows(self._handle, offset.version), offset.version).files
        done = offset.files or 0
        left = files.slice(done)
        count = left.num_rows
        if limited and count:
            sizes = left["bytes"].to_numpy()
            limits = replace(self._limits, versions=None)
            count = limits.fitting(np.ones(count, dtype=np.int64), sizes)
        ended = done + count >= files.num_rows
        return replace(offset, files=None if ended else done + count)

    def _commits(self, offset: Offset, head: int, *, limited: bool) -> Offset:
        """Take in commits that are whole."""
        end = self._same_columns(offset.version, head)
        if limited and self._limits.any:
            files = self._changes(offset.version, end).files
            versions, first, counts = np.unique(
                files["at"].to_numpy(), return_index=True, return_counts=True
            )
            if len(versions):
                sizes = np.add.reduceat(files["bytes"].to_numpy(), first)
                count = self._limits.fitting(counts, sizes)
                end = end if count == len(versions) else int(versions[count]) - 1
        return replace(offset, version=end)

    def _same_columns(self, since: int, head: int) -> int:
        """Return the newest version that has no newer columns than the stream."""
        state = self._handle.cache.known()
        commits = state.commits(self._handle.store, since=since)
        newer = commits.filter(pc.greater(commits["schema_id"], self._schema.id))
        first = head + 1 if not newer.num_rows else int(pc.min(newer["version"]).as_py())
        if first == since + 1:
            raise self._columns_changed(first)
        return min(head, first - 1)

    def _columns_changed(self, version: int) -> SchemaMismatchError:
        """Return the error for columns that the stream lacks, or that a restore took back since."""
        message = f"the columns of the table changed at version {version}"
        hint = "load the stream again and start it from its checkpoint; it then has the new columns"
        if self._handle.cache.known().table.spec.schema.id <= self._schema.id:
            message = f"{message}, and a restore changed them back"
            hint = "use a new checkpoint; Table.changes shows what the stream passes over"
        return SchemaMismatchError(message, hint=hint, column="", version=version)

    def _changes(self, since: int, until: int) -> ChangeWindow:
        return self._pinned(lambda: pin_changes(self._handle, since, until), since)

    def _pinned(self, pin: Callable[[], Pin], version: int) -> ChangeWindow:
        """Keep what was pinned until the stream has gone past it."""
        try:
            window, lease = pin()
        except InstantExpiredError as error:
            oldest = self._handle.cache.known().horizon
            message = (
                f"the stream needs version {version} to find later changes, but it was cleaned; "
                f"the oldest readable version is {oldest}"
            )
            hint = (
                "start again with a new checkpoint; for longer pauses increase clean.retain.time "
                "and clean.retain.versions beforehand"
            )
            raise InstantExpiredError(message, hint=hint, version=version, oldest=oldest) from error
        self._hold(lease)
        return window

    def _hold(self, lease: ReadPin | None) -> None:
        held, self._lease = self._lease, lease
        if held is not None:
            held.release()


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(value)
    return value
