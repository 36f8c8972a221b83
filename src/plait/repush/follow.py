"""Follow: what was committed since, round by round, through the change feed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from plait.arrow.cast import LossyError, apply
from plait.errors import InvariantError, RepushRefusedError
from plait.model.instant import Operation
from plait.model.partitioning import determines
from plait.model.plan import ChangeWindow, TableSpec
from plait.queries.pins import net_changes, pin, pin_changes
from plait.read.change_scan import TYPE, ChangeScan
from plait.read.scan import Scan
from plait.repush.shadow import Shadow, ShadowProgress
from plait.state.state import TableState
from plait.txn.matrix import DATA
from plait.txn.table_handle import TableHandle
from plait.write.writer import Writer

_CHANGING = frozenset(
    each.value
    for each in (
        *DATA,
        Operation.EXPIRE,
        Operation.RESTORE,
        Operation.SCHEMA,
        Operation.REPUSH_SOURCE,
    )
)
"""Operations after which the table may have other rows."""
_ADDING = frozenset(each.value for each in (Operation.APPEND, Operation.INSERT))
_PUTS, _DELETES = ("insert", "update_postimage"), ("delete",)
_REMOVES = ("delete", "update_preimage")


def changing_operations(state: TableState, handle: TableHandle, since: int) -> frozenset[str]:
    """Return the operations after a version that may have changed rows."""
    rows = state.commits(handle.store, since=since, columns=("version", "operation"))
    return _CHANGING.intersection(rows["operation"].to_pylist())


def require_followable(handle: TableHandle, state: TableState, since: int) -> None:
    """Refuse changes after a version that cannot be carried over to the rows of a source.

    Raises:
        RepushRefusedError: rows without keys were changed.
    """
    changed = sorted(changing_operations(state, handle, since) - _ADDING)
    if changed and not state.table.spec.keyed:
        message = f"rows of a table without a key were changed: {', '.join(changed)}"
        hint = "cancel the repush, and begin it again while nobody but appends writes"
        raise RepushRefusedError(message, hint=hint, operations=changed, since=since)


@dataclass(frozen=True, slots=True)
class FollowRound:
    """One step of the shadow to a newer version."""

    handle: TableHandle
    shadow: Shadow

    def run(self, progress: ShadowProgress, until: int) -> int:
        """Bring the shadow to a version; return how many rows were moved.

        Raises:
            StreamError: another process did it.
            RepushRefusedError: what was committed cannot be carried over to a source's rows, or
                cannot be in the new layout.
        """
        if progress.version is None:
            raise InvariantError("a shadow follows before it is loaded")
        since = progress.version
        state = self.handle.cache.refresh()
        # Read from the head, not only up to `until`: a change after `until` can only make the round
        # do more than needed.
        operations = changing_operations(state, self.handle, since)
        if self.shadow.repush.source is not None:
            require_followable(self.handle, state, since)
        with self.shadow.refusing("the table"):
            if not state.table.spec.keyed and not operations <= _ADDING:
                return self._reload(progress, until)  # no key tells which of its rows have gone
            return self._upsert(progress, since, until)

    def _reload(self, progress: ShadowProgress, until: int) -> int:
        snapshot, lease = pin(self.handle, until, None)
        try:
            snapshot = snapshot.with_row_version() if self.shadow.with_row_version else snapshot
            scan = Scan(self.handle.store, snapshot, columns=self.shadow.columns)
            with self.shadow.round_writer(progress, until, "overwrite") as writer:
                writer.write(scan.to_reader())
        finally:
            lease.release()
        return writer.result.stats.rows_in

    def _upsert(self, progress: ShadowProgress, since: int, until: int) -> int:
        window, lease = pin_changes(self.handle, since, until)
        try:
            if self.shadow.repush.source is not None and not window.one_layout:
                message = "a restore gave the table an older layout while the repush was open"
                hint = "cancel the repush, and begin it again"
                raise RepushRefusedError(message, hint=hint, since=since, until=window.until)
            scan = self._changes(window)
            spec = self.handle.cache.known().table.spec
            operation = "upsert" if spec.keyed else "append"
            with self.shadow.round_writer(progress, until, operation) as writer:
                replay = _Replay(writer, spec, self.shadow.handle.cache.known().table.spec)
                return replay.run(scan)
        finally:
            lease.release()

    def _changes(self, window: ChangeWindow) -> ChangeScan:
        """Return the changes of each commit, or what they come to all together if that is less.

        After many small commits it is much less to read: each bucket is looked at once. Together
        they also tell of each row which version wrote it, whatever was rewritten meanwhile. With
        the rows of a source it is not the same: a row that was changed and changed back was put.
        """
        store, with_row_version = self.handle.store, self.shadow.with_row_version
        foreign = self.shadow.repush.source is not None
        if with_row_version:
            window = replace(window, snapshot=window.snapshot.with_row_version())
        scan = ChangeScan(store, window, with_row_version=with_row_version, rewritten=not foreign)
        # The net changes compare files of two versions. Across two layouts every file differs, and
        # without a key a row has no identity by which it could be matched.
        if foreign or not (window.snapshot.spec.keyed and window.one_layout):
            return scan
        net = ChangeScan(store, net_changes(self.handle, window), with_row_version=with_row_version)
        return net if with_row_version or net.cost < scan.cost else scan


@dataclass(slots=True)
class _Replay:
    """Writes the rows of a change feed, so that the last image of each is there."""

    writer: Writer
    old: TableSpec
    new: TableSpec

    @property
    def moves(self) -> bool:
        """Whether an update may put a row into another partition of the new layout."""
        return not all(determines(self.old.fields, self.old.key, each) for each in self.new.fields)

    @property
    def merges(self) -> bool:
        """Whether rows that the old layout tells apart may be one in the new."""
        return not all(determines(self.new.fields, self.new.key, each) for each in self.old.fields)

    def run(self, scan: ChangeScan) -> int:
        """Replay everything; return how many rows there were."""
        if not self.new.keyed:
            return sum(self._put(rows) for rows in scan.to_reader())
        # If each old row stays one row of the new layout, changes are replayed in their order. If
        # the new layout merges partitions, or the window has two layouts, they go commit by commit,
        # removals first.
        if not self.merges and scan.window.one_layout:
            return sum(self._remove(rows) + self._put(rows) for rows in scan.to_reader())
        # A key may leave one place and come in another in one commit: first it leaves.
        return sum(
            sum(map(take, each.to_reader()))
            for each in _by_commit(scan)
            for take in (self._remove, self._put)
        )

    def _remove(self, rows: pa.RecordBatch) -> int:
        gone = self._of(rows, _REMOVES if self.moves or self.merges else _DELETES)
        names = list(dict.fromkeys((*self.new.partition_sources, *self.new.key)))
        if gone.num_rows:
            self.writer.remove(gone.select(names))
        return int(gone.num_rows)

    def _put(self, rows: pa.RecordBatch) -> int:
        put = _fitting(self._of(rows, _PUTS).select(self.new.copied), self.new.schema.arrow)
        if put.num_rows:
            self.writer.write(put)
        return int(put.num_rows)

    @staticmethod
    def _of(rows: pa.RecordBatch, types: tuple[str, ...]) -> pa.Table:
        chosen = pc.is_in(rows.column(TYPE), value_set=pa.array(types))
        return pa.Table.from_batches([rows.filter(chosen)])


def _fitting(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Leave out rows with values that the columns cannot have any more.

    A column that was wider before a restore has its wide type in the whole window. The restore is
    in it too, and took such rows away, or gave their keys the values of before.
    """
    # Halve the rows until each part is either fine or a single bad row: bad ones are rare, so this
    # costs a few casts and keeps all good rows.
    known = [field for field in schema if field.name in rows.schema.names]
    wide = [field for field in known if rows.schema.field(field.name).type != field.type]
    try:
        for field in wide:
            for chunk in rows[field.name].chunks:
                apply(chunk, field.type)
    except LossyError:
        half = rows.num_rows // 2
        parts = [rows.slice(0, half), rows.slice(half)] if half else []
        return pa.concat_tables([rows.slice(0, 0), *(_fitting(each, schema) for each in parts)])
    return rows


def _by_commit(scan: ChangeScan) -> Iterator[ChangeScan]:
    """Divide a change feed into its commits."""
    files = scan.window.files
    for at in sorted(set(files["at"].to_pylist())):
        one = replace(scan.window, files=files.filter(pc.equal(files["at"], at)))
        yield ChangeScan(
            scan.store, one, with_row_version=scan.with_row_version, rewritten=scan.rewritten
        )
