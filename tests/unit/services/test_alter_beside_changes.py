"""Columns and constraints that meet two other changes at once, or a restore (RFC 0027, 0029)."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from plait import ConstraintError, RetryableConflictError, SchemaError, Table
from tests.support import build
from tests.support.build import again, content
from tests.support.protocol import beside

_INT = pa.int32()


def make(schema: str = "id bigint, c int", **how: object) -> Table:
    first = pa.table({"id": [1], schema.split()[2]: pa.array([1], _INT)})
    return build.make(schema, upsert=first, **{"buckets": 1, **how})


Change = Callable[[Table], object]
_BRINGING: dict[str, Change] = {
    "alter": lambda t: t.alter.columns().add("x", "bigint").commit(),
    "evolve": lambda t: t.insert(pa.table({"id": [5], "x": [1]}), evolve="add"),
}


@pytest.mark.parametrize("first", _BRINGING)
def test_values_that_rows_bring_survive_a_column_that_came_and_went(first: str) -> None:
    """INV-04: their column is told by its name, since nobody promised it an id."""
    table = make()

    def twice() -> None:
        _BRINGING[first](table)
        table.alter.columns().drop("x").commit()

    client = beside(table, "publish", twice)
    client.insert(pa.table({"id": [2], "x": [9]}), evolve="add", on_conflict="retry")
    assert next(row for row in content(table) if row["id"] == 2)["x"] == 9


@pytest.mark.parametrize("first", _BRINGING)
def test_values_that_rows_bring_never_come_under_another_name(first: str) -> None:
    table = make()

    def twice() -> None:
        _BRINGING[first](table)
        table.alter.columns().rename("x", "y").commit()

    client = beside(table, "publish", twice)
    try:
        client.insert(pa.table({"id": [2], "x": [9]}), evolve="add", on_conflict="retry")
    except RetryableConflictError:
        assert all(row["id"] != 2 for row in content(table))
    else:
        found = next(row for row in content(table) if row["id"] == 2)
        assert (found["x"], found["y"]) == (9, None)


def test_rows_that_bring_a_part_of_a_column_with_another_name_now_are_a_conflict() -> None:
    first = pa.table({"id": [1], "s": [{"a": 1}]})
    table = build.make("id bigint, s struct<a: bigint>", upsert=first)
    client = beside(table, "publish", lambda: table.alter.columns().rename("s", "z").commit())
    more = pa.table({"id": [2], "s": [{"a": 1, "n": 2}]})
    with pytest.raises(RetryableConflictError):
        client.insert(more, evolve="add", on_conflict="raise")
    assert len(content(table)) == 1


# --- constraints ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["check", "required"])
def test_a_restore_brings_back_no_row_that_breaks_a_new_constraint(kind: str) -> None:
    """A restore shows rows again of files that were looked at already."""
    table = make(table_type="mor")
    bad = None if kind == "required" else -5
    ids = list(range(40))
    table.upsert(pa.table({"id": ids, "c": pa.array([bad, *ids[1:]], _INT)}))
    with_bad = table.version
    table.delete(where="c is null" if bad is None else "c < 0")
    client = beside(table, "publish", lambda: table.versions.restore(version=with_bad))
    change = client.alter.columns()
    change = change.require("c") if bad is None else change.add_check("pos", "c >= 0")
    with pytest.raises(ConstraintError):
        change.commit()
    assert again(table).alter.columns().commit(dry_run=True).field("c").nullable


def test_a_constraint_is_compared_with_the_column_that_has_its_name_in_the_end() -> None:
    table = make()

    def replaced() -> None:
        table.alter.columns().drop("c").add("c", "int", default=-1).commit()

    client = beside(table, "publish", replaced)
    with pytest.raises(ConstraintError):
        client.alter.columns().add_check("pos", "c >= 0").commit()


def test_a_column_that_is_required_and_renamed_at_once_has_no_nulls() -> None:
    table = make()
    table.upsert(pa.table({"id": [2], "c": pa.array([None], _INT)}))
    with pytest.raises(ConstraintError):
        table.alter.columns().require("c").rename("c", "d").commit()
    table.delete(where="c is null")
    table.alter.columns().require("c").rename("c", "d").commit()
    with pytest.raises((ConstraintError, SchemaError, ValueError)):
        table.upsert(pa.table({"id": [3], "d": pa.array([None], _INT)}))


@pytest.mark.parametrize("predicate", ["false", "NOT true"])
def test_a_check_that_no_row_holds_lets_none_in(predicate: str) -> None:
    table = build.make("id bigint", checks={"none": predicate})
    with pytest.raises(ConstraintError, match="none"):
        table.upsert(pa.table({"id": [1]}))
    assert table.scan().count() == 0


# --- clients that look at old columns ------------------------------------------------------------


def test_a_client_that_has_slept_gives_its_rows_what_the_table_says_now() -> None:
    """INV-04: no default and no column of the past comes with rows that never had it."""
    table = make()
    table.alter.columns().default("c", 7).commit()
    sleeper = again(table)
    sleeper.scan().count()
    table.alter.columns().default("c", 8).commit()
    sleeper.insert(pa.table({"id": [2]}))
    assert content(table)[-1] == {"id": 2, "c": 8}
    slept = again(table)
    slept.scan().count()
    table.alter.columns().drop("c").commit()
    slept.insert(pa.table({"id": [3]}))
    slept = again(table)
    table.alter.columns().add("gone", "int", default=1).commit()
    slept.scan().count()
    table.alter.columns().drop("gone").commit()
    slept.insert(pa.table({"id": [4], "x": [5]}), evolve="add")
    assert content(table)[-1] == {"id": 4, "x": 5}
    assert again(table).schema.names == ["id", "x"]


# --- features ------------------------------------------------------------------------------------


def test_an_upgrade_takes_away_nothing_that_another_one_allowed() -> None:
    table = make()
    table.alter.downgrade(to=[])
    client = beside(table, "publish", lambda: again(table).alter.upgrade(features=["archive-1"]))
    client.alter.upgrade(features=["ttl-1"])
    plan = again(table).alter.downgrade(to=[], dry_run=True)
    assert {"archive-1", "ttl-1"} <= set(plan.before)


def test_a_downgrade_sees_what_is_in_use_beside_the_list() -> None:
    table = make()
    table.alter.downgrade(to=[])
    table.alter.set({"features.upgrade": "always"})
    table.versions.savepoint("kept")
    table.alter.set({"features.upgrade": "compatible"})
    assert again(table).alter.downgrade(to=[], dry_run=True).uses
