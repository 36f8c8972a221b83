"""Repushes to any layout, killed anywhere, among writes of every kind: a dictionary knows the rows.

Writers that were open at a swap commit after it. Every readable version is what it was, changes
lead from any to any later one, and no file is lost or left.
"""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import suppress
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from plait import Table
from plait.errors import (
    IncompatibleConflictError,
    InstantExpiredError,
    RepushRefusedError,
    RetryableConflictError,
)
from plait.testing import Fault, FaultStore, SimulatedCrashError, open_wrapped
from plait.timeline import paths
from plait.txn.recovery import roll_back_failed
from tests.support.memory import forget
from tests.support.repushing import (
    KEY,
    PLACES,
    SCHEMA,
    Act,
    Layout,
    Open,
    Row,
    Rows,
    StopAt,
    row_of,
    rows_of,
    table_of,
)

_NAMES = itertools.count()
RETAINED = 6
"""So many versions can be read for sure."""
BY_PREDICATE = ("where", "update")
OPERATIONS = ("upsert", "insert", "overwrite", "where", "update", "delete", "partial", "merge")

layouts = st.builds(
    Layout,
    st.sampled_from(PLACES),
    st.booleans(),
    st.sampled_from(["cow", "mor"]),
    st.integers(1, 3),
    st.sampled_from([(), ("id",), ("g",)]),
    st.sampled_from([None, None, (), ("v",), ("p", "o")]),
)
places = st.tuples(st.sampled_from(["x", "x2", "y"]), st.integers(0, 3))
"""The columns that the key does not decide; two of the first share a partition by a transform."""
given_rows = st.dictionaries(st.integers(0, 7), places, min_size=1, max_size=5)
operations = st.sampled_from((*OPERATIONS, "change"))
limits = st.integers(0, 8)


