"""Publishers of both formats beside writers, a cleaner, a repush, a restore and a foreign writer.

INV-17, at every moment and not only at the end: whenever a version becomes visible, and whenever a
file goes, all that is published is read by ``tests/support/published.py``, which knows nothing of
Plait. What was visible then is compared with what the decisions lead to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial

import pyarrow as pa

from plait import Table
from plait.errors import RepushError, RestoreRefusedError
from plait.interop.publication import catch_up as publish_all
from plait.interop.publication import follow
from plait.model.decision import Decision
from plait.model.instant import Operation
from plait.services.maintenance.clean import clean as clean_now
from plait.services.maintenance.upkeep import finish_upkeep
from plait.storage.port import Store
from plait.testing.wrapper import WrappedStore, is_metadata
from plait.txn.table_handle import TableHandle
from tests.interleave.real import made, rows, values
from tests.interleave.sourcing import values_at
from tests.scheduler import CALL_EVENTS, End, Oracle, Problem, Scenario, Start
from tests.scheduler.ending import AFTER
from tests.scheduler.oracle import NATURAL, Watch, _checked, is_published
from tests.scheduler.world import LaneClock
from tests.support.published import (
    Shown,
    UnreadableError,
    delta_numbers,
    iceberg_files,
    iceberg_hint,
    iceberg_metadata,
    iceberg_numbers,
    newest,
    published,
)
from tests.support.thresholds import are_low

Rows = Mapping[int, str]
BOTH = ("delta", "iceberg")
PLACE = "memory://published"
"""Where every table of these schedules is, as its metadata says."""


# --- actors -------------------------------------------------------------------------------------


def client_of(handle: TableHandle) -> Table:
    """Return a table whose decisions publish in this very lane.

    A client publishes Iceberg on a thread of its process, after its commit: here the same calls
    come after the commit, where others may come in between.
    """
    table = Table(handle)

    def publish(handle: TableHandle, decision: Decision | None) -> None:
        del decision
        follow(handle)
        follow(handle, deferred=True)

    table._opened.handle = replace(table._opened.handle, upkeep=publish)
    return table


def put_two(handle: TableHandle) -> object:
    return client_of(handle).upsert(rows("new", 2, 5), on_conflict="retry")


def drop_one(handle: TableHandle) -> object:
    keys = pa.table({"id": pa.array([4], pa.int64())})
    return client_of(handle).delete(keys=keys, on_conflict="retry")


def clean(handle: TableHandle) -> object:
    return clean_now(client_of(handle)._handle)


def publish(handle: TableHandle) -> object:
    """Publish what is missing, as a service does."""
    return publish_all(handle)


def lay_out(handle: TableHandle) -> object:
    return client_of(handle).layout.repush(buckets=2, rows_per_task=2)


def take_back(handle: TableHandle) -> object:
    """Undo the newest commit of rows, unless another one came meanwhile."""
    try:
        return client_of(handle).versions.undo()
    except RestoreRefusedError:
        return "refused"


def write_foreign(handle: TableHandle) -> object:
    """Take a file of the table away from the Delta log, as a writer that ignores features does."""
    store = handle.store
    number = max(delta_numbers(store), default=0) + 1
    gone = '{"commitInfo":{"operation":"X"}}\n{"remove":{"path":"%s","dataChange":true}}\n'
    path = next(info.path for info in store.list("data") if info.path.endswith(".parquet"))
    return store.put_if_absent(f"_delta_log/{number:020d}.json", (gone % path).encode())


ACTORS: Mapping[str, Callable[[TableHandle], object]] = {
    "a": put_two,
    "b": drop_one,
    "k": clean,
    "l": clean,
    "p": publish,
    "q": publish,
    "r": lay_out,
    "t": take_back,
    "x": write_foreign,
}
_WRITES: Mapping[str, Callable[[Rows], Rows]] = {
    "a": lambda now: {**now, 2: "new", 5: "new"},
    "b": lambda now: {key: value for key, value in now.items() if key != 4},
}


# --- what is seen meanwhile ---------------------------------------------------------------------


@dataclass
class Seen:
    """What became visible in one schedule, and what was wrong at once."""

    shown: dict[tuple[int, tuple[tuple[object, ...], ...]], str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    gone: dict[str, int] = field(default_factory=dict)
    """By directory: the greatest number that a clean took out of it."""
    late: set[str] = field(default_factory=set)
    """What was put under such a number again, by a publisher that slept meanwhile. It shows what it
    should or cannot be read, until the next clean takes it out."""
    read: dict[Shown, list[tuple[object, ...]]] = field(default_factory=dict)


@dataclass
class Readers:
    """Engines that look whenever there may be something new to see, by table."""

    seen: dict[str, Seen] = field(default_factory=dict)

    def around(self, store: Store) -> Store:
        """Begin to look on."""
        self.seen.clear()
        self.seen[store.address.uri] = Seen()
        return _Watched(store, self.seen[store.address.uri])


class Placed(WrappedStore):
    """A copy of a table that stands in for it: Iceberg's paths are absolute."""

    def location(self, path: str) -> str:
        return f"{PLACE}/{path}"


