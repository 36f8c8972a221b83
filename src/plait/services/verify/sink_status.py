"""How far each sink of a dual write is from the table, as ledgers and records tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from plait.definition.table_def import TableDef
from plait.errors import OptionError
from plait.model.decision import Decision
from plait.model.instant import Action, Instant
from plait.model.plain import Plain
from plait.model.sink_ledger import Attempt, SinkPosition
from plait.timeline.pending import load_pending
from plait.timeline.replica_records import load_attempts, load_positions
from plait.txn.table_handle import TableHandle

UNKNOWN: Final = "unknown"
"""Stands for the name of a sink that only a damaged record mentions."""
_REPLACES: Final = (Action.RESTORE, Action.REPLACE_COMMIT)
"""Changes of rows that the counts of a decision may not show."""


@dataclass(frozen=True, slots=True)
class ReplicaStatus(Plain):
    """What is known of one sink, without asking it."""

    KEYS = "sink version in_step compared_at extra behind rows_behind ahead pending"

    sink: str
    version: int
    """The newest version of the table."""
    position: SinkPosition | None
    """When it was last compared with the table; None: never. It may be lost: then all is behind."""
    behind: tuple[int, ...] = ()
    """Versions that changed rows and are not known to be in the sink."""
    rows_behind: int = 0
    """How many rows they changed."""
    ahead: tuple[Attempt, ...] = ()
    """Writers that sent rows and did not commit them."""
    pending: tuple[Attempt, ...] = ()
    """Writers that are sending rows now, or died and were not rolled back yet."""

    @property
    def in_step(self) -> bool:
        """Whether nothing is known to be missing or too much, rows that were kept included."""
        doubt = self.position is not None and (self.position.extra or self.position.lost)
        return not (self.behind or self.ahead or doubt)

    @property
    def compared_at(self) -> int | None:
        """The version at which it was last compared; None: never, or its record is damaged."""
        return None if self.position is None or self.position.lost else self.position.version

    @property
    def extra(self) -> int:
        """The number of rows in the sink alone that a repair kept."""
        return 0 if self.position is None else self.position.extra


def status_of(handle: TableHandle) -> tuple[ReplicaStatus, ...]:
    """Return the status of every sink that the table knows, by name.

    It reads every decision of the table, and asks no sink.
    """
    # Attempts first: one that ends later is found in the decisions, which are read last.
    attempts, positions = load_attempts(handle.store), load_positions(handle.store)
    pending = frozenset(each.instant.nonce for each in load_pending(handle.store))
    head = handle.cache.refresh().version
    asked = frozenset(each.instant.nonce for each in attempts if each.task)
    table = handle.cache.known().table
    compared = frozenset(each.version for each in positions)
    decisions = handle.cache.timeline.load_after(-1, limit=head + 1)
    history = History.of(decisions, table, asked, compared)
    known = {position.sink: history.proven(position) for position in positions}
    open_attempts = history.unsettled(attempts)
    named = {sink for each in open_attempts for sink in each.sinks} | history.sinks | set(known)
    named |= set(table.replicas)
    if not named and not all(each.sinks for each in open_attempts):
        named = {UNKNOWN}
    divided = {
        at_work: [each for each in open_attempts if (each.instant.nonce in pending) is at_work]
        for at_work in (False, True)
    }
    return tuple(_status(name, head, known.get(name), history, divided) for name in sorted(named))


def require_in_step(handle: TableHandle, replica: str, sink: str | None) -> None:
    """Refuse a replica as a source of rows if it is a sink that may have others.

    Args:
        handle: the table that lost rows.
        replica: the URI of the table that has them.
        sink: the name under which it is a sink; None: every sink whose address is not known, or is
            this one, may be it.

    Raises:
        OptionError: it is behind or ahead, or writers are sending rows to it.
    """
    table = handle.cache.refresh().table
    known = {**table.former_replicas, **table.replicas}
    for each in status_of(handle):
        it_may_be = known.get(each.sink, replica) == replica if sink is None else each.sink == sink
        if not it_may_be or (each.in_step and not each.pending):
            continue
        message = f"sink {each.sink} may have other rows than the table"
        if each.behind:
            message += f": it lacks version {each.behind[0]}"
        hint = "name another replica"
        if sink is None and each.sink not in known:
            hint = f"if {replica} is another sink or none, say so by name (sink=...); else {hint}"
        facts: dict[str, object] = {"behind": list(each.behind), "sink": each.sink}
        raise OptionError(message, hint=hint, key="replica", value=replica, **facts)


@dataclass(frozen=True, slots=True)
class Change:
    """A decision that changed rows."""

    version: int
    instant: Instant
    sinks: frozenset[str]
    """Sinks that hold its rows."""
    rows: int


@dataclass(slots=True)
class History:
    """What decisions tell of sinks."""

    changes: list[Change] = field(default_factory=list)
    """Oldest first."""
    committed: set[str] = field(default_factory=set)
    """Nonces of the instants that were committed."""
    counted: set[tuple[str, str]] = field(default_factory=set)
    """Nonces of instants, and the attempts of tasks that counted in them."""
    checksums: dict[int, str] = field(default_factory=dict)
    """By version, the checksum of each decision at which a sink was compared."""

    @classmethod
    def of(
        cls,
        decisions: Iterable[Decision],
        table: TableDef,
        asked: AbstractSet[str] = frozenset(),
        compared: AbstractSet[int] = frozenset(),
    ) -> History:
        """Read decisions, oldest first; nothing but what is needed is kept.

        Args:
            decisions: the decisions.
            table: the definition after them, which has their schemas.
            asked: nonces of the instants of which it matters which attempts counted.
            compared: versions at which sinks were compared.
        """
        history = cls()
        for decision in decisions:
            history.committed.add(decision.instant.nonce)
            if decision.version in compared:
                history.checksums[decision.version] = decision.checksum
            stats, ledger = decision.stats, decision.replicas
            rows = stats.rows_inserted + stats.rows_updated + stats.rows_deleted
            if ledger is not None and decision.instant.nonce in asked:
                nonce = decision.instant.nonce
                history.counted.update((nonce, each.task) for each in ledger.tasks)
            if rows or ledger or _replaces(decision, table):
                sinks = frozenset[str](() if ledger is None else ledger.sinks)
                history.changes.append(Change(decision.version, decision.instant, sinks, rows))
        return history

    def proven(self, position: SinkPosition) -> SinkPosition:
        """Return a position, or a lost one if the timeline has not the decision it was taken at.

        A repair that cuts the timeline off, or an older copy of the table, takes decisions away.
        The versions are given to other decisions then, which the sink was never compared with.
        """
        found = self.checksums.get(position.version)
        if found is not None and position.decision in ("", found):
            return position
        return SinkPosition(position.sink, 0, lost=True)

    @property
    def sinks(self) -> set[str]:
        """The sinks that any commit names."""
        return {sink for change in self.changes for sink in change.sinks}

    def unsettled(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Return the attempts whose rows no commit accounts for.

        The record of a writer that did not commit tells of its tasks too.
        """
        writers = {each.instant.nonce for each in attempts if not each.task} - self.committed
        return [
            each
            for each in attempts
            if (
                (each.instant.nonce, each.task) not in self.counted
                and each.instant.nonce not in writers
                if each.task
                else each.instant.nonce in writers
            )
        ]


