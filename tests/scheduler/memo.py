"""The same decisions folded once, however many schedules come upon them.

The checksum of a decision names all decisions before it, so a state without checkpoint parts
follows from the checksum alone. What is remembered is what the real code computed. Of a state with
parts nothing is remembered: it loads only what it is asked for, which is another answer for each
question, and what it loads are calls of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import cast

import pyarrow as pa

from plait.model.decision import Decision
from plait.model.plan import Snapshot
from plait.read.plan import FileFilter
from plait.state.cache import StateCache
from plait.state.events import COMMITS
from plait.state.selected import PartCache
from plait.state.state import TableState
from plait.storage.port import Store
from plait.timeline.log import Timeline

_ENTRIES_MAX = 20_000


@dataclass(slots=True)
class Memo:
    """What was computed already; one for all schedules of a scenario."""

    known: dict[object, object] = field(default_factory=dict)
    lengths: list[int] = field(default_factory=list)
    """How many calls an undisturbed schedule has, once that is known."""

    def keep(self, key: object, value: object) -> None:
        """Remember; forget all when it grows too large."""
        if len(self.known) >= _ENTRIES_MAX:
            self.known.clear()
        self.known[key] = value


@dataclass(frozen=True, slots=True)
class MemoState(TableState):
    """A state that remembers what follows from it."""

    memo: Memo = field(default_factory=Memo, compare=False, repr=False)

    @classmethod
    def over(cls, state: TableState, memo: Memo) -> MemoState:
        """Give the same state to a client of its own.

        What a client finds out on its way (files loaded, parts compared) is a copy: a schedule
        that shared it with the one before would make fewer calls, and could not be run again.
        """
        told = {each.name: getattr(state, each.name) for each in fields(TableState)}
        told["loaded"], told["seen"] = list(state.loaded), list(state.seen)
        told["verification"] = replace(
            state.verification, compared=set(state.verification.compared)
        )
        told["cache"] = PartCache()
        return cls(**told, memo=memo)

    def apply(self, decision: Decision, *, where: str) -> TableState:
        """Give the state after one more decision."""
        if self.parts or decision.previous != self.checksum:
            return TableState.apply(self, decision, where=where)
        key = ("apply", decision.checksum, self.checkpoint)
        found = self.memo.known.get(key)
        if found is None:
            found = TableState.apply(self, decision, where=where)
            self.memo.keep(key, found)
        return cast("TableState", found)

    def snapshot(
        self,
        store: Store,
        *,
        version: int | None = None,
        file_filter: FileFilter | None = None,
    ) -> Snapshot:
        """Give what a reader or writer at a version sees; without parts it is all files."""
        if self.parts:
            return TableState.snapshot(self, store, version=version, file_filter=file_filter)
        key = ("snapshot", self.checksum, version)
        found = self.memo.known.get(key)
        if found is None:
            found = TableState.snapshot(self, store, version=version, file_filter=file_filter)
            self.memo.keep(key, found)
        return cast("Snapshot", found)

    def commits(
        self, store: Store, *, since: int = -1, columns: Sequence[str] = tuple(COMMITS.names)
    ) -> pa.Table:
        """Load one row a decision after a version."""
        if self.parts:
            return TableState.commits(self, store, since=since, columns=columns)
        key = ("commits", self.checksum, since, tuple(columns))
        found = self.memo.known.get(key)
        if found is None:
            found = TableState.commits(self, store, since=since, columns=columns)
            self.memo.keep(key, found)
        return cast("pa.Table", found)

    def find_version_at(self, store: Store, time_ms: int) -> int | None:
        """Find the newest version completed at or before a time."""
        key = ("at", self.checksum, time_ms)
        if self.parts:
            return TableState.find_version_at(self, store, time_ms)
        if key not in self.memo.known:
            self.memo.keep(key, TableState.find_version_at(self, store, time_ms))
        return cast("int | None", self.memo.known[key])


class MemoTimeline(Timeline):
    """Decodes the same bytes once."""

    def __init__(self, store: Store, memo: Memo) -> None:
        super().__init__(store)
        self._memo = memo

    def decode(self, version: int, data: bytes) -> Decision:
        """Read the bytes of a slot."""
        key = ("decode", version, data)
        found = self._memo.known.get(key)
        if found is None:
            found = super().decode(version, data)
            if b'"manifest"' not in data:
                self._memo.keep(key, found)
        return cast("Decision", found)


def remember(cache: StateCache, memo: Memo) -> StateCache:
    """Let a client's cache take part."""
    cache.timeline = MemoTimeline(cache.store, memo)
    return cache
