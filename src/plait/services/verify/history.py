"""Decisions against the ones before them: windows and files (INV-07, INV-04)."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa
import xxhash

from plait.definition.policy import require_policy
from plait.definition.table_def import TableDef
from plait.errors import (
    FormatError,
    InstantExpiredError,
    PolicyError,
    StorageError,
    TableError,
    UnsupportedFeatureError,
)
from plait.model.bucket import BucketId
from plait.model.changes import KEYS_ALL, Changes
from plait.model.decision import Cleaned, Decision, ReadSet
from plait.model.instant import Operation
from plait.services.verify.report import Findings
from plait.state.checkpoint import checkpoint_of
from plait.state.state import TableState
from plait.storage.port import Store
from plait.timeline import paths
from plait.timeline.log import Timeline
from plait.txn.conflict import Compare, Judge, WasRead
from plait.txn.conflict_checker import compared, was_read
from plait.txn.keys import DISJOINT, UNKNOWN, KeyOverlap, Keys
from plait.txn.matrix import DATA, HARMLESS, REWRITES, SERVICES

_HELD = 1_000
"""Number of decisions that are held for windows. Older ones are read again."""


@dataclass(slots=True)
class Windows:
    """Judges each commit again by what was decided between its base and itself (INV-07)."""

    store: Store
    findings: Findings
    _recent: deque[Decision] = field(default_factory=lambda: deque(maxlen=_HELD))

    def take(self, decision: Decision, state: TableState | None) -> None:
        """Take the next decision, with the table after it, which tells how it is isolated."""
        path, table = paths.slot(decision.version), None if state is None else state.table
        if not -1 <= decision.base < max(decision.version, 1):
            message = f"its base is version {decision.base}"
            self.findings.problem("INV-07", path, message)
        elif decision.operation in (*DATA, *SERVICES):
            self._judge(decision, state, path)
            if state is not None and decision.read_set is not None:
                self._judge_reads(decision, decision.read_set, state, path)
            if table is not None:
                self._judge_lookups(decision, table, path)
        light = Changes(touched=decision.changes.touched)
        self._recent.append(replace(decision, changes=light))

    def _judge(self, decision: Decision, state: TableState | None, path: str) -> None:
        """Look for decisions after the base that wrote where this one wrote or read."""
        self.findings.count("windows")
        table = None if state is None else state.table
        spec = None if table is None else table.spec
        try:
            judge = Judge(
                decision.operation,
                decision.scope,
                decision.changes,
                read_set=decision.read_set,
                spec=spec,
                serializable=table is not None and table.isolation == "serializable",
            )
            for theirs in self._window(decision.base, decision.version):
                compare: Compare | None = None
                read: WasRead = _any
                if state is not None:
                    compare = self._compare(judge, theirs, state.table, path)
                    read = self._read(judge, theirs, state, path)
                conflict = None
                if not _idle(theirs, table):
                    conflict = judge.conflict_with(theirs, compare, read)
                if conflict is not None:
                    message = (
                        f"a {theirs.operation} in version {theirs.version} conflicts with it, and "
                        f"is after its base, version {decision.base}: {conflict.reason}"
                    )
                    self.findings.problem("INV-07", path, message)
                    return
        except (ValueError, TableError) as error:  # a predicate or partition that is none
            self.findings.problem("INV-01", path, f"its write set cannot be read: {error}")

    def _judge_reads(
        self, decision: Decision, read_set: ReadSet, state: TableState, path: str
    ) -> None:
        """Look for lost updates: same keys, or rows that were read, written since the read.

        Between that version and the base other keys of a bucket may have been written.
        """
        self.findings.count("read sets")
        rule, table = None, state.table
        try:
            rule = require_policy(table.policy)
        except UnsupportedFeatureError as error:
            self.findings.note(path, error.message)
            if not read_set.explicit:
                return  # what a blind write may pass over is for that policy to say
        judge = Judge(
            decision.operation,
            decision.scope,
            decision.changes,
            read_set=read_set,
            spec=table.spec,
            policy=table.policy,
            rule=rule,
            serializable=table.isolation == "serializable",
            earlier=True,
        )
        keys = Keys(self.store, table.spec, table.schemas)
        limit = max(0, decision.base - read_set.version)
        try:
            for theirs in Timeline(self.store).load_after(read_set.version, limit=limit):
                compare = functools.partial(_proven, keys, judge, theirs)
                read = self._read(judge, theirs, state, path)
                conflict = None
                if not _idle(theirs, table):
                    conflict = judge.conflict_with(theirs, compare, read)
                if conflict is not None and conflict.verdict not in HARMLESS:
                    message = f"it lost the update of version {theirs.version}: {conflict.reason}"
                    self.findings.problem("INV-07", path, message)
                    return
        except PolicyError as error:
            self.findings.note(path, error.message)
        except (FormatError, StorageError) as error:
            self.findings.note(path, f"its keys can no longer be compared: {error.message}")

    def _compare(self, judge: Judge, theirs: Decision, table: TableDef, path: str) -> Compare:
        """Return how to compare keys; what is held of a decision does not name its files."""

        def compare(bucket: BucketId) -> KeyOverlap:
            keys = Keys(self.store, table.spec, table.schemas)
            try:
                whole = Timeline(self.store).find(theirs.version)
                if whole is None:
                    return UNKNOWN
                return compared(keys, judge, whole, bucket)
            except (FormatError, StorageError) as error:
                self.findings.note(path, f"its keys can no longer be compared: {error.message}")
                return DISJOINT

        return compare

    def _read(self, judge: Judge, theirs: Decision, state: TableState, path: str) -> WasRead:
        """Return what tells whether others changed a row that was read."""

        def read(bucket: BucketId) -> bool:
            keys = Keys(self.store, state.table.spec, state.table.schemas)
            try:
                whole = Timeline(self.store).find(theirs.version)
                return whole is None or was_read(keys, judge, whole, bucket, state)
            except (FormatError, InstantExpiredError, StorageError) as error:
                self.findings.note(path, f"its reads can no longer be compared: {error.message}")
                return False

        return read

    def _judge_lookups(self, decision: Decision, table: TableDef, path: str) -> None:
        """See that keys which came in and changed nothing are named, where reads count.

        Those that are not named were compared with nothing.
        """
        explicit = decision.read_set is not None and decision.read_set.explicit
        if not (explicit or table.isolation == "serializable"):
            return
        self.findings.count("lookups")
        named = decision.changes.lookups
        count, left = sum(named["key_count"].to_pylist()), decision.stats.keys_unchanged
        if count < left and KEYS_ALL not in named["keys"].to_pylist():
            message = f"it looked {left} keys up that it did not change, but names {count}"
            self.findings.problem("INV-07", path, message)

    def _window(self, base: int, version: int) -> Iterator[Decision]:
        oldest = self._recent[0].version if self._recent else version
        with suppress(FormatError, StorageError):  # reported where the slots are read
            yield from Timeline(self.store).load_after(base, limit=oldest - base - 1)
        for theirs in self._recent:
            if theirs.version > base:
                yield theirs


def _any(_bucket: BucketId) -> bool:
    return True


def _proven(keys: Keys, judge: Judge, theirs: Decision, bucket: BucketId) -> KeyOverlap:
    """Compare keys; what may have been any key of another partition proves nothing.

    A writer refuses that, but only as far as it looked back.
    """
    overlap = compared(keys, judge, theirs, bucket)
    return DISJOINT if overlap.in_other_partition and not overlap.known else overlap


def _idle(theirs: Decision, table: TableDef | None) -> bool:
    """Tell whether a decision changed nothing but comments, which stands in nobody's way."""
    if table is None or theirs.operation is not Operation.SCHEMA:
        return False
    return table.only_comments(theirs.schema_id)


