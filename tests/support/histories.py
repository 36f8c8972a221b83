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
from plait.model.decision import Cleaned, Decision, Restored, Savepoint, SavepointChange
from plait.model.instant import Action, Instant, Operation
from plait.state.state import TableState, statistics_after_decision
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
    vectors: dict[str, list[tuple[int, int | None]]] = field(default_factory=dict)
    """File of deletion vectors -> the versions that began and ended the masks in it."""
    marking: dict[str, dict[str, object]] = field(default_factory=dict)
    """Live file -> its mask, while a step is taken."""
    masks: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Live file -> its newest mask: where it stands, and its number among those there."""
    sidecars: dict[str, int] = field(default_factory=dict)
    condemned: dict[str, int] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    number: int = 0
    places: Sequence[Partition] = ((),)
    """The partitions in which files are added, in turn."""
    rows: dict[str, dict[str, object]] = field(default_factory=dict)
    """File -> as it was added first."""
    marks: list[dict[str, dict[str, object]]] = field(default_factory=lambda: [{}])
    """By version: live file -> its mask."""
    masked: set[str] = field(default_factory=set)
    """Files that ever had a mask."""
    saved: dict[str, int] = field(default_factory=dict)

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
        changes, cleaned, restored, saved = Changes(), None, None, None
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
        elif kind == "restore":
            changes, restored = self._restore(now, self._readable(one))
        elif kind == "save":
            saved = SavepointChange(Savepoint(f"s{other % 3}", self._readable(one)))
            self.saved[saved.savepoint.name] = saved.savepoint.version
        elif kind == "drop":
            saved = SavepointChange(Savepoint(f"s{other % 3}", 0), drop=True)
            self.saved.pop(saved.savepoint.name, None)
        elif kind == "clean":
            cleaned = self._clean(one, other)
        elif kind == "undo" and self.state.horizons.raised:
            cleaned = self._undo(one)
        self.live.append(now)
        self.marks.append(dict(self.marking))
        self._decide(changes, cleaned, restored, saved)

    def _readable(self, number: int) -> int:
        """Choose a version that can be read."""
        versions = sorted({*range(self.state.horizon, self.version + 1), *self.saved.values()})
        return versions[number % len(versions)]

    def _restore(self, now: dict[str, int], to: int) -> tuple[Changes, Restored]:
        """Take the files of a version again; of those that were ever masked, name the mask."""
        then = self.live[to]
        back = [path for path in then if path not in now]
        gone = [path for path in now if path not in then]
        then_masked, now_masked = self.marks[to], self.marks[-1]
        other = [p for p in then if then_masked.get(p) != now_masked.get(p)]
        other += [p for p in back if p in self.masked and p not in other]
        removed = self._remove(now, gone)
        masks = []
        for path in other:
            self._end_mask(path)
            mark = then_masked.get(path, {"path": path, "rows": 0})
            self._begin_mask(path, mark)
            masks.append(mark)
        for path in back:
            self.ended.pop(path, None)
        now.clear()
        now.update(then)
        added = [self.rows[path] for path in back]
        return (
            Changes(
                added=pa.Table.from_pylist(added, schema=ADDED),
                removed=removed.removed,
                masked=pa.Table.from_pylist(masks, schema=MASKED),
            ),
            Restored(to),
        )

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
        row |= {"order": 0, "schema_id": 0}
        rows = [
            {**row, "path": path, "partition": partition_text(place), "stats": self._stats(path)}
            for path, place in zip(files, places, strict=True)
        ]
        self.rows |= {str(row["path"]): row for row in rows}
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
            rows.append(row)
            self._begin_mask(path, row)
        return Changes(masked=pa.Table.from_pylist(rows, schema=MASKED))

    def _begin_mask(self, path: str, row: dict[str, object]) -> None:
        self.masked.add(path)
        self.marking[path] = row
        where = row.get("dv_path")
        if where is not None:
            spans = self.vectors.setdefault(str(where), [])
            spans.append((self.version + 1, None))
            self.masks[path] = (str(where), len(spans) - 1)

    def _end_mask(self, path: str) -> None:
        self.marking.pop(path, None)
        where = self.masks.pop(path, None)
        if where is not None:
            begun, _ = self.vectors[where[0]][where[1]]
            self.vectors[where[0]][where[1]] = (begun, self.version + 1)

    def _clean(self, one: int, other: int) -> Cleaned:
        horizon = self.state.horizon + one % (self.version - self.state.horizon + 1)
        final = horizon - other % (horizon - self.state.horizons.final + 1)
        saved = [version for version in self.saved.values() if version < horizon]
        kept = {path for version in saved for path in self.live[version]}
        over = [(p, end) for p, end in self.ended.items() if end <= final and p not in kept]
        for path, spans in self.vectors.items():
            known = [end for begun, end in spans if end is not None and end <= final]
            if len(known) == len(spans) and not any(
                begun <= version < (end or 0) for begun, end in spans for version in saved
            ):
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

    def _decide(
        self,
        changes: Changes,
        cleaned: Cleaned | None,
        restored: Restored | None,
        saved: SavepointChange | None,
    ) -> None:
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
            restored=restored,
            savepoint=saved,
            live=statistics_after_decision(self.store, self.state, changes),
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