class RepushMachine(RuleBasedStateMachine):
    """What any sequence of these rules leads to, a dictionary knows too."""

    @initialize(layout=layouts)
    def create(self, layout: Layout) -> None:
        self.uri = f"memory://repush-machine-{next(_NAMES)}"
        self.layout = layout
        self.table = Table.create(
            self.uri,
            SCHEMA,
            record_key=KEY,
            partition_by=layout.partition_by,
            ordering="o" if layout.ordering else None,
            buckets=layout.buckets,
            bucket_by=layout.by,
            table_type=layout.table_type,
            properties={
                "checkpoint.interval": 3,
                "clean.retain.time": "0s",
                "clean.grace": "0s",
                "clean.retain.versions": RETAINED,
                "archive.keep": 2,
            },
        )
        self.now: Rows = {}
        self.past: dict[int, Rows] = {0: {}}
        self.layouts: dict[int, Layout] = {0: layout}
        self.restores: list[int] = []
        self.saved: dict[str, int] = {}
        self.open: list[Open] = []
        self.wanted: Layout | None = None
        """Of the repush that was begun and not ended."""
        self.source: int | None = None
        """The version whose rows the wanted repush loads; None: the newest."""
        self.before = 0
        """The newest version when a source was chosen."""
        self.collided = False
        """Whether rows were one in the wanted layout since it began."""
        self.values = itertools.count(1)

    # --- writing ---------------------------------------------------------------------------

    def _act(self, operation: str, given: dict[int, tuple[str, int]], limit: int) -> Act:
        value = next(self.values) * 10_000
        rows = [Row(number, p, o, value) for number, (p, o) in given.items()]
        return Act(operation, tuple(rows), limit)

    @rule(operation=operations, given=given_rows, limit=limits)
    def write(self, operation: str, given: dict[int, tuple[str, int]], limit: int) -> None:
        act = self._act(operation, given, limit)
        writer = act.open(self.table)
        writer.__exit__(None, None, None)
        self._landed(writer.result.version, act.applied(self.now, self.layout))

    @rule(given=given_rows, limit=limits)
    def transaction(self, given: dict[int, tuple[str, int]], limit: int) -> None:
        act, then = self._act("upsert", given, limit), self._act("where", {}, limit)
        with self.table.transaction() as tx:
            tx.upsert(table_of(list(act.given)))
            tx.delete(where=f"id < {limit}")
        left = then.applied(act.applied(self.now, self.layout), self.layout)
        self._landed(tx.result.version, left)

    @precondition(lambda self: len(self.open) < 3)
    @rule(operation=operations, given=given_rows, limit=limits)
    def begin(self, operation: str, given: dict[int, tuple[str, int]], limit: int) -> None:
        act, table = self._act(operation, given, limit), Table.open(self.uri)
        base = table.version
        self.open.append(Open(act.open(table), act, base, self.layouts[base]))

    @precondition(lambda self: self.open)
    @rule(at=st.integers(0, 2))
    def commit(self, at: int) -> None:
        """A swap in the window makes no writer fail, but one that would mean something else."""
        ours = self.open.pop(at % len(self.open))
        then = self.past[ours.base]
        idle = ours.act.applied(then, ours.layout) == then
        try:
            ours.writer.__exit__(None, None, None)
        except IncompatibleConflictError:
            assert any(version > ours.base for version in self.restores)
            self._remember()
        except RetryableConflictError:
            met = [at for version, at in self.layouts.items() if version > ours.base]
            computed = "truncate(1, p)" in ours.layout.partition_by
            assert met
            assert computed or any(at.partition_by != ours.layout.partition_by for at in met)
            assert ours.act.operation == "change", "it names the partitions of what it removes"
            self._remember()
        else:
            if idle and ours.writer.result.version == ours.base:
                self._remember()
                return
            self._landed(ours.writer.result.version, self._left_by(ours))

    def _left_by(self, ours: Open) -> Rows:
        """Return the rows after a commit; INV-07: its predicate chose from one version."""
        left = ours.act.applied(self.now, self.layout)
        entry = self.table.inspect.history()[0]
        assert entry.version == ours.writer.result.version
        met = entry.client.get("conflicts", [])
        assert isinstance(met, list)
        if ours.act.operation not in BY_PREDICATE or {each["verdict"] for each in met} - {"carry"}:
            return left  # all of it ran again, on the newest rows
        # Under snapshot isolation rows that came in meanwhile stay as they are, in buckets in which
        # the predicate held for none. Those for which it held are as they were, or it had met.
        then = self.past[ours.base]
        chosen = {self.layout.identity(row): row for row in then.values() if ours.act.chooses(row)}
        assert all(self.now.get(key) == row for key, row in chosen.items())
        return {key: row for key, row in self.now.items() if key not in chosen} | {
            key: row for key, row in left.items() if key in chosen
        }

    @precondition(lambda self: self.open)
    @rule(at=st.integers(0, 2))
    def take_for_dead(self, at: int) -> None:
        """INV-03: whatever it staged, under whatever layout, goes."""
        ours = self.open.pop(at % len(self.open))
        self.table.maintenance.rollback(ours.writer.instant)
        self._remember()

    # --- repushes --------------------------------------------------------------------------

    @rule(layout=layouts, at=st.integers(8, 250), per_task=st.integers(1, 9))
    def killed_repush(self, layout: Layout, at: int, per_task: int) -> None:
        """INV-04: whatever it did, a reader sees the rows, under one of the two layouts."""
        self._killed(self.wanted or layout, at, per_task)

    @precondition(lambda self: not self.wanted)
    @rule(
        layout=layouts,
        back=st.integers(0, 8),
        saved=st.booleans(),
        at=st.integers(8, 250),
        per_task=st.integers(1, 9),
    )
    def killed_repush_from_a_source(
        self, layout: Layout, back: int, at: int, per_task: int, *, saved: bool
    ) -> None:
        """INV-05: what it loads stays, whatever a clean takes and a savepoint lets go."""
        wanted = self._asks_for(layout, back, saved=saved)
        with suppress(InstantExpiredError):
            self._killed(wanted, at, per_task)
        self._look_at(wanted)

    def _killed(self, wanted: Layout, at: int, per_task: int) -> None:
        fault = Fault("crash_before", nth=at)
        with suppress(SimulatedCrashError, RepushRefusedError):
            crashing, _ = open_wrapped(self.uri, lambda store: FaultStore(store, [fault]))
            crashing.layout.repush(**wanted.options(), rows_per_task=per_task, source=self.source)
        self.table = Table.open(self.uri)
        self._remember()
        self._look_at(wanted)

    @precondition(lambda self: not self.wanted)
    @rule(
        layout=layouts,
        back=st.integers(0, 8),
        saved=st.booleans(),
        phase=st.sampled_from(["repush-load", "repush-follow"]),
    )
    def stopped_repush_from_a_source(
        self, layout: Layout, back: int, phase: str, *, saved: bool
    ) -> None:
        """What is committed until it goes on is carried over."""
        wanted = self._asks_for(layout, back, saved=saved)
        handle = Table.open(self.uri)._handle
        stopped = Table(replace(handle, ports=replace(handle.ports, observer=StopAt(phase))))
        with suppress(KeyboardInterrupt, InstantExpiredError, RepushRefusedError):
            stopped.layout.repush(**wanted.options(), source=self.source)
        self._remember()
        self._look_at(wanted)

    @precondition(lambda self: not self.wanted)
    @rule(layout=layouts, back=st.integers(0, 8), saved=st.booleans())
    def repush_from_a_source(self, layout: Layout, back: int, *, saved: bool) -> None:
        wanted = self._asks_for(layout, back, saved=saved)
        try:
            self._repush(wanted)
        except InstantExpiredError:
            assert self.source is not None
            assert self._may_be_gone(self.source)
            self.source = None

    def _asks_for(self, layout: Layout, back: int, *, saved: bool) -> Layout:
        """Choose a source, and a layout in which a row is one by the same columns as now."""
        self._remember()
        self.before = self.table.version
        self.source = max(0, self.table.version - back)
        if saved and self.saved:
            self.source = min(self.saved.values())
        fields, now = (
            {field for field in each.partition_by if field.rstrip(")").endswith("p")}
            for each in (layout, self.layout)
        )
        if fields != now:
            return replace(layout, partition_by=self.layout.partition_by)
        return layout

    @precondition(lambda self: self.wanted)
    @rule()
    def resumed_repush(self) -> None:
        wanted = self.wanted
        assert wanted is not None
        self._repush(wanted)

    @precondition(lambda self: not self.wanted)
    @rule(layout=layouts)
    def repush(self, layout: Layout) -> None:
        self._repush(layout)

    def _repush(self, wanted: Layout) -> None:
        collided, source = self.collided, self.source
        try:
            report = self.table.layout.repush(**wanted.options(), rows_per_task=3, source=source)
        except RepushRefusedError:
            self._remember()
            if source is None:
                assert collided or wanted.collides(self.now)
            else:
                began = self._newest("begin-repush")
                crossed = any(version > began for version in self.restores)
                assert crossed or wanted.collides(self.past[source])
            self._look_at(wanted)
            assert self.wanted is not None
            self.table.layout.cancel()
            self._remember()
            self._look_at(wanted)
        else:
            assert source is not None or not wanted.collides(self.now), "INV-08"
            assert report.version is not None
            self._remember()
            self._look_at(wanted)
            assert self.layout == wanted
        assert self.wanted is None

    def _look_at(self, wanted: Layout) -> None:
        """See how a repush stands."""
        table = self.table._handle.cache.refresh().table
        if table.repush is not None:
            self.wanted = wanted
            self.collided = self.collided or wanted.collides(self.now)
            return
        source, self.source = self.source, None
        self.wanted, self.collided = None, False
        if source is not None and self._newest("begin-repush") > self.before:
            self._loaded(source, wanted)
        spec, buckets = table.spec, table.spec.layout.buckets
        found = Layout(
            spec.layout.partition_by,
            spec.layout.ordering == "o",
            spec.layout.table_type,
            buckets.count,
            buckets.by,
        )
        if found != self.layout:
            assert found == wanted
            swap = max(r.version for r in self.table.inspect.history() if r.operation == "repush")
            self.layout = found
            self.now = {found.identity(row): row for row in self.now.values()}
            for version in range(swap, max(self.past) + 1):
                self.past[version], self.layouts[version] = dict(self.now), found

    def _loaded(self, source: int, wanted: Layout) -> None:
        """If the rows of a source were swapped in: they, and every change of a row since."""
        began, swap = self._newest("begin-repush"), self._newest("repush-source")
        if swap < began:
            return
        rows = {wanted.identity(row): row for row in self.past[source].values()}
        assert len(rows) == len(self.past[source]), "INV-08"
        for version in range(began, swap):
            then, now = (
                {wanted.identity(row): row for row in self.past[at].values()}
                for at in (version - 1, version)
            )
            for key in then.keys() | now.keys():
                if key not in now:
                    rows.pop(key, None)
                elif then.get(key) != now[key]:
                    rows[key] = now[key]
        self.layout, self.now = wanted, rows
        for version in range(swap, max(self.past) + 1):
            self.past[version], self.layouts[version] = dict(rows), wanted

    def _newest(self, operation: str) -> int:
        found = [row.version for row in self.table.inspect.history() if row.operation == operation]
        return max(found, default=-1)

    @precondition(lambda self: self.wanted)
    @rule()
    def cancel(self) -> None:
        self.table.layout.cancel()
        self.wanted, self.source, self.collided = None, None, False
        self._remember()

    # --- services --------------------------------------------------------------------------

    @rule(full=st.booleans())
    def compact(self, *, full: bool) -> None:
        self.table.maintenance.compact(full=full)
        self._remember()

    @rule()
    def clean(self) -> None:
        self.table.maintenance.clean()
        self._remember()

    @rule()
    def archive(self) -> None:
        self.table.maintenance.archive()
        self._remember()

    @rule()
    def reopen(self) -> None:
        self.table = Table.open(self.uri)

    @rule(back=st.integers(0, 8), name=st.sampled_from("ab"))
    def savepoint(self, back: int, name: str) -> None:
        self._remember()
        version = max(0, self.table.version - back)
        if name in self.saved:
            self.table.versions.drop_savepoint(name)
            del self.saved[name]
        else:
            with suppress(InstantExpiredError):
                self.table.versions.savepoint(name, version=version)
                self.saved[name] = version
        self._remember()

    @rule(back=st.integers(0, 8), saved=st.booleans())
    def restore(self, back: int, *, saved: bool) -> None:
        self._remember()
        to = max(0, self.table.version - back)
        if saved and self.saved:
            to = min(self.saved.values())
        try:
            report = self.table.versions.restore(version=to)
        except InstantExpiredError:
            assert self._may_be_gone(to)
            return
        if report.version is None:
            assert self.now == self.past[to]
            return
        self.restores.append(report.version)
        self.layout = self.layouts[to]
        self._landed(report.version, dict(self.past[to]))
        if self.wanted is not None and self.source is None:
            self._look_at(self.wanted)

    # --- what holds ------------------------------------------------------------------------

    @invariant()
    def the_table_is_what_the_model_says(self) -> None:
        """INV-04, INV-08."""
        if hasattr(self, "table"):
            assert rows_of(self.table.scan()) == sorted(self.now.values())

    @rule(back=st.integers(0, 12), limit=limits, p=st.sampled_from("xy"), o=st.integers(0, 3))
    def travel(self, back: int, limit: int, p: str, o: int) -> None:
        """INV-04, INV-05: a version is what it was, by key, partition and bounds too."""
        version = max(0, self.table.version - back)
        try:
            found = rows_of(self.table.scan(version=version))
        except InstantExpiredError:
            assert self._may_be_gone(version)
            return
        self._remember()
        rows = sorted(self.past[version].values())
        assert found == rows
        for where, holds in (
            (f"id = {limit}", lambda row: row.id == limit),
            (f"p = '{p}'", lambda row: row.p == p),
            (f"g = {limit % 3} AND o >= {o}", lambda row: row.id % 3 == limit % 3 and row.o >= o),
            (f"id < {limit} AND p = '{p}'", lambda row: row.id < limit and row.p == p),
        ):
            part = rows_of(self.table.scan(version=version, where=where))
            assert part == [row for row in rows if holds(row)], where

    def _may_be_gone(self, version: int) -> bool:
        old = self.table.version - version >= RETAINED
        return old and version not in self.saved.values()

    @rule(back=st.integers(1, 12), until=st.integers(0, 3))
    def changes(self, back: int, until: int) -> None:
        """A repush shows nothing; whatever shows something leads from version to version."""
        self._remember()
        last = max(0, self.table.version - until)
        since = max(0, last - back)
        try:
            found = self.table.changes(since, last).to_arrow().to_pylist()
        except InstantExpiredError:
            assert self.table.version - since >= RETAINED  # a savepoint keeps one version alone
            return
        by_version = itertools.groupby(found, lambda change: change["_commit_version"])
        met = {version: list(group) for version, group in by_version}
        assert sorted(met) == list(met)
        for version in range(since + 1, last + 1):
            rows = Counter(self.past[version - 1].values())
            for change in met.pop(version, []):
                row = row_of(change)
                gone = change["_change_type"] in ("delete", "update_preimage")
                assert not gone or rows[row], "the row as it was"
                rows[row] += -1 if gone else 1
            assert +rows == Counter(self.past[version].values())
        assert not met

    def teardown(self) -> None:
        if not hasattr(self, "table"):
            return
        for each in self.open:
            self.table.maintenance.rollback(each.writer.instant)
        for name in self.saved:
            self.table.versions.drop_savepoint(name)
        self.table.layout.cancel()
        # Those who were killed seem alive: their process is ours.
        roll_back_failed(self.table._handle, reason="test", everything=True)
        assert not self.table.check.verify(data=True).problems
        assert not self.table.inspect.timeline().pending
        self._nothing_is_left()
        forget(self.uri)

    def _nothing_is_left(self) -> None:
        """Cleans that keep one version leave its files and nothing else (INV-06)."""
        store = self.table._handle.store
        store.delete([info.path for info in store.list(paths.LEASES)])  # of those who were killed
        self.table.alter.set({"clean.retain.versions": 1})
        while (plan := self.table.maintenance.clean().plan).condemned or plan.waiting:
            assert plan.version < self.table.version  # one takes as many files as a decision names
        assert rows_of(self.table.scan()) == sorted(self.now.values())
        report = self.table.check.verify(data=True)
        assert not report.problems
        live = {*self.table.inspect.files()["path"].to_pylist()}
        listed = {info.path for info in self.table._handle.store.list("")}
        data = {path for path in listed if not path.startswith(".meta/")}
        assert live <= data
        extra = {path for path in data - live if ".dv." not in path and ".keys." not in path}
        assert not extra

    def _landed(self, version: int, content: Rows) -> None:
        if version in self.past:  # it changed nothing at its base, and stands there (RFC 0016)
            assert content == self.now
            return
        self._remember(until=version)
        self.now = content
        self._note(version)
        self._remember()
        if self.wanted is not None:
            self.collided = self.collided or self.wanted.collides(content)

    def _remember(self, until: int | None = None) -> None:
        """Versions that services made show what the ones before them did."""
        for version in range(max(self.past) + 1, (until or self.table.version + 1)):
            self._note(version)

    def _note(self, version: int) -> None:
        self.past[version], self.layouts[version] = dict(self.now), self.layout


TestRepushMachine = RepushMachine.TestCase
TestRepushMachine.settings = settings(stateful_step_count=20, deadline=None)
