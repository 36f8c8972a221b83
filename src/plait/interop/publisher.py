"""What publishers of all formats share: how one finds its place, catches up, and is told apart.

A format knows how a version is written, and under which number. When to write, whom to believe and
when to give up is the same for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import CorruptMetadataError, PublishRefusedError, StorageError, TableError
from plait.model.contract import PUBLISH_OPTION, Options
from plait.model.decision import Decision
from plait.model.instant import Operation
from plait.model.plain import Plain
from plait.state.state import TableState
from plait.storage.port import Store
from plait.timeline.log import Timeline

_REWRITES: Final = (Operation.COMPACT, Operation.CLUSTER)
"""Operations that never change a row: readers of changes need not look at them."""
_SWITCHES: Final = (Operation.PROPERTY, Operation.REPUSH, Operation.REPUSH_SOURCE)
"""Operations that can set the property ``publish``."""
NUMBERS_MAX: Final = 1 << 48
"""The greatest number under which anything is published."""
STRIDE_MAX: Final = 1 << 32
"""How far beyond ours a number of others may be: we go on from there, and may need many more."""
LOSSES_MAX: Final = 100
"""The most puts that one call loses before it gives up: other publishers are at work."""


@dataclass(frozen=True, slots=True)
class DecidedVersion:
    """A version that is to be published."""

    version: int
    instant: str
    operation: str
    completed_ms: int
    schema_id: int

    @property
    def changes_rows(self) -> bool:
        """Whether the commit changed rows."""
        return self.operation not in _REWRITES


@dataclass(frozen=True, slots=True)
class Foreign(Plain):
    """What somebody else did to published metadata, and was undone."""

    number: int
    """The number of the commit that undid it."""
    commits: tuple[int, ...]
    operations: tuple[str, ...]


@dataclass(slots=True)
class CaughtUp:
    """What one catch-up did."""

    published: int = 0
    left_out: int = 0
    undone: list[Foreign] = field(default_factory=list)


class PublishedPosition(NamedTuple):
    """How far a publication is."""

    version: int | None
    """The newest version that is published; None for none."""
    time_ms: int = 0
    """When that version was decided."""
    foreign: int = 0
    """How many commits of others are still to be undone."""
    problem: str | None = None
    """Why readers cannot use it as it is."""


class KeptRange(NamedTuple):
    """The versions that a clean keeps."""

    horizon: int
    """The oldest version that stays readable."""
    final: int
    """The oldest version whose files stay: those before it have no grace left."""


class PublishedVersion(Protocol):
    """What published metadata of ours says of the version that it shows."""

    @property
    def version(self) -> int:
        """The version."""
        ...

    @property
    def instant(self) -> str:
        """The instant that the version completed: two histories of one table differ in it."""
        ...

    @property
    def schema_id(self) -> int:
        """The schema under which it was decided."""
        ...

    @property
    def time_ms(self) -> int:
        """When it was decided, as the metadata says."""
        ...


class PublishedEnd(Protocol):
    """Where the published metadata of a table ends."""

    @property
    def ours(self) -> PublishedVersion | None:
        """The newest version of this history; None if there is none."""
        ...

    @property
    def others(self) -> int:
        """How many commits of others are still to be undone."""
        ...

    @property
    def known(self) -> bool:
        """Whether some metadata is of this table, or there is none."""
        ...


_End = TypeVar("_End", bound=PublishedEnd)


class FormatPublisher(ABC, Generic[_End]):
    """Keeps the metadata of one format of one table; remembers where it ends.

    Any number may run at once, and may die anywhere: ``put_if_absent`` of the next number decides
    who was first, and what one of them did not finish, the next one finds and goes on with.
    """

    target: ClassVar[str]
    """The format as the property ``publish`` names it."""
    directory: ClassVar[str]
    """Where its metadata is."""
    title: ClassVar[str]
    """What it is called in a sentence."""

    def __init__(self, store: Store, identity: str) -> None:
        """Take the table's store and its identity; nothing is read yet."""
        self._store, self._identity = store, identity
        self._end: _End | None = None

    @property
    def version(self) -> int | None:
        """The newest version that is known to be published; None for none."""
        return None if self._end is None or self._end.ours is None else self._end.ours.version

    def find_position(
        self, state: TableState, refresh: Callable[[], TableState]
    ) -> tuple[PublishedPosition, TableState]:
        """Look anew how far it is, and at which state that was judged; see ``look``."""
        end, state = self.look(state, refresh)
        ours = end.ours
        if ours is None:
            return PublishedPosition(None, foreign=end.others), state
        problem = self._find_problem(end)
        return PublishedPosition(ours.version, ours.time_ms, end.others, problem), state

    def look(self, state: TableState, refresh: Callable[[], TableState]) -> tuple[_End, TableState]:
        """Find the end anew, and the state of the table that it was judged by.

        A version is decided before it is published. So if the metadata shows more than the state
        has, the head is looked at once more, after the metadata: what goes beyond that as well is
        of a history that was cut off.

        Raises:
            PublishRefusedError: there is metadata, and it never was this table's.
            CorruptMetadataError: there is something that cannot be understood.
        """
        seen, fresh = state, False

        def is_ours(found: PublishedVersion) -> bool:
            nonlocal seen, fresh
            if found.version > seen.version and not fresh:
                seen, fresh = refresh(), True
            return self._is_of(seen, found)

        with self._understanding():
            end = self._find_end(is_ours)
        if not end.known:
            raise PublishRefusedError(
                f"{self.directory} has {self.title} that this table did not write",
                hint=f"move it away, or take {self.target} out of the property publish",
                target=self.target,
                change=self.title,
            )
        self._end = end if end.ours is not None else None
        return end, seen

    def _is_of(self, state: TableState, found: PublishedVersion) -> bool:
        """Tell whether metadata shows a version of this history."""
        if found.version > state.version:
            return False
        columns = ("version", "instant", "schema_id")
        rows = state.commits(self._store, since=found.version - 1, columns=columns)
        decided = rows.filter(pc.equal(rows["version"], found.version)).to_pylist()
        at = [(each["instant"], each["schema_id"]) for each in decided]
        return at == [(found.instant, found.schema_id)]

    def catch_up(
        self,
        state: TableState,
        *,
        late: Callable[[], bool],
        refresh: Callable[[], TableState],
        whole: bool = False,
    ) -> CaughtUp:
        """Publish what is missing up to the version of a state, oldest first.

        Args:
            state: the table at its newest version.
            late: tells when to stop; asked between versions.
            refresh: looks at the head, and returns its state.
            whole: also do what a client leaves to services: look for what others wrote where
                nothing is missing, and write out what is large.

        Raises:
            MissingDependencyError: a library is missing that the format needs.
            StorageError: the store failed, or others were first again and again; what was
                published stands.
            CorruptMetadataError: something in the directory cannot be understood.
            PublishRefusedError: the metadata never was this table's.
        """
        self._require_library()
        progress = CaughtUp()
        with self._understanding():
            end = None if whole else self._end or self._guess(state)
            if end is None:
                end, state = self.look(state, refresh)
            losses = 0
            while not late():
                newest = end.ours is not None and end.ours.version >= state.version
                if newest and not end.others and self._find_problem(end) is None:
                    break
                if losses == LOSSES_MAX:
                    message = f"{self.directory}: other publishers were first {LOSSES_MAX} times"
                    hint = "what was published stands; run it again"
                    raise StorageError(message, hint=hint, path=self.directory)
                before = end
                for then in self._publish(state, end, progress, whole=whole):
                    self._end = end = then
                    if late():
                        return progress
                if end is before and not whole and self._is_large(state):
                    break
                if end is before:  # lost the very first number
                    losses += 1
                    end, state = self.look(state, refresh)
            if whole and end.ours is not None and end.ours.version == state.version:
                self._settle(state, end)
        return progress

    def trim(
        self, state: TableState, kept: KeptRange, refresh: Callable[[], TableState]
    ) -> list[str]:
        """Name no version any more that a clean lets go of; return the files that went.

        Raises:
            As ``catch_up``.
        """
        self._require_library()
        with self._understanding():
            return self._trim(state, kept, refresh)

    # --- what a format knows -------------------------------------------------------------------

    @abstractmethod
    def _find_end(self, is_ours: Callable[[PublishedVersion], bool]) -> _End:
        """Find the end by a listing. ``is_ours`` tells a version of this history.

        After a backup was put in its place, the metadata may show another history.
        """

    @abstractmethod
    def _guess(self, state: TableState) -> _End | None:
        """Look for the end where it usually is, without a listing; None if it is not there."""

    @abstractmethod
    def _publish(
        self, state: TableState, end: _End, progress: CaughtUp, *, whole: bool
    ) -> Iterator[_End]:
        """Publish the versions after the end; stop where a number is lost."""

    @abstractmethod
    def _trim(
        self, state: TableState, kept: KeptRange, refresh: Callable[[], TableState]
    ) -> list[str]: ...

    def _find_problem(self, end: _End) -> str | None:
        """Tell why readers cannot use what is published, though it is ours; None if they can."""
        del end
        return None

    def _require_library(self) -> None:
        """Raise MissingDependencyError if a library is missing that the format needs."""

    def _is_large(self, state: TableState) -> bool:
        """Tell whether a client leaves what is large to services."""
        del state
        return False

    def _settle(self, state: TableState, end: _End) -> None:
        """Do what readers are glad of, once everything is published."""

    @contextmanager
    def _understanding(self) -> Iterator[None]:
        """Turn what hostile metadata makes Python raise into CorruptMetadataError."""
        try:
            yield
        except (ValueError, TypeError, LookupError, ArithmeticError, pa.ArrowException) as error:
            if isinstance(error, TableError):
                raise
            why = f"{type(error).__name__}: {str(error)[:100]}"
            message = f"{self.directory} cannot be understood: {why}"
            hint = "look for files that others wrote there, and delete them"
            raise CorruptMetadataError(message, hint=hint, path=self.directory) from error


