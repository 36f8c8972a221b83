"""The table at a version: what follows from every decision up to it.

``TableState`` is frozen. Small things are values in it; files and commits are columnar events, in
parts (on storage, loaded when first needed) and a tail (since then).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import (
    CorruptMetadataError,
    InstantExpiredError,
    InstantNotFoundError,
    InvariantError,
)
from plait.model.bucket import BucketId, BucketSpec, Partition, partition_text
from plait.model.contract import Contract, Options
from plait.model.decision import Decision, Reserved
from plait.model.instant import Instant
from plait.model.plan import COW, MOR, Snapshot, TableSpec
from plait.model.schema import Schema
from plait.model.stream import Position
from plait.state.events import Events, Folded, LiveEntry, compact, fold, gathered
from plait.state.horizons import Horizons
from plait.state.parts import COMMIT_TABLES, FILE_TABLES, Part, recover_part
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
class TableDef:
    """What table-level decisions set, whole."""

    spec: TableSpec
    schemas: Mapping[int, Schema]
    contract: Contract
    options: Options
    policy: str
    isolation: str
    unique: str

    def to_dict(self) -> dict[str, object]:
        """Write it as JSON values, the form in decisions and checkpoints."""
        spec = self.spec
        return {
            "schemas": [schema.to_dict() for schema in self.schemas.values()],
            "schema_id": spec.schema.id,
            "partition_by": list(spec.partition_by),
            "bucket_spec": {
                "id": spec.buckets.id,
                "key": list(spec.buckets.key),
                "count": spec.buckets.count,
            },
            "ordering": spec.ordering,
            "table_type": spec.table_type,
            "contract": self.contract.to_dict(),
            "policy": self.policy,
            "isolation": self.isolation,
            "unique": self.unique,
            "properties": self.options.to_dict(),
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, object], *, where: str) -> TableDef:
        """Read what ``to_dict`` wrote; raise CorruptMetadataError for anything else."""
        try:
            schemas = {s.id: s for s in map(Schema.from_dict, _items(value["schemas"]))}
            if any(len(set(s.names)) < len(s.names) for s in schemas.values()):
                message = "a schema names a column twice"
                raise ValueError(message)
            bucket = value["bucket_spec"]
            contract = value["contract"]
            properties = value["properties"]
            if not (
                isinstance(bucket, dict)
                and isinstance(contract, dict)
                and isinstance(properties, dict)
            ):
                raise TypeError(value)
            key = tuple(str(name) for name in _items(bucket["key"]))
            ordering = value["ordering"]
            spec = TableSpec(
                schemas[int(str(value["schema_id"]))],
                tuple(str(name) for name in _items(value["partition_by"])),
                BucketSpec(int(bucket["id"]), key, int(bucket["count"])),
                None if ordering is None else str(ordering),
                str(value["table_type"]),
            )
            _check_spec(spec)
            contract = Contract(**{str(k): str(v) for k, v in contract.items()})
            words = [str(value[name]) for name in ("policy", "isolation", "unique")]
            return cls(spec, schemas, contract, Options.of(properties), *words)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            message = f"{where} does not define a table: {type(error).__name__}: {error}"
            raise CorruptMetadataError(message, path=where) from error


def _check_spec(spec: TableSpec) -> None:
    ordering = [] if spec.ordering is None else [spec.ordering]
    strange = {*spec.key, *spec.partition_by, *ordering} - set(spec.schema.names)
    buckets = spec.buckets.count
    if strange or spec.table_type not in (COW, MOR) or (spec.keyed and buckets < 1):
        message = f"columns {sorted(strange)}, {buckets} buckets, type {spec.table_type!r}"
        raise ValueError(message)


def _items(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(value)
    return value


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
    streams: Mapping[str, Position] = field(default_factory=dict)
    """The last token of each application that ever wrote: for ever, also where history is gone."""
    parts: tuple[Part, ...] = ()
    tail: tuple[LiveEntry, ...] = ()
    checkpoint: int = -1
    """The newest version that is known to have a checkpoint; -1 for none."""
    before_ms: int = field(default=-1, compare=False)
    """When the decision before this version was completed; -1 if this client did not see it."""
    loaded: list[Events] = field(default_factory=list, compare=False, repr=False)
    """A cell for the file events of the parts: filled at first use, shared by later states."""
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
            streams=_streams({}, decision),
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
            streams=_streams(self.streams, decision),
            tail=(*self.tail, LiveEntry(decision.version, decision)),
            seen=[],
        )

    # --- files -----------------------------------------------------------------------------

    def folded(self, store: Store) -> Folded:
        """Load what is not loaded yet, and bring all file events together."""
        if not self.loaded:
            parts = [recover_part(store, part, FILE_TABLES) for part in self.parts]
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
        self,
        store: Store,
        *,
        version: int | None = None,
        buckets: frozenset[BucketId] | None = None,
    ) -> Snapshot:
        """Return what a reader or writer at a version sees (INV-04).

        Raises:
            InstantNotFoundError: the version is not there yet.
            InstantExpiredError: it was cleaned.
        """
        at = self.version if version is None else version
        self.require_readable(at)
        files = self.folded(store).live(at)
        if buckets is not None:
            files = _of_buckets(files, buckets)
        table = self.table
        spec = table.spec
        if at != self.version:
            spec = replace(spec, schema=table.schemas[self._schema_id(store, at)])
        return Snapshot(at, spec, dict(table.schemas), files)

    def blank(self) -> Snapshot:
        """Return a snapshot without files, for writers that look at none: nothing is loaded."""
        return Snapshot(self.version, self.table.spec, dict(self.table.schemas))

    def _schema_id(self, store: Store, version: int) -> int:
        rows = self.commits(store)
        listed = rows.filter(pc.equal(rows["version"], version))
        if listed.num_rows != 1:
            message = f"version {version} is listed {listed.num_rows} times"
            raise InvariantError(message)
        return int(listed["schema_id"][0].as_py())

    def require_readable(self, version: int) -> None:
        """Refuse a version that is not there or no more."""
        if not 0 <= version <= self.version:
            message = f"there is no version {version}"
            hint = f"versions {self.horizon} to {self.version} can be read"
            raise InstantNotFoundError(message, hint=hint, version=version)
        if version < self.horizon:
            message = f"version {version} was cleaned"
            hint = f"versions {self.horizon} to {self.version} can be read"
            raise InstantExpiredError(message, hint=hint, version=version, oldest=self.horizon)

    # --- commits ---------------------------------------------------------------------------

    def commits(self, store: Store, *, since: int = -1) -> pa.Table:
        """Load one row a decision after a version: COMMITS, oldest first."""
        parts = [part for part in self.parts if part.last > since]
        tables = [recover_part(store, part, ("commits",)).commits for part in parts]
        tables.append(gathered([e for e in self.tail if e.version > since]).commits)
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

    def find_commit(self, store: Store, commit_id: str) -> int | None:
        """Find the version of a commit id; newest parts first, each loaded only if needed."""
        for rows in self._commits_backwards(store):
            listed = rows.filter(pc.equal(rows["commit_id"], commit_id))
            if listed.num_rows:
                return int(listed["version"][0].as_py())
        return None

    def tokens(self, store: Store) -> pa.Table:
        """Load every token of every application, oldest first: TOKENS."""
        tables = [recover_part(store, part, ("tokens",)).tokens for part in self.parts]
        return pa.concat_tables([*tables, gathered(self.tail).tokens])

    def find_instant(self, store: Store, instant: Instant) -> int | None:
        """Find the version that an instant became, maybe under a later time than it began."""
        for rows in self._commits_backwards(store):
            listed = rows.filter(pc.ends_with(rows["instant"], instant.nonce))
            if listed.num_rows:
                return int(listed["version"][0].as_py())
        return None

    def find_version_at(self, store: Store, time_ms: int) -> int | None:
        """Find the newest version completed at or before a time."""
        for rows in self._commits_backwards(store):
            listed = rows.filter(pc.less_equal(rows["completed_ms"], time_ms))
            if listed.num_rows:
                return int(pc.max(listed["version"]).as_py())
        return None

    def _commits_backwards(self, store: Store) -> Iterator[pa.Table]:
        if self.tail:
            yield gathered(self.tail).commits
        for part in reversed(self.parts):
            yield recover_part(store, part, ("commits",)).commits

    # --- upkeep ----------------------------------------------------------------------------

    def squeezed(self) -> TableState:
        """Return the same state with a short tail, for long-lived clients: one table a kind."""
        events = compact(gathered(self.tail), horizon=self.horizons.final, oldest=not self.parts)
        return replace(self, tail=(LiveEntry(self.version, None, events),))


def _reservations(before: tuple[Reservation, ...], decision: Decision) -> tuple[Reservation, ...]:
    """Return the open ones after a decision, which may open one and end its instant's."""
    if decision.reserved is not None:
        return (*before, Reservation(decision.version, decision.reserved))
    if not before:
        return before
    ended = {decision.instant.nonce, *(each.instant.nonce for each in decision.rolled_back)}
    return tuple(each for each in before if each.reserved.holder.nonce not in ended)


def _streams(before: Mapping[str, Position], decision: Decision) -> Mapping[str, Position]:
    if not decision.tokens:
        return before
    fresh = {t.application: Position(t, decision.version) for t in decision.tokens}
    return {**before, **fresh}


def _of_buckets(files: pa.Table, buckets: frozenset[BucketId]) -> pa.Table:
    wanted = {(partition_text(partition), bucket) for partition, bucket in buckets}
    texts = pa.array(sorted({partition for partition, _ in wanted}), pa.string())
    near = files.filter(pc.is_in(files["partition"], value_set=texts))
    pairs = zip(near["partition"].to_pylist(), near["bucket"].to_pylist(), strict=True)
    return near.filter(pa.array([pair in wanted for pair in pairs], pa.bool_()))
