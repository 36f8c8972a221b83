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
from plait.locks.identity import IDENTITY_BYTES_MAX, identity_of
from plait.model.decision import Decision
from plait.model.document import check_seal
from plait.model.instant import Operation
from plait.model.plan import Snapshot
from plait.ports import Ports
from plait.read.plan import FileFilter
from plait.state.checkpoint import (
    hinted_checkpoint,
    list_checkpoints,
    load_checkpoint,
    load_newest,
    try_checkpoint,
    write_checkpoint,
)
from plait.state.events import LiveEntry
from plait.state.state import TableState
from plait.storage.port import Store
from plait.timeline import paths
from plait.timeline.codec import SLOT_BYTES_MAX
from plait.timeline.log import Timeline

T = TypeVar("T")
_NEAR = 64
"""Number of decisions that are read one by one before a newer checkpoint is looked for."""
_TAIL_MAX = 512
_LOOKS_MAX = 8
"""Maximum number of looks at the head for one question: others may take away what it needs."""


class StateCache:
    """The newest state that this client has seen; safe to share between threads."""

    def __init__(self, store: Store, ports: Ports) -> None:
        self.store = store
        self.ports = ports
        self.timeline = Timeline(store)
        self.identity: str | None = None
        """The table's identity, once it was read: it tells damage from another table."""
        self._lock = threading.Lock()
        self._state: TableState | None = None

    @property
    def seen(self) -> TableState | None:
        """The newest state that was loaded, without looking; None if none was."""
        return self._state

    def known(self) -> TableState:
        """Return what is known, without looking; the first call loads."""
        state = self._state
        return self.refresh() if state is None else state

    def refresh(self, *, checked: bool = True) -> TableState:
        """Look at the head, and apply what came since: two reads when nothing did.

        What was read since then continues what was known, so it is of the same table. When
        nothing was, the slot of the version that is known is read once more: without that, a
        client of a table that was deleted would go on from its memory for ever.

        ``checked``: False for a caller that publishes before it returns what was seen, since
        ``publish`` looks itself once its decision is there.

        Raises:
            TableNotFoundError: there is no table here, or another one than was opened.
            FormatError: it is damaged, or from a newer Plait. What is below the damage is known
                then, and ``snapshot`` shows its versions.
        """
        known = self._state
        if known is None:
            return self._first_look()
        # The slot after the known version is read first. If something is there and continues what
        # is known, that alone proves that the table is the same, so only the quiet case costs a
        # second read.
        state = self._advance(known)
        if checked and state.version == known.version:
            self.require_same_table(state)
        return self._keep(state)

    def refresh_up_to(self, version: int) -> TableState:
        """Look at the head, and return a state that has a version, also from below damage.

        Raises:
            TableNotFoundError, FormatError: as ``refresh``, where the version is not below.
        """
        try:
            return self.refresh()
        except CorruptMetadataError:
            state = self._state
            if state is None or not 0 <= version <= state.version:
                raise
            return state

    def _first_look(self) -> TableState:
        """Load the newest state, from a checkpoint of which the timeline proves that it is ours.

        A checkpoint is named by its version. One that a client of a deleted table wrote into the
        table that was made in its place must cost time only, so the next older one is tried.
        """
        first: CorruptMetadataError | TableNotFoundError | None = None
        for start in self._starts():
            try:
                state = self._advance(start)
                if state.version == start.version and start.checkpoint >= 0:
                    self.require_same_table(state)
            except (CorruptMetadataError, TableNotFoundError) as error:
                first = first or error
                # An older checkpoint is tried only while nothing was shown: what lies below damage
                # of the timeline was kept by `_advance`, and must not be replaced by something
                # older.
                if start.checkpoint < 0 or self._state is not None:
                    raise first from None
                continue
            if self.identity is not None:
                self._require_identity()
            return self._keep(state)
        raise first or self._absent()

    def _advance(self, start: TableState) -> TableState:
        """Catch up with the head; where the timeline is damaged, keep what lies below that."""
        reached = [start]
        try:
            state = self._catch_up(reached)
        except (FormatError, InstantExpiredError) as error:
            below = reached[-1]
            if below.version == start.version:
                self.require_same_table(start)
            # Keep what lies below the damage before the error is raised: `snapshot` can still show
            # it.
            self._keep(below)
            if not isinstance(error, CorruptMetadataError):
                raise
            raise _with_remedy(error, below.version) from error
        if state.checkpoint > start.version:
            self._require_identity()  # by way of a checkpoint, which does not continue ``start``
        return state

    def require_same_table(self, state: TableState) -> None:
        """Refuse to go on where the table of a state is gone, or another one is in its place.

        The slot of its version is compared: each decision names the one before, so one that is
        there proves all of the history. Only where it is not as it was, more is read. What is lost
        below a slot that is there, and what is no decision, is damage. A decision that is another
        one, and a timeline that ends below, are those of an older copy, or were cut off; but a
        checkpoint keeps what it has.

        Raises:
            TableNotFoundError: the table is not there any more, or went back behind the state.
            CorruptMetadataError: it is there, and its newest decision is lost or damaged.
            StorageError: the store does not answer.
        """
        if self.timeline.holds(state.version, state.checksum):
            return
        self._require_identity()
        if self.timeline.holds(state.version, state.checksum, ask_service=True):
            return  # it is lent, and was not copied yet
        path = paths.slot(state.version)
        found = self.store.find(path, size_max=SLOT_BYTES_MAX)
        if found == b"":
            return  # it was archived
        if found is not None:
            checksum, _ = check_seal(found, path=path)
            if checksum == state.checksum:
                return  # it came a moment ago
            became = "replaced by an older copy, or cut off; others have written to it"
            raise self._gone(became, path=path, expected=state.checksum, found=checksum)
        below = self.store.find(paths.slot(max(0, state.version - 1)), size_max=SLOT_BYTES_MAX)
        if below is not None:
            self.timeline.find_slot(state.version)  # a slot above it tells that it was lost
        if self._is_kept(state):
            return
        became = "replaced by an older copy, or cut off,"
        raise self._gone(became, path=path, expected=state.checksum, found="no decision")

    def _is_kept(self, state: TableState) -> bool:
        """Tell whether a checkpoint keeps a state of which the newest slots are lost.

        Without this, the commits between the newest slot that is left and the checkpoint would be
        lost without a word, and others would be written in their place. The checkpoint has to name
        the instant of that slot. So it is no checkpoint of another table that was here before,
        and a cut-off deletes checkpoints before it deletes slots.
        """
        if state.checkpoint != state.version:
            return False
        kept = try_checkpoint(self.store, state.version)
        if kept is None or kept.checksum != state.checksum:
            return False
        names = (info.path for info in self.store.list(paths.TIMELINE))
        last = max((path for path in names if path < paths.slot(state.version)), default=None)
        body = None if last is None else self.store.find(last, size_max=SLOT_BYTES_MAX)
        if not last or not body:
            return False
        version = int(last.rpartition("/")[-1].removesuffix(".json"))
        instant = self.timeline.decode(version, body).instant
        return kept.find_instant(self.store, instant) == version

    def _require_identity(self) -> None:
        """Refuse a place that has no table, or another one than this client opened."""
        body = self.store.find(paths.TABLE, size_max=IDENTITY_BYTES_MAX)
        if body is not None and self.identity in (None, identity_of(body)):
            return
        missing = body is None
        raise self._gone("deleted, renamed or unmounted" if missing else "deleted and made again")

    def _gone(self, became: str, **facts: object) -> TableNotFoundError:
        uri = self.store.address.uri
        message = f"the table at {uri} was {became} since it was opened"
        hint = "end all clients before a table is deleted, and open it again when it is there"
        return TableNotFoundError(message, hint=hint, uri=uri, **facts)

    def _catch_up(self, reached: list[TableState]) -> TableState:
        """Apply what came since; ``reached`` gets each state on the way."""
        load, state = self.timeline.load_active, reached[-1]
        while True:
            before = state.version
            try:
                for decision in load(before, limit=_NEAR):
                    state = state.apply(decision, where=paths.slot(decision.version))
                    reached[-1] = state
            except InstantExpiredError:
                # The slots after `state` were emptied by an archive, so a checkpoint covers them.
                # One below them would lead here again and again, hence `least`.
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
        # Decisions in the tail are complete, so reading them here is as good as reading their
        # slots. A tail that was squeezed has lost them, and `recent` says so by None.
        recent = None if known is None else known.recent(since)
        held = [] if recent is None else recent[::-1][:limit]
        yield from held
        yield from self.timeline.load_after(since + len(held), limit=limit - len(held))

    def advance(self, decision: Decision) -> TableState:
        """Take in a decision that this client has just published: no read."""
        state = self.known()
        # Another thread of this client may have moved on already. Then its state includes our
        # decision.
        if decision.version == state.version + 1:
            state = state.apply(decision, where=paths.slot(decision.version))
        return self._keep(state)

    def snapshot(
        self, *, version: int | None = None, file_filter: FileFilter | None = None
    ) -> Snapshot:
        """Look at the head and return the table at a version, the newest by default.

        ``file_filter``: what is looked at; of a large table no other files are loaded.

        A version below damage of the timeline is shown all the same: what came after it is lost
        or unreadable, but it is whole.

        Raises:
            InstantNotFoundError, InstantExpiredError: no such version, or no more.
        """
        return self.ask(
            lambda state: state.snapshot(self.store, version=version, file_filter=file_filter),
            version=version,
        )

    def loaded(self) -> TableState:
        """Look at the head, and load all file events."""

        def load(state: TableState) -> TableState:
            state.folded(self.store)
            return state

        return self.ask(load)

    def ask(self, what: Callable[[TableState], T], *, version: int | None = None) -> T:
        """Look at the head and ask its state for something; look again if others took it away.

        A checkpoint that this client rests on may have been collected meanwhile: then the newest is
        loaded. That costs time, nothing else (INV-11). It goes on while the head moves, but not for
        ever: what is missing at head after head is missing.

        ``version``: what is asked about; it may lie below damage of the timeline.
        """
        state = self.refresh() if version is None else self.refresh_up_to(version)
        for look in range(_LOOKS_MAX):
            try:
                return what(state)
            except (CorruptMetadataError, InstantExpiredError) as error:
                before = state.version
                self.require_same_table(state)
                if isinstance(error, InstantExpiredError):
                    state, anew = self.refresh(), False
                else:
                    # Damage gets one more try by other parts: the checkpoint may have been replaced
                    # while it was read. Damage that is met twice at one version is real.
                    anew = look == 0 and bool(state.parts)
                    state = self._renewed()
                if state.version == before and not anew:
                    raise
        return what(state)

    def _renewed(self) -> TableState:
        """Load the state anew, and not by way of what others keep meanwhile."""
        return self._keep(self._catch_up([next(self._starts())]), same_version=True)

    def offer(self, state: TableState, *, same_version: bool = False) -> TableState:
        """Take in a state that the caller applied itself.

        ``same_version``: also in the place of one of the same version.
        """
        return self._keep(state, same_version=same_version)

    def checkpoint(self, interval: int) -> bool:
        """Write a checkpoint if it falls to us; tell whether it did.

        The writer of a version that is a multiple of the interval writes it, so that one of many
        writers does. Any writer does if nobody did for two intervals.
        """
        state = self.known()
        since = state.version - max(state.checkpoint, 0)
        # Writers do not agree on who writes it. If two do, one of them loses at `state.json` and
        # deletes its parts, which costs a little time.
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

        That checkpoint has bounds that no decision has, and later ones are to keep them. Without
        them the state is still right, which costs time only (INV-11).
        """
        # A rebuild found bounds by reading files. They are in its checkpoint alone, so a checkpoint
        # that is folded from decisions would lose them again.
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
            # Threads finish in any order. The state only moves forward, so that nobody who has seen
            # a version is shown an older one.
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

    def _starts(self) -> Iterator[TableState]:
        """Yield the states to begin from: the newest checkpoint, older ones, version 0."""
        newest = load_newest(self.store)
        if newest is not None:
            yield newest
            for version in reversed(list_checkpoints(self.store)):
                older = try_checkpoint(self.store, version) if version < newest.version else None
                if older is not None:
                    yield older
        # Version 0 comes last. It is right whenever it can be read, but applies every decision
        # again.
        first = self.timeline.find(0)
        if first is None:
            if newest is None:
                raise self._absent()
            return
        yield TableState.create(first, where=paths.slot(0))

    def _absent(self) -> TableNotFoundError:
        uri = self.store.address.uri
        hint = "create it with Table.create(uri, schema)"
        return TableNotFoundError(f"there is no table at {uri}", hint=hint, uri=uri)


def _with_remedy(error: CorruptMetadataError, below: int) -> CorruptMetadataError:
    """Say which versions can be read all the same, and what gives the table back."""
    hint = (
        f"{error.hint or 'restore the file from a backup'}; versions up to {below} can be read, "
        f"for example scan(version={below}); `tablectl repair` can cut off what lies beyond"
    )
    return CorruptMetadataError(error.message, hint=hint, **{**error.facts, "readable": below})


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
