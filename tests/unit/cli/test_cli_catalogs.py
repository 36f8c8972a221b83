"""Tables by name on the command line: list, namespace, create --name, rename, drop, purge."""

from __future__ import annotations

import pyarrow as pa

from plait import Catalog, Table


def _lake(tablectl, tmp_path) -> str:
    root = str(tmp_path / "lake")
    assert tablectl("namespace", root, "sales").code == 0
    made = tablectl("create", root, "--name", "sales.trips", "--schema", "id bigint", "--key", "id")
    assert made.code == 0, made.err
    return root


def test_tables_are_made_listed_renamed_and_read_by_name(tablectl, tmp_path):
    root = _lake(tablectl, tmp_path)
    Catalog(root).table("sales.trips").upsert(pa.table({"id": [1]}))
    assert tablectl("rename", root, "sales.trips", "sales.rides").code == 0
    told = tablectl("list", root, "--json").data
    assert told["namespaces"] == ["sales"]
    assert [(each["name"], each["state"]) for each in told["tables"]] == [("sales.rides", "table")]
    assert Table.open(told["tables"][0]["location"]).scan().to_arrow().num_rows == 1
    assert "sales.rides" in tablectl("list", root, "--namespace", "sales").out
    assert tablectl("list", root, "--namespace", "none", "--json").error["error"] == (
        "namespace_not_found"
    )
    assert tablectl("list", str(tmp_path / "none")).code == 3
    assert tablectl("create", root, "--name", "x.y", "--schema", "id int").code == 3


def test_a_drop_asks_and_is_taken_back_until_the_purge(tablectl, tmp_path):
    root = _lake(tablectl, tmp_path)
    assert tablectl("drop", root, "sales.trips").code == 9
    dropped = tablectl("drop", root, "sales.trips", "--yes", "--json").data
    assert tablectl("describe", dropped["location"], "--json").error["error"] == "dropped"
    assert tablectl("describe", dropped["location"]).code == 3
    assert tablectl("list", root, "--dropped", "--json").data["tables"] == [dropped]
    assert tablectl("list", root, "--dropped", "--namespace", "sales").code == 2
    kept = tablectl("purge", root, "--yes", "--json").data
    assert list(kept["kept"]) == [dropped["location"]]
    assert tablectl("undrop", root, dropped["location"], "--name", "sales.back").code == 0
    assert tablectl("namespace", root, "sales", "--drop").code == 9
    tablectl("drop", root, "sales.back", "--yes")
    assert "purged" in tablectl("purge", root, "--now", "--yes").out
    assert tablectl("namespace", root, "sales", "--drop").code == 0
    assert tablectl("purge", root, "--json").data == {"purged": [], "kept": {}}


def test_a_name_that_leads_elsewhere_is_a_usage_error(tablectl, tmp_path):
    root = _lake(tablectl, tmp_path)
    for name in ("../../x", "sales./etc", "sales"):
        ran = tablectl("rename", root, "sales.trips", name, "--json")
        assert (ran.code, ran.error["error"]) == (2, "option")
