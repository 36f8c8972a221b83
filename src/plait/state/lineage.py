"""Which commits the table contains: what restores undid, and what stays readable by name.

A restore at version r to version v undoes commits, but takes no decision back. The *lineage* of a
version is the set of versions whose commits the table contains there: the lineage of r is that of
v, and r. So restoring r - 1 undoes a restore (RFC 0018; ``docs/spec/lineage.tla``).

Instants that a state remembers beyond their decision: late files, open reservations.

Which versions can be read, and which can be made readable again.

Which old decisions are in the archive, and in which of its files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from plait.definition.features import ARCHIVE, RESTORES
from plait.errors import CorruptMetadataError
from plait.model.bucket import Partition
from plait.model.decision import ArchiveFile, Cleaned, Decision, Reserved, Savepoint
from plait.model.stream import Position
from plait.state.events import ReadableVersions
from plait.timeline.codec import parse_archive


@dataclass(frozen=True, slots=True)
class Archived:
    """The files of the archive at a version."""

    files: tuple[ArchiveFile, ...] = ()
    """Oldest first; they follow each other from version 0 on."""

    @property
    def last(self) -> int:
        """The newest archived version; -1 for none."""
        return self.files[-1].last if self.files else -1

    @property
    def features(self) -> tuple[str, ...]:
        """What a client must know since the first archive."""
        return (ARCHIVE,) if self.files else ()

    def after(self, decision: Decision, *, where: str) -> Archived:
        """Return the archive after a decision.

        Raises:
            CorruptMetadataError: it leaves out archived versions, or names some that come later.
        """
        files = decision.archived
        if not files:
            return self
        if not self.last <= files[-1].last < decision.version:
            message = f"{where} archives the versions up to {files[-1].last}"
            raise CorruptMetadataError(
                message, path=where, expected=self.last, found=files[-1].last
            )
        return Archived(files)

    def to_list(self) -> list[object]:
        """Write it as JSON values, the form in checkpoints."""
        return [file.to_list() for file in self.files]

    @classmethod
    def from_list(cls, value: object) -> Archived:
        """Read what ``to_list`` wrote; raise TypeError or ValueError for nonsense."""
        return cls(parse_archive(value))


class RaisedHorizon(NamedTuple):
    """A horizon that can still be taken back."""

    version: int
    """The version of the clean that raised it."""
    horizon: int


@dataclass(frozen=True, slots=True)
class Horizons:
    """The oldest readable version of a table, and those before it that an undo can return to."""

    final: int = 0
    """The oldest version that can be read or made readable again: files that ended there or
    before may be condemned."""
    raised: tuple[RaisedHorizon, ...] = ()
    """The horizons above ``final``, oldest first."""
    oldest: int = field(init=False)
    """The oldest version that can be read."""

    def __post_init__(self) -> None:
        """Find the oldest version once: every read asks for it."""
        oldest = self.raised[-1].horizon if self.raised else self.final
        object.__setattr__(self, "oldest", oldest)

    def after(self, cleaned: Cleaned, version: int, *, where: str) -> Horizons:
        """Return the horizons after a clean or an undo of cleans.

        Raises:
            CorruptMetadataError: an undo says that it leads to another horizon.
        """
        raised, final = self.raised, max(self.final, cleaned.final)
        if cleaned.undo is not None:
            # An undo takes back the clean of version `undo` and all later ones, whose horizons are
            # higher.
            raised = tuple(each for each in raised if each.version < cleaned.undo)
        elif cleaned.horizon > self.oldest:
            raised = (*raised, RaisedHorizon(version, cleaned.horizon))
        result = Horizons(final, tuple(each for each in raised if each.horizon > final))
        if cleaned.undo is not None and result.oldest != cleaned.horizon:
            message = f"{where} takes cleans back to version {cleaned.horizon}, not {result.oldest}"
            found, expected = cleaned.horizon, result.oldest
            raise CorruptMetadataError(message, path=where, expected=expected, found=found)
        return result

    def to_dict(self) -> dict[str, object]:
        """Write them as JSON values, the form in checkpoints."""
        return {"final": self.final, "raised": [list(each) for each in self.raised]}

    @classmethod
    def from_dict(cls, value: Mapping[str, object], *, newest: int) -> Horizons:
        """Read what ``to_dict`` wrote; raise KeyError, TypeError or ValueError for nonsense."""
        final, entries = int(str(value["final"])), value["raised"]
        if not isinstance(entries, list):
            raise TypeError(entries)
        raised = tuple(RaisedHorizon(int(version), int(horizon)) for version, horizon in entries)
        ordered = [0, final, *(each.horizon for each in raised), newest]
        if ordered != sorted(ordered):
            raise ValueError(ordered)
        return cls(final, raised)


_LATE_MAX = 1_000
"""Rolled-back instants whose late files are looked for by the next cleans."""


@dataclass(frozen=True, slots=True)
class LateInstant:
    """A rolled-back instant that may still write files; they are provably its own."""

    instant: str
    version: int
    partitions: tuple[Partition, ...]

    @property
    def nonce(self) -> str:
        """The nonce in the names of its files."""
        return self.instant.rsplit("-", 1)[-1]


@dataclass(frozen=True, slots=True)
class Reservation:
    """A place kept for an instant that is still open."""

    version: int
    """Version of its decision: of two reservations of one place the older goes first."""
    reserved: Reserved


def late_after(before: tuple[LateInstant, ...], decision: Decision) -> tuple[LateInstant, ...]:
    """Return those after a decision, which may roll instants back."""
    if not decision.rolled_back:
        return before
    ended = [
        LateInstant(str(each.instant), decision.version, each.partitions)
        for each in decision.rolled_back
    ]
    return (*before, *ended)[-_LATE_MAX:]


def reservations_after(
    before: tuple[Reservation, ...], decision: Decision
) -> tuple[Reservation, ...]:
    """Return the open ones after a decision, which may open one and end its instant's."""
    if decision.reserved is not None:
        return (*before, Reservation(decision.version, decision.reserved))
    if not before:
        return before
    # A reservation ends with its holder, committed or rolled back. Nothing else removes it, so a
    # dead holder keeps its place until recovery ends it.
    ended = {decision.instant.nonce, *(each.instant.nonce for each in decision.rolled_back)}
    return tuple(each for each in before if each.reserved.holder.nonce not in ended)


