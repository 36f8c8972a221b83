"""The command that shows and repairs the sinks of a table."""

from __future__ import annotations

import sqlite3

import pytest

from plait import Table
from plait.replicate import Replicas
from plait.replicate.address import sink_of
from tests.unit.cli.conftest import rows


@pytest.fixture
def address(tmp_path):
    return f"serving=sqlite:///{tmp_path}/serving.db#flights"


def send(uri, address):
    with Table.open(uri).writer("upsert", replicas=Replicas([sink_of(address)])) as writer:
        writer.write(rows(7))


def test_status_shows_what_a_sink_is_behind_by_and_ends_in_8(tablectl, table, address):
    assert tablectl("replicas", "status", table, "--json").data == {"sinks": []}
    send(table, address)
    ran = tablectl("replicas", "status", table, "--json")
    (found,) = ran.data["sinks"]
    assert (ran.code, found["sink"], found["behind"], found["ahead"]) == (8, "serving", [1, 2], [])
    assert "serving" in tablectl("replicas", "status", table).out


def test_repair_shows_asks_and_sets_right(tablectl, table, address, tmp_path):
    send(table, address)
    dry = tablectl("replicas", "repair", table, "--sink", address, "--dry-run", "--json")
    assert (dry.code, dry.data["found"]["missing"], dry.data["repair"]) == (0, 4, None)
    assert tablectl("replicas", "repair", table, "--sink", address).code == 9
    done = tablectl("replicas", "repair", table, "--sink", address, "--yes", "--json")
    assert (done.code, done.data["repair"]["missing"]) == (0, 4)
    with sqlite3.connect(tmp_path / "serving.db") as database:
        assert database.execute("SELECT count(*) FROM flights").fetchone() == (5,)
    assert tablectl("replicas", "status", table).code == 0
    in_step = tablectl("replicas", "repair", table, "--sink", address)
    assert in_step.code == 0, "it is not asked about"


def test_another_table_is_repaired_by_its_place(tablectl, table, tmp_path):
    copy = str(tmp_path / "copy")
    schema = "id bigint, day string, x double"
    Table.create(copy, schema, record_key=["id"], partition_by=["day"], ordering="x")
    assert tablectl("replicas", "repair", table, "--sink", f"eu={copy}", "--yes").code == 0
    assert Table.open(copy).scan().to_arrow().num_rows == 4


@pytest.mark.parametrize(
    "options",
    [
        ("repair",),
        ("status", "--dry-run"),
        ("status", "--sink", "a=b"),
        ("add",),
        ("add", "--sink", "a=b", "--yes"),
        ("remove",),
        ("repair", "--sink", "nothing"),
        ("repair", "--sink", "a=sqlite:///x.db"),
        ("repair", "--sink", "a=kafka://host:9092"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(tablectl, table, options):
    action, *more = options
    assert tablectl("replicas", action, table, *more).code == 2


def test_sinks_are_named_by_the_definition_shown_and_repaired_by_name(
    tablectl, table, address, tmp_path
):
    before = Table.open(table).version
    ran = tablectl("replicas", "add", table, "--sink", address, "--json")
    assert (ran.code, ran.data["replicas"]) == (0, {"serving": address.partition("=")[2]})
    assert "replicas.serving" in tablectl("describe", table).out
    repair = ("replicas", "repair", table, "--sink", "serving", "--yes")
    place = address.partition("=")[2]
    assert tablectl(*repair).code == 9
    assert tablectl(*repair, "--allow", place).code == 0
    Table.open(table, allow=[place]).upsert(rows(8))
    assert tablectl("replicas", "status", table).code == 0
    assert tablectl("replicas", "remove", table, "--sink", "serving").code == 0
    assert Table.open(table).version == before + 3
    assert tablectl("replicas", "remove", table, "--sink", "serving").code == 2


def test_a_table_is_created_with_sinks_and_without_their_secrets(tablectl, tmp_path):
    arguments = ("create", str(tmp_path / "new"), "--schema", "id bigint", "--key", "id")
    refused = tablectl(*arguments, "--replica", "a=postgresql+psycopg://me:hidden@h/d#t")
    assert refused.code == 2
    assert "hidden" not in refused.out + refused.err
    assert tablectl(*arguments, "--replica", f"eu={tmp_path / 'eu'}").code == 0
