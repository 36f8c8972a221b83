"""The oracle: what Plait promises, and does not hold after a schedule.

It reads the slots itself and folds them with sets, so that it shares no reasoning with the code
under test; only the decoding of a slot is the same.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import cast

from plait.errors import (
    CommitOutcomeUnknownError,
    CommitRetriesExhaustedError,
    ConflictError,
    InstantExpiredError,
    InvariantError,
    LockError,
    RolledBackError,
    StorageError,
    TableError,
)
from plait.model.changes import BASE, LOG, Changes
from plait.model.decision import CommitResult, Decision
from plait.model.instant import Operation
from plait.model.repush import is_repush_directory
from plait.services.maintenance.clean import CleanReport, clean
from plait.storage.port import Store
from plait.testing.faults import SimulatedCrashError
from plait.testing.wrapper import is_metadata
from plait.timeline import paths
from plait.timeline.pending import load_pending
from plait.txn.matrix import REWRITES, SWAPS
from plait.txn.recovery import RollbackReport, roll_back_failed
from plait.txn.table_decisions import set_properties
from plait.txn.table_handle import TableHandle
from tests.scheduler.ending import End, Outcome, Problem
from tests.scheduler.memo import Memo, MemoTimeline
from tests.scheduler.shape import shape
from tests.scheduler.world import Call
from tests.support.effort import MORE

SERVICES = (
    Operation.CLEAN,
    Operation.ROLLBACK,
    Operation.ARCHIVE,
    Operation.SAVEPOINT,
    Operation.RESTORE,
    Operation.REPLAY,
    Operation.COMPACT,
    Operation.CLUSTER,
    Operation.REBUILD,
    Operation.EXPIRE,
    Operation.RESERVE,
    Operation.BEGIN_REPUSH,
    Operation.REPUSH,
    Operation.REPUSH_SOURCE,
    Operation.CANCEL_REPUSH,
)
NATURAL = (
    ConflictError,
    RolledBackError,
    CommitRetriesExhaustedError,
    LockError,
    InstantExpiredError,
)
"""What an actor may be told though nothing failed."""
PUBLISHED = ("_delta_log/", "_dv/", "metadata/")
"""Where published metadata is: no decision names it, and ``tests/interleave/publishing.py`` says
what of it may go."""
EVERY = MORE
_LATER_MS = 7 * 86_400_000


@dataclass(frozen=True, slots=True)
class Fact:
    """One decision as the oracle sees it."""

    version: int
    nonce: str
    operation: Operation
    base: int
    added: tuple[tuple[str, str, str], ...]
    """Path, place and kind of each file."""
    beside: tuple[str, ...]
    """The files that hold what is too large for the decision: vectors, keys, row maps."""
    removed: tuple[str, ...]
    garbage: tuple[str, ...]
    condemned: tuple[str, ...]
    ended: tuple[str, ...]
    """The nonces of the instants that it rolls back."""
    horizon: int
    final: int
    completed_ms: int
    tokens: tuple[str, ...]


def fact_of(decision: Decision) -> Fact:
    """Take from a decision what the oracle needs."""
    changes, cleaned = decision.changes, decision.cleaned
    rows = changes.added.select(["path", "partition", "bucket", "kind"]).to_pylist()
    return Fact(
        decision.version,
        decision.instant.nonce,
        decision.operation,
        decision.base,
        tuple((r["path"], f"{r['partition']}/{r['bucket']}", r["kind"]) for r in rows),
        tuple(_beside(changes)),
        tuple(changes.removed["path"].to_pylist()),
        tuple(changes.garbage["path"].to_pylist()),
        () if cleaned is None else tuple(path for path, _ in cleaned.condemned),
        tuple(each.instant.nonce for each in decision.rolled_back),
        0 if cleaned is None else cleaned.horizon,
        0 if cleaned is None else cleaned.final,
        decision.completed_ms,
        tuple(str(token) for token in decision.tokens),
    )


def _beside(changes: Changes) -> Iterator[str]:
    for table in changes.tables().values():
        for name in table.column_names:
            if name.endswith("_path"):
                yield from table[name].drop_null().to_pylist()


def is_published(path: str) -> bool:
    """Tell whether a file is published metadata, for other engines."""
    return path.startswith(PUBLISHED)


class Watch:
    """Looks on while a schedule runs: what is published, and what is deleted on what ground."""

    def __init__(self, store: Store, memo: Memo) -> None:
        self._store, self._memo = store, memo
        self._timeline = MemoTimeline(store, memo)
        self.slots: dict[str, list[bytes]] = {
            info.path: [store.find(info.path) or b""] for info in store.list(paths.TIMELINE)
        }
        self.first = len(self.slots)
        """The first version that the schedule can decide; marks of older ones are by chance."""
        self.problems: list[Problem] = []

    def before_write(self, call: Call) -> None:
        """Ask by what right a data file is deleted (INV-06)."""
        if call.operation != "delete" or is_metadata(call.path) or is_published(call.path):
            return
        facts = self.facts()
        if is_repush_directory(call.path.partition("/")[0]):
            # The table that a repush builds decides for itself, until it is swapped in.
            named = (path for fact in facts for path, _, _ in fact.added)
            if call.path not in set(named):
                return
        name = call.path.rsplit("/", 1)[-1]
        condemned = any(call.path in (*fact.condemned, *fact.garbage) for fact in facts)
        ended = any(nonce in name for fact in facts for nonce in fact.ended)
        if not (condemned or ended or self._store.find(call.path) is None):
            found = f"{call.path} was deleted, and no decision condemns it or ends its instant"
            self.problems.append(Problem("INV-06", found))

    def after_write(self, call: Call, answer: object) -> None:
        """Note what stands in a slot."""
        if call.operation == "delete" or answer is False:
            return
        if call.path.startswith(paths.TIMELINE):
            body = self._store.find(call.path)
            if body:  # an emptied slot is an archived one
                self.slots.setdefault(call.path, []).append(body)

    def facts(self) -> list[Fact]:
        """Give the decisions as they were first published."""
        return [self._fact(path, bodies[0]) for path, bodies in sorted(self.slots.items())]

    def _fact(self, path: str, body: bytes) -> Fact:
        found = self._memo.known.get(("fact", body))
        if found is None:
            number = int(path.rsplit("/", 1)[-1].split(".", 1)[0])
            found = fact_of(self._timeline.decode(number, body))
            self._memo.keep(("fact", body), found)
        return cast("Fact", found)


def next_property(handle: TableHandle) -> object:
    """Write on, in the simplest way."""
    return set_properties(handle, {"lock.wait": "59s"})


@dataclass(frozen=True, slots=True)
class Oracle:
    """Judges what schedules leave.

    Args:
        next_write: what must work afterwards; by default a change of properties.
        tidy: whether recovery and a clean must leave no file that no decision names.
        archived: whether slots may be emptied, or gone; never may they hold anything else.
        every: whether each end is recovered, cleaned and written on, also one that looks like
            an earlier one.
        natural: errors that an actor may meet though nothing failed.
    """

    next_write: Callable[[TableHandle], object] = next_property
    tidy: bool = True
    archived: bool = False
    every: bool = EVERY
    natural: tuple[type[BaseException], ...] = field(default=NATURAL)

    def watch(self, store: Store, memo: Memo) -> Watch:
        """Begin to look on."""
        return Watch(store, memo)

    def judge(self, end: End, watch: Watch, check: Callable[[End], None] | None) -> list[Problem]:
        """Find everything that does not hold; ends that mean the same are judged once.

        That is: the same decisions but for their times and marks of attempts, the same other
        files, and the same told to everybody.
        """
        facts = tuple(watch.facts())
        others = tuple(
            (info.path, end.store.find(info.path))
            for info in end.store.list("")
            if not info.path.startswith(paths.TIMELINE)
        )
        slots = tuple(
            (path, len(bodies), end.store.find(path) in (bodies[0], b"", None))
            for path, bodies in watch.slots.items()
        )
        told = tuple((name, each.told) for name, each in end.outcomes.items())
        key = ("judged", id(self), id(check), hash((facts, others, frozenset(slots), told)))
        found = end.memo.known.get(key)
        if found is None:
            found = tuple(self._judge(end, watch, check))
            end.memo.keep(key, found)
        return [*watch.problems, *cast("tuple[Problem, ...]", found)]

    def _judge(
        self, end: End, watch: Watch, check: Callable[[End], None] | None
    ) -> Iterator[Problem]:
        facts = watch.facts()
        yield from _slots(end.store, watch, archived=self.archived)
        yield from _decided_once(facts)
        yield from _times(facts)
        yield from _files(end.store, facts)
        yield from _buckets(facts)
        for name, outcome in end.outcomes.items():
            yield from _told(name, outcome, facts, watch.first)
            yield from self._raised(name, outcome, facts)
        yield from _checked(end, check)
        yield from self._alike_alive(end, watch)

    def _raised(self, name: str, outcome: Outcome, facts: list[Fact]) -> Iterator[Problem]:
        error = outcome.error
        if isinstance(error, Exception) and not isinstance(error, InvariantError):
            ended = (nonce for fact in facts for nonce in fact.ended)
            if any(nonce.startswith(outcome.nonces) for nonce in ended):
                return  # its files and those it reads may go from then on: whatever it met
        failed = outcome.hurt and isinstance(error, (StorageError, CommitOutcomeUnknownError))
        dead = outcome.crashed and isinstance(error, SimulatedCrashError)
        if not (error is None or failed or dead or isinstance(error, self.natural)):
            yield Problem("no surprise", f"{name} raised {type(error).__name__}: {error}")

    def _alike_alive(self, end: End, watch: Watch) -> list[Problem]:
        """See that the table goes on, once for all ends that look alike."""
        if self.every:
            return list(self._alive(end, watch))
        key = ("alive", id(self), shape(end.store, watch.facts()))
        found = end.memo.known.get(key)
        if found is None:
            found = tuple(self._alive(end, watch))
            end.memo.keep(key, found)
        return list(cast("tuple[Problem, ...]", found))

    def _alive(self, end: End, watch: Watch) -> Iterator[Problem]:
        """Recover, clean and write on as a client that comes long after."""
        before = watch.facts()
        horizon = max(fact.horizon for fact in before)
        # once the retention is over, nobody looks any more for what the ended wrote late
        forgotten = {n for fact in before if fact.version <= horizon for n in fact.ended}
        end.world.time_ms = end.world.start_ms + _LATER_MS
        handle = end.handle()
        try:
            roll_back_failed(handle, reason="after the schedule", everything=True)
            self.next_write(handle)
            clean(handle)
        except (TableError, AssertionError) as error:
            yield Problem("liveness", f"afterwards: {type(error).__name__}: {error}")
            return
        pending = [str(entry.instant) for entry in load_pending(end.store)]
        if pending:
            yield Problem("liveness", f"still pending: {', '.join(pending)}")
        for info in end.store.list(paths.TIMELINE):
            watch.slots.setdefault(info.path, [end.store.find(info.path) or b""])
        yield from _slots(end.store, watch, archived=self.archived)
        facts = watch.facts()
        yield from _decided_once(facts)
        yield from _files(end.store, facts)
        if self.tidy:
            yield from _left(end.store, facts, forgotten)


def _left(store: Store, facts: list[Fact], forgotten: set[str]) -> Iterator[Problem]:
    named = {path for fact in facts for path, _, _ in fact.added}
    named |= {path for fact in facts for path in fact.beside}
    for info in store.list(""):
        late = any(nonce in info.path for nonce in forgotten)
        known = is_metadata(info.path) or is_published(info.path) or info.path in named
        if not (known or late):
            yield Problem("nothing left behind", f"{info.path} is there, and nobody names it")


def _slots(store: Store, watch: Watch, *, archived: bool) -> Iterator[Problem]:
    for number, (path, bodies) in enumerate(sorted(watch.slots.items())):
        if path != paths.slot(number):
            yield Problem("INV-02", f"version {number} was never published, {path} was")
            return
        if len(bodies) > 1:
            yield Problem("INV-02", f"version {number} was published {len(bodies)} times")
        left = store.find(path)
        if left != bodies[0] and not (archived and not left):
            yield Problem("INV-01", f"what is in the slot of version {number} changed")


def _decided_once(facts: list[Fact]) -> Iterator[Problem]:
    committed = Counter(fact.nonce for fact in facts)
    ended = Counter(nonce for fact in facts for nonce in fact.ended)
    for nonce, times in (committed + ended).items():
        if times > 1:
            how = f"{committed[nonce]} times committed, {ended[nonce]} times rolled back"
            yield Problem("INV-03", f"the instant of {nonce} was {how}")


def _times(facts: list[Fact]) -> Iterator[Problem]:
    """Look for commits that come between two change reads that share a bound (RFC 0013)."""
    for before, fact in itertools.pairwise(facts):
        if fact.completed_ms <= before.completed_ms:
            found = f"version {fact.version} was completed no later than version {before.version}"
            yield Problem("bounds stay true", found)


def _files(store: Store, facts: list[Fact]) -> Iterator[Problem]:
    horizon = max(fact.final for fact in facts)  # an undo may make readable what is not final
    ends: dict[str, list[int]] = {}
    for fact in facts:
        for path in fact.removed:
            ends.setdefault(path, []).append(fact.version)
    for fact in facts:
        for path, _, _ in fact.added:
            # a restore adds a file again: it is live until it is removed after that
            end = next((end for end in ends.get(path, ()) if end > fact.version), None)
            if (end is None or end > horizon) and store.find(path) is None:
                kept = "now" if end is None else f"until version {end}"
                found = f"{path} of version {fact.version}, live {kept}, is missing"
                yield Problem("INV-05", f"{found} (versions from {horizon} are retained)")


def _buckets(facts: list[Fact]) -> Iterator[Problem]:
    """Of a lost update there are two signs: a file removed twice, a bucket with two bases.

    Rewrites of other files of a bucket may leave two: no row of one is in the other.
    """
    live: dict[str, tuple[str, str]] = {}
    removed: dict[str, int] = {}
    for fact in facts:
        for path in fact.removed:
            if path in removed:
                first = removed[path]
                yield Problem("INV-07", f"versions {first} and {fact.version} both replaced {path}")
            removed[path] = fact.version
            live.pop(path, None)
        known = {place for place, kind in live.values() if kind == BASE}
        beside = known if fact.operation in REWRITES else set()
        live.update({p: (at, LOG if at in beside else kind) for p, at, kind in fact.added})
        if fact.operation in (Operation.RESTORE, *SWAPS):  # an undo of a swap is one
            for path, _, _ in fact.added:
                removed.pop(path, None)
        bases = Counter(p for p, kind in live.values() if kind == BASE and not p.endswith("/-1"))
        for place, count in bases.items():
            if count > 1:
                found = f"bucket {place} has {count} bases at version {fact.version}"
                yield Problem("INV-07", found)


def _told(name: str, outcome: Outcome, facts: list[Fact], first: int) -> Iterator[Problem]:
    """Compare what an actor was told with what the timeline says (INV-10)."""
    mine = {
        fact.version
        for fact in facts
        if fact.version >= first
        and fact.nonce.startswith(outcome.nonces)
        and fact.operation not in SERVICES
    }
    if isinstance(outcome.error, CommitOutcomeUnknownError) or outcome.crashed:
        return
    if outcome.error is not None:
        if mine:
            found = f"{name} was told {type(outcome.error).__name__}, and committed {sorted(mine)}"
            yield Problem("INV-10", found)
        return
    result = outcome.result
    results: list[object] = list(result) if isinstance(result, (list, tuple)) else [result]
    commits = [each for each in results if isinstance(each, CommitResult)]
    by_version = {fact.version: fact for fact in facts}
    for each in commits:
        fact = by_version.get(each.version)
        if fact is None or fact.nonce != each.instant.nonce:
            yield Problem("INV-10", f"{name} was told version {each.version}, which is not its own")
    told = {each.version for each in commits}
    if mine - told:
        yield Problem("INV-10", f"{name} was told {sorted(told)}, and committed {sorted(mine)}")
    for report in results:
        if isinstance(report, (RollbackReport, CleanReport)):
            yield from _told_rollbacks(name, report, facts)


def _told_rollbacks(
    name: str, report: RollbackReport | CleanReport, facts: list[Fact]
) -> Iterator[Problem]:
    rollback = report.rollback if isinstance(report, CleanReport) else report
    committed = {fact.nonce for fact in facts}
    ended = {nonce for fact in facts for nonce in fact.ended}
    for entry in rollback.ended:
        where = committed if entry.outcome == "committed" else ended
        if entry.instant.nonce not in where:
            found = f"{name} was told that {entry.instant} is {entry.outcome}, and it is not"
            yield Problem("INV-10", found)


def _checked(end: End, check: Callable[[End], None] | None) -> Iterator[Problem]:
    if check is None:
        return
    try:
        check(end)
    except (AssertionError, TableError) as error:
        yield Problem("check", f"{type(error).__name__}: {error}".split("\n", 1)[0][:300])
