"""A table against a dictionary: writers that overlap, services, crashes, time travel, as rules.

One bucket, so that every two writers meet. The model knows which keys each commit wrote, and so
which commits the policy refuses; the table must agree, keep every version, and lose nothing.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from plait import Delete, Insert, Table, Update
from plait.errors import DuplicateKeyError, InstantExpiredError, RetryableConflictError
from plait.testing import Fault, FaultStore, SimulatedCrashError, open_wrapped
from plait.write.writer import Writer

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
_NAMES = itertools.count()
Rows = dict[int, int]
KEYS = st.sets(st.integers(0, 6), min_size=1, max_size=4)
EVERY = None
"""A write set of which nobody can tell the keys."""


@dataclass
class Open:
    """A writer that has its rows, and has not committed."""

    writer: Writer
    operation: str
    keys: set[int]
    value: int
    base: int
    retry: bool


def rows(keys: set[int], value: int) -> pa.Table:
    ids = sorted(keys)
    return pa.table({"id": ids, "v": [value] * len(ids)}, schema=SCHEMA)


class TableMachine(RuleBasedStateMachine):
    """What any sequence of these rules leads to, a dictionary knows too."""

    @initialize(
        table_type=st.sampled_from(["cow", "mor"]),
        policy=st.sampled_from(["file_group", "key", "merge"]),
    )
    def create(self, table_type: str, policy: str) -> None:
        self.uri = f"memory://machine-{next(_NAMES)}"
        self.policy = policy
        self.table = Table.create(
            self.uri,
            SCHEMA,
            record_key=["id"],
            buckets=1,
            table_type=table_type,
            policy=policy,
            properties={
                "checkpoint.interval": 3,
                "clean.retain.time": "0s",
                "clean.grace": "0s",
                "clean.retain.versions": 3,
            },
        )
        self.now: Rows = {}
        self.past: dict[int, Rows] = {0: {}}
        self.touched: dict[int, set[int] | None] = {}
        """By version: the keys that a commit wrote; EVERY: any."""
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

    @rule(full=st.booleans())
    def compact(self, full: bool) -> None:
        """INV-14, INV-15: no row changes, and whoever is at work does not notice."""
        self.table.compact(full=full)
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
            assert _content(tx.scan()) == left
        self._landed(tx.result.version, left, wrote)

    # --- writers that overlap ----------------------------------------------------------------

    @precondition(lambda self: len(self.open) < 3)
    @rule(keys=KEYS, operation=st.sampled_from(["upsert", "delete"]), retry=st.booleans())
    def begin(self, keys: set[int], operation: str, *, retry: bool) -> None:
        value = next(self.values)
        table = Table.open(self.uri)
        writer = table.writer(operation, on_conflict="retry" if retry else "raise").__enter__()
        data = rows(keys, value)
        writer.write(data if operation == "upsert" else data.select(["id"]))
        self.open.append(Open(writer, operation, keys, value, table.version, retry))

    @precondition(lambda self: self.open)
    @rule(at=st.integers(0, 2))
    def commit(self, at: int) -> None:
        ours = self.open.pop(at % len(self.open))
        refused = self._refused(ours)
        try:
            ours.writer.__exit__(None, None, None)
        except RetryableConflictError:
            assert refused, "a conflict that the policy does not have"
            self._remember()
            return
        assert not refused, "INV-07: a commit that the policy refuses"
        left = dict(self.now)
        for key in ours.keys:
            if ours.operation == "upsert":
                left[key] = ours.value
            elif self._is_blind(ours):
                left.pop(key, None)
        wrote = ours.keys if left != self.now or ours.operation == "upsert" else set()
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
        same = [keys for keys in met if keys is EVERY or keys & ours.keys]
        return bool(same) if self.policy == "key" else self._overwritten(ours)

    def _overwritten(self, ours: Open) -> bool:
        rows = self.table.history()
        return any(row.operation == "overwrite" and row.version > ours.base for row in rows)

    @precondition(lambda self: self.open)
    @rule(at=st.integers(0, 2))
    def take_for_dead(self, at: int) -> None:
        """INV-03: a recoverer ends a living writer, whose commit is refused then."""
        ours = self.open.pop(at % len(self.open))
        self.table.rollback(ours.writer.instant)
        self._remember()

    # --- services and crashes ----------------------------------------------------------------

    @rule()
    def clean(self) -> None:
        self.table.clean()
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
        result = self.table.find_commit(name)
        for entry in self.table.timeline.pending:
            if entry.instant not in {each.writer.instant for each in self.open}:
                self.table.rollback(entry.instant) if result is None else self.table.rollback()
        if result is not None:
            self._landed(result.version, {**self.now, **dict.fromkeys(keys, value)}, keys)
        self._remember()

    # --- what holds ----------------------------------------------------------------------------

    @invariant()
    def the_table_is_what_the_model_says(self) -> None:
        """INV-04, INV-08."""
        if hasattr(self, "table"):
            assert _content(self.table.scan()) == self.now

    @rule(back=st.integers(0, 6))
    def travel(self, back: int) -> None:
        """INV-04, INV-05: a version is what it was, or it is refused."""
        version = max(0, self.table.version - back)
        try:
            found = _content(self.table.scan(version=version))
        except InstantExpiredError:
            assert back >= 3
        else:
            assert found == self.past[version]

    def teardown(self) -> None:
        if not hasattr(self, "table"):
            return
        for each in self.open:
            self.table.rollback(each.writer.instant)
        self.table.rollback()
        report = self.table.verify()
        assert not report.problems
        assert not self.table.timeline.pending

    def _landed(self, version: int, content: Rows, keys: set[int] | None) -> None:
        if version in self.past:  # it changed nothing at its base, and stands there (RFC 0016)
            assert content == self.now
            return
        self._remember(until=version)
        self.now = content
        self.past[version] = dict(content)
        self.touched[version] = keys
        self._remember()

    def _remember(self, until: int | None = None) -> None:
        """Versions that services made show what the ones before them did."""
        for version in range(max(self.past) + 1, (until or self.table.version + 1)):
            self.past[version] = dict(self.now)


def _content(scan: object) -> Rows:
    table = scan.to_arrow()  # type: ignore[attr-defined]  # a Scan
    found = dict(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True))
    assert len(found) == table.num_rows, "INV-08"
    return found


TestTableMachine = TableMachine.TestCase
TestTableMachine.settings = settings(stateful_step_count=15, deadline=None)
