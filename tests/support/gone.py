"""Operations of a client whose table is taken away at one of their storage calls.

The root is removed, renamed or emptied, or another table is made in its place, right before a
call of an operation. Whatever the call is: nobody is told of a success that is in no table, the
new table is as it was made, and nothing of the old client stays behind. What the test and the
long run (``make soak``) share.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from plait import Table
from plait.errors import CommitOutcomeUnknownError, TableError
from plait.services.verify.foreign import list_foreign, remove_foreign
from plait.storage import memory, open_store
from plait.testing import CountingStore, Fault, FaultStore, StoreCall, open_wrapped
from plait.timeline import paths
from plait.txn.recovery import roll_back_failed
from tests.support.memory import forget
from tests.support.operations import (
    CASES,
    INDEXES,
    REPUSHES,
    Case,
    copy_of,
    ports,
    prepared,
    rows,
)
from tests.support.place import quick_place

_NAMES = itertools.count()
REMOVED, RENAMED, EMPTIED = "removed", "renamed", "emptied"
AGAIN = {"made again": 0, "made again and written once": 1, "made again and written often": 14}
"""Another table in the same place, and how many commits it has."""
OLDER = {"an older copy": 0, "an older copy that was written once": 1}
"""A copy of the same table that is older by one version, and how many commits came then."""
REPLACED = (*AGAIN, *OLDER)
ON_DISK = (REMOVED, RENAMED, EMPTIED, *REPLACED)
IN_MEMORY = (REMOVED, *REPLACED)
SMALL = ("append", "upsert mor", "new partition", "properties", "compact", "clean", "archive")
"""Operations that also run on a disk in the short form."""


def _streamed(table: Table) -> object:
    with table.stream("app").writer("upsert", after=None, end="1") as writer:
        writer.write(rows(20))
    return writer.result


def _in_transaction(table: Table) -> object:
    with table.transaction() as transaction:
        transaction.delete(where="id = 3")
        transaction.upsert(rows(20))
    return transaction.result


def _saved(table: Table) -> object:
    table.versions.savepoint("kept")
    return table.versions.drop_savepoint("kept")


_OLD = CASES["append"].before
WRITES = {
    **CASES,
    **INDEXES,
    **REPUSHES,
    "insert": Case(lambda t: t.insert(rows(20)), _OLD, _OLD | {20}),
    "update": Case(lambda t: t.update({"at": "DATE '2001-01-01'"}, where="id = 3"), _OLD, _OLD),
    "delete of keys": Case(lambda t: t.delete(keys=rows(3)), _OLD, _OLD - {3}),
    "delete of nothing": Case(lambda t: t.delete(where="id = 77"), _OLD, _OLD),
    "stream epoch": Case(_streamed, _OLD, _OLD | {20}),
    "transaction": Case(_in_transaction, _OLD, (_OLD | {20}) - {3}),
    "savepoint that goes": Case(_saved, _OLD, _OLD),
    "time to live": Case(lambda t: t.alter.set_ttl("at 1d"), _OLD, _OLD),
    "contract": Case(lambda t: t.alter.contract(failed_writes="lazy"), _OLD, _OLD),
    "upgrade": Case(lambda t: t.alter.upgrade(), _OLD, _OLD),
    "repair": Case(lambda t: t.check.repair(t.check.repair(dry_run=True)), _OLD, _OLD),
}
del WRITES["read"], WRITES["repush that is cancelled"]
"""The latter does a part of a repush by hand."""
READS: Mapping[str, Callable[[Table], object]] = {
    "scan": lambda t: t.scan().to_arrow(),
    "scan of a version": lambda t: t.scan(version=1).to_arrow(),
    "count": lambda t: t.scan().count(),
    "get": lambda t: t.get([{"day": "a", "id": 1}]),
    "changes": lambda t: t.changes(since=1).to_arrow(),
    "snapshot": lambda t: t.snapshot().version,
    "version": lambda t: t.version,
    "files": lambda t: t.inspect.files(),
    "history": lambda t: list(t.inspect.history()),
    "timeline": lambda t: t.inspect.timeline(),
    "describe": lambda t: t.inspect.describe(),
    "options": lambda t: t.properties,
    "schema": lambda t: t.schema,
    "find_commit": lambda t: t.inspect.find_commit("none"),
    "explain": lambda t: t.inspect.explain(t.inspect.history()[0].instant),
    "writers": lambda t: t.inspect.writers(),
    "readers": lambda t: t.inspect.readers(),
    "locks": lambda t: t.inspect.locks(),
    "savepoints": lambda t: t.versions.savepoints,
    "foreign": lambda t: t.check.foreign(),
    "index status": lambda t: t.index.status(),
    "verify": lambda t: t.check.verify(),
    "plan clean": lambda t: t.maintenance.clean(dry_run=True),
    "plan compact": lambda t: t.maintenance.compact(dry_run=True),
    "plan restore": lambda t: t.versions.restore(version=1, dry_run=True),
    "stream": lambda t: t.stream("app").position,
}


@dataclass
class Trial:
    """One operation, on a table that is taken away before one of its calls."""

    name: str
    case: Case
    act: str
    nth: int
    disk: str = ""
    uri: str = ""
    then: Mapping[str, bytes] = field(default_factory=dict)
    """The files of the table at the moment in which it was taken away."""
    seen: tuple[StoreCall, ...] = ()
    """The calls of the operation before that moment."""

    def run(self) -> str:
        """Run it; say what is wrong, or nothing."""
        self.uri = place_of(self.case.files(), self.disk)
        table, store = _opened(self.uri)
        store._script.append(Fault("step", nth=self.nth, run=lambda: self._take(store)))
        error: Exception | None = None
        result: object = None
        try:
            result = self.case.run(table)
        except Exception as raised:  # noqa: BLE001 - which one it is, is judged
            error = raised
        if not self.then:
            return ""  # the operation was over before
        wrong = self._judge(error, result)
        del table
        return wrong

    def _take(self, store: _Recorded) -> None:
        self.then, self.seen = files_of(self.uri), store.made()
        if self.act == RENAMED:
            Path(self.uri).rename(f"{self.uri}-renamed")
            return
        clear(self.uri)
        if self.act == EMPTIED:
            Path(self.uri).mkdir()
        if self.act in REPLACED:
            put_files(self.uri, self._replacement())

    def _replacement(self) -> Mapping[str, bytes]:
        if self.act in OLDER:
            return older(self.name, OLDER[self.act])
        return made_again(self.case, AGAIN[self.act])

    def _judge(self, error: Exception | None, result: object) -> str:
        if error is not None and not isinstance(error, TableError):
            return f"{type(error).__name__}: {error}"
        if error is None and not self._may_succeed():
            return f"success is reported: {result!r:.100}"
        if self.act in OLDER and isinstance(error, CommitOutcomeUnknownError):
            return ""  # the copy came between a look and a put: it says so (RFC 0032, section 6)
        return self._harmed() if self.act in REPLACED else self._left()

    def _may_succeed(self) -> bool:
        """Tell whether a success is of something that was in the table when it was there."""
        if self.name in READS:  # it began to read before
            return any(call.path.startswith(paths.TIMELINE) for call in self.seen)
        _, final = undisturbed(self.name)
        there = [path for path in self.then if path.startswith(paths.TIMELINE)]
        return len(there) >= final

    def _left(self) -> str:
        left = sorted(path for path in files_of(self.uri) if "-again." not in path)
        return f"left behind: {left}" if left else ""

    def _harmed(self) -> str:
        made = self._replacement()
        now = files_of(self.uri)
        slots = [p for p in now if p.startswith(paths.TIMELINE) and p not in made]
        if slots:
            return f"strange slots: {slots}"
        lost = [p for p, body in made.items() if now.get(p) != body and "/hints/" not in p]
        if lost:
            return f"lost or changed: {lost}"
        more = [p for p in now if p not in made and "/hints/" not in p and "-again." not in p]
        if more:
            return f"left behind: {more}"
        table = Table.open(self.uri)
        table._handle.store.delete([path for path in now if "-again." in path])  # of the operation
        problems = table.check.verify(data=True).problems
        if problems:
            return f"verify: {problems}"
        table.append(rows(1_000))
        return ""


class _Recorded(FaultStore):
    """Remembers its calls."""

    def __init__(self, inner: object) -> None:
        self._counting = CountingStore(inner)  # type: ignore[arg-type]  # a store
        super().__init__(self._counting)

    def made(self) -> tuple[StoreCall, ...]:
        """Return the calls since it was opened."""
        return self._counting.calls


def _opened(uri: str) -> tuple[Table, _Recorded]:
    mine = ports()
    table, store = open_wrapped(uri, _Recorded, ports=mine)
    store._clock = mine.clock
    table.version  # noqa: B018 - it is an old client
    store._counting.reset()
    return table, store


def place_of(files: Mapping[str, bytes], disk: str) -> str:
    """Put the files of a table somewhere new; on a disk if a directory is given."""
    if not disk:
        return copy_of(files)
    uri = f"{disk}/t{next(_NAMES)}"
    put_files(uri, files)
    return uri


def put_files(uri: str, files: Mapping[str, bytes]) -> None:
    """Put files into a place."""
    if uri.startswith(memory.SCHEME):
        store = open_store(uri)
        for path, body in files.items():
            store.put(path, body)
        return
    for path, body in files.items():
        target = Path(uri, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(body)


def files_of(uri: str) -> dict[str, bytes]:
    """Return what is in a place, as far as it is there."""
    if uri.startswith(memory.SCHEME):
        store = open_store(uri)
        return {info.path: store.find(info.path) or b"" for info in store.list("")}
    found = [path for path in Path(uri).rglob("*") if path.is_file()]
    return {str(path.relative_to(uri)): path.read_bytes() for path in found}


def clear(uri: str) -> None:
    """Remove a table, root and all."""
    if uri.startswith(memory.SCHEME):
        store = open_store(uri)
        store.delete([info.path for info in store.list("")])
    else:
        shutil.rmtree(uri)


def made_again(case: Case, commits: int) -> Mapping[str, bytes]:
    """Return the files of another table with the same definition."""
    return _again(case.key, case.table_type, case.unique, case.interval, commits)


@functools.cache
def _again(
    key: tuple[str, ...], table_type: str, unique: str, interval: int, commits: int
) -> Mapping[str, bytes]:
    uri = f"memory://again-{next(_NAMES)}"
    whole = Case(lambda _: None, _OLD, _OLD, key, table_type, unique=unique, interval=interval)
    first = prepared.__wrapped__(whole._made)
    store = open_store(uri)
    kept = [path for path in first if path == paths.TABLE or path == paths.slot(0)]
    for path in kept:
        store.put(path, first[path])
    table = Table.open(uri)
    for number in range(commits):
        table.append(rows(2_000 + number))
    files = files_of(uri)
    forget(uri)
    return files


@functools.cache
def older(name: str, commits: int) -> Mapping[str, bytes]:
    """Return the files of the table of an operation without its newest version, and cleaned."""
    uri = copy_of(case_of(name).prepared())
    store = open_store(uri)
    newest = Table.open(uri).version
    gone = [info.path for info in store.list(paths.CHECKPOINTS)]
    store.delete([paths.slot(newest), *gone, *(info.path for info in store.list(".meta/hints"))])
    table = Table.open(uri)
    handle = table._handle
    roll_back_failed(handle, reason="of the copy", everything=True)
    remove_foreign(handle, list_foreign(handle))
    for number in range(commits):
        table.append(rows(2_000 + number))
    files = files_of(uri)
    forget(uri)
    return files


@functools.cache
def undisturbed(name: str) -> tuple[tuple[StoreCall, ...], int]:
    """Run an operation on a table that stays; return its calls, and how many slots there are."""
    case = case_of(name)
    table, store = _opened(copy_of(case.files()))
    case.run(table)
    calls = store.made()
    slots = [p for p in files_of(table._handle.store.address.uri) if p.startswith(paths.TIMELINE)]
    return calls, len(slots)


def case_of(name: str) -> Case:
    """Return an operation by its name."""
    if name in READS:
        return Case(READS[name], _OLD, _OLD)
    return WRITES[name]


def trials(name: str, acts: Sequence[str], *, disk: str = "") -> Iterator[Trial]:
    """Yield every trial of an operation: each act at each of its calls."""
    calls, _ = undisturbed(name)
    for nth in range(1, len(calls) + 1):
        yield from (Trial(name, case_of(name), act, nth, disk) for act in acts)


def telling_trials(name: str, acts: Sequence[str], *, disk: str = "") -> Iterator[Trial]:
    """Yield few trials of an operation: at its first and last calls, and around its slots.

    The acts come in turn. Before a slot is put nothing is found out yet; after it, all must be.
    """
    calls, _ = undisturbed(name)
    puts = [n for n, call in enumerate(calls, 1) if call.path.startswith(paths.TIMELINE)]
    told = [n for n in puts if calls[n - 1].operation == "put_if_absent"][:2]
    chosen = sorted({1, *told, *(n + 1 for n in told), len(calls)} & set(range(1, len(calls) + 1)))
    start = sum(map(ord, name))
    for turn, nth in enumerate(chosen, start):
        yield Trial(name, case_of(name), acts[turn % len(acts)], nth, disk)


def main() -> int:
    """Take the table away at each call of each operation, in every way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--only", default="", help="operations whose names contain this")
    parser.add_argument("--every", type=int, default=1, help="take only each n-th trial")
    asked = parser.parse_args()
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    with quick_place() as place:
        for name in (*WRITES, *READS):
            if asked.only not in name:
                continue
            for disk in ("", place):
                acts = ON_DISK if disk else IN_MEMORY
                for trial in itertools.islice(trials(name, acts, disk=disk), 0, None, asked.every):
                    found = trial.run()
                    counts[trial.act] += 1
                    if found:
                        where = "disk" if disk else "memory"
                        wrong.append(f"{name}, {trial.act} at call {trial.nth}, {where}: {found}")
                        print(wrong[-1], flush=True)  # noqa: T201 - it is a program
                    clean_up(trial)
    print(f"{sum(counts.values())} tables taken away: {dict(counts)}; {len(wrong)} wrong")  # noqa: T201
    return 1 if wrong else 0


def clean_up(trial: Trial) -> None:
    """Free what a trial has used."""
    if trial.disk:
        for place in (trial.uri, f"{trial.uri}-renamed"):
            shutil.rmtree(place, ignore_errors=True)
    else:
        forget(trial.uri)


if __name__ == "__main__":
    sys.exit(main())
