"""What publishers of all formats share: what is to be published, and what one did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final, NamedTuple, Protocol

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


class KeptRange(NamedTuple):
    """The versions that a clean keeps."""

    horizon: int
    """The oldest version that stays readable."""
    final: int
    """The oldest version whose files stay: those before it have no grace left."""


class FormatPublisher(Protocol):
    """Keeps the metadata of one format of one table; remembers where it ends."""

    @property
    def target(self) -> str:
        """The format as the property ``publish`` names it."""
        ...

    @property
    def version(self) -> int | None:
        """The newest version that is known to be published; None for none."""
        ...

    def find_position(
        self, state: TableState, refresh: Callable[[], TableState]
    ) -> tuple[PublishedPosition, TableState]:
        """Look anew how far the publication is, and at which state that was judged."""
        ...

    def catch_up(
        self,
        state: TableState,
        *,
        late: Callable[[], bool],
        refresh: Callable[[], TableState],
        whole: bool = False,
    ) -> CaughtUp:
        """Publish what is missing up to the version of a state, oldest first."""
        ...

    def trim(
        self, state: TableState, kept: KeptRange, refresh: Callable[[], TableState]
    ) -> list[str]:
        """Name no version any more that a clean lets go of; return the files that went."""
        ...


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