def require_near(path: str, number: int, ours: int) -> None:
    """Refuse a number from which nobody could go on for long.

    Args:
        path: the file that has it, for the message.
        number: its number.
        ours: the number of the last commit of this table; 0 for none.

    Raises:
        CorruptMetadataError: it is more than STRIDE_MAX beyond ours, or near NUMBERS_MAX.
    """
    if number > min(ours + STRIDE_MAX, NUMBERS_MAX - STRIDE_MAX):
        message = f"{path} has an absurd number, far beyond what this table published"
        hint = "delete it: the rows of the table are elsewhere"
        raise CorruptMetadataError(message, hint=hint, path=path)


def commits_since(store: Store, state: TableState, since: int) -> list[DecidedVersion]:
    """Return the versions after one, oldest first."""
    columns = [each.name for each in fields(DecidedVersion)]
    rows = state.commits(store, since=since, columns=columns)
    return [DecidedVersion(**row) for row in rows.to_pylist()]


def was_unpublished(store: Store, commits: Sequence[DecidedVersion], target: str) -> bool:
    """Tell whether one of these commits left the table unpublished in a format.

    Until the property named it again, nothing refused what the format cannot say.
    """
    timeline = Timeline(store)
    changed = (each for each in commits if each.operation in _SWITCHES)
    decided = (timeline.find(each.version) for each in changed)
    return any(each is not None and not _names(each, target) for each in decided)


def _names(decision: Decision, target: str) -> bool:
    properties = None if decision.table is None else decision.table.get("properties")
    if not isinstance(properties, Mapping):
        return True  # it sets no definition
    value = properties.get(PUBLISH_OPTION, "")
    return target in Options.of({PUBLISH_OPTION: value}).names(PUBLISH_OPTION)
