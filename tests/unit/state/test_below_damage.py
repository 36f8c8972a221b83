"""Versions below a slot that was lost can be read, and a repair can cut off what lies beyond."""

from __future__ import annotations

import pyarrow as pa
import pytest

from plait import Table
from plait.errors import CorruptMetadataError, OptionError
from plait.storage.port import Store
from plait.timeline import paths
from tests.support.memory import forget

URI = "memory://below-damage"
ROWS = pa.table({"id": pa.array([1], pa.int64())})
LOST = 4


def lose(store: Store, how: str) -> None:
    """Damage the slot of one version."""
    slot = paths.slot(LOST)
    body = store.find(slot) or b""
    if how == "lost":
        store.delete([slot])
    else:
        store.put(slot, {"emptied": b"", "cut": body[:200], "flipped": body[:-9] + b"?" * 9}[how])


@pytest.fixture(params=["lost", "emptied", "cut", "flipped"])
def store(request: pytest.FixtureRequest) -> Store:
    forget(URI)
    table = Table.create(URI, ROWS.schema, lock="none")
    for _ in range(7):
        table.append(ROWS)
    lose(table._handle.store, request.param)
    return table._handle.store


def test_versions_below_damage_are_read_and_the_head_is_not(store: Store) -> None:
    """INV-04: what is whole is shown, and nothing older in the place of the newest."""
    table = Table.open(URI)
    assert [table.scan(version=n).count() for n in range(LOST)] == list(range(LOST))
    assert table.snapshot(version=2).version == 2
    before = {info.path for info in store.list("")}
    for call in (
        table.scan,
        table.inspect.files,
        lambda: table.version,
        lambda: table.scan(version=LOST),
        lambda: table.append(ROWS),
        table.maintenance.clean,
        table.maintenance.compact,
    ):
        with pytest.raises(CorruptMetadataError) as caught:
            call()
        assert caught.value.facts["readable"] == LOST - 1
    left = {info.path for info in store.list("")} - before
    assert not [path for path in left if path.startswith(paths.TIMELINE)]


def test_a_repair_cuts_off_what_lies_beyond_only_when_it_is_told_to(store: Store) -> None:
    """INV-01: nothing of it is guessed, and nothing is deleted without a word."""
    table = Table.open(URI)
    name = f"slot:{paths.slot(LOST)}"
    before = {info.path for info in store.list(paths.TIMELINE)}
    plan = table.check.repair(dry_run=True)
    (found,) = [each for each in plan.findings if each.id == name]
    assert found.answer == "choose"
    table.check.repair(plan)
    assert {info.path for info in store.list(paths.TIMELINE)} == before
    plan = table.check.repair(accept_loss=[name], dry_run=True)
    assert [each.id for each in plan.repairs] == [name]
    table.check.repair(plan)
    again = Table.open(URI)
    assert (again.version, again.scan().count()) == (LOST - 1, LOST - 1)
    again.append(ROWS)
    kinds = {problem.invariant for problem in again.check.verify().problems}
    assert kinds <= {"INV-06"}  # files that no decision names any more


def test_a_whole_timeline_is_not_cut() -> None:
    forget(URI)
    table = Table.create(URI, ROWS.schema, lock="none")
    table.append(ROWS)
    with pytest.raises(OptionError):
        table.check.repair(accept_loss=[f"slot:{paths.slot(1)}"], dry_run=True)
