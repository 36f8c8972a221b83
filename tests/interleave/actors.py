"""Actors of the interleaving tests, the tables they start from, and what must be left of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from plait.errors import InstantExpiredError, RestoreRefusedError
from plait.model.bucket import UNKEYED, BucketId
from plait.model.changes import WriteStatus
from plait.model.decision import CommitResult, Decision, Token
from plait.model.instant import Operation
from plait.model.request import WriteRequest
from plait.services.maintenance.archive import archive
from plait.services.maintenance.clean import clean, undo_clean
from plait.services.maintenance.restore import plan_restore, restore
from plait.services.maintenance.savepoint import set_savepoint
from plait.services.verify.checks import verify
from plait.services.verify.foreign import list_foreign, remove_foreign
from plait.state.cache import StateCache
from plait.testing import SimClock
from plait.timeline import paths
from plait.timeline.archive import load_archive
from plait.timeline.pending import load_pending
from plait.txn.read_pin import TTL_S, ReadPin
from plait.txn.recovery import roll_back_failed
from plait.txn.table_handle import TableHandle
from plait.txn.transaction import OptimisticTransaction
from tests.scheduler import Act, End, Oracle, Start
from tests.support.build import LITTLE
from tests.support.protocol import Hand, Work, client, create, marks_of, memory, upsert

WRITES = (Operation.UPSERT.value, Operation.APPEND.value)
DAY_MS = 86_400_000


@dataclass(frozen=True)
class Writer:
    """Writes into some buckets."""

    mark: str
    buckets: tuple[int, ...] = (0,)
    on_conflict: str = "raise"
    hand: type[Hand] = Hand
    token: Token | None = None

    def __call__(self, handle: TableHandle) -> CommitResult:
        return self.begin(handle).commit()

    def begin(self, handle: TableHandle) -> Work:
        unkeyed = self.buckets == (UNKEYED,)
        places: list[BucketId] = [((), number) for number in self.buckets]
        return Work.begin(
            handle,
            places,
            mark=self.mark,
            on_conflict=self.on_conflict,
            operation=Operation.APPEND if unkeyed else Operation.UPSERT,
            hand=self.hand,
            token=self.token,
        )


def retrying(mark: str, *buckets: int) -> Writer:
    return Writer(mark, buckets or (0,), "retry")


def undo(handle: TableHandle) -> object:
    """Undo the cleans that are not final."""
    return undo_clean(handle)


def save(handle: TableHandle) -> str:
    """Keep the newest version under a name."""
    return set_savepoint(handle, "kept").name


@dataclass(frozen=True)
class TakenBack:
    """What a restorer saw, and what came of it."""

    shown: int
    """The version of its plan."""
    version: int | None


def take_back(handle: TableHandle) -> TakenBack | str:
    """Restore the savepoint, or the version before the newest; never what was not shown."""
    state = handle.cache.refresh()
    saved = state.lineage.find_savepoint("kept")
    plan = plan_restore(handle, max(0, state.version - 1) if saved is None else saved.version)
    try:
        return TakenBack(plan.version, restore(handle, plan).version)
    except RestoreRefusedError:
        return "refused"


def put_away(handle: TableHandle) -> int:
    """Move old decisions into the archive; return how many slots were emptied."""
    return archive(handle).emptied


def sweep(handle: TableHandle) -> object:
    """Remove what nobody needs of the files that no decision names."""
    return remove_foreign(handle, list_foreign(handle))


def change_nothing(handle: TableHandle) -> str:
    """Begin, and end without a decision, since there is nothing to change (RFC 0016)."""
    txn = OptimisticTransaction.begin(handle, WriteRequest(Operation.UPSERT, partitions=((),)))
    assert txn.end_unchanged(WriteStatus()) is not None
    return "forgotten"


def give_up(handle: TableHandle) -> str:
    """Stage a file, and roll back."""
    Writer("given up").begin(handle).txn.abort("given up")
    return "rolled back"


def recover(handle: TableHandle) -> object:
    """Take everybody for dead."""
    return roll_back_failed(handle, reason="taken for dead", everything=True)


def recover_dead(handle: TableHandle) -> object:
    """Take for dead who was silent for too long."""
    return roll_back_failed(handle, reason="was silent")


def fresh(handle: TableHandle) -> None:
    """Open the table as a new client, and read it."""
    read(replace(handle, cache=StateCache(handle.store, handle.ports)))


def read(handle: TableHandle) -> str:
    """Read as a scan does: lease, head, files; only a lease that failed or ran out excuses one."""
    began_ms = handle.store.now_ms()
    lease = ReadPin(handle, handle.cache.known().version)
    try:
        needed = handle.cache.snapshot().files["path"].to_pylist()
        missing = [path for path in needed if handle.store.find(path) is None]
        assert not missing or _unprotected(handle, lease, began_ms), f"a reader misses {missing}"
    finally:
        lease.release()
    return "late" if missing else "read"


def _unprotected(handle: TableHandle, lease: ReadPin, began_ms: int) -> bool:
    """Tell whether nobody need have spared what a reader needs: no lease, or none any more."""
    return lease._cancel is None or handle.store.now_ms() - began_ms > TTL_S * 1000


def travel(handle: TableHandle) -> str:
    """Read the version that is known, however old; that it was cleaned is an answer."""
    began_ms = handle.store.now_ms()
    version = handle.cache.known().version
    lease = ReadPin(handle, version)
    try:
        needed = handle.cache.snapshot(version=version).files["path"].to_pylist()
        missing = [path for path in needed if handle.store.find(path) is None]
        excused = not missing or _unprotected(handle, lease, began_ms)
        assert excused, f"a reader of version {version} misses {missing}"
    except InstantExpiredError:
        return "expired"
    finally:
        lease.release()
    return "late" if missing else "read"


def look(handle: TableHandle) -> None:
    """Verify beside the others: what they are doing is no damage."""
    report = verify(handle, data=False)
    assert report.problems == ()


@cache
def start(writes: int = 0, *, keyed: bool = True, interval: int = 50, grace_s: int = 0) -> Start:
    """Make a table with some writes in bucket 0, once; with a grace, after a clean that is due."""
    clock = SimClock()
    store = memory(clock)
    options: dict[str, object] = {
        **LITTLE,
        "checkpoint.interval": str(interval),
        "clean.grace": f"{grace_s}s",
        "archive.keep": "1",
    }
    create(store, keyed=keyed, properties=options)
    handle = client(store, clock, nonces="8")
    states = [handle.cache.refresh()]
    for number in range(writes):
        upsert(handle, 0, mark=f"old{number}")
        states.append(handle.cache.known())
    if grace_s:
        clock.advance(1)
        clean(handle)
        clock.advance(grace_s)
        states.append(handle.cache.known())
    return replace(Start.of(store), states=tuple(states))


def write_on(handle: TableHandle) -> object:
    """Write where everybody wrote."""
    return upsert(handle, 0, 1, mark="next", on_conflict="retry")


def append_on(handle: TableHandle) -> object:
    return Writer("next", (UNKEYED,))(handle)


def oracle(*, keyed: bool = True) -> Oracle:
    return Oracle(next_write=write_on if keyed else append_on)


def _check_grace(handle: TableHandle) -> None:
    """See that nothing became final but what an earlier clean let go of and nobody brought back."""
    raised: dict[int, int] = {}
    final = 0
    for decision in handle.cache.timeline.load_after(0, limit=1_000):
        cleaned = decision.cleaned
        if cleaned is None:
            continue
        known = {final, *raised.values()}
        assert cleaned.final in known, f"version {cleaned.final} became final without a grace"
        final = cleaned.final
        if cleaned.undo is not None:
            raised = {v: horizon for v, horizon in raised.items() if v < cleaned.undo}
        else:
            raised[decision.version] = cleaned.horizon


@dataclass(frozen=True)
class Check:
    """The marks in the files are those of the commits on the timeline, and nothing is damaged."""

    actors: Mapping[str, Act]
    old: int
    verified: bool = True
    """Whether verify looks too: it finds nothing that the oracle does not, and takes longer."""

    def __call__(self, end: End) -> None:
        handle = end.handle()
        rows = handle.cache.refresh().commits(end.store)
        entries = rows.select(["instant", "operation"]).to_pylist()
        nonces = {e["instant"].rsplit("-", 1)[-1] for e in entries if e["operation"] in WRITES}
        expected = [f"old{number}" for number in range(self.old)]
        for name, act in self.actors.items():
            begun = end.outcomes[name].nonces
            if isinstance(act, Writer) and any(nonce.startswith(begun) for nonce in nonces):
                expected += [act.mark] * len(act.buckets)
        if handle.cache.known().table.options.seconds("clean.grace"):
            _check_grace(handle)
        found = marks_of(handle)
        assert found == sorted(expected), f"{found} are there, {sorted(expected)} were committed"
        if not self.verified:
            return
        report = verify(client(end.store), data=False)
        assert report.problems == (), str(report.problems[:3])
        if any(each.hurt for each in end.outcomes.values()):
            return
        unnamed = [n for n in report.notes if not n.path.startswith(paths.CHECKPOINTS)]
        assert unnamed == [], str(unnamed)
        assert load_pending(end.store) == []


@dataclass(frozen=True)
class ArchiveCheck:
    """Every decision can be read, and no slot is empty without a decision that archived it."""

    check: Check

    def __call__(self, end: End) -> None:
        self.check(end)
        handle = end.handle()
        archived = handle.cache.refresh().archive
        found = list(handle.cache.timeline.load_after(-1, limit=1_000))
        assert [each.version for each in found] == list(range(handle.cache.known().version + 1))
        empty = [v for v in range(len(found)) if not handle.cache.timeline.find_slot(v)]
        assert empty == list(range(len(empty))), f"{empty} are empty"
        assert len(empty) <= archived.last + 1, f"{empty} are empty, {archived.last} was archived"
        for file in archived.files:
            load_archive(end.store, file.path, sha256=file.sha256)


@dataclass(frozen=True)
class RestoreCheck:
    """The marks in the files are those of the commits that the table contains, by its lineage."""

    actors: Mapping[str, Act]
    old: int
    verified: bool = True

    def __call__(self, end: End) -> None:
        handle = end.handle()
        decisions = list(handle.cache.timeline.load_after(-1, limit=1_000))
        expected: list[str] = []
        for version in lineage_of(decisions):
            decision = decisions[version]
            if decision.operation.value not in WRITES:
                continue
            marks = [f"old{version - 1}"] if version <= self.old else []
            for name, act in self.actors.items():
                begun = decision.instant.nonce.startswith(end.outcomes[name].nonces)
                if version > self.old and begun and isinstance(act, Writer):
                    marks += [act.mark] * len(act.buckets)
            expected += marks
        found = marks_of(handle)
        assert found == sorted(expected), f"{found} are there, {sorted(expected)} are contained"
        for taken in end.results.values():
            if isinstance(taken, TakenBack) and taken.version is not None:
                since = decisions[taken.shown + 1 : taken.version]
                unseen = [each.version for each in since if each.operation.value in WRITES]
                assert not unseen, f"version {taken.version} undoes {unseen}, which nobody saw"
        state = handle.cache.refresh()
        for saved in state.lineage.savepoints:
            files = state.snapshot(end.store, version=saved.version).files["path"].to_pylist()
            missing = [path for path in files if end.store.find(path) is None]
            assert not missing, f"INV-05: the savepoint misses {missing}"
        if self.verified:
            report = verify(client(end.store), data=False)
            assert report.problems == (), str(report.problems[:3])


def lineage_of(decisions: Sequence[Decision]) -> set[int]:
    """Return the versions whose commits the table contains, as docs/spec/lineage.tla says it."""
    found: set[int] = set()
    version = len(decisions) - 1
    while version >= 0:
        found.add(version)
        restored = decisions[version].restored
        version = version - 1 if restored is None else restored.to
    return found