def _status(
    sink: str,
    head: int,
    position: SinkPosition | None,
    history: History,
    attempts: Mapping[bool, Sequence[Attempt]],
) -> ReplicaStatus:
    behind = missing_in(sink, position, history)
    ahead, pending = (
        tuple(each for each in attempts[at_work] if each.concerns(sink))
        for at_work in (False, True)
    )
    versions = tuple(change.version for change in behind)
    rows = sum(change.rows for change in behind)
    return ReplicaStatus(sink, head, position, versions, rows, ahead, pending)


def _replaces(decision: Decision, table: TableDef) -> bool:
    """Tell whether rows may be others after a decision, whatever it counts.

    Other columns change every row; other comments change none.
    """
    if decision.action is Action.SCHEMA:
        return not table.only_comments(decision.schema_id)
    return decision.action in _REPLACES


def missing_in(sink: str, position: SinkPosition | None, history: History) -> list[Change]:
    """Return the changes since a sink was compared that it is not known to hold.

    A writer that sent rows while the sink was compared may have been undone by the repair.
    """
    if position is not None and position.lost:
        return list(history.changes)
    since = 0 if position is None else position.version
    overlapped = set[str]() if position is None else {e.nonce for e in position.overlapped}
    return [
        change
        for change in history.changes
        if change.version > since
        and (sink not in change.sinks or change.instant.nonce in overlapped)
    ]
