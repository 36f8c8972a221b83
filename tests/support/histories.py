"""Histories for tests of the state: real slots in a memory store, and a dictionary beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from plait.model.bucket import Partition, partition_path, partition_text
from plait.model.changes import (
    ADDED,
    BASE,
    KEYS_FILES,
    KEYS_SIDECAR,
    MASKED,
    PATHS,
    TOUCHED,
    Changes,
)
from plait.model.decision import Cleaned, Decision
from plait.model.instant import Action, Instant, Operation
from plait.state.state import TableState
from plait.storage.port import Store
from plait.timeline import codec, paths
from plait.timeline.log import Timeline
from tests.support.protocol import create

Step = tuple[str, int, int]
"""What happens, and two numbers that choose where."""


@dataclass
class History:
    """A table without data files: its slots, and what a reader of each version must see."""

    store: Store
    state: TableState
    live: list[dict[str, int]] = field(default_factory=lambda: [{}])
    """By version: live file -> rows masked."""
    ended: dict[str, int] = field(default_factory=dict)
    vectors: dict[str, list[int | None]] = field(default_factory=dict)
    """File of deletion vectors -> the versions that ended the masks in it."""
    masks: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Live file -> its newest mask: where it stands, and its number among those there."""
    sidecars: dict[str, int] = field(default_factory=dict)
    condemned: dict[str, int] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    number: int = 0
    places: Sequence[Partition] = ((),)
    """The partitions in which files are added, in turn."""

    @classmethod
    def begin(cls, store: Store, *, places: Sequence[Partition] = ((),)) -> History:
        create(store)
        first = Timeline(store).find(0)
        assert first is not None
        return cls(store, TableState.create(first, where="slot"), places=places)

    @property
    def version(self) -> int:
        return self.state.version

    def step(self, step: Step) -> None:
        """Take one step, whatever it comes to."""
        kind, one, other = step
        now = dict(self.live[-1])
        known = sorted(now)
        at = known[one % len(known)] if known else None
        changes, cleaned = Changes(), None
        if kind == "add":
            changes = self._add(now, 1 + one % 3, sidecar=other % 2 == 0)
        elif kind == "remove" and at is not None:
            changes = self._remove(now, known[one % len(known) :][: 1 + other % 3])
        elif kind == "mask" and at is not None:
            changes = self._mask(now, known[one % len(known) :][: 1 + other % 3])
        elif kind == "replace" and at is not None:
            added = self._add(now, 1, sidecar=False)
            removed = self._remove(now, [at])
            changes = replace(added, removed=removed.removed)
        elif kind == "clean":
            cleaned = self._clean(one, other)
        elif kind == "undo" and self.state.horizons.raised:
            cleaned = self._undo(one)
        self.live.append(now)
        self._decide(changes, cleaned)

    def run(self, steps: Iterable[Step]) -> History:
        for step in steps:
            self.step(step)
        return self

    def replayed(self) -> TableState:
        """Give the state by applying every slot, from the first on."""
        timeline = Timeline(self.store)
        first = timeline.find(0)
        assert first is not None
        state = TableState.create(first, where="slot")
        for decision in timeline.load_after(0, limit=10_000):
            state = state.apply(decision, where="slot")
        return state

    def _name(self, kind: str, place: Partition = ()) -> str:
        self.number += 1
        return f"{partition_path(place)}/{self.number:06d}.{kind}"

    def _add(self, now: dict[str, int], count: int, *, sidecar: bool) -> Changes:
        places = [self.places[(self.number + n) % len(self.places)] for n in range(count)]
        files = [self._name("base.parquet", place) for place in places]
        now.update(dict.fromkeys(files, 0))
        row = {"bucket": 0, "kind": BASE, "rows": 1_000, "bytes": 10, "footer": 0}
        row |= {"sorted": True, "schema_id": 0}
        rows = [
            {**row, "path": path, "partition": partition_text(place), "stats": self._stats(path)}
            for path, place in zip(files, places, strict=True)
        ]
        touched: dict[str, object] = {"partition": "[]", "bucket": 0, "key_count": 1}
        touched["keys"] = KEYS_SIDECAR if sidecar else KEYS_FILES
        if sidecar:
            path = self._name("keys.bin")
            touched["key_path"] = path
            self.sidecars[path] = self.version + 1
        return Changes(
            added=pa.Table.from_pylist(rows, schema=ADDED),
            touched=pa.Table.from_pylist([touched], schema=TOUCHED),
        )

    @staticmethod
    def _stats(path: str) -> str | None:
        """Give the bounds of the column id: the number in the name; none for every third file."""
        number = int(path.rpartition("/")[2].partition(".")[0])
        return f'{{"1":["{number}","{number + 9}",0]}}' if number % 3 else None

    def _remove(self, now: dict[str, int], files: list[str]) -> Changes:
        for path in files:
            del now[path]
            self.ended[path] = self.version + 1
            self._end_mask(path)
        return Changes(removed=pa.table({"path": files}, schema=PATHS))

    def _mask(self, now: dict[str, int], files: list[str]) -> Changes:
        rows = []
        where = self._name("dv.bin")
        for number, path in enumerate(files):
            now[path] += 1
            self._end_mask(path)
            row: dict[str, object] = {"path": path, "rows": now[path]}
            if number == 0:
                row["inline"] = b"?"
            else:
                row |= {"dv_path": where, "dv_offset": 1, "dv_bytes": 2}
                self.vectors.setdefault(where, []).append(None)
                self.masks[path] = (where, len(self.vectors[where]) - 1)
            rows.append(row)
        return Changes(masked=pa.Table.from_pylist(rows, schema=MASKED))

    def _end_mask(self, path: str) -> None:
        where = self.masks.pop(path, None)
        if where is not None:
            self.vectors[where[0]][where[1]] = self.version + 1

    def _clean(self, one: int, other: int) -> Cleaned:
        horizon = self.state.horizon + one % (self.version - self.state.horizon + 1)
        final = horizon - other % (horizon - self.state.horizons.final + 1)
        over = [(path, end) for path, end in self.ended.items() if end <= final]
        for path, ends in self.vectors.items():
            known = [end for end in ends if end is not None and end <= final]
            if len(known) == len(ends):
                over.append((path, max(known)))
        over += [(path, version) for path, version in self.sidecars.items() if version <= final]
        fresh = [entry for entry in sorted(over) if entry[0] not in {*self.condemned, *self.gone}]
        deleted = sorted(self.condemned)[: other % (len(self.condemned) + 1)]
        for path in deleted:
            self.gone.add(path)
            del self.condemned[path]
        self.condemned.update(fresh)
        return Cleaned(horizon, final, tuple(fresh), tuple(deleted))

    def _undo(self, one: int) -> Cleaned:
        raised = self.state.horizons.raised
        since = one % len(raised)
        horizon = raised[since - 1].horizon if since else self.state.horizons.final
        return Cleaned(horizon, self.state.horizons.final, undo=raised[since].version)

    def _decide(self, changes: Changes, cleaned: Cleaned | None) -> None:
        version = self.version + 1
        decision = Decision(
            version=version,
            instant=Instant.at(1_700_000_000_000 + version, f"{version:016x}"),
            action=Action.CLEAN if cleaned else Action.COMMIT,
            operation=Operation.CLEAN if cleaned else Operation.UPSERT,
            base=version - 1,
            completed_ms=self.state.completed_ms + 1,
            attempt=str(version),
            previous=self.state.checksum,
            changes=changes,
            cleaned=cleaned,
        )
        path = paths.slot(version)
        assert self.store.put_if_absent(path, codec.encode(decision))
        published = Timeline(self.store).find(version)
        assert published is not None
        self.state = self.state.apply(published, where=path)


def seen(state: TableState, store: Store, version: int) -> dict[str, int]:
    """Give what a reader sees: live file -> rows masked."""
    files = state.snapshot(store, version=version).files
    names, masked = files["path"].to_pylist(), files["masked"].to_pylist()
    assert len(set(names)) == len(names), "a file is listed twice"
    return dict(zip(names, masked, strict=True))
