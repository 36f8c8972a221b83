"""The table at a version: what follows from every decision up to it.

``TableState`` is frozen. Small things are values in it; files and commits are columnar events, in
parts (on storage, loaded when first needed) and a tail (since then).

Two questions are asked of it before every decision (RFC 0029). Does this client know what writers
must know? And may the table use what the decision uses? Each decision also tells the sums over the
files that are live after it (``statistics_after_decision``), which cost as much as its own changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from plait.definition.features import closed, refuse_unknown, unknown_of, usable
from plait.definition.table_def import TableDef, laid_out_with
from plait.errors import (
    CorruptMetadataError,
    FeatureError,
    InstantExpiredError,
    InstantNotFoundError,
    InvariantError,
)
from plait.model.changes import Changes
from plait.model.decision import Decision, TableStatistics
from plait.model.instant import Instant
from plait.model.plan import LIVE, Snapshot
from plait.model.stream import Position
from plait.read.plan import FileFilter
from plait.state.checkpoint_verification import CheckpointVerification, read_decided
from plait.state.events import (
    COMMITS,
    Events,
    Folded,
    LiveEntry,
    compact,
    fold,
    tail_events,
    with_first_versions,
)
from plait.state.lineage import (
    Archived,
    Horizons,
    LateInstant,
    Lineage,
    Reservation,
    late_after,
    reservations_after,
    streams_after,
)
from plait.state.parts import COMMIT_TABLES, FILE_TABLES, Part, recover_part
from plait.state.selected import (
    PartCache,
    Selection,
    is_large,
    load_commits,
    load_lean,
    load_named,
    load_whole,
    named,
)
from plait.state.statistics import (
    changed_files,
    changed_paths,
    changed_places,
    statistics_after,
    statistics_of,
)
from plait.storage.port import Store
from plait.timeline import paths


@dataclass(frozen=True, slots=True)
class TableState:
    """The table at ``version``."""

    version: int
    checksum: str
    """Checksum of the decision at this version; the next decision names it."""
    completed_ms: int
    newest_time: str
    """The greatest instant time decided so far."""
    table: TableDef
    horizons: Horizons = field(default_factory=Horizons)
    late: tuple[LateInstant, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    """Reservations whose holders are undecided, oldest first."""
    files: int = 0
    """Number of live files."""
    streams: Mapping[str, Position] = field(default_factory=dict)
    """The last token of each application that ever wrote; kept even when its history is gone."""
    lineage: Lineage = field(default_factory=Lineage)
    """Savepoints, and what restores undid."""
    archive: Archived = field(default_factory=Archived)
    """Where old decisions are."""
    writer_features: tuple[str, ...] = ()
    """Features that a writer must know, besides those that a reader must know."""
    live: TableStatistics | None = field(default=None, compare=False)
    """Table statistics as the decision records them; None if unknown, or not read yet."""
    parts: tuple[Part, ...] = ()
    tail: tuple[LiveEntry, ...] = ()
    checkpoint: int = -1
    """The newest version that is known to have a checkpoint; -1 for none."""
    before_ms: int = field(default=-1, compare=False)
    """When the decision before this version was completed; -1 if this client did not see it."""
    loaded: list[Events] = field(default_factory=list, compare=False, repr=False)
    """A cell for all file events of the parts: filled at first use, shared by later states."""
    cache: PartCache = field(default_factory=PartCache, compare=False, repr=False)
    """Pieces of parts that are too large to be loaded whole."""
    verification: CheckpointVerification = field(
        default_factory=CheckpointVerification, compare=False, repr=False
    )
    """Whether the checkpoint's parts agree with the statistics of decisions."""
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
            raise CorruptMetadataError(f"{where} does not create a table", path=where)
        table = TableDef.from_dict(decision.table, where=where)
        return cls(
            0,
            decision.checksum,
            decision.completed_ms,
            decision.instant.time,
            table,
            files=_more_files(decision),
            live=decision.live,
            streams=streams_after({}, decision),
            writer_features=decision.writer_features,
            tail=(LiveEntry(0, decision),),
        )

    def apply(self, decision: Decision, *, where: str) -> TableState:
        """Return the state after one more decision; raise CorruptMetadataError out of order."""
        # Each decision names the checksum of the one before. So a decision of another table, or one
        # that was replaced, is found here, before anything is built on it (INV-01, INV-02).
        if decision.version != self.version + 1 or decision.previous != self.checksum:
            whole = self.checkpoint == self.version
            before = (paths.checkpoint if whole else paths.slot)(self.version)
            raise CorruptMetadataError(
                f"{where} does not continue {before}: one of the two was replaced",
                path=where,
                before=before,
                expected=self.checksum,
                found=decision.previous,
            )
        table = self.table
        if decision.table is not None:
            table = TableDef.from_dict(decision.table, where=where)
        late = late_after(self.late, decision)
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
            reservations=reservations_after(self.reservations, decision),
            files=decision.live.files if decision.live else self.files + _more_files(decision),
            live=decision.live,
            streams=streams_after(self.streams, decision),
            lineage=self.lineage.apply(decision),
            archive=self.archive.after(decision, where=where),
            writer_features=decision.writer_features,
            tail=(*self.tail, LiveEntry(decision.version, decision)),
            seen=[],
        )

    # --- files -----------------------------------------------------------------------------

    def folded(self, store: Store, *versions: int, bounds: bool = False) -> Folded:
        """Load what is not loaded yet, and bring all file events together.

        Of a large table the JSON of bounds is most of it: it is loaded for ``bounds`` alone, and
        not kept. What was live at the newest version is compared with the sums of its decision
        (INV-11), and likewise at ``versions``.
        """
        folded = self._folded(store, bounds=bounds)
        for at in versions:
            recorded = (
                self.verification.recorded_at(store, at)
                if self.parts and at != self.version
                else None
            )
            if recorded is None or self.verification.agrees(
                statistics_of(folded.live(at)), recorded, self.parts
            ):
                continue
            # The parts disagree with a decision: drop what came from them. `verification.wrong` is
            # set now, and what follows reads the decisions (INV-11).
            self.loaded.clear()
            self.seen.clear()
            return self._folded(store, bounds=bounds)
        return folded

    def _folded(self, store: Store, *, bounds: bool) -> Folded:
        if bounds and self._large:
            parts = [load_whole(store, part) for part in self.parts]
            folded = fold(Events.concat([*parts, tail_events(self.tail)]))
            if self._agrees(store, folded):
                return folded
        if not self.loaded:
            self.loaded[:] = [self._load(store)]  # not append: threads may come at once
        if not self.seen:
            recent = [entry.events for entry in self.tail]
            folded = fold(Events.concat([*self.loaded, *recent]))
            # Compare before anyone sees the result. A checkpoint that is whole but wrong must cost
            # time only; without this look its files would be served as the table (INV-04, INV-11).
            if not self._agrees(store, folded):
                self.loaded[:] = [read_decided(store, self.parts)]
                folded = fold(Events.concat([*self.loaded, *recent]))
            self.seen[:] = [folded]
        return self.seen[0]

    def _load(self, store: Store) -> Events:
        if self.verification.wrong:
            return read_decided(store, self.parts)
        load = load_lean if self._large else load_whole
        return Events.concat([load(store, part) for part in self.parts])

    @property
    def _large(self) -> bool:
        return bool(self.parts) and is_large(self.parts) and not self.verification.wrong

    def _agrees(self, store: Store, folded: Folded) -> bool:
        """Compare all live files with what the decision at this version sums up, once."""
        if not self.parts or self.verification.finished:
            return True
        recorded = self._recorded_statistics(store)
        if recorded is not None:
            found = statistics_of(folded.live(self.version))
            if not self.verification.agrees(found, recorded, self.parts):
                return False
        self.verification.finished = True
        return True

    def _recorded_statistics(self, store: Store) -> TableStatistics | None:
        """Return what the decision at this version sums up; None if it does not tell."""
        return self.live if self.live or self.tail else self.verification.base_of(store, self.parts)

    def events(self, store: Store) -> Events:
        """Load all events, commits too."""
        self.folded(store)
        if self.verification.wrong:
            return Events.concat([read_decided(store, self.parts), tail_events(self.tail)])
        tables = (*FILE_TABLES, *COMMIT_TABLES)
        parts = [recover_part(store, part, tables) for part in self.parts]
        return Events.concat([*parts, tail_events(self.tail)])

    def snapshot(
        self, store: Store, *, version: int | None = None, file_filter: FileFilter | None = None
    ) -> Snapshot:
        """Return what a reader or writer at a version sees (INV-04).

        Of a large table only the files wanted are loaded, and no bounds but those wanted.

        Raises:
            InstantNotFoundError: the version is not there yet.
            InstantExpiredError: it was cleaned.
        """
        at = self.require_readable(version)
        schema_id, total = self._then(store, at)
        if file_filter is None or not self._large:
            folded = self.folded(store, at, bounds=True)
            return self._with(at, schema_id, self._live(folded, at))
        known = self._with(at, schema_id, LIVE.empty_table())
        # Partition values are texts that mean something only under the layout that wrote them, so
        # the selection is told which versions share the layout of the one that is asked for.
        selection = Selection(
            store, self.cache, file_filter(known.spec), laid_out_with(self.table, at)
        )
        folded = fold(selection.load(self.parts, tail_events(self.tail)))
        if not self._selection_agrees(store, selection, folded):
            return self.snapshot(store, version=version, file_filter=file_filter)
        files = self._live(folded, at)
        unmatched = max(0, min(selection.unmatched, total - files.num_rows))
        return replace(known, files=files, total=total, unmatched=unmatched)

    def _live(self, folded: Folded, version: int) -> pa.Table:
        """Return what is live at a version; files that were added again are rare."""
        files = folded.live(version)
        return with_first_versions(files, folded.files) if files_returned(self) else files

    def _selection_agrees(self, store: Store, selection: Selection, folded: Folded) -> bool:
        """Compare the files selected with what the parts and their decision sum up."""
        if selection.total is None:  # a damaged table of places: all files are compared
            self.folded(store)
            return not self.verification.wrong
        recorded = self.verification.base_of(store, self.parts)
        if recorded is None or self.verification.finished:
            return True
        if not self.verification.agrees(selection.total, recorded, self.parts):
            return False
        if selection.chosen is None:
            return True
        found = statistics_of(folded.live(self.parts[-1].last))
        return self.verification.agrees(found, selection.chosen, self.parts)

    def blank(self, store: Store | None = None, *, version: int | None = None) -> Snapshot:
        """Return a snapshot without files, for those who look at none: no file event is loaded."""
        at = self.require_readable(version)
        schema_id = self.table.spec.schema.id if store is None else self._then(store, at)[0]
        return self._with(at, schema_id, LIVE.empty_table())

    def _with(self, at: int, schema_id: int, files: pa.Table) -> Snapshot:
        table = self.table
        spec = table.spec_at(at, schema_id)
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
            raise InvariantError(f"version {version} is listed {listed.num_rows} times")
        later = int(pc.sum(since["files"]).as_py() or 0)
        return int(listed["schema_id"][0].as_py()), self.files - later

    def require_readable(self, version: int | None, *, onwards: bool = False) -> int:
        """Refuse a version that is not there or no more; None is the newest. Return it.

        ``onwards``: the versions after it are needed too, so a savepoint is not enough.
        """
        at, oldest = self.version if version is None else version, self.horizons.oldest
        if oldest <= at == self.version:
            return at
        hint = f"versions {oldest} to {self.version} can be read"
        if not 0 <= at <= self.version:
            raise InstantNotFoundError(f"there is no version {at}", hint=hint, version=at)
        if at < oldest and (onwards or at not in (*self.table.kept, *self.lineage.saved)):
            message = f"version {at} was cleaned"
            if at >= self.horizons.final:
                hint = f"{hint}; `tablectl clean --undo` makes it readable again"
            raise InstantExpiredError(message, hint=hint, version=at, oldest=oldest)
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
        tables.append(
            tail_events([e for e in self.tail if e.version > since]).commits.select(columns)
        )
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
        # The tail starts right after the parts; what is older is not in memory.
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
        return pa.concat_tables([*tables, tail_events(self.tail).tokens])

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
            yield tail_events(self.tail).commits.select(columns)
        for part in reversed(self.parts):
            yield load_commits(store, part, since=-1, columns=columns, cache=self.cache)

    # --- upkeep ----------------------------------------------------------------------------

    def squeezed(self) -> TableState:
        """Return the same state with a short tail, for long-lived clients: one table a kind."""
        shown = self.lineage.readable(self.horizons.final, self.table.kept)
        events = compact(tail_events(self.tail), shown=shown, oldest=not self.parts)
        return replace(self, tail=(LiveEntry(self.version, None, events),))


