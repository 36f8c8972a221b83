"""expire, --ttl of create, and ttl of set, on real tables."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa

from plait import Table

DAYS = [dt.date(2001, 1, 1), dt.date(2901, 1, 1), None]


def _filled(tablectl, tmp_path, *options):
    uri = str(tmp_path / "expiring")
    schema = "id bigint, day date"
    assert tablectl("create", uri, "--schema", schema, "--key", "id", *options).code == 0
    Table.open(uri).upsert(pa.table({"id": [1, 2, 3], "day": pa.array(DAYS, pa.date32())}))
    return uri


def test_expire_dry_run_shows_what_the_expiry_then_does(tablectl, tmp_path):
    uri = _filled(tablectl, tmp_path, "--ttl", "day 30d")
    planned = tablectl("expire", uri, "--dry-run", "--json").data
    assert planned["report"] is None
    assert [task["rows"] for task in planned["plan"]["tasks"]] == [1]
    assert "rows at most" in tablectl("expire", uri, "--dry-run").out
    done = tablectl("expire", uri, "--json").data
    assert done["report"]["rows_deleted"] == 1
    assert tablectl("expire", uri, "--json").data["report"] is None
    ran = tablectl("services", "run", uri, "--once")
    assert "rows expired" in ran.out


def test_a_time_to_live_is_set_alone_and_taken_away(tablectl, tmp_path):
    uri = _filled(tablectl, tmp_path)
    assert "no time to live" in tablectl("expire", uri).err
    assert tablectl("set", uri, "ttl=day 30d", "lock.wait=3s").code != 0
    told = tablectl("set", uri, "ttl=day 30d", "--json").data
    assert told["ttl"] == {"by": "day", "after": 30 * 86_400, "unit": "row"}
    assert "2592000" in tablectl("describe", uri).out
    assert tablectl("set", uri, "ttl=none", "--json").data["ttl"] is None
    assert tablectl("set", uri, "ttl=id 30d").code != 0
    assert Table.open(uri).scan().count() == 3


def test_a_time_to_live_for_one_time_asks_before_rows_go(tablectl, tmp_path):
    uri = _filled(tablectl, tmp_path)
    named = ("expire", uri, "--ttl", "day 30d")
    assert tablectl(*named).code == 9
    assert Table.open(uri).scan().count() == 3
    assert tablectl(*named, "--yes", "--json").data["report"]["rows_deleted"] == 1
    assert tablectl("expire", uri, "--ttl", "id 30d").code == 2
