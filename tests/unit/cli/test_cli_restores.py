"""Commands that undo commits: what they show, ask, do and refuse."""

from __future__ import annotations

from plait import Table
from tests.unit.cli.conftest import rows


def shown(uri: str) -> list[tuple[int, float]]:
    return sorted((r["id"], r["x"]) for r in Table.open(uri).scan().to_arrow().to_pylist())


def test_savepoint_sets_lists_and_drops(tablectl, table):
    assert tablectl("savepoint", table, "--json").data["savepoints"] == []
    assert tablectl("savepoint", table, "early", "--version", "1").code == 0
    found = tablectl("savepoint", table, "late", "--json").data["savepoints"]
    assert found == [{"name": "early", "version": 1}, {"name": "late", "version": 3}]
    ran = tablectl("savepoint", table, "early", "--version", "2", "--json")
    assert (ran.code, ran.error["error"]) == (2, "option")
    assert tablectl("savepoint", table, "early", "--drop", "--dry-run").code == 0
    assert len(Table.open(table).versions.savepoints) == 2
    assert tablectl("savepoint", table, "early", "--drop", "--jsonl").out == (
        '{"name": "late", "version": 3}\n'
    )
    assert tablectl("savepoint", table, "early", "--drop").code == 3


def test_restore_dry_run_shows_what_the_restore_then_undoes(tablectl, table):
    version = Table.open(table).version
    planned = tablectl("restore", table, "--version", "1", "--dry-run", "--json").data
    assert Table.open(table).version == version
    assert [each["commit_id"] for each in planned["plan"]["undone"]] == ["second"]
    done = tablectl("restore", table, "--version", "1", "--yes", "--json").data
    assert done["plan"] == planned["plan"]
    assert done["version"] == version + 1
    assert shown(table) == [(1, 1.0), (2, 1.0), (3, 1.0)]
    text = tablectl("restore", table, "--version", "2", "--dry-run").out
    assert "back" in text
    assert "second" in text


def test_restore_takes_one_of_a_version_a_savepoint_and_a_time(tablectl, table):
    assert tablectl("restore", table).code == 2
    assert tablectl("restore", table, "--version", "1", "--savepoint", "a").code == 2
    tablectl("savepoint", table, "early", "--version", "1")
    times = [entry.completed_ms for entry in Table.open(table).inspect.history()]
    assert tablectl("restore", table, "--savepoint", "early", "--yes").code == 0
    assert len(shown(table)) == 3
    assert tablectl("restore", table, "--as-of", str(times[0]), "--dry-run").code in (0, 2)
    assert tablectl("restore", table, "--savepoint", "none", "--yes").code == 3


def test_undo_and_replay_ask_first(tablectl, table):
    for command in (("undo",), ("restore", "--version", "1")):
        ran = tablectl(command[0], table, *command[1:], "--json")
        assert (ran.code, ran.out) == (9, "")
    assert tablectl("undo", table, answer="n\n").code == 9
    assert len(shown(table)) == 4
    assert tablectl("undo", table, answer="y\n").code == 0
    assert len(shown(table)) == 3
    assert tablectl("replay", table, "--json").code == 9


def test_replay_lets_a_commit_id_through_again(tablectl, table):
    nothing = tablectl("replay", table, "--json")
    assert (nothing.code, nothing.data["version"]) == (0, None)
    tablectl("undo", table, "--yes")
    planned = tablectl("replay", table, "--dry-run", "--json").data
    assert planned["plan"]["commit_ids"] == ["second"]
    assert tablectl("replay", table, "--commit-id", "first", "--yes").code == 2
    done = tablectl("replay", table, "--commit-id", "second", "--yes", "--json").data
    assert done["version"] == Table.open(table).version
    Table.open(table).upsert(rows(1, 4, x=2.0), commit_id="second")
    assert len(shown(table)) == 4


def test_undo_with_replay_is_one_decision(tablectl, table):
    before = Table.open(table).version
    assert tablectl("undo", table, "--replay", "--yes", "--json").data["version"] == before + 1
    Table.open(table).upsert(rows(1, 4, x=2.0), commit_id="second")
    assert len(shown(table)) == 4