def files_returned(state: TableState) -> bool:
    """Tell whether files may have been added again: by a restore, or by the undo of a repush."""
    return bool(state.lineage.restores) or len(state.table.former) > 1


def _more_files(decision: Decision) -> int:
    return int(decision.changes.added.num_rows) - int(decision.changes.removed.num_rows)


def require_writable(state: TableState) -> None:
    """Raise UnsupportedFeatureError if writers must know what this client does not."""
    unknown = [*unknown_of(state.writer_features), *map("property {}".format, state.table.strange)]
    if unknown:
        refuse_unknown(unknown, path=paths.slot(state.version))


def features_in_use(state: TableState, table: TableDef | None = None) -> tuple[str, ...]:
    """Return the features that a state uses, or that it would with another definition."""
    defined = state.table if table is None else table
    return (*state.lineage.features, *state.archive.features, *defined.features)


def usable_features(state: TableState) -> tuple[str, ...]:
    """Return what a table may use, beside what every client knows."""
    table = state.table
    return closed(usable(features_in_use(state), table.allowed, table.upgrades))


def may_use(state: TableState, feature: str) -> bool:
    """Tell whether a table may use a feature."""
    return feature in usable_features(state)


def require_usable(state: TableState, used: Collection[str], table: TableDef | None = None) -> None:
    """Refuse a decision that uses what the table may not use.

    Args:
        state: what it comes after.
        used: the features that it uses.
        table: the definition that it sets.

    Raises:
        FeatureError: with the names; nothing was written.
    """
    defined, before = state.table if table is None else table, features_in_use(state)
    may = {*before, *usable(before, defined.allowed, defined.upgrades)}
    off = [name for name in closed(used) if name not in may]
    if off:
        message = f"this needs {', '.join(off)}, which the table may not use"
        hint = f"`tablectl upgrade URI --features {off[0]}` allows it, and refuses older writers"
        raise FeatureError(message, hint=hint, features=off)


