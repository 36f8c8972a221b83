"""Runs a history under the scheduler, and keeps all that can be seen of it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from plait import Table, Ttl
from plait.definition.create import define_table
from plait.errors import InstantExpiredError, TableError
from plait.files.deletion import decode
from plait.locks.process import NoLock
from plait.model.decision import Decision
from plait.model.schema import WRITTEN_COLUMN, WRITTEN_OPTION
from plait.read.change_scan import TYPE, VERSION
from plait.state.cache import StateCache
from plait.storage.memory import MemoryStore
from plait.storage.port import Store
from plait.testing import ManualBackground, SeqIds, SimClock, sim_ports
from plait.timeline import paths
from plait.txn.table_decisions import create_table
from plait.txn.table_handle import TableHandle
from tests.differential.acts import TIMED, Ledger, Told, apply, client, count_of, rows_of
from tests.differential.model import in_order
from tests.differential.program import COLUMNS, Do, History, Row, Shape
from tests.differential.serve import look
from tests.interleave.publishing import Placed, client_of
from tests.scheduler import End, Oracle, Problem, Scenario, Start
from tests.scheduler.memo import Memo, MemoTimeline
from tests.scheduler.oracle import Watch
from tests.scheduler.points import Strategy
from tests.scheduler.world import Call
from tests.support.published import UnreadableError, published

SILENCE_S = 121.0
"""Longer than a heartbeat may be silent."""
_STARTS = itertools.count()


@dataclass(frozen=True, slots=True)
class Version:
    """One decision, as everybody can see it."""

    number: int
    rows: tuple[Row, ...]
    """Read while it was the head."""
    time: str
    nonce: str
    operation: str
    began: int
    commit_id: str | None
    carried: bool = False
    """Whether what it staged was carried over rewrites, or over writers."""
    checksum: str = ""
    epoch: int | None = None
    """Of the stream."""
    restored: int | None = None
    """The version whose rows a restore gave back."""
    allowed: tuple[str, ...] = ()
    """Commit ids that a replay lets be used again."""
    back: int | None = None
    """The epoch after which a replay lets the stream go on; -1: from its beginning."""
    saved: int | None = None
    """The version that a savepoint keeps readable."""
    restaged: bool = False
    """Whether a repush swapped in the middle, so that everything was staged once more."""

    def of(self, told: Told, prefix: str) -> bool:
        """Tell whether a turn of the client with these nonces decided it."""
        if not self.nonce.startswith(prefix):
            return False
        number = count_of(self.nonce)
        return told.first < number and (told.ended < 0 or number < told.last)


@dataclass(frozen=True, slots=True)
class Change:
    """One row of the change feed."""

    kind: str
    version: int
    row: Row


@dataclass(slots=True)
class Evidence:
    """All that a history showed."""

    history: History
    first: int = 0
    """The first version that the clients could decide."""
    versions: list[Version] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    hurt: frozenset[str] = frozenset()
    """Clients to whose calls something happened."""
    prefixes: dict[str, str] = field(default_factory=dict)
    """How the nonces of each client begin."""
    later: dict[int, tuple[Row, ...]] = field(default_factory=dict)
    """Versions as they were read at the end."""
    expired: int = 0
    """The oldest version that could be read at the end, if some had been cleaned."""
    changes: list[Change] = field(default_factory=list)
    written: list[tuple[Row, int]] = field(default_factory=list)
    """The rows at the end, each with the version that wrote it, where the table tells."""
    decided: list[str] = field(default_factory=list)
    """The checksums of all decisions as they were read at the end, from slots or the archive."""
    damage: list[str] = field(default_factory=list)
    """What could not be read, and errors that are none of ours."""
    schedule: tuple[tuple[str, str], ...] = ()
    published: list[tuple[str, int, tuple[Row, ...]]] = field(default_factory=list)
    """What readers of other formats see at the end: the file, the version, and its rows."""
    indexed: bool = False
    """Whether the table had a record index at the end, and a look-up asked it."""


@dataclass(slots=True)
class _File:
    """A data file that readers see, and which of its rows are hidden."""

    rows: tuple[Row, ...]
    hidden: frozenset[int] = frozenset()


@dataclass(slots=True)
class _Looker:
    """Reads each version while it is the head: slots, Parquet files and masks, nothing else.

    It shares the decoding of a slot and of a mask with the code under test, and no reasoning.
    """

    store: Store
    memo: Memo
    versions: list[Version] = field(default_factory=list)
    files: dict[str, _File] = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)

    def again(self, store: Store) -> _Looker:
        """Go on in a copy of the store."""
        return _Looker(store, self.memo, list(self.versions), dict(self.files))

    def look(self) -> Version:
        """Read the next version."""
        decision = MemoTimeline(self.store, self.memo).find(len(self.versions))
        assert decision is not None
        changes = decision.changes
        for path in (*changes.removed["path"].to_pylist(), *changes.masked["path"].to_pylist()):
            if path not in {*self.files, *changes.added["path"].to_pylist()}:
                self.damage.append(f"version {decision.version} changes {path}, which is not live")
        for path in changes.removed["path"].to_pylist():
            self.files.pop(path, None)
        for path in changes.added["path"].to_pylist():
            self.files[path] = _File(self._load(path))
        for mask in changes.masked.to_pylist():
            file = self.files.get(mask["path"])
            if file is None:
                continue
            self.files[mask["path"]] = _File(file.rows, self._hidden(mask, len(file.rows)))
        rows = in_order(
            row
            for file in self.files.values()
            for at, row in enumerate(file.rows)
            if at not in file.hidden
        )
        found = _version_of(decision, rows)
        self.versions.append(found)
        return found

    def _load(self, path: str) -> tuple[Row, ...]:
        body = self.store.find(path)
        assert body is not None, f"{path} is named and not there"
        data = pq.read_table(pa.BufferReader(body), columns=list(COLUMNS)).to_pydict()
        return tuple(zip(*(data[name] for name in COLUMNS), strict=True))

    def _hidden(self, mask: Mapping[str, Any], rows: int) -> frozenset[int]:
        if not mask["rows"]:  # a restore shows a file whole again
            return frozenset()
        vector = mask["inline"] or self._vector(mask)
        return frozenset(decode(vector, count=mask["rows"], rows=rows).tolist())

    def _vector(self, mask: Mapping[str, Any]) -> bytes:
        body = self.store.find(mask["dv_path"])
        assert body is not None, f"{mask['dv_path']} is named and not there"
        begin = mask["dv_offset"] + 4
        return body[begin : begin + mask["dv_bytes"]]


def _version_of(decision: Decision, rows: tuple[Row, ...]) -> Version:
    """Take from a decision what it says beside its rows."""
    began = decision.client.get("began", decision.base)
    assert isinstance(began, int)
    replayed, restored, saved = decision.replayed, decision.restored, decision.savepoint
    applications = () if replayed is None else replayed.applications
    back = [-1 if each.token is None else each.token.epoch for each in applications]
    return Version(
        decision.version,
        rows,
        decision.instant.time,
        decision.instant.nonce,
        decision.operation.value,
        began,
        decision.commit_id,
        "carried" in decision.client,
        decision.checksum,
        next((token.epoch for token in decision.tokens), None),
        None if restored is None else restored.to,
        () if replayed is None else replayed.commit_ids,
        back[0] if back else None,
        None if saved is None else saved.savepoint.version,
        "restaged" in decision.client,
    )


class _Heads(Watch):
    """Notes each version when it is published."""

    def __init__(self, store: Store, looker: _Looker, ledger: Ledger) -> None:
        self._looker, self._ledger = looker, ledger

    def before_write(self, call: Call) -> None:
        """Nothing is asked of a call."""

    def after_write(self, call: Call, answer: object) -> None:
        """Read what is the head now."""
        if answer is not False and call.path == paths.slot(len(self._looker.versions)):
            self._ledger.head = self._looker.look().number


@dataclass(frozen=True, slots=True)
class _Beginning:
    """A table that was made once for all histories that begin with it."""

    start: Start
    looker: _Looker


@dataclass(frozen=True, slots=True, eq=False)
class _Recorder(Oracle):
    """Judges nothing: it keeps what there is to see, for a judge of its own."""

    beginning: _Beginning = field(kw_only=True)
    evidence: Evidence = field(kw_only=True)
    ledger: Ledger = field(kw_only=True)

    @classmethod
    def of(cls, history: History, beginning: _Beginning) -> Self:
        first = len(beginning.start.states)
        return cls(beginning=beginning, evidence=Evidence(history, first), ledger=Ledger(first - 1))

    def watch(self, store: Store, memo: Memo) -> Watch:
        looker = self.beginning.looker.again(store)
        self.evidence.versions, self.evidence.damage = looker.versions, looker.damage
        return _Heads(store, looker, self.ledger)

    def judge(self, end: End, watch: Watch, check: Callable[[End], None] | None) -> list[Problem]:
        found = self.evidence
        found.told = self.ledger.told
        found.hurt = frozenset(
            name for name, each in end.outcomes.items() if each.hurt or each.crashed
        )
        found.prefixes = {name: each.nonces for name, each in end.outcomes.items()}
        found.schedule = end.moves
        for name, each in end.outcomes.items():
            if each.error is not None and not each.crashed:
                found.damage.append(f"{name} ended with {each.error!r}")
        try:
            self._read(end.handle())
        except (TableError, AssertionError) as error:
            found.damage.append(f"reading at the end raised {error!r}")
        return []

    def _read(self, handle: TableHandle) -> None:
        """Read everything again as a client that comes long after."""
        found, table = self.evidence, Table(handle)
        decisions = handle.cache.timeline.load_after(-1, limit=len(found.versions))
        found.decided = [decision.checksum for decision in decisions]
        for version in found.versions[found.first :]:
            try:
                found.later[version.number] = rows_of(table.scan(version=version.number))
            except InstantExpiredError:
                continue
        found.written = self._written(table)
        self._see(handle.store)
        if not all(each.remedy for each in table.alter.downgrade(to=(), dry_run=True).uses):
            found.damage.append("a feature is used, and nothing is told that gets rid of it")
        if table._handle.cache.known().table.index is not None:
            found.indexed = look(table)
        feed = self._feed(table)
        rows = zip(*(feed[name] for name in COLUMNS), strict=True)
        found.changes = [
            Change(kind, number, row)
            for kind, number, row in zip(feed[TYPE], feed[VERSION], rows, strict=True)
        ]

    def _see(self, store: Store) -> None:
        """Read what is published, as an engine does."""
        every = list(published(store))
        last = every[-1][0] if every else ""  # by rising numbers, those of Iceberg in the end
        for name, shown in every:
            try:
                if isinstance(shown, UnreadableError):
                    raise shown
                rows = in_order(shown.rows(store, COLUMNS))  # type: ignore[arg-type]  # these columns
            except UnreadableError as error:
                # A publisher that slept through a clean may put an old number back.
                if not name.startswith("metadata/") or name == last:
                    self.evidence.damage.append(f"{name} cannot be read: {error}")
            else:
                self.evidence.published.append((name, shown.version, rows))

    def _written(self, table: Table) -> list[tuple[Row, int]]:
        if not self.evidence.history.shape.partitioned:
            return []
        data = table.scan(columns=[*COLUMNS, WRITTEN_COLUMN]).to_arrow().to_pydict()
        rows = zip(*(data[name] for name in COLUMNS), strict=True)
        return list(zip(rows, data[WRITTEN_COLUMN], strict=True))

    def _feed(self, table: Table) -> dict[str, list[Any]]:
        """Read the changes since the first version, or the oldest that can be read."""
        try:
            return _columns(table, 0)
        except InstantExpiredError as error:
            oldest = error.facts["oldest"]
            assert isinstance(oldest, int)
            self.evidence.expired = oldest
        return _columns(table, oldest)


def _columns(table: Table, since: int) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = table.changes(since=since).to_arrow().to_pydict()
    return found


@functools.lru_cache(maxsize=1024)
def _begin(shape: Shape, start: tuple[Do, ...]) -> _Beginning:
    clock = SimClock()
    store: Store = MemoryStore(f"memory://differential-{next(_STARTS)}", clock=clock)
    if shape.published:
        store = Placed(store)
    properties = (
        {"clean.retain.time": "0s", "clean.grace": "0s", "clean.retain.versions": "2"}
        if shape.little
        else {}
    )
    if shape.aged:
        properties |= {"checkpoint.interval": "1", "archive.keep": "1"}
    if shape.ordered:
        properties |= {"cluster.by": "v", "cluster.kind": "sort"}
    if shape.partitioned:
        properties |= {WRITTEN_OPTION: "on"}
    if not shape.told:
        properties |= {"metadata.statistics": "off"}
    if shape.published:
        properties |= {"publish": "delta,iceberg", "publish.deadline": "1h"}
    definition = define_table(
        TIMED,
        record_key=("id",) if shape.keyed else (),
        partition_by=("p",) if shape.partitioned else (),
        ordering="n" if shape.ordering else None,
        table_type=shape.table_type,
        buckets=shape.buckets if shape.keyed else None,
        policy=shape.policy,
        isolation=shape.isolation,
        unique="table" if shape.unique else "partition",
        lock="none",
        properties=properties,
        ttl=Ttl("t", 86_400),
    )
    ports = sim_ports(clock=clock, ids=SeqIds("8"), background=ManualBackground())
    create_table(store, ports, definition)
    table = client_of(TableHandle(store, ports, StateCache(store, ports), NoLock()))
    for do in start:
        apply(table, do, {})
    looker = _Looker(store, Memo())
    for _ in range(table.version + 1):
        looker.look()
    return _Beginning(Start.of(store), looker)


def run(
    history: History,
    strategy: Strategy,
    broken: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Evidence:
    """Run a history as a strategy says; ``broken`` puts a fault into the code while it runs."""
    begun = _begin(history.shape, history.start)
    recorder = _Recorder.of(history, begun)
    acts = {
        name: client(name, turns, recorder.ledger)
        for name, turns in zip(history.names, history.clients, strict=True)
    }
    scenario = Scenario(
        "history",
        begun.start,
        acts,
        events=history.events,
        jumps=(SILENCE_S,) if history.events else (),
        oracle=recorder,
        wrap=Placed if history.shape.published else None,
        memo=begun.looker.memo,
    )
    with broken():
        scenario.run(strategy)
    return recorder.evidence
