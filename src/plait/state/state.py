"""The table at a version: what follows from every decision up to it.

``TableState`` is frozen. Small things are values in it; files and commits are columnar events, in
parts (on storage, loaded when first needed) and a tail (since then).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import (
    CorruptMetadataError,
    InstantExpiredError,
    InstantNotFoundError,
    InvariantError,
)
from plait.model.bucket import Partition
from plait.model.decision import Decision, Reserved
from plait.model.instant import Instant
from plait.model.plan import LIVE, Snapshot
from plait.model.stream import Position
from plait.read.wanted import Wants
from plait.state.archived import Archived
from plait.state.definition import TableDef
from plait.state.events import COMMITS, Events, Folded, LiveEntry, compact, fold, gathered
from plait.state.horizons import Horizons
from plait.state.lineage import Lineage, streams_after
from plait.state.parts import COMMIT_TABLES, FILE_TABLES, Part, recover_part
from plait.state.selected import (
    PartCache,
    Selection,
    is_large,
    load_commits,
    load_lean,
    load_whole,
)
from plait.storage.port import Store
from plait.timeline import paths

_LATE_MAX = 1_000
"""Rolled-back instants whose late files are looked for by the next cleans."""


@dataclass(frozen=True, slots=True)
class Late:
    """A rolled-back instant that may still write files; they are provably its own."""

    instant: str
    version: int
    partitions: tuple[Partition, ...]

    @property
    def nonce(self) -> str:
        """What the names of its files carry."""
        return self.instant.rsplit("-", 1)[-1]


@dataclass(frozen=True, slots=True)
class Reservation:
    """A place kept for an instant that is still open."""

    version: int
    """Of its decision: of two in one place the older goes first."""
    reserved: Reserved


@dataclass(frozen=True, slots=True)
class TableState:
    """The table at ``version``."""

    version: int
    checksum: str
    """Of the decision at this version: the next one names it."""
    completed_ms: int
    newest_time: str
    """The greatest instant time decided so far."""
    table: TableDef
    horizons: Horizons = field(default_factory=Horizons)
    late: tuple[Late, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    """Those whose holders are undecided, oldest first."""
    files: int = 0
    """How many files are live."""
    streams: Mapping[str, Position] = field(default_factory=dict)
    """The last token of each application that ever wrote: for ever, also where history is gone."""
    lineage: Lineage = field(default_factory=Lineage)
    """Savepoints, and what restores undid."""
    archive: Archived = field(default_factory=Archived)
    """Where old decisions are."""
    parts: tuple[Part, ...] = ()
    tail: tuple[LiveEntry, ...] = ()
    checkpoint: int = -1
    """The newest version that is known to have a checkpoint; -1 for none."""
    before_ms: int = field(default=-1, compare=False)
    """When the decision before this version was completed; -1 if this client did not see it."""
    loaded: list[Events] = field(default_factory=list, compare=False, repr=False)
    """A cell for all file events of the parts: filled at first use, shared by later states."""
    cache: PartCache = field(default_factory=PartCache, compare=False, repr=False)
    """What was loaded of parts that are not loaded whole."""
    seen: list[Folded] = field(default_factory=list, compare=False, repr=False)
    """A cell for all file events of this very version, folded."""

    @property
    def horizon(self) -> int:
        """The oldest version that can be read."""
        return self.horizons.oldest

    # --- from decisions --------------------------------------------------------------------

    @classmethod
    def create(cls, decision: Decision, *, where: str) -> TableState:
        """Return the state at version 0."""
        if decision.version != 0 or decision.table is None:
            message = f"{where} does not create a table"
            raise CorruptMetadataError(message, path=where)
        table = TableDef.from_dict(decision.table, where=where)
        return cls(
            0,
            decision.checksum,
            decision.completed_ms,
            decision.instant.time,
            table,
            files=_more_files(decision),
            streams=streams_after({}, decision),
            tail=(LiveEntry(0, decision),),
        )

    def apply(self, decision: Decision, *, where: str) -> TableState:
        """Return the state after one more decision; raise CorruptMetadataError out of order."""
        if decision.version != self.version + 1 or decision.previous != self.checksum:
            whole = self.checkpoint == self.version
            before = (paths.checkpoint if whole else paths.slot)(self.version)
            message = f"{where} does not continue {before}: one of the two was replaced"
            raise CorruptMetadataError(
                message,
                path=where,
                before=before,
                expected=self.checksum,
                found=decision.previous,
            )
        table = self.table
        if decision.table is not None:
            table = TableDef.from_dict(decision.table, where=where)
        late = self.late
        if decision.rolled_back:
            ended = [
                Late(str(each.instant), decision.version, each.partitions)
                for each in decision.rolled_back
            ]
            late = (*late, *ended)[-_LATE_MAX:]
        horizons = self.horizons
        if decision.cleaned is not None:
            horizons = horizons.after(decision.cleaned, decision.version, where=where)
            late = tuple(entry for entry in late if entry.version > horizons.oldest)
        return replace(
            self,
            version=decision.version,
            checksum=decision.checksum,
            completed_ms=decision.completed_ms,
            before_ms=self.completed_ms,
            newest_time=max(self.newest_time, decision.instant.time),
            table=table,
            horizons=horizons,
            late=late,
            reservations=_reservations(self.reservations, decision),
            files=self.files + _more_files(decision),
            streams=streams_after(self.streams, decision),
            lineage=self.lineage.apply(decision),
            archive=self.archive.after(decision, where=where),
            tail=(*self.tail, LiveEntry(decision.version, decision)),
            seen=[],
        )

    # --- files -----------------------------------------------------------------------------

    def folded(self, store: Store, *, bounds: bool = False) -> Folded:
        """Load what is not loaded yet, and bring all file events together.

        Of a large table the JSON of bounds is most of it: it is loaded for ``bounds`` alone, and
        not kept.
        """
        large = is_large(self.parts)
        if large and bounds:
            parts = [load_whole(store, part) for part in self.parts]
            return fold(Events.concat([*parts, gathered(self.tail)]))
        if not self.loaded:
            load = load_lean if large else load_whole
            parts = [load(store, part) for part in self.parts]
            self.loaded[:] = [Events.concat(parts)]  # not append: threads may come at once
        if not self.seen:
            recent = [entry.events for entry in self.tail]
            self.seen[:] = [fold(Events.concat([*self.loaded, *recent]))]
        return self.seen[0]

    def events(self, store: Store) -> Events:
        """Load all events, commits too."""
        tables = (*FILE_TABLES, *COMMIT_TABLES)
        parts = [recover_part(store, part, tables) for part in self.parts]
        return Events.concat([*parts, gathered(self.tail)])

    def snapshot(
        self, store: Store, *, version: int | None = None, wants: Wants | None = None
    ) -> Snapshot:
        """Return what a reader or writer at a version sees (INV-04).

        Of a large table only the files wanted are loaded, and no bounds but those wanted.

        Raises:
            InstantNotFoundError: the version is not there yet.
            InstantExpiredError: it was cleaned.
        """
        at = self.require_readable(version)
        schema_id, total = self._then(store, at)
        if wants is None or not is_large(self.parts):
            return self._with(at, schema_id, self.folded(store, bounds=True).live(at))
        known = self._with(at, schema_id, LIVE.empty_table())
        selection = Selection(store, self.cache, wants(known.spec))
        files = fold(selection.load(self.parts, gathered(self.tail))).live(at)
        unmatched = max(0, min(selection.unmatched, total - files.num_rows))
        return replace(known, files=files, total=total, unmatched=unmatched)

    def blank(self, store: Store | None = None, *, version: int | None = None) -> Snapshot:
        """Return a snapshot without files, for those who look at none: no file event is loaded."""
        at = self.require_readable(version)
        schema_id = self.table.spec.schema.id if store is None else self._then(store, at)[0]
        return self._with(at, schema_id, LIVE.empty_table())

    def _with(self, at: int, schema_id: int, files: pa.Table) -> Snapshot:
        table = self.table
        spec = replace(table.spec, schema=table.schemas[schema_id])
        return Snapshot(at, spec, dict(table.schemas), files)

    def _then(self, store: Store, version: int) -> tuple[int, int]:
        """Return the schema's id and the number of live files at a version, by one read."""
        if version == self.version:
            return self.table.spec.schema.id, self.files
        columns = ("version", "schema_id", "files")
        rows = self.commits(store, since=version - 1, columns=columns)
        at = pc.equal(rows["version"], version)
        listed, since = rows.filter(at), rows.filter(pc.invert(at))
        if listed.num_rows != 1:
            message = f"version {version} is listed {listed.num_rows} times"
            raise InvariantError(message)
        later = int(pc.sum(since["files"]).as_py() or 0)
        return int(listed["schema_id"][0].as_py()), self.files - later

    def require_readable(self, version: int | None, *, onwards: bool = False) -> int:
        """Refuse a version that is not there or no more; None is the newest. Return it.

        ``onwards``: the versions after it are needed too, so a savepoint is not enough.
        """
        at = self.version if version is None else version
        hint = f"versions {self.horizon} to {self.version} can be read"
        if not 0 <= at <= self.version:
            message = f"there is no version {at}"
            raise InstantNotFoundError(message, hint=hint, version=at)
        if at < self.horizon and (onwards or not self.lineage.keeps(at)):
            message = f"version {at} was cleaned"
            raise InstantExpiredError(message, hint=hint, version=at, oldest=self.horizon)
        return at

    # --- commits ---------------------------------------------------------------------------

    def commits(
        self, store: Store, *, since: int = -1, columns: Sequence[str] = tuple(COMMITS.names)
    ) -> pa.Table:
        """Load one row a decision after a version: COMMITS, oldest first.

        ``columns``: those that are looked at, ``version`` among them.
        """
        parts = [part for part in self.parts if part.last > since]
        tables = [
            load_commits(store, part, since=since, columns=columns, cache=self.cache)
            for part in parts
        ]
        tables.append(gathered([e for e in self.tail if e.version > since]).commits.select(columns))
        rows = pa.concat_tables(tables)
        return rows.filter(pc.greater(rows["version"], since))

    def recent(self, since: int) -> list[Decision] | None:
        """Return the decisions after a version, newest first, if they are all in memory."""
        decisions: list[Decision] = []
        for entry in reversed(self.tail):
            if entry.version <= since:
                return decisions
            if entry.decision is None:
                return None
            decisions.append(entry.decision)
        oldest = self.parts[-1].last if self.parts else -1
        return decisions if oldest <= since else None

    def find_commits(self, store: Store, commit_id: str) -> Iterator[int]:
        """Find the versions of a commit id, newest first; each part is loaded only if needed."""
        for rows in self._commits_backwards(store, "commit_id"):
            listed = rows.filter(pc.equal(rows["commit_id"], commit_id))
            yield from sorted(listed["version"].to_pylist(), reverse=True)

    def tokens(self, store: Store) -> pa.Table:
        """Load every token of every application, oldest first: TOKENS."""
        tables = [recover_part(store, part, ("tokens",)).tokens for part in self.parts]
        return pa.concat_tables([*tables, gathered(self.tail).tokens])

    def find_instant(self, store: Store, instant: Instant) -> int | None:
        """Find the version that an instant became, maybe under a later time than it began."""
        for rows in self._commits_backwards(store, "instant"):
            listed = rows.filter(pc.ends_with(rows["instant"], instant.nonce))
            if listed.num_rows:
                return int(listed["version"][0].as_py())
        return None

    def find_version_at(self, store: Store, time_ms: int) -> int | None:
        """Find the newest version completed at or before a time."""
        for rows in self._commits_backwards(store, "completed_ms"):
            listed = rows.filter(pc.less_equal(rows["completed_ms"], time_ms))
            if listed.num_rows:
                return int(pc.max(listed["version"]).as_py())
        return None

    def _commits_backwards(self, store: Store, column: str) -> Iterator[pa.Table]:
        columns = ("version", column)
        if self.tail:
            yield gathered(self.tail).commits.select(columns)
        for part in reversed(self.parts):
            yield load_commits(store, part, since=-1, columns=columns, cache=self.cache)

    # --- upkeep ----------------------------------------------------------------------------

    def squeezed(self) -> TableState:
        """Return the same state with a short tail, for long-lived clients: one table a kind."""
        shown = self.lineage.shown(self.horizons.final)
        events = compact(gathered(self.tail), shown=shown, oldest=not self.parts)
        return replace(self, tail=(LiveEntry(self.version, None, events),))


def _reservations(before: tuple[Reservation, ...], decision: Decision) -> tuple[Reservation, ...]:
    """Return the open ones after a decision, which may open one and end its instant's."""
    if decision.reserved is not None:
        return (*before, Reservation(decision.version, decision.reserved))
    if not before:
        return before
    ended = {decision.instant.nonce, *(each.instant.nonce for each in decision.rolled_back)}
    return tuple(each for each in before if each.reserved.holder.nonce not in ended)


def _more_files(decision: Decision) -> int:
    return int(decision.changes.added.num_rows) - int(decision.changes.removed.num_rows)