class _Watched(Placed):
    def __init__(self, inner: Store, seen: Seen) -> None:
        super().__init__(inner)
        self._seen = seen

    def put_if_absent(self, path: str, body: bytes) -> bool:
        won = self.inner.put_if_absent(path, body)
        if won and is_published(path) and path.endswith(".json"):
            directory, number = _numbered(path)
            if number <= self._seen.gone.get(directory, -1):
                self._seen.late.add(path)
            self._look(_of(self.inner, path))
        elif won and _is_checkpoint(path):
            self._look(published(self.inner))
        return won

    def put(self, path: str, body: bytes) -> None:
        self.inner.put(path, body)
        if _is_checkpoint(path):
            self._look(published(self.inner))

    def delete(self, paths: Iterable[str]) -> None:
        doomed = list(paths)
        data = {path for path in doomed if not (is_metadata(path) or is_published(path))}
        for name, shown in published(self.inner) if data else ():
            named = shown.files if isinstance(shown, Shown) else ()
            still = data & {path for path, _ in named}
            if still and name not in self._seen.late:
                self._seen.wrong.append(f"INV-05: {name} names {still}, which a clean deletes")
        self.inner.delete(doomed)
        for path in doomed:
            if is_published(path) and path.endswith(".json"):
                directory, number = _numbered(path)
                self._seen.gone[directory] = max(number, self._seen.gone.get(directory, -1))
        if any(map(is_published, doomed)):
            self._look(published(self.inner))

    def _look(self, every: Iterable[tuple[str, Shown | UnreadableError]]) -> None:
        for name, shown in every:
            try:
                if isinstance(shown, UnreadableError):
                    raise shown
                if shown not in self._seen.read:
                    self._seen.read[shown] = shown.rows(self.inner)
                found = tuple(self._seen.read[shown])
                self._seen.shown.setdefault((shown.version, found), name)
            except UnreadableError as error:
                if name not in self._seen.late:
                    self._seen.wrong.append(f"INV-17: {name} cannot be read: {error}")


def _is_checkpoint(path: str) -> bool:
    """Tell whether readers of the log may begin with a file: what they see may change by it."""
    return path.startswith("_delta_log/") and path.endswith(".parquet")


def _numbered(path: str) -> tuple[str, int]:
    directory, _, name = path.partition("/")
    return directory, int(name.split(".")[0].removeprefix("v"))


def _of(store: Store, path: str) -> Iterable[tuple[str, Shown | UnreadableError]]:
    """Read what a file publishes."""
    return ((name, shown) for name, shown in published(store) if name == path)


# --- what must hold -----------------------------------------------------------------------------


@dataclass(frozen=True)
class PublishedCheck:
    """INV-17: whatever was published at any moment was what its version shows, and all is there."""

    readers: Readers
    known: Mapping[int, Rows]
    """The rows of the versions of before the schedule."""

    def __call__(self, end: End) -> None:
        handle = end.handle()
        every = rows_of_versions(handle, end, self.known)
        seen = self.readers.seen[end.store.address.uri]
        assert not seen.wrong, seen.wrong[0]
        for (version, found), name in seen.shown.items():
            assert version in every, f"{name} shows version {version}, which nobody decided"
            wanted: object = tuple(sorted(every[version].items(), key=repr))
            assert found == wanted, f"{name} shows {found} as version {version}, not {wanted}"
        require_whole(end.store, seen.late)
        # Where thresholds are lowered a client leaves every leap to services: it may lag.
        if not (are_low() or any(each.hurt or each.crashed for each in end.outcomes.values())):
            for target in handle.cache.refresh().table.published:
                found_newest = newest(end.store, target)
                assert found_newest == max(every), f"{target} ends with version {found_newest}"
        assert values(Table(handle)) == every[max(every)]


def rows_of_versions(handle: TableHandle, end: End, known: Mapping[int, Rows]) -> dict[int, Rows]:
    """Return the rows of every version, as the decisions say."""
    every: dict[int, Rows] = dict(known)
    for decision in handle.cache.timeline.load_after(max(known), limit=1_000):
        now = every[decision.version - 1]
        if decision.operation in (Operation.UPSERT, Operation.DELETE):
            nonce = decision.instant.nonce
            now = next(_WRITES[n] for n, e in end.outcomes.items() if nonce.startswith(e.nonces))(
                now
            )
        elif decision.restored is not None:
            now = every[decision.restored.to]
        every[decision.version] = now
    return every


