"""What a compaction takes on, and that a plan is never trusted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.compacting import content, expected, files, filled, make, rows, sound


def test_the_policy_merges_logs_first_and_everything_when_logs_are_heavy() -> None:
    table = make()
    table.alter.set({"compact.log.percent": 100_000, "compact.hidden.percent": 90})
    table.upsert(rows(*((i, "a", 0) for i in range(400))))
    for value in range(3):
        table.upsert(rows(*((i, "a", value) for i in range(20 * value, 20 * value + 20))))
    reasons = {task.reason for task in table.maintenance.compact(dry_run=True).tasks}
    assert reasons == {"several log files"}
    table.maintenance.compact()
    kinds = table._handle.cache.snapshot().files["kind"].to_pylist()
    assert sorted(kinds) == ["base", "base", "log", "log"]
    assert table.maintenance.compact(dry_run=True).tasks == ()
    table.alter.set({"compact.log.percent": 1})
    assert {task.reason for task in table.maintenance.compact(dry_run=True).tasks} == {"log files"}
    table.maintenance.compact()
    assert files(table) == 2
    sound(table)


def test_full_rewrites_the_only_file_of_a_partition_if_a_row_of_it_is_hidden() -> None:
    table = make(keyed=False)
    table.append(rows(*((i, "a", 0) for i in range(100))))
    assert table.maintenance.compact(full=True, dry_run=True).tasks == ()
    table.delete(where="id = 7")
    assert table.maintenance.compact(dry_run=True).tasks == ()
    assert len(table.maintenance.compact(full=True).commits) == 1
    assert table.maintenance.compact(full=True, dry_run=True).tasks == ()
    assert len(content(table)) == 99


@pytest.mark.parametrize("size", ["1GiB", "1"])
def test_a_plan_that_names_files_twice_copies_their_rows_once(size: str) -> None:
    """INV-14: a plan is never trusted."""
    table = make()
    table.alter.set({"services.task.size": size})
    held = filled(table)
    plan = table.maintenance.compact(full=True, dry_run=True)
    table.maintenance.compact(replace(plan, tasks=plan.tasks * 2))
    assert content(table) == expected(held)
    sound(table)


@pytest.mark.slow
def test_small_appends_rewrite_a_row_a_few_times_and_leave_few_files() -> None:
    """A file is merged with smaller ones only: else each eighth append would write all again."""
    table = make(keyed=False)
    moved = 0
    for at in range(300):
        table.append(rows(*((at * 20 + i, "a", at) for i in range(20))))
        moved += table.maintenance.compact().rows_moved
        assert files(table) <= 8
    assert moved <= 6 * 300 * 20
    assert len(content(table)) == 300 * 20
    sound(table)
