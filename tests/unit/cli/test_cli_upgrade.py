"""upgrade and downgrade on real tables."""

from __future__ import annotations

import pytest

from plait import Table


@pytest.fixture(name="table")
def table_fixture(tablectl, tmp_path):
    place = str(tmp_path / "features")
    assert tablectl("create", place, "--schema", "id bigint", "--key", "id").code == 0
    return place


def test_a_downgrade_and_an_upgrade_are_one_commit_each(tablectl, table):
    done = tablectl("downgrade", table, "--to", "ttl-1", "--json").data
    assert (done["version"], done["dry_run"]) == (1, False)
    assert "ttl-1" not in done["plan"]["turned_off"]
    assert "archive-1" in done["plan"]["turned_off"]
    done = tablectl("upgrade", table, "--features", "archive-1, restores-1", "--json").data
    assert (done["version"], done["plan"]["turned_on"]) == (2, ["restores-1", "archive-1"])
    again = tablectl("upgrade", table, "--features", "archive-1")
    assert (again.code, Table.open(table).version) == (0, 2)
    assert "already" in again.err


def test_what_uses_a_feature_is_told_and_keeps_it_on(tablectl, table):
    Table.open(table).versions.savepoint("here")
    ran = tablectl("downgrade", table, "--to", "slots-1", "--dry-run")
    assert ran.code == 0
    assert "here" in ran.out
    assert "tablectl savepoint" in ran.out
    assert tablectl("upgrade", table, "--dry-run").code == 0
    ran = tablectl("downgrade", table, "--to", "slots-1")
    assert ran.code == 9
    assert "restores-1" in ran.err
    assert Table.open(table).version == 1


@pytest.mark.parametrize("to", ["branches-9", "9"])
def test_an_unknown_feature_or_version_is_wrong_usage(tablectl, table, to):
    assert tablectl("downgrade", table, "--to", to).code == 2
