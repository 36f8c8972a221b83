"""What one client knows of a table: a state that only moves forward."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import pyarrow.compute as pc

from plait.errors import (
    CorruptMetadataError,
    FormatError,
    InstantExpiredError,
    StorageError,
    TableNotFoundError,
)
from plait.model.decision import Decision
from plait.model.instant import Operation
from plait.model.plan import Snapshot
from plait.ports import Ports
from plait.read.wanted import Wants
from plait.state.checkpoint import (
    hinted_checkpoint,
    load_checkpoint,
    load_newest,
    write_checkpoint,
)
from plait.state.events import LiveEntry
from plait.state.state import TableState
from plait.storage.port import Store
from plait.timeline import paths
from plait.timeline.log import Timeline

T = TypeVar("T")
_NEAR = 64
"""Number of decisions that are read one by one before a newer checkpoint is looked for."""
_TAIL_MAX = 512
_LOOKS_MAX = 8
"""So often the head is looked at for one question, while others take away what the answer needs."""


class StateCache:
    """The newest state that this client has seen; safe to share between threads."""

    def __init__(self, store: Store, ports: Ports) -> None:
        self.store = store
        self.ports = ports
        self.timeline = Timeline(store)
        self._lock = threading.Lock()
        self._state: TableState | None = None

    def known(self) -> TableState:
        """Return what is known, without looking; the first call loads."""
        state = self._state
        return self.refresh() if state is None else state

    def refresh(self) -> TableState:
        """Look at the head, and apply what came since: one read when nothing did.

        Raises:
            TableNotFoundError: there is no table here.
            FormatError: it is damaged, or from a newer Plait.
        """
        return self._keep(self._catch_up(self._state or self._open()))

    def _catch_up(self, state: TableState) -> TableState:
        load = self.timeline.load_active
        while True:
            before = state.version
            try:
                for decision in load(before, limit=_NEAR):
                    state = state.apply(decision, where=paths.slot(decision.version))
            except InstantExpiredError:
                newest = load_newest(self.store, least=state.version + 1)
                if newest is not None and newest.version > state.version:
                    state = newest
                else:  # all checkpoints are lost: the archive makes up for them (INV-11)
                    load = self.timeline.load_after
                continue
            if state.version - before < _NEAR:
                return state
            state = self._jump(state)

    def decisions(self, since: int, *, limit: int) -> Iterator[Decision]:
        """Return the decisions after a version until the head, oldest first, ``limit`` at most.

        What is known is not read again: a decision never changes.
        """
        known = self._state
        recent = None if known is None else known.recent(since)
        held = [] if recent is None else recent[::-1][:limit]
        yield from held
        yield from self.timeline.load_after(since + len(held), limit=limit - len(held))

    def advance(self, decision: Decision) -> TableState:
        """Take in a decision that this client has just published: no read."""
        state = self.known()
        if decision.version == state.version + 1:
            state = state.apply(decision, where=paths.slot(decision.version))
        return self._keep(state)

    def snapshot(self, *, version: int | None = None, wants: Wants | None = None) -> Snapshot:
        """Look at the head and return the table at a version, the newest by default.

        ``wants``: what is looked at; of a large table no other files are loaded.

        Raises:
            InstantNotFoundError, InstantExpiredError: no such version, or no more.
        """
        return self.ask(lambda state: state.snapshot(self.store, version=version, wants=wants))

    def loaded(self) -> TableState:
        """Look at the head, and load all file events."""

        def load(state: TableState) -> TableState:
            state.folded(self.store)
            return state

        return self.ask(load)

    def ask(self, what: Callable[[TableState], T]) -> T:
        """Look at the head and ask its state for something; look again if others took it away.

        A checkpoint that this client rests on may have been collected meanwhile: then the newest is
        loaded. That costs time, nothing else (INV-11). It goes on while the head moves, but not for
        ever: what is missing at head after head is missing.
        """
        state = self.refresh()
        for look in range(_LOOKS_MAX):
            try:
                return what(state)
            except (CorruptMetadataError, InstantExpiredError) as error:
                before = state.version
                if isinstance(error, InstantExpiredError):
                    state, anew = self.refresh(), False
                else:
                    anew = look == 0 and bool(state.parts)
                    state = self._renewed()
                if state.version == before and not anew:
                    raise
        return what(state)

    def _renewed(self) -> TableState:
        """Load the state anew, and not by way of what others keep meanwhile."""
        return self._keep(self._catch_up(self._open()), same_version=True)

    def offer(self, state: TableState, *, same_version: bool = False) -> TableState:
        """Take in a state that the caller applied itself.

        ``same_version``: also in the place of one of the same version.
        """
        return self._keep(state, same_version=same_version)

    def checkpoint(self, interval: int) -> bool:
        """Write a checkpoint if it falls to us; tell whether it did.

        It falls to whoever committed a multiple of the interval, so that of many writers one
        does it; and to anyone who finds that nobody did for two intervals.
        """
        state = self.known()
        since = state.version - max(state.checkpoint, 0)
        if since < interval:
            return False
        if state.version % interval:
            newest = hinted_checkpoint(self.store) if since >= 2 * interval else state.checkpoint
            if newest is not None and 0 <= state.version - newest < 2 * interval:
                if newest > state.checkpoint:
                    self._keep(replace(state, checkpoint=newest), same_version=True)
                return False
        state = write_checkpoint(self.store, self._on_rebuilt(state), self.ports)
        self._keep(state, same_version=True)
        return True

    def _on_rebuilt(self, state: TableState) -> TableState:
        """Let a state rest on the checkpoint of a rebuild that came since its own parts.

        That one tells bounds that no decision does, and they are to outlive it. Without it the
        state is as right: that costs time only (INV-11).
        """
        rebuilt = _newest_rebuild(state.tail)
        if rebuilt is None:
            return state
        try:
            other = load_checkpoint(self.store, rebuilt)
            for decision in self.timeline.load_after(rebuilt, limit=state.version - rebuilt):
                if other is not None:
                    other = other.apply(decision, where=paths.slot(decision.version))
        except (FormatError, InstantExpiredError, StorageError):
            return state
        return state if other is None or other.version != state.version else other

    def _keep(self, state: TableState, *, same_version: bool = False) -> TableState:
        with self._lock:
            known = self._state
            if known is not None and known.version > state.version:
                return known
            if known is not None and known.version == state.version and not same_version:
                return known
            if len(state.tail) > _TAIL_MAX:
                state = state.squeezed()
            self._state = state
            return state

    def _jump(self, state: TableState) -> TableState:
        newest = load_newest(self.store)
        return newest if newest is not None and newest.version > state.version else state

    def _open(self) -> TableState:
        state = load_newest(self.store)
        if state is not None:
            return state
        first = self.timeline.find(0)
        if first is None:
            uri = self.store.spec.uri
            message = f"there is no table at {uri}"
            hint = "create it with Table.create; see `tablectl create --help`"
            raise TableNotFoundError(message, hint=hint, uri=uri)
        return TableState.create(first, where=paths.slot(0))


def _newest_rebuild(tail: Sequence[LiveEntry]) -> int | None:
    """Return the version of the newest rebuild of bounds in a tail; None if none is."""
    for entry in reversed(tail):
        if entry.decision is not None and entry.decision.operation is Operation.REBUILD:
            return entry.version
        if entry.decision is None:  # several brought together
            commits = entry.events.commits
            found = commits.filter(pc.equal(commits["operation"], Operation.REBUILD.value))
            if found.num_rows:
                return int(pc.max(found["version"]).as_py())
    return None
