"""Publications that die at one of their storage calls. What the crash certificate is made of.

The table is always at the same place, since Iceberg's paths are absolute. Its hidden rows are too
many to stand in a decision, so the Delta log has a copy of their file.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from plait import Table
from plait.services.maintenance.clean import clean
from plait.services.maintenance.upkeep import finish_upkeep
from plait.storage import open_store
from plait.storage.port import Store
from plait.testing import (
    CountingStore,
    Fault,
    FaultStore,
    SimulatedCrashError,
    StoreCall,
    open_wrapped,
)
from tests.support import build
from tests.support.build import LITTLE, rows
from tests.support.memory import forget
from tests.support.operations import bury_all, files_at, ports
from tests.support.published import (
    Shown,
    delta_numbers,
    iceberg_files,
    iceberg_metadata,
    iceberg_numbers,
    newest,
    published,
    vector_copies,
)

PLACE = "memory://published-crash"
DIRECTORIES = ("_delta_log", "_dv", "metadata")
_ROWS = 4_400


@dataclass(frozen=True)
class PublishCase:
    """What a client does, and how the publication is before."""

    target: str
    run: Callable[[Table], object]
    published: int = 0
    """How many versions are published when it begins: none, some, or all four."""
    foreign: bool = False
    """Whether somebody else wrote to the end of what is published."""
    deletes: str = "positions"

    def files(self) -> Mapping[str, bytes]:
        """Give the files of the table before."""
        return _prepared(self.target, self.published, self.deletes, foreign=self.foreign)


def publish(table: Table) -> object:
    """Publish what is missing, as a service does."""
    return table.maintenance.publish()


def clean_up(table: Table) -> object:
    """Clean; what it decides is published by the next client."""
    return clean(_silent(table)._handle)


CASES = {
    "publish delta: the very first version": PublishCase("delta", publish),
    "publish delta: versions that are missing": PublishCase("delta", publish, 2),
    "publish delta: undo what others wrote": PublishCase("delta", publish, 3, foreign=True),
    "clean of a table that is published as delta": PublishCase("delta", clean_up, 4),
    "publish iceberg: the very first version": PublishCase("iceberg", publish),
    "publish iceberg: versions that are missing": PublishCase(
        "iceberg", publish, 2, deletes="vectors"
    ),
    "publish iceberg: undo what others wrote": PublishCase("iceberg", publish, 3, foreign=True),
    "clean of a table that is published as iceberg": PublishCase("iceberg", clean_up, 4),
}


def _silent(table: Table) -> Table:
    """Return a client that publishes nothing after its decisions."""
    table._opened.handle = replace(table._opened.handle, upkeep=None)
    return table


@functools.cache
def _prepared(target: str, count: int, deletes: str, *, foreign: bool) -> Mapping[str, bytes]:
    forget(PLACE)
    properties = {**LITTLE, "publish": target, "publish.deadline": "1h"}
    properties["publish.iceberg.deletes"] = deletes
    table = build.make(uri=PLACE, table_type="mor", buckets=1, lock="none", properties=properties)
    steps: tuple[Callable[[Table], object], ...] = (
        lambda t: t.upsert(rows(range(_ROWS), v=1)),
        lambda t: t.upsert(rows(range(0, _ROWS, 2), v=2)),
        lambda t: t.delete(where="id < 9"),
    )
    for number, step in enumerate(steps, 1):
        step(table if number < count else _silent(table))
        finish_upkeep()
    store = table._handle.store
    if not count:
        store.delete([info.path for each in DIRECTORIES for info in store.list(each)])
    if foreign and target == "delta":
        number = delta_numbers(store)[-1] + 1
        store.put(f"_delta_log/{number:020d}.json", b'{"commitInfo":{"operation":"X"}}\n')
    elif foreign:
        store.put(f"metadata/v{iceberg_numbers(store)[-1] + 1}.metadata.json", b"{}")
    return files_at(PLACE)


def restored(case: PublishCase) -> None:
    """Put the table back as it was before."""
    files = case.files()
    forget(PLACE)
    store = open_store(PLACE)
    for path, body in files.items():
        store.put(path, body)


def publish_calls(case: PublishCase) -> tuple[StoreCall, ...]:
    """Run it undisturbed; return its calls."""
    restored(case)
    table, store = open_wrapped(PLACE, CountingStore, ports=ports())
    store.reset()
    case.run(table)
    return store.calls


def dead_at(case: PublishCase, nth: int) -> None:
    """Run it, and let the process die before a call."""
    restored(case)
    table, store = open_wrapped(PLACE, FaultStore, ports=ports())
    store.calls = 0
    store._script.append(Fault("crash_before", nth=nth))
    with suppress(SimulatedCrashError):
        case.run(table)
    bury_all(PLACE)


def require_right(store: Store) -> None:
    """See that whatever is published has the rows of its version (INV-17)."""
    table = Table.open(PLACE)
    for name, shown in published(store):
        assert isinstance(shown, Shown), f"{name} cannot be read: {shown}"
        found = table.scan(version=shown.version).to_arrow().to_pylist()
        wanted = sorted((tuple(each.values()) for each in found), key=repr)
        assert shown.rows(store) == wanted, f"{name} shows other rows"
    assert table.check.verify(data=False).clean


def unneeded(store: Store) -> list[str]:
    """Return the files of published metadata that no published version needs."""
    numbers = iceberg_numbers(store)
    needed = {f"metadata/v{each}.metadata.json" for each in numbers}
    for number in numbers:
        with suppress(KeyError):  # metadata of others
            needed |= iceberg_files(store, iceberg_metadata(store, number))
    commits = delta_numbers(store)
    needed |= {f"_delta_log/{each:020d}.json" for each in commits}
    needed |= {f"_delta_log/{each:020d}.checkpoint.parquet" for each in commits}
    needed |= {"_delta_log/_last_checkpoint", "metadata/version-hint.text"} | vector_copies(store)
    every = (info.path for each in DIRECTORIES for info in store.list(each))
    return sorted(path for path in every if path not in needed)


def seen(store: Store, target: str) -> str:
    """Say what an engine sees."""
    version = newest(store, target)
    return "nothing" if version is None else f"version {version}"


def gone_on(target: str) -> None:
    """Publish as another client; see that everything is there."""
    table = Table.open(PLACE)
    table.maintenance.publish()
    store = table._handle.store
    require_right(store)
    assert newest(store, target) == table._handle.cache.refresh().version


def cleaned() -> None:
    """Let the versions of before go: change a row, and clean, twice."""
    for value in (8, 9):
        table = Table.open(PLACE)
        table.upsert(rows(20, v=value))
        finish_upkeep()
        table.maintenance.clean()
        finish_upkeep()
    require_right(table._handle.store)