Versions = tuple[int, int]
"""The first and the last of some consecutive versions."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """The restores, replays and savepoints of a table."""

    restores: tuple[tuple[int, int], ...] = ()
    """The version of each restore, and the version that it restored; oldest first."""
    savepoints: tuple[Savepoint, ...] = ()
    """Savepoints that were not dropped, in order of name."""
    replays: tuple[tuple[int, str], ...] = ()
    """The version of each replay, and a commit id that it lets be used again; oldest first."""
    restarts: Mapping[str, int] = field(default_factory=dict)
    """Applications that a replay set back to their beginning, and its version."""
    features: tuple[str, ...] = ()
    """Features that a client must know since the first restore, savepoint or replay."""

    def apply(self, decision: Decision) -> Lineage:
        """Return the lineage after one more decision."""
        if self.features and self.empty and _gives_up(decision):
            return Lineage()
        change, restored, replayed = decision.savepoint, decision.restored, decision.replayed
        restarts = self.restarts
        if restarts and decision.tokens:
            fresh = {token.application for token in decision.tokens}
            restarts = {name: at for name, at in restarts.items() if name not in fresh}
        if not (change or restored or replayed):
            return self if restarts is self.restarts else replace(self, restarts=restarts)
        savepoints, restores, replays = self.savepoints, self.restores, self.replays
        if change is not None:
            named = {each.name: each for each in savepoints if each.name != change.savepoint.name}
            if not change.drop:
                named[change.savepoint.name] = change.savepoint
            savepoints = tuple(named[name] for name in sorted(named))
        if restored is not None:
            restores = (*restores, (decision.version, restored.to))
        if replayed is not None:
            replays = (*replays, *((decision.version, each) for each in replayed.commit_ids))
            back = {each.application: each.token for each in replayed.applications}
            first = {name: decision.version for name, token in back.items() if token is None}
            kept = {name: at for name, at in restarts.items() if name not in back}
            restarts = {**kept, **first}
        return Lineage(restores, savepoints, replays, restarts, (RESTORES,))

    @property
    def empty(self) -> bool:
        """Whether nothing is left that a client must know."""
        return not (self.restores or self.savepoints or self.replays or self.restarts)

    def spans(self, head: int) -> tuple[Versions, ...]:
        """Return the versions whose commits the table contains at a version, oldest first."""
        spans: list[Versions] = []
        # From the newest restore backwards: each one replaces all that lies between its target and
        # itself, older restores included, so those are passed over.
        for version, to in reversed(self.restores):
            if version <= head:
                spans.append((version, head))
                head = to
        return ((0, head), *reversed(spans))

    def contains(self, version: int, head: int) -> bool:
        """Tell whether the table contains, at ``head``, what a version committed."""
        return any(first <= version <= last for first, last in self.spans(head))

    def undone_by(self, version: int, head: int) -> int | None:
        """Return the restore that undid a version; None if the table contains it at ``head``."""
        if self.contains(version, head):
            return None
        undoing = [
            at
            for at, _ in self.restores
            if version < at <= head
            and self.contains(version, at - 1)
            and not self.contains(version, at)
        ]
        return max(undoing, default=None)

    def readable(self, horizon: int, kept: Iterable[int] = ()) -> ReadableVersions:
        """Return the versions that can be read if all from a horizon on can, and some others."""
        saved = {*kept, *self.saved}
        return ReadableVersions(
            horizon, tuple(sorted(version for version in saved if version < horizon))
        )

    @property
    def saved(self) -> tuple[int, ...]:
        """The versions that savepoints keep readable."""
        return tuple(each.version for each in self.savepoints)

    def find_savepoint(self, name: str) -> Savepoint | None:
        """Return a savepoint by its name; None if there is none."""
        return next((each for each in self.savepoints if each.name == name), None)

    def to_dict(self) -> dict[str, object]:
        """Write it as JSON values, the form in checkpoints."""
        return {
            "restores": [list(each) for each in self.restores],
            "savepoints": [each.to_dict() for each in self.savepoints],
            "replays": [list(each) for each in self.replays],
            "restarts": dict(self.restarts),
        }

    @classmethod
    def from_dict(cls, value: object) -> Lineage:
        """Read what ``to_dict`` wrote; raise KeyError, TypeError or ValueError if it is none."""
        if not isinstance(value, dict):
            raise TypeError(value)
        restores = tuple((int(at), int(to)) for at, to in value["restores"])
        if any(to >= at for at, to in restores) or restores != tuple(sorted(restores)):
            raise ValueError(restores)
        return cls(
            restores,
            tuple(Savepoint(str(e["name"]), int(e["version"])) for e in value["savepoints"]),
            tuple((int(at), str(commit_id)) for at, commit_id in value["replays"]),
            {str(name): int(at) for name, at in value["restarts"].items()},
            (RESTORES,),
        )


def _gives_up(decision: Decision) -> bool:
    """Tell whether a decision says that the table uses no lineage any more (RFC 0029)."""
    allowed = None if decision.table is None else decision.table.get("features")
    return isinstance(allowed, list) and RESTORES not in allowed


def minus(spans: tuple[Versions, ...], other: tuple[Versions, ...]) -> tuple[Versions, ...]:
    """Return the versions of the first that are not in the second, both rising.

    >>> minus(((0, 9),), ((0, 3), (6, 6)))
    ((4, 5), (7, 9))
    """
    left: list[Versions] = []
    for first, last in spans:
        start = first
        for low, high in other:
            if high < start or low > last:
                continue
            if low > start:
                left.append((start, low - 1))
            start = high + 1
        if start <= last:
            left.append((start, last))
    return tuple(left)


def streams_after(before: Mapping[str, Position], decision: Decision) -> Mapping[str, Position]:
    """Return the position of each application after a decision.

    A restore leaves positions as they are: only a replay sets one back.
    """
    at = decision.version
    if decision.replayed is None and not decision.tokens:
        return before
    after = dict(before)
    for back in () if decision.replayed is None else decision.replayed.applications:
        after.pop(back.application, None)
        if back.token is not None and back.version is not None:
            after[back.application] = Position(back.token, back.version, at)
    after.update({token.application: Position(token, at) for token in decision.tokens})
    return after