def require_whole(store: Store, late: Iterable[str] = ()) -> None:
    """See that all that is published can be read, and the hint names metadata that is there."""
    for name, shown in published(store):
        if name in late:
            continue
        assert isinstance(shown, Shown), f"{name} cannot be read: {shown}"
        assert not shown.missing(store), f"{name} names {shown.missing(store)}, which are gone"
    hint = iceberg_hint(store)
    assert hint is None or hint in iceberg_numbers(store), f"the hint names {hint}"


def write_on(handle: TableHandle) -> None:
    """Write, and publish as a service long after: what others left half done is done then."""
    handle = replace(handle, store=Placed(handle.store))
    table = client_of(handle)
    table.layout.cancel()
    for _ in range(2):  # the first version lets go of those of the schedule, the second of that
        table.upsert(rows("next", 1), on_conflict="retry")
        report = publish_all(handle)
        assert all(each.version == report.version for each in report.targets), str(report)
        _let_time_pass(handle)
        clean(handle)
    require_whole(handle.store)
    for name, shown in published(handle.store):
        if isinstance(shown, Shown) and shown.version == handle.cache.known().version:
            assert dict(shown.rows(handle.store)) == values(table), name  # type: ignore[arg-type]
    _require_tidy(handle.store)


def _let_time_pass(handle: TableHandle) -> None:
    clock = handle.ports.clock
    assert isinstance(clock, LaneClock)
    clock.world.advance(1)


def _require_tidy(store: Store) -> None:
    """See that what lies in ``metadata/`` is named, but for what was lost just now."""
    named = set[str]()
    for number in iceberg_numbers(store):
        named |= iceberg_files(store, iceberg_metadata(store, number))
    for info in store.list("metadata"):
        fresh = f"-{AFTER}" in info.path or info.path.endswith((".json", ".text"))
        assert fresh or info.path in named, f"two cleans left {info.path}"


class Publishing(Oracle):
    """Judges each end: what was published on the way to equal ends may differ."""

    def judge(self, end: End, watch: Watch, check: Callable[[End], None] | None) -> list[Problem]:
        """Judge, and check each end."""
        return [*_checked(end, check), *Oracle.judge(self, end, watch, None)]


# --- scenarios ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Before:
    """A published table to start from."""

    start: Start
    known: Mapping[int, Rows]


@cache
def before(kind: str, targets: tuple[str, ...], deletes: str, interval: int, lag: int) -> Before:
    """Make a table of three versions; the newest ones are not published yet, as many as ``lag``."""
    table = made(
        kind,
        files=1,
        around=Placed,
        publish=",".join(targets),
        publish_deadline="1h",
        publish_iceberg_deletes=deletes,
        checkpoint_interval=interval,
    )
    finish_upkeep()
    store = table._handle.store
    known = {at: values_at(table, at) for at in range(table.version + 1)}
    for number in delta_numbers(store)[-lag:] if lag else ():
        store.delete(
            [f"_delta_log/{number:020d}.json", f"_delta_log/{number:020d}.checkpoint.parquet"]
        )
    for number in iceberg_numbers(store)[-lag:] if lag else ():
        store.delete([f"metadata/v{number}.metadata.json"])
    return Before(Start.of(store), known)


def publishing(
    actors: str,
    *,
    kind: str = "mor",
    targets: tuple[str, ...] = BOTH,
    deletes: str = "positions",
    interval: int = 50,
    lag: int = 0,
    events: bool = False,
) -> Scenario:
    """Make a scenario of these actors, each with its letter, on a published table."""
    readers = Readers()
    first = before(kind, targets, deletes, interval, lag)
    return Scenario(
        f"{actors} on a {kind} table published as {' and '.join(targets)}",
        first.start,
        {name: ACTORS[name] for name in actors},
        check=PublishedCheck(readers, first.known),
        events=CALL_EVENTS if events else (),
        wrap=readers.around,
        oracle=Publishing(write_on, natural=(*NATURAL, RepushError)),
    )


LONG = (
    partial(publishing, "abpk", kind="cow"),
    partial(publishing, "abpq", deletes="vectors", interval=1),
    partial(publishing, "aqkt", lag=2, interval=1),
    partial(publishing, "apr"),
    partial(publishing, "apxk", targets=("delta",), interval=2),
    partial(publishing, "bklp", lag=1),
)


def publishing_scenarios() -> tuple[Scenario, ...]:
    """Make the long ones anew."""
    return tuple(make(events=True) for make in LONG)
