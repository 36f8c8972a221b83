"""The table that a repush builds: an ordinary table in a directory of the one it is for."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from plait.definition.table_def import TableDef
from plait.errors import (
    BadRecordError,
    RepushRefusedError,
    SchemaMismatchError,
    StreamError,
    TableExistsError,
)
from plait.model.changes import ADDED, MASKED
from plait.model.contract import PUBLISH_OPTION
from plait.model.decision import Span
from plait.model.instant import Instant
from plait.model.order import Order, recorded_order
from plait.model.plan import Snapshot
from plait.model.repush import REPUSH_STREAM, OpenRepush
from plait.model.schema import WRITTEN_OPTION
from plait.model.stream import Position
from plait.storage.nested import NestedStore
from plait.stream.stream import Stream
from plait.txn.recovery import show_pending
from plait.txn.table_decisions import create_table
from plait.txn.table_handle import TableHandle, client, make_handle, open_handle
from plait.write.request import write_request
from plait.write.writer import Writer

_LOAD, _VERSION = "load ", "version "
_GRACE_S = 2.0
"""Seconds after which a younger process that has not given way cannot have seen us."""
_LOOK_S, _LOOK_S_MAX = 0.01, 0.2


@dataclass(frozen=True, slots=True)
class ShadowProgress:
    """How far a shadow is."""

    position: Position | None
    task: int = 0
    """The next task of the load."""
    version: int | None = None
    """Version whose rows the shadow has; None while it is being loaded."""

    @classmethod
    def of(cls, position: Position | None) -> Self:
        """Read what the last commit of the shadow says."""
        if position is None:
            return cls(None)
        if position.end.startswith(_LOAD):
            return cls(position, task=int(position.end.removeprefix(_LOAD)))
        return cls(position, version=int(position.end.removeprefix(_VERSION)))


@dataclass(frozen=True, slots=True)
class Shadow:
    """The table inside, with the tokens that say how far it is."""

    handle: TableHandle
    repush: OpenRepush
    stream: Stream
    is_open: Callable[[], bool]
    """Tells whether the table still builds it. Afterwards its metadata is deleted, so that it looks
    as if it had just been created."""

    @classmethod
    def open(cls, outer: TableHandle, repush: OpenRepush) -> Self:
        """Open it; create it if it is not there yet."""

        def is_open() -> bool:
            return outer.cache.refresh().table.builds(repush.directory)

        store = NestedStore(outer.plain_store, repush.directory, deletes=is_open)
        table = outer.cache.known().table
        inner = make_handle(store, outer.ports, table.contract.lock, consent=outer.consent)
        # The shadow has the lock and contract of the table, so a second process opens the same one.
        # Creating it is idempotent: the loser of a race finds the winner's.
        with contextlib.suppress(TableExistsError):
            create_table(inner.store, outer.ports, _definition(table, repush))
        handle = open_handle(store, outer.ports, outer.consent)
        return cls(handle, repush, Stream(handle, REPUSH_STREAM), is_open)

    def progress(self) -> ShadowProgress:
        """Return how far it is now."""
        return ShadowProgress.of(self.stream.position)

    def other_processes(self) -> list[Instant]:
        """Return the instants of other processes that live, and are at a task or a round.

        Their pending records say so: each task is a commit of the shadow, which begins with one. A
        process that died is known as dead at once on its own machine; elsewhere when it has been
        silent for ``heartbeat.timeout``.
        """
        us = client()
        return [
            entry.instant
            for entry in show_pending(self.handle)
            if entry.alive and (entry.host, entry.pid) != (us["host"], us["pid"])
        ]

    def load_writer(
        self, before: ShadowProgress, after: int, *, last: bool
    ) -> AbstractContextManager[Writer]:
        """Open the writer of one task of the load; a key that is there already is refused.

        Raises:
            StreamError: another process is at this task.
        """
        end = f"{_VERSION}{self.repush.base}" if last else f"{_LOAD}{after}"
        return self._claimed(before, self._writer("append", before, end))

    def round_writer(
        self, before: ShadowProgress, version: int, operation: str
    ) -> AbstractContextManager[Writer]:
        """Open the writer of a round that brings the shadow to a version.

        Raises:
            StreamError: another process is at this round.
        """
        return self._claimed(before, self._writer(operation, before, f"{_VERSION}{version}"))

    @contextlib.contextmanager
    def _claimed(self, before: ShadowProgress, writer: Writer) -> Iterator[Writer]:
        """Begin, unless another process is at work; only one is at a time.

        The record of the beginning is the claim. Whoever begins writes it first and looks then, so
        of two that begin at once one at least sees the other, and nobody reads a row who sees one.
        The later one gives way; the earlier one waits until it has. This saves work and nothing
        else: of two that did a task all the same, the token of the stream would let one commit.
        """
        with writer:
            self._require_next(before)  # or the writer finds its epoch there, and begins nothing
            # The wait ends when another process is through, maybe with this very task. So compare
            # the position before it and after it.
            self._require_alone(writer.instant)
            self._require_next(before)
            yield writer

    def _require_next(self, before: ShadowProgress) -> None:
        if self.progress() != before or not self.is_open():
            message = f"another process did this meanwhile in {self.repush.directory}"
            raise StreamError(message, hint="go on with what is next")

    def _require_alone(self, ours: Instant) -> None:
        ports = self.handle.ports
        backoff = ports.backoff(_LOOK_S, _LOOK_S_MAX)
        until = ports.clock.monotonic() + _GRACE_S
        while others := self.other_processes():
            left_s = until - ports.clock.monotonic()
            # The older instant goes on and the younger gives way. After the grace period a younger
            # one that is still there has not seen us, so give way too; nobody may wait for ever.
            if left_s <= 0 or min(map(str, others)) < str(ours):
                message = f"another process is at work in {self.repush.directory}"
                raise StreamError(message, hint="wait until it is through")
            backoff.pause(left_s)

    @property
    def columns(self) -> list[str]:
        """The columns of the rows that it takes: with the version that wrote each, if known."""
        return self.handle.cache.known().table.spec.copied

    @property
    def with_row_version(self) -> bool:
        """Whether its rows come with the version of the outer table that wrote them."""
        return self.handle.cache.known().table.spec.keeps_row_version

    @property
    def order(self) -> Order | None:
        """The order in which its rows are to lie; None: by key, or as they come."""
        return recorded_order(self.handle.cache.known().table.options)

    def _writer(self, operation: str, before: ShadowProgress, end: str) -> Writer:
        after = before.position
        epoch, start = (0, "") if after is None else (after.epoch + 1, after.end)
        token = replace(self.stream.token(epoch, start, end), offsets=(Span("", start, end),))
        spec = self.handle.cache.known().table.spec
        request = write_request(operation, spec, on_conflict="retry", token=token)
        # Nothing orders its rows here, but there it will, and a NaN is never replaced.
        ordering = self.repush.layout.ordering
        return Writer(
            self.handle,
            replace(request, with_row_version=self.with_row_version, rejects_nan_in=ordering),
        )

    @contextlib.contextmanager
    def refusing(self, source_name: str) -> Iterator[None]:
        """Refuse a row that the table cannot have under its new layout.

        Raises:
            RepushRefusedError: there is one; it says whose it is.
        """
        try:
            yield
        except (BadRecordError, SchemaMismatchError) as error:
            message = f"{source_name} has a row that cannot be in the new layout: {error}"
            hint = "cancel the repush, mend the row there, and begin it again"
            raise RepushRefusedError(message, hint=hint, column=error.column) from error

    def rows_taken(self) -> tuple[int, int]:
        """Return how many rows its load brought, and by how many its rounds changed that."""
        state, store = self.handle.cache.refresh(), self.handle.store
        commits = state.commits(store, columns=("version", "stats")).to_pylist()
        stats = {row["version"]: json.loads(row["stats"]) for row in commits}
        last = f"{_VERSION}{self.repush.base}"
        loaded = followed = 0
        for row in state.tokens(store).to_pylist():
            end = json.loads(row["token"])["end"]
            counts = stats[row["version"]]
            change = counts["rows_inserted"] - counts["rows_deleted"]
            if end.startswith(_LOAD) or end == last:
                loaded += change
            else:
                followed += change
        return loaded, followed

    def newest(self) -> tuple[ShadowProgress, Snapshot]:
        """Return its files now, and how far they are."""
        state = self.handle.cache.refresh()
        # Position and files come from one state: read apart, a round that commits in between would
        # be swapped in without its rows counted, or counted without its rows.
        position = state.streams.get(REPUSH_STREAM)
        return ShadowProgress.of(position), state.snapshot(self.handle.store)

    def as_table_files(self, files: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return its files (ADDED) and masks (MASKED) under their names in the outer table."""
        added = files.select(ADDED.names).cast(ADDED)
        masked = files.filter(pc.greater(files["masked"], 0))
        vectors = [name for name in MASKED.names if name not in ("path", "rows")]
        masks = masked.select(["path", "masked", *vectors]).rename_columns(MASKED.names)
        masks = masks.cast(MASKED)
        return self._prefixed(added, "path"), self._prefixed(masks, "path", "dv_path")

    def _prefixed(self, table: pa.Table, *columns: str) -> pa.Table:
        prefix = pa.scalar(f"{self.repush.directory}/")
        for name in columns:
            at = table.schema.get_field_index(name)
            names = pc.binary_join_element_wise(prefix, table[name], "")
            table = table.set_column(at, table.schema.field(at), names)
        return table


def _definition(table: TableDef, repush: OpenRepush) -> TableDef:
    """Return how the shadow is defined: the last image of a row wins, whatever it orders by."""
    # Changes are replayed in the order of commits, so the last image must win. With the ordering
    # column in force, a replayed row could lose to an older image with a greater value.
    layout = replace(repush.layout, ordering=None)
    # Its own versions mean nothing in the table: its rows come with those of the table, or none.
    written = "on" if table.spec.keeps_row_version else "off"
    # Nor does anybody read its versions but we: so it is not published.
    fixed = {WRITTEN_OPTION: written, PUBLISH_OPTION: ""}
    options = table.options.merged({**repush.properties, **fixed})
    spec = replace(table.spec, layout=layout)
    return replace(
        table,
        spec=spec,
        schemas={spec.schema.id: spec.schema},
        options=options,
        ttl=None,
        former=(),
        repush=None,
        repushed=(),
        replicas={},
    )
