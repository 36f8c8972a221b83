"""alter on real tables."""

from __future__ import annotations

import pytest

from plait import Table


@pytest.fixture(name="table")
def table_fixture(tablectl, tmp_path):
    place = str(tmp_path / "columns")
    ran = tablectl("create", place, "--schema", "id bigint, n int, s string", "--key", "id")
    assert ran.code == 0
    return place


CHANGES = ("ADD COLUMN note string DEFAULT 'none' AFTER id", "ALTER COLUMN n TYPE bigint")


def test_all_changes_are_one_commit(tablectl, table):
    done = tablectl("alter", table, *CHANGES, "--json").data
    assert (done["version"], done["dry_run"]) == (1, False)
    names = [field["name"] for field in done["schema"]["fields"]]
    assert names == Table.open(table).schema.names == ["id", "note", "n", "s"]
    again = tablectl("alter", table, "ALTER COLUMN n TYPE bigint")
    assert (again.code, Table.open(table).version) == (0, 1)
    assert "already" in again.err


def test_a_dry_run_shows_the_columns_and_changes_none(tablectl, table):
    ran = tablectl("alter", table, *CHANGES, "--dry-run")
    assert ran.code == 0
    assert "none" in ran.out
    assert Table.open(table).version == 0


@pytest.mark.parametrize(
    "texts",
    [
        (CHANGES[0], "DROP COLUMN id"),
        (CHANGES[0], "DROP COLUMN other"),
        (CHANGES[0], "ALTER COLUMN n TYPE smallint"),
        (CHANGES[0], "nonsense"),
        (),
    ],
)
def test_what_is_not_possible_ends_in_an_error(tablectl, table, texts):
    ran = tablectl("alter", table, *texts)
    assert ran.code not in (0, 1)
    assert ran.err
    assert Table.open(table).version == 0


def test_a_column_is_dropped_only_if_somebody_says_yes(tablectl, table):
    assert tablectl("alter", table, "DROP COLUMN n").code == 9
    assert Table.open(table).version == 0
    assert tablectl("alter", table, "DROP COLUMN n", "--yes").code == 0
    assert Table.open(table).schema.names == ["id", "s"]


def test_a_column_is_generated_from_the_start_or_later_and_shown(tablectl, tmp_path):
    place = str(tmp_path / "generated")
    columns = "id bigint, at timestamp, n int, day date, odd boolean"
    rules = ("--generated", "day=day(at)", "--generated", "odd=n % 2 = 1")
    ran = tablectl("create", place, "--schema", columns, "--partition", "day", *rules)
    assert ran.code == 0
    ran = tablectl("alter", place, "ADD COLUMN twice int GENERATED ALWAYS AS (n * 2)")
    assert (ran.code, "n * 2" in ran.out) == (0, True)
    found = tablectl("schema", place, "--json").data["columns"]
    shown = {each["name"]: each.get("generated") for each in found}
    rules = {"day": "day(at)", "odd": "n % 2 = 1", "twice": "n * 2"}
    assert shown == {"id": None, "at": None, "n": None, **rules}
    assert "day(at)" in tablectl("schema", place).out
    assert all(each in tablectl("describe", place).out for each in ("generated.odd", "n % 2 = 1"))
    assert tablectl("alter", place, "ALTER COLUMN odd DROP EXPRESSION").code == 0
    assert Table.open(place).inspect.describe()["partition_by"] == ["day(at)"]
    wrong = tablectl("create", f"{place}-2", "--schema", columns, "--generated", "day=n")
    assert (wrong.code not in (0, 1), (tmp_path / "generated-2").exists()) == (True, False)
