"""Tables by name on the command line: list, namespace, create --name, rename, drop, purge."""

from __future__ import annotations

import pyarrow as pa
import pytest

from plait import Catalog, Table
from plait.cli.commands.catalogs import undrop
from plait.cli.main import ROOT


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


@pytest.fixture(name="dropped")
def dropped_fixture(tablectl, tmp_path, monkeypatch):
    """The id of a dropped table of the catalog ./lake."""
    monkeypatch.chdir(tmp_path)
    _lake(tablectl, tmp_path)
    location = tablectl("drop", "lake", "sales.trips", "--yes", "--json").data["location"]
    return location.rpartition("/")[2]


@pytest.mark.parametrize("way", [*range(len(undrop.examples)), "id", "file", "path", "place"])
def test_an_undrop_finds_its_table_in_whichever_form_it_is_named(tablectl, tmp_path, dropped, way):
    """The examples of its help are two of them."""
    forms = {
        "id": f"undrop lake {dropped}",
        "file": f"undrop lake file://{tmp_path}/lake/tables/{dropped}/",
        "path": f"undrop {tmp_path}/lake lake/tables/../tables/{dropped}",
        "place": f"undrop lake tables/{dropped}",
    }
    line = forms[way] if way in forms else undrop.examples[way]
    ran = tablectl(*line.replace("0123456789abcdef", dropped).split())
    assert ran.code == 0, ran.err
    assert len(Catalog("lake").tables()) == 1


def test_a_former_name_that_two_had_is_refused_with_both_places(tablectl, dropped):
    tablectl("create", "lake", "--name", "sales.trips", "--schema", "id int")
    other = tablectl("drop", "lake", "sales.trips", "--yes", "--json").data["location"]
    ran = tablectl("undrop", "lake", "sales.trips", "--json")
    assert ran.code == 2
    assert dropped in ran.error["message"]
    assert other in ran.error["message"]
    assert tablectl("undrop", "lake", "sales.none").code == 3


def test_the_plan_of_a_drop_and_of_a_purge_changes_nothing(tablectl, dropped):
    tablectl("create", "lake", "--name", "sales.live", "--schema", "id int")
    assert tablectl("drop", "lake", "sales.live", "--dry-run", "--json").data["dry_run"] is True
    assert len(Catalog("lake").tables()) == 1
    stays = tablectl("purge", "lake", "--dry-run", "--json").data["plan"]
    assert stays["purged"] == []
    assert next(iter(stays["kept"].values())).startswith("its grace is over at ")
    assert "sales.trips" in tablectl("purge", "lake", "--dry-run").out
    goes = tablectl("purge", "lake", "--dry-run", "--now", "--json").data["plan"]
    assert [each["name"] for each in goes["purged"]] == ["sales.trips"]
    assert len(Catalog("lake").dropped()) == 1


def test_every_command_that_asks_has_a_plan():
    for name in ROOT.list_commands(None):
        found = ROOT.get_command(None, name)
        options = {each.name for each in found.params}
        assert "yes" not in options or "dry_run" in options, name