def statistics_after_decision(store: Store, state: TableState, changes: Changes) -> TableStatistics:
    """Return the sums after the decision that follows a state: the cost is that of its changes.

    If the decision before does not tell its sums, all live files are summed up.

    Raises:
        CorruptMetadataError: the state is damaged, and so are its decisions.
    """
    before = state.live
    if before is None and not state.tail:
        before = state.verification.base_of(store, state.parts)
    if before is None:
        before = statistics_of(state.folded(store).live(state.version))
    if not (changes.added.num_rows or changes.removed.num_rows or changes.masked.num_rows):
        return before  # as of a clean, which deletes files that are live no more
    # Only the files that change are looked up: the statistics of the version before cover the
    # others. So a commit costs the same in a table of any size.
    known = _live_of(store, state, changed_paths(changes))
    return statistics_after(before, *changed_files(known, changes, state.version + 1))


def tail_places(store: Store, state: TableState) -> pa.Table:
    """Return how the decisions after the parts changed the sums over live files (PLACES).

    Raises:
        CorruptMetadataError: the state is damaged, and so are its decisions.
    """
    events = tail_events(state.tail)
    touched = [events.added["path"], events.removed["path"], events.masked["path"]]
    chunks = [chunk for each in touched for chunk in each.chunks]
    names = pa.chunked_array(chunks, pa.string()).unique()
    before, after = LIVE.empty_table(), _live_of(store, state, names)
    if state.parts:
        older = named_events(store, state, names, recent=False)
        before = fold(older).live(state.parts[-1].last)
    return changed_places(before, after)


def _live_of(store: Store, state: TableState, names: pa.Array) -> pa.Table:
    """Load those of some files that are live (LIVE)."""
    if not len(names):
        return LIVE.empty_table()
    if state.seen:
        return state.seen[0].named(names).live(state.version)
    return fold(named_events(store, state, names)).live(state.version)


def named_events(
    store: Store,
    state: TableState,
    names: pa.Array,
    *,
    recent: bool = True,
    bounds: bool = False,
) -> Events:
    """Load what is known of some files, and of a large table not much more.

    Args:
        store: the table's.
        state: of the table.
        names: paths of data files.
        recent: whether the decisions after the parts count too.
        bounds: whether the JSON of bounds is needed, which a large table does not keep in memory.
    """
    large = is_large(state.parts) and not state.verification.wrong
    if large and (bounds or not state.loaded):
        known = [load_named(store, part, names, state.cache, cold=bounds) for part in state.parts]
    else:
        if not state.loaded:
            state.folded(store)
        known = [named(state.loaded[0], names)]
    tail = [named(tail_events(state.tail), names)] if recent else []
    return Events.concat([Events(), *known, *tail])