@dataclass(slots=True)
class LiveFiles:
    """Follows which files are live: each is added once, and ended or masked only while live.

    Holds 64-bit hashes of paths, so that a table of a million files takes some 100 MB.
    """

    findings: Findings
    _live: dict[int, int] = field(default_factory=dict)
    """Hash of the path -> rows masked."""

    def take(self, decision: Decision) -> None:
        """Take the next decision."""
        changes = decision.changes
        if decision.operation in REWRITES:
            self._judge_rewrite(decision)
        for path, key in _keys(changes.removed):
            if self._live.pop(key, None) is None:
                self._bad(decision, f"it removes {path}, which is not live")
        for path, key in _keys(changes.added):
            if key in self._live:
                self._bad(decision, f"it adds {path}, which is already live")
            self._live[key] = 0
        rows = changes.masked["rows"].to_pylist()
        for (path, key), masked in zip(_keys(changes.masked), rows, strict=True):
            if key not in self._live:
                self._bad(decision, f"it masks rows of {path}, which is not live")
            elif masked < self._live[key] and decision.restored is None:
                self._bad(decision, f"it unmasks rows of {path}")
            else:
                self._live[key] = masked
        if decision.cleaned is not None:
            self._judge_clean(decision.cleaned, paths.slot(decision.version))

    def _judge_clean(self, cleaned: Cleaned, slot: str) -> None:
        """See that a clean condemns no live file, and none that ended after what is final."""
        for path, ended in cleaned.condemned:
            live = xxhash.xxh3_64_intdigest(path.encode()) in self._live
            if live:
                self.findings.problem("INV-05", slot, f"it condemns {path}, which is live")
            elif ended > cleaned.final and checkpoint_of(path) is None:
                message = f"it condemns {path}, which version {cleaned.final} may need"
                self.findings.problem("INV-05", slot, message)

    def _judge_rewrite(self, decision: Decision) -> None:
        """Compare what a rewrite takes away with what it brings: it changes no row (INV-14)."""
        self.findings.count("rewrites")
        changes = decision.changes
        moved, placed, masked = (
            dict(zip(table["path"].to_pylist(), table["rows"].to_pylist(), strict=True))
            for table in (changes.moved, changes.placed, changes.masked)
        )
        added = dict(zip(*(changes.added[n].to_pylist() for n in ("path", "rows")), strict=True))
        before = sum(moved.get(p, 0) - self._live.get(k, 0) for p, k in _keys(changes.removed))
        after = sum(rows - masked.get(path, 0) for path, rows in added.items())
        named = moved.keys() >= set(changes.removed["path"].to_pylist())
        if not named or any(placed.get(path) != rows for path, rows in added.items()):
            message = "it replaces files without saying where their rows went"
        elif before != after:
            message = f"it replaces {before} visible rows by {after}"
        else:
            return
        self.findings.problem("INV-14", paths.slot(decision.version), message)

    def _bad(self, decision: Decision, message: str) -> None:
        self.findings.problem("INV-04", paths.slot(decision.version), message)


def _keys(table: pa.Table) -> Iterator[tuple[str, int]]:
    for path in table["path"].to_pylist():
        yield path, xxhash.xxh3_64_intdigest(path.encode())
