"""A record of what one client of a table does while others come between.

The record has the phases that the client reports, its calls of the store and of the lock, what its
engine staged, each decision that it published, and how it ended. Names of instants and nonces are
numbered in the order in which they appear, so that a record is the same in every run.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from plait import Table
from plait.definition.create import define_table
from plait.errors import LockTimeoutError, TableError
from plait.model.decision import CommitResult, Decision
from plait.ports import Ports
from plait.state.cache import StateCache
from plait.storage.port import Store
from plait.testing import SeqIds, SimClock, sim_ports
from plait.testing.wrapper import WrappedStore
from plait.timeline import paths
from plait.timeline.log import Timeline
from plait.txn.refusal import AlreadyCommitted
from plait.txn.table_decisions import create_table
from plait.txn.table_handle import TableHandle
from tests.support.protocol import NoLock, client, memory

T = TypeVar("T")
Act = Callable[[], object]
ROWS = pa.schema([("id", pa.int64()), ("value", pa.string())])
SLOT = re.compile(rf"{paths.TIMELINE}/\d+/0*(\d+)\.json")
INSTANT = re.compile(r"\d{17,20}-[0-9a-f]{16}")
NONCE = re.compile(r"\b[0-9a-f]{16}\b")
SHOWN = 9
READS = ("find ", "open_input ", "list ")
"""Calls whose order says nothing: several threads of an engine make them."""
OF_THE_ENGINE, OF_THE_LOOP = ("open_", "persist"), (".dv.bin", ".map.bin")
"""How an engine reads and writes rows is its own matter: only vectors and row maps are noted."""


class Scene:
    """One table, one client of it that is watched, and others that are not."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.store = memory(self.clock)
        self.lines: list[str] = []
        self._acts: dict[str, list[Act]] = {}
        self._others = 0

    def create(self, schema: pa.Schema = ROWS, **how: object) -> None:
        """Create the table; by default with a key and four buckets, where keys decide."""
        asked = {"record_key": ("id",), "buckets": 4, "lock": "none", **how}
        table = define_table(schema, **asked)  # type: ignore[arg-type]  # of several scenes
        create_table(self.store, self._ports("c"), table)

    def watched(self, wrap: Callable[[Store], Store] = lambda store: store) -> TableHandle:
        """Open the table as the client that is watched."""
        ports = replace(self._ports("a"), observer=Watching(self))
        store = WatchedStore(wrap(self.store), self)
        return TableHandle(store, ports, StateCache(store, ports), WatchedLock(self))

    def other(self) -> Table:
        """Open the table as one more client."""
        self._others += 1
        return Table(client(self.store, self.clock, nonces=f"b{self._others:03x}"))

    def at(self, event: str, *acts: Act) -> None:
        """Let others act when an event of the watched client comes: the first time, the second."""
        self._acts[event] = list(acts)

    def happen(self, event: str, facts: str = "") -> None:
        """Note an event, then let others act."""
        self.lines.append(f"{event} {facts}".rstrip())
        if acts := self._acts.get(event):
            acts.pop(0)()

    def act(self, what: Callable[[], object]) -> None:
        """Let the watched client do something, and note how it ended."""
        try:
            result = what()
        except (TableError, AlreadyCommitted) as error:
            version = getattr(error, "version", None)
            named = "" if version is None else f" version={version}"
            self.lines.append(f"raised {type(error).__name__}{named}")
            return
        if isinstance(result, CommitResult):
            facts = f"attempts={result.attempts} rebased={result.rebased}"
            self.lines.append(f"returned version={result.version} {facts}")

    def record(self) -> list[str]:
        """Return what was noted, without names that differ between runs."""
        start = next(at for at, line in enumerate(self.lines) if line.startswith("phase begin"))
        noted = shortened(in_order(self.lines[start:]))
        text, known = "\n".join(noted), dict[str, str]()
        text = SLOT.sub(r"slot \1", text)
        text = INSTANT.sub(lambda m: known.setdefault(m[0], f"i{len(known) + 1}"), text)
        return NONCE.sub("#", text).splitlines()

    def _ports(self, nonces: str) -> Ports:
        return sim_ports(clock=self.clock, ids=SeqIds(nonces))


def in_order(lines: list[str]) -> Iterator[str]:
    """Sort reads that follow each other, which threads may make in any order."""
    held: list[str] = []
    for line in lines:
        if line.startswith(READS):
            held.append(line)
            continue
        yield from sorted(held)
        held = []
        yield line
    yield from sorted(held)


def shortened(lines: Iterable[str]) -> Iterator[str]:
    """Of many calls in a row with files of data show the first ones, and count the others."""
    for call, run in itertools.groupby(lines, _data_call):
        known = list(run)
        yield from known[: SHOWN if call else None]
        if call and len(known) > SHOWN:
            yield f"{call} ({len(known) - SHOWN} more)"


def _data_call(line: str) -> str | None:
    call, data, _ = line.partition(" data/")
    return call if data else None


class Watching:
    """Notes the phases that a client reports."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def phase(self, name: str, **facts: object) -> None:
        told = " ".join(f"{key}={facts[key]}" for key in sorted(facts))
        self._scene.happen(f"phase {name}", told)


class WatchedStore(WrappedStore):
    """Notes each call, and what was decided."""

    def __init__(self, inner: Store, scene: Scene) -> None:
        super().__init__(inner)
        self._scene = scene

    def call(self, operation: str, path: str, run: Callable[[], T]) -> T:
        if path.endswith(OF_THE_LOOP) or not operation.startswith(OF_THE_ENGINE):
            self._scene.lines.append(f"{operation} {path}")
        return run()

    def put_if_absent(self, path: str, body: bytes) -> bool:
        won = super().put_if_absent(path, body)
        found = re.fullmatch(SLOT, path)
        if found is None:
            return won
        told = decided(Timeline(self.inner).decode(int(found[1]), body))
        self._scene.lines.append(f"  {'won' if won else 'lost'}: {told}")
        return won


def decided(decision: Decision) -> str:
    """Tell what a decision says, as far as the loop makes it."""
    facts = {
        "base": decision.base,
        **{key: decision.client[key] for key in FACTS if key in decision.client},
    }
    for conflict in decision.client.get("conflicts", ()):
        facts[f"v{conflict['version']}"] = f"{conflict['verdict']}:{conflict['bucket_count']}"
    changes = decision.changes
    facts |= {name: n for name in PARTS if (n := getattr(changes, name).num_rows)}
    if decision.read_set is not None:
        facts["read"] = decision.read_set.version
    told = " ".join(f"{key}={value}" for key, value in facts.items())
    return f"{decision.operation.value} {told}"


FACTS = ("began", "attempts", "redone", "rebased", "carried", "restaged")
PARTS = ("added", "removed", "masked", "garbage")


class WatchedLock(NoLock):
    """Notes who takes the lock, and when it is free again."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self._scene = scene
        self.held_by_another = False

    @contextlib.contextmanager
    def acquire(self, *, wait_s: float, owner: str) -> Iterator[NoLock]:
        self._scene.happen("lock", f"wait_s={wait_s:g}")
        if self.held_by_another:
            message = "another process has it"
            raise LockTimeoutError(message, hint="")
        with super().acquire(wait_s=wait_s, owner=owner):
            yield self
        self._scene.lines.append("unlock")
