"""A table against a dictionary: writers that overlap, services, crashes, time travel, as rules.

One bucket, so that every two writers meet. The model knows which keys each commit wrote, and so
which commits the policy refuses; the table must agree, keep every version, and lose nothing. What
may be applied again after a restore is for the histories of tests/differential to say.
"""

from __future__ import annotations

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from plait import Delete, Insert, Table, Update
from plait.errors import (
    DuplicateKeyError,
    IncompatibleConflictError,
    InstantExpiredError,
    InstantNotFoundError,
    RetryableConflictError,
)
from plait.testing import Fault, FaultStore, SimulatedCrashError, open_wrapped
from plait.timeline import paths
from tests.support.machine import (
    EXPIRED,
    SCHEMA,
    WRITES,
    Open,
    Rows,
    begin,
    content_of,
    held_in,
    rows,
)

_NAMES = itertools.count()
KEYS = st.sets(st.integers(0, 6), min_size=1, max_size=4)
EVERY_KEY = [*range(7), 99]
EVERY = None
"""A write set of which nobody can tell the keys."""


class TableMachine(RuleBasedStateMachine):
    """What any sequence of these rules leads to, a dictionary knows too."""

    @initialize(
        table_type=st.sampled_from(["cow", "mor"]),
        policy=st.sampled_from(["file_group", "key", "merge"]),
        grace=st.sampled_from(["0s", "1h"]),
    )
    def create(self, table_type: str, policy: str, grace: str) -> None:
        self.uri = f"memory://machine-{next(_NAMES)}"
        self.policy = policy
        self.table = Table.create(
            self.uri,
            SCHEMA,
            record_key=["id"],
            buckets=1,
            table_type=table_type,
            policy=policy,
            ttl="day 1d",
            properties={
                "checkpoint.interval": 3,
                "cluster.by": "v",
                "clean.retain.time": "0s",
                "clean.grace": grace,
                "clean.retain.versions": 3,
                "archive.keep": 2,
            },
        )
        self.now: Rows = {}
        self.past: dict[int, Rows] = {0: {}}
        self.touched: dict[int, set[int] | None] = {}
        """By version: the keys that a commit wrote; EVERY: any."""
        self.commits: set[int] = set()
        """Versions of commits of rows."""
        self.restores: dict[int, int] = {}
        """The version of a restore -> the version that it restored."""
        self.saved: dict[str, int] = {}
        self.open: list[Open] = []
        self.values = itertools.count(1)

    # --- writing ---------------------------------------------------------------------------

    @rule(keys=KEYS)
    def upsert(self, keys: set[int]) -> None:
        value = next(self.values)
        version = self.table.upsert(rows(keys, value)).version
        self._landed(version, {**self.now, **dict.fromkeys(keys, value)}, keys)

    @rule(keys=KEYS)
    def insert(self, keys: set[int]) -> None:
        value = next(self.values)
        try:
            version = self.table.insert(rows(keys, value)).version
        except DuplicateKeyError:
            assert keys & set(self.now)
            self._remember()
        else:
            assert not keys & set(self.now), "INV-08"
            self._landed(version, {**self.now, **dict.fromkeys(keys, value)}, keys)

    @rule(limit=st.integers(0, 6))
    def delete_where(self, limit: int) -> None:
        version = self.table.delete(where=f"id < {limit}").version
        left = {key: value for key, value in self.now.items() if key >= limit}
        self._landed(version, left, EVERY if left != self.now else set())

    @rule(keys=KEYS)
    def overwrite(self, keys: set[int]) -> None:
        value = next(self.values)
        version = self.table.overwrite(rows(keys, value)).version
        self._landed(version, dict.fromkeys(keys, value), EVERY)

    @rule(limit=st.integers(0, 6))
    def update(self, limit: int) -> None:
        version = self.table.update({"v": "v + 1000"}, where=f"id < {limit}").version
        hit = {key for key in self.now if key < limit}
        self._landed(version, {**self.now, **{key: self.now[key] + 1000 for key in hit}}, hit)

    @rule(keys=KEYS)
    def merge(self, keys: set[int]) -> None:
        value = next(self.values)
        clauses = [Delete(when="s.id = 3"), Update({"v": "t.v + s.v"}, when="s.id <> 4")]
        new = [Insert(when="id <> 5")]
        version = self.table.merge(rows(keys, value), matched=clauses, not_matched=new).version
        left, wrote = dict(self.now), set[int]()
        for key in keys - ({4} & set(left)) - ({5} - set(left)):
            left[key] = left.get(key, 0) + value
            wrote.add(key)
        if 3 in keys & set(self.now):
            del left[3]
        self._landed(version, left, wrote)

    @rule(how=st.sampled_from(["due", "full", "order", "v", "id"]))
    def rewrite(self, how: str) -> None:
        """INV-14, INV-15: no row changes, and whoever is at work does not notice."""
        if how in ("due", "full"):
            self.table.maintenance.compact(full=how == "full")
        else:
            self.table.maintenance.cluster(order_by=() if how == "order" else how)
        self._remember()

    @rule()
    def expire(self) -> None:
        """INV-15: what is over goes, and whoever is at work goes on."""
        commits = self.table.maintenance.expire().commits
        left = {key: value for key, value in self.now.items() if key not in EXPIRED}
        assert bool(commits) == (left != self.now)
        for each in commits:
            self._remember(until=each.version)
            self.now = left
            self.past[each.version] = dict(left)
        self._remember()

    @rule(keys=KEYS, gone=st.integers(0, 6))
    def transaction(self, keys: set[int], gone: int) -> None:
        value = next(self.values)
        with self.table.transaction() as tx:
            tx.upsert(rows(keys, value))
            tx.delete(keys=rows({gone}, 0).select(["id"]))
            left = {**self.now, **dict.fromkeys(keys, value)}
            wrote = keys | ({gone} & set(left))  # what was not there leaves no trace
            left.pop(gone, None)
            assert content_of(tx.scan()) == left
        self._landed(tx.result.version, left, wrote)

    # --- writers that overlap ----------------------------------------------------------------

    @precondition(lambda self: len(self.open) < 3)
    @rule(keys=KEYS, operation=st.sampled_from(WRITES), retry=st.booleans())
    def begin(self, keys: set[int], operation: str, *, retry: bool) -> None:
        value = next(self.values)
        table = Table.open(self.uri)
        writer = begin(table, operation, keys, value, on_conflict="retry" if retry else "raise")
        self.open.append(Open(writer, operation, keys, value, table.version, retry))

    @precondition(lambda self: self.open)
    @rule(at=st.integers(0, 2))
    def commit(self, at: int) -> None:
        ours = self.open.pop(at % len(self.open))
        met = any(version > ours.base for version in self.restores)
        restored = met and not (ours.operation == "delete" and not self._is_blind(ours))
        refused = restored or self._refused(ours)
        try:
            ours.writer.__exit__(None, None, None)
        except IncompatibleConflictError:
            assert restored
            self._remember()
            return
        except RetryableConflictError:
            assert not restored
            assert refused, "a conflict that the policy does not have"
            self._remember()
            return
        assert not refused, "INV-07: a commit that the policy refuses"
        left = dict(self.now)
        for key in ours.keys:
            if ours.operation == "upsert":
                left[key] = ours.value
            elif ours.operation == "change" or self._is_blind(ours):
                left.pop(key, None)
        wrote = ours.keys if left != self.now or ours.operation == "upsert" else set()
        if ours.operation == "change":
            left[min(ours.keys)] = ours.value
            wrote = ours.changed(self.now)
        self._landed(ours.writer.result.version, left, wrote)

    def _is_blind(self, ours: Open) -> bool:
        """Tell whether a delete looked at the head: one that found nothing at its base did not."""
        return bool(ours.keys & set(self.past[ours.base]))

    def _refused(self, ours: Open) -> bool:
        if ours.retry or (ours.operation == "delete" and not self._is_blind(ours)):
            return False
        since = [keys for version, keys in self.touched.items() if version > ours.base]
        met = [keys for keys in since if keys is EVERY or keys]
        if self.policy == "file_group":
            return bool(met)
        mine = ours.changed(self.past[ours.base])
        same = [keys for keys in met if keys is EVERY or keys & mine]
        return bool(same) if self.policy == "key" else self._overwritten(ours)

    def _overwritten(self, ours: Open) -> bool:
        rows = self.table.inspect.history()
        return any(row.operation == "overwrite" and row.version > ours.base for row in rows)

    @precondition(lambda self: self.open)
    @rule(at=st.integers(0, 2))
    def take_for_dead(self, at: int) -> None:
        """INV-03: a recoverer ends a living writer, whose commit is refused then."""
        ours = self.open.pop(at % len(self.open))
        self.table.maintenance.rollback(ours.writer.instant)
        self._remember()

    # --- restores ----------------------------------------------------------------------------

    def _lineage(self, version: int) -> set[int]:
        """Return the versions whose commits the table contains there (docs/spec/lineage.tla)."""
        if version == 0:
            return {0}
        return self._lineage(self.restores.get(version, version - 1)) | {version}

    @property
    def _contained(self) -> set[int]:
        return self._lineage(max(self.past))

    @rule(back=st.integers(0, 6), name=st.sampled_from("ab"))
    def savepoint(self, back: int, name: str) -> None:
        self._remember()
        version = max(0, self.table.version - back)
        if name in self.saved:
            self.table.versions.drop_savepoint(name)
            del self.saved[name]
        else:
            try:
                self.table.versions.savepoint(name, version=version)
                self.saved[name] = version
            except InstantExpiredError:
                assert back >= 3
        self._remember()

    @rule(back=st.integers(0, 6))
    def restore(self, back: int) -> None:
        self._remember()
        self._restore(max(0, self.table.version - back))

    @precondition(lambda self: self.saved)
    @rule(at=st.integers(0, 1))
    def restore_savepoint(self, at: int) -> None:
        self._remember()
        self._restore(sorted(self.saved.values())[at % len(self.saved)])

    def _restore(self, to: int) -> None:
        try:
            report = self.table.versions.restore(version=to)
        except InstantExpiredError:
            assert self.table.version - to >= 3
            assert to not in self.saved.values(), "INV-05"
            return
        if report.version is None:
            assert self.now == self.past[to]
            return
        self.restores[report.version] = to
        self._landed(report.version, self.past[to], EVERY)

    @rule()
    def undo(self) -> None:
        self._remember()
        commits = [version for version in self.commits if version in self._contained]
        try:
            report = self.table.versions.undo()
        except InstantExpiredError:
            assert self.table.version - max(commits) >= 2
        except InstantNotFoundError:
            assert not commits
        else:
            to = max(commits) - 1
            assert report.version is not None
            assert report.plan.to == to
            self.restores[report.version] = to
            self._landed(report.version, self.past[to], EVERY)

    # --- services and crashes ----------------------------------------------------------------

    @rule(now=st.booleans())
    def clean(self, now: bool) -> None:
        self.table.maintenance.clean(self.table.maintenance.clean(now=now, dry_run=True))
        self._remember()

    @rule(anew=st.booleans())
    def index(self, anew: bool) -> None:
        """INV-11: a look-up gives the rows of a scan, however far the index is behind."""
        if self.table.index.create() is None and anew:
            self.table.index.build(anew=True)
        self._remember()

    @rule(number=st.integers(0, 9))
    def lose_a_file_of_the_index(self, number: int) -> None:
        """INV-11: whatever it is, it costs time only."""
        store = self.table._handle.store
        files = sorted(info.path for info in store.list(paths.INDEX))
        store.delete(files[number : number + 1])

    @rule()
    def drop_the_index(self) -> None:
        if self.table.index.status().name is not None:
            self.table.index.drop()
        self._remember()

    @rule(statistics=st.sampled_from(["on", "off"]))
    def tell_bounds(self, statistics: str) -> None:
        self.table.alter.set({"metadata.statistics": statistics})
        self._remember()

    @rule()
    def rebuild(self) -> None:
        """INV-11: bounds that no decision tells are those of the files."""
        self.table.alter.set({"metadata.statistics": "on"})
        self._remember()
        self.table.maintenance.rebuild_metadata()
        assert self.table.inspect.files()["stats"].null_count == 0
        self._remember()

    @rule()
    def undo_clean(self) -> None:
        """INV-05: what is not final can be read again."""
        undone = self.table.maintenance.undo_clean()
        assert undone.horizon == self.table.inspect.describe()["horizon"]
        self._remember()

    @rule()
    def archive(self) -> None:
        """INV-01: decisions leave their slots, and open writers do not notice (INV-15)."""
        self.table.maintenance.archive()
        self._remember()

    @rule()
    def reopen(self) -> None:
        self.table = Table.open(self.uri)

    @rule(keys=KEYS, at=st.integers(1, 14), kind=st.sampled_from(["crash_before", "crash_after"]))
    def crash(self, keys: set[int], at: int, kind: str) -> None:
        """All of it or nothing; the dead are rolled back by whoever comes next."""
        value = next(self.values)
        name = f"crash-{value}"
        fault = Fault(kind, nth=at + 6)
        try:
            crashing, _ = open_wrapped(self.uri, lambda store: FaultStore(store, [fault]))
            crashing.upsert(rows(keys, value), commit_id=name)
        except SimulatedCrashError:
            self.table = Table.open(self.uri)
        result = self.table.inspect.find_commit(name)
        for entry in self.table.inspect.timeline().pending:
            if entry.instant not in {each.writer.instant for each in self.open}:
                self.table.maintenance.rollback(
                    entry.instant
                ) if result is None else self.table.maintenance.rollback()
        if result is not None:
            self._landed(result.version, {**self.now, **dict.fromkeys(keys, value)}, keys)
        self._remember()

    # --- what holds ----------------------------------------------------------------------------

    @invariant()
    def the_table_is_what_the_model_says(self) -> None:
        """INV-04, INV-08, INV-11: by a scan, and by keys, some of which are nowhere."""
        if hasattr(self, "table"):
            assert content_of(self.table.scan()) == self.now
            assert held_in(self.table.get(EVERY_KEY)) == self.now

    @rule()
    def look_up(self) -> None:
        """INV-11: by another client, which knows nothing; and each key by a predicate."""
        table = Table.open(self.uri)
        assert held_in(table.get(EVERY_KEY)) == self.now
        for key in EVERY_KEY:
            found = held_in(table.scan(where=f"id = {key}").to_arrow())
            assert found == {each: value for each, value in self.now.items() if each == key}

    @rule(back=st.integers(0, 6))
    def travel(self, back: int) -> None:
        """INV-04, INV-05: a version is what it was, or it is refused."""
        version = max(0, self.table.version - back)
        try:
            found = content_of(self.table.scan(version=version))
        except InstantExpiredError:
            assert back >= 3
            assert version not in self.saved.values(), "INV-05"
        else:
            assert found == self.past[version]

    def teardown(self) -> None:
        if not hasattr(self, "table"):
            return
        for each in self.open:
            self.table.maintenance.rollback(each.writer.instant)
        self.table.maintenance.rollback()
        report = self.table.check.verify()
        assert not report.problems
        assert not self.table.inspect.timeline().pending

    def _landed(self, version: int, content: Rows, keys: set[int] | None) -> None:
        if version in self.past:  # it changed nothing at its base, and stands there (RFC 0016)
            assert content == self.now
            return
        self._remember(until=version)
        self.now = content
        self.past[version] = dict(content)
        self.touched[version] = keys
        if version == max(self.past) and version not in self.restores:
            self.commits.add(version)
        self._remember()

    def _remember(self, until: int | None = None) -> None:
        """Versions that services made show what the ones before them did."""
        for version in range(max(self.past) + 1, (until or self.table.version + 1)):
            self.past[version] = dict(self.now)


TestTableMachine = TableMachine.TestCase
TestTableMachine.settings = settings(stateful_step_count=15, deadline=None)
