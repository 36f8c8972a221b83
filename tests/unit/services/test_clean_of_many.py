"""A clean of many files, on a table that others write all the time."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from plait import Table
from plait.model.instant import Operation
from plait.services.maintenance.clean import clean, plan_clean
from plait.services.maintenance.restore import plan_restore, restore
from plait.services.maintenance.retention import unneeded
from plait.services.maintenance.savepoint import set_savepoint
from plait.services.verify.checks import verify
from plait.storage.memory import MemoryStore
from plait.testing import SimClock
from plait.txn.table_decisions import set_properties
from tests.support.build import LITTLE
from tests.support.protocol import Phases, client, create, listed, memory, upsert

ROUNDS = 6


@pytest.fixture
def store(clock: SimClock) -> MemoryStore:
    made = memory(clock)
    create(made, properties=LITTLE)
    for number in range(4):
        upsert(client(made, clock), mark=str(number))
    clock.advance(1)
    return made


class Path(str):
    """A path that counts how often it is looked for."""

    __slots__ = ()
    looks = 0

    def __hash__(self) -> int:
        """Count one look."""
        Path.looks += 1
        return super().__hash__()


def test_the_work_of_a_clean_grows_with_the_files_and_not_with_their_square(
    clock: SimClock,
) -> None:
    """Each path is looked for a few times: a clean may condemn 100,000 files."""
    made = memory(clock)
    create(made, properties=LITTLE)
    for number in range(60):
        upsert(client(made, clock), mark=str(number))
    clock.advance(1)
    plan = plan_clean(client(made, clock))
    assert len(plan.condemned) >= 59
    named = tuple((Path(path), ended) for path, ended in plan.condemned)
    Path.looks = 0
    assert len(clean(client(made, clock), replace(plan, condemned=named)).deleted) >= 59
    assert Path.looks <= 4 * len(named)


def busy(store: MemoryStore, clock: SimClock) -> Phases:
    """Let a writer commit each time when the clean is about to publish, so that it loses."""
    phases, left = Phases(), list(range(ROUNDS))

    def act() -> None:
        if left:
            phases.on["publish"] = act
            upsert(client(store, clock), 1, mark=f"late {left.pop()}")

    phases.on["publish"] = act
    return phases


@pytest.mark.parametrize("planned", [True, False])
def test_a_clean_that_loses_slots_to_writers_does_not_plan_again(
    store: MemoryStore, clock: SimClock, monkeypatch: pytest.MonkeyPatch, planned: bool
) -> None:
    """Else a large table, where planning takes longer than a commit, would never be cleaned."""
    plan, plans = plan_clean(client(store, clock)) if planned else None, []

    def counted(*args: object) -> list[tuple[str, int]]:
        plans.append(args)
        return unneeded(*args)  # type: ignore[arg-type]

    monkeypatch.setattr("plait.services.maintenance.clean.unneeded", counted)
    report = clean(client(store, clock, observer=busy(store, clock)), plan)
    assert report.version == 5 + ROUNDS
    assert len(report.deleted) == 3
    assert len(plans) == 1
    assert verify(client(store), data=False).problems == ()


ENDS = {
    "restore": lambda handle: restore(handle, plan_restore(handle, 2)),
    "savepoint": lambda handle: set_savepoint(handle, "late", version=2),
    "retention": lambda handle: set_properties(handle, {"clean.retain.versions": "100"}),
    "clean": clean,
}


@pytest.mark.parametrize("other", ENDS)
def test_a_clean_plans_again_when_files_may_be_needed_again(
    store: MemoryStore, clock: SimClock, other: str
) -> None:
    """INV-05: the other decision comes between its plan and its own."""
    needed = client(store).cache.snapshot(version=2).files["path"].to_pylist()
    between = Phases(on={"publish": lambda: ENDS[other](client(store, clock))})
    report = clean(client(store, clock, observer=between))
    assert verify(client(store), data=False).problems == ()
    if other == "clean":
        return
    assert set(needed) <= set(listed(store, "data"))
    assert not set(needed) & set(report.deleted)
    version = None if other == "restore" else 2
    assert client(store).cache.snapshot(version=version).files["path"].to_pylist() == needed


def test_a_clean_tells_how_many_bytes_it_frees() -> None:
    table = Table.create(
        "memory://clean-of-many", "id bigint", record_key="id", buckets=1, properties=LITTLE
    )
    for number in range(3):
        table.upsert(pa.table({"id": [number]}))
    sizes = {
        file["path"]: file["bytes"]
        for version in (1, 2)
        for file in table._handle.cache.snapshot(version=version).files.to_pylist()
    }
    plan = table.maintenance.clean(now=True, dry_run=True)
    assert sum(plan.sizes.values()) == sum(sizes.values())
    report = table.maintenance.clean(plan)
    assert report.bytes_freed == sum(sizes.values())
    assert report.to_dict()["bytes_freed"] == report.bytes_freed
    assert [e.operation for e in table.inspect.history(1)] == [Operation.CLEAN.value]


def test_a_file_that_ended_again_after_the_plan_is_not_condemned_by_it(
    store: MemoryStore, clock: SimClock
) -> None:
    """INV-05: the horizon is that of the plan, and a version behind it shows the file once more."""
    plan = plan_clean(client(store, clock))
    first, second = (restore(client(store, clock), plan_restore(client(store), v)) for v in (3, 4))
    shown = client(store).cache.snapshot(version=first.version).files["path"].to_pylist()
    assert set(shown) & {path for path, _ in plan.condemned}
    clock.advance(1)
    report = clean(client(store, clock), plan)
    assert second.version == 6
    assert client(store).cache.refresh().horizon == plan.horizon == 4
    assert not set(shown) & set(report.deleted)
    assert set(shown) <= set(listed(store, "data"))
    assert verify(client(store), data=False).problems == ()
