"""compact, optimize and services on real tables."""

from __future__ import annotations

import json
from functools import partial

from plait import Table
from tests.support import build

SCHEMA = "id bigint, day string, x double"
_rows = partial(build.rows, day="a", x=1.0)


def _logs(tmp_path):
    """Make a table with several files in one bucket."""
    uri = str(tmp_path / "logs")
    held = Table.create(uri, SCHEMA, record_key="id", table_type="mor", buckets=1)
    for number in range(3):
        held.upsert(_rows(number))
    return uri


def test_compact_dry_run_shows_what_the_compaction_then_does(tablectl, tmp_path):
    uri = _logs(tmp_path)
    planned = tablectl("compact", uri, "--dry-run", "--json").data
    assert planned["report"] is None
    assert [task["files"] for task in planned["plan"]["tasks"]] == [3]
    assert "log files" in tablectl("compact", uri, "--dry-run").out
    done = tablectl("compact", uri, "--json").data
    assert done["plan"]["tasks"] == planned["plan"]["tasks"]
    assert (done["report"]["files_removed"], done["report"]["files_added"]) == (3, 1)
    assert tablectl("compact", uri, "--full", "--json").data["plan"]["tasks"] == []
    assert Table.open(uri).scan().count() == 3


def test_optimize_reports_what_it_did(tablectl, tmp_path):
    uri = _logs(tmp_path)
    done = tablectl("optimize", uri, "--json").data
    parts = {"rollback", "compaction", "clustering", "clean", "archive", "index", "published"}
    assert set(done) == {*parts, "idle"}
    assert "files deleted" in tablectl("optimize", uri).out


def test_services_look_at_every_table_and_say_which_failed(tablectl, tmp_path):
    table = _logs(tmp_path)
    ran = tablectl("services", "run", table, tmp_path / "nowhere", "--once", "--json")
    assert ran.code == 8
    first, second = (json.loads(line) for line in ran.out.splitlines() if line.startswith("{"))
    assert first["data"]["error"] is None
    assert second["data"]["report"] is None
    assert tablectl("services", "run", table, "--once").code == 0


def test_cluster_dry_run_shows_what_the_clustering_then_does(tablectl, tmp_path):
    uri = str(tmp_path / "t")
    held = Table.create(uri, SCHEMA)
    held.append(_rows(3, 1))
    held.append(_rows(2, 4))
    planned = tablectl("cluster", uri, "--by", "id,x", "--dry-run", "--json").data
    assert planned["report"] is None
    assert [task["files"] for task in planned["plan"]["tasks"]] == [2]
    done = tablectl("cluster", uri, "--by", "id", "--kind", "sort", "--json").data
    assert done["report"]["commits"][0]["stats"]["files_removed"] == 2
    assert Table.open(uri).scan().to_arrow()["id"].to_pylist() == [1, 2, 3, 4]
    assert "files replaced" in tablectl("cluster", uri, "--by", "x").out
    assert tablectl("cluster", uri, "--by", "nobody").code == 2
