"""repush on real tables, and what describe shows of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plait import Table
from plait.model.repush import SourceAddress
from plait.ports import NullObserver
from plait.repush.begin import RepushRequest, begin
from plait.repush.run import PROGRESS
from plait.repush.source import WantedSource
from tests.unit.cli.conftest import rows


@pytest.fixture(name="opened")
def opened_fixture(table):
    """A table with an open repush of which nothing is copied yet."""
    begin(Table.open(table)._handle, RepushRequest(buckets=5, properties={"clean.grace": 3600}))
    return table


def test_repush_shows_the_layouts_writes_and_tells_how_far_it_is(tablectl, table):
    planned = tablectl("repush", table, "--buckets", "5", "--dry-run", "--json").data
    assert planned["report"] is None
    now, then = planned["plan"]["now"], planned["plan"]["then"]
    assert (now["bucket_spec"]["count"], then["bucket_spec"]["count"]) == (1, 5)
    assert (then["partition_by"], then["ordering"]) == (["day"], "x")
    assert "5 buckets by id" in tablectl("repush", table, "--buckets", "5", "--dry-run").out
    assert Table.open(table).version == 2
    ran = tablectl("repush", table, "--buckets", "5", "--rows-per-task", "1")
    assert ran.code == 0
    assert "4 rows copied" in ran.err
    assert "swapped in version" in ran.out
    assert tablectl("repush", table, "--no-ordering", "--buckets", "2", "--quiet").err == ""
    assert tablectl("repush", table, "--undo").code == 0
    described = Table.open(table).inspect.describe()
    assert (described["ordering"], described["bucket_spec"]["count"]) == ("x", 5)


def test_repush_changes_what_is_named_and_an_undo_gives_it_back_once(tablectl, table):
    options = ("--no-partitions", "--type", "mor", "--set", "clean.grace=2h", "--rows-per-task", 2)
    ran = tablectl("repush", table, *options, "--json")
    held = Table.open(table)
    swap = ran.data["report"]["version"]
    assert swap == held.version
    assert ran.data["report"]["rows_loaded"] == 4
    assert set(ran.data["report"]["seconds"]) == {"load", "follow", "swap", "delete"}
    described = held.inspect.describe()
    assert (described["partition_by"], described["table_type"]) == ([], "mor")
    assert described["properties"]["clean.grace"] == "2h"
    assert (described["bucket_spec"]["count"], described["ordering"]) == (1, "x")
    assert sorted(held.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 4]
    assert "until version 3" in tablectl("describe", table).out
    undo = ("repush", table, "--undo", "--version", str(swap))
    assert tablectl(*undo).code == 0
    described = Table.open(table).inspect.describe()
    assert (described["partition_by"], described["table_type"]) == (["day"], "cow")
    ran = tablectl(*undo, "--json")
    assert (ran.code, ran.error["error"]) == (3, "instant_not_found")
    assert "nothing is left to do" in ran.error["hint"]


def test_an_open_repush_is_shown_goes_on_without_options_and_takes_no_other(tablectl, opened):
    shown = tablectl("describe", opened, "--json").data["repush"]
    assert (shown["base"], shown["position"]) == (2, None)
    assert shown["layout"]["bucket_spec"]["count"] == 5
    text = tablectl("describe", opened).out
    assert shown["directory"] in text
    assert "cow; 5 buckets by id; partitioned by day; ordered by x" in text
    ran = tablectl("repush", opened, "--buckets", "7", "--json")
    assert (ran.code, ran.error["error"]) == (9, "repush_open")
    Table.open(opened).upsert(rows(9, x=3.0))
    same = ("--buckets", "5", "--set", "clean.grace=3600", "--dry-run")
    assert tablectl("repush", opened, *same).code == 0
    assert tablectl("repush", opened, "--json").data["plan"]["open"]
    held = Table.open(opened)
    assert held.inspect.describe()["bucket_spec"]["count"] == 5
    assert held.properties["clean.grace"] == "3600"
    assert held.scan().count() == 5
    assert tablectl("repush", opened).code == 2


def test_describe_shows_the_task_at_which_a_repush_was_killed(tablectl, table):
    class Killed(NullObserver):
        def phase(self, name: str, **facts: object) -> None:
            del facts
            if name == PROGRESS:
                raise KeyboardInterrupt

    Table.open(table).upsert(rows(7, day="b"))
    handle = Table.open(table)._handle
    killed = Table(replace(handle, ports=replace(handle.ports, observer=Killed())))
    with pytest.raises(KeyboardInterrupt):
        killed.layout.repush(partition_by=(), buckets=4, rows_per_task=1)
    assert tablectl("describe", table, "--json").data["repush"]["position"] == "load 1"
    done = tablectl("repush", table, "--json").data["report"]
    assert (done["rows_loaded"], done["base"]) == (4, 3)


def test_repush_cancel_ends_the_open_one_and_may_be_repeated(tablectl, opened):
    assert tablectl("repush", opened, "--cancel", "--json").data["cancelled"]
    assert "repush" not in Table.open(opened).inspect.describe()
    again = tablectl("repush", opened, "--cancel")
    assert (again.code, "no repush is open" in again.err) == (0, True)


def test_repush_refuses_a_layout_under_which_keys_come_twice(tablectl, table):
    Table.open(table).upsert(rows(1, day="b"))
    ran = tablectl("repush", table, "--no-partitions", "--json")
    assert (ran.code, ran.error["error"]) == (9, "repush_refused")
    assert Table.open(table).scan().count() == 5


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--cancel", "--undo"),
        ("--cancel", "--buckets", "3"),
        ("--undo", "--dry-run"),
        ("--version", "3"),
        ("--cancel", "--version", "3"),
        ("--ordering", "x", "--no-ordering"),
        ("--partition-by", "day", "--no-partitions"),
        ("--buckets", "0"),
        ("--partition-by", ""),
        ("--partition-by", " , "),
        ("--bucket-by", ""),
        ("--ordering", ""),
        ("--commit-id", ""),
        ("--commit-id", "", "--dry-run"),
        ("--source", "?"),
        ("--cancel", "--source", "1"),
        ("--buckets", "3", "--source-option", "a=b"),
        ("--buckets", "3", "--expire", "written 30d row"),
    ],
)
def test_repush_refuses_options_that_contradict_each_other(tablectl, table, options):
    """An empty commit id is often a variable of a shell that is not set."""
    assert tablectl("repush", table, *options).code == 2
    assert Table.open(table).version == 2


@pytest.mark.parametrize("key", ["buckets", "partition_by", "table_type", "ordering"])
def test_set_names_repush_when_it_is_asked_for_a_layout(tablectl, table, key):
    ran = tablectl("set", table, f"{key}=4", "--json")
    assert (ran.code, ran.error["error"]) == (2, "option")
    assert "repush" in ran.error["hint"]


def test_create_does_not_name_repush_for_a_layout_in_its_properties(tmp_path):
    with pytest.raises(ValueError, match="buckets") as caught:
        Table.create(str(tmp_path / "t"), "id bigint", properties={"buckets": 4})
    assert "repush" not in str(caught.value.hint)


def test_a_source_is_shown_before_and_loaded_after(tablectl, table):
    """INV-04: a dry run writes nothing, and describe tells what an open repush loads."""
    Table.open(table).delete(where="id = 1")
    before = Table.open(table).version
    planned = tablectl("repush", table, "--source", "2", "--dry-run", "--json").data["plan"]
    assert planned["source"] == {"kind": "version", "place": "2", "version": 2, "rows": 4}
    assert planned["now"]["bucket_spec"]["count"] == planned["then"]["bucket_spec"]["count"]
    text = tablectl("repush", table, "--source", "2", "--dry-run").out
    assert "version:2 (version 2)" in text
    assert Table.open(table).version == before
    begin(
        Table.open(table)._handle,
        RepushRequest(source=WantedSource(SourceAddress.of(2), given=True)),
    )
    assert tablectl("describe", table, "--json").data["repush"]["source"]["rows"] == 4
    assert "repush.source.kind" in tablectl("describe", table).out
    assert tablectl("repush", table, "--dry-run", "--json").data["plan"]["source"]["rows"] == 4
    ran = tablectl("repush", table, "--json").data["report"]
    assert (ran["source"], ran["rows_loaded"]) == ("version:2", 4)
    assert sorted(Table.open(table).scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 4]
    assert tablectl("repush", table, "--undo", "--json").data["report"]["version"] is not None
    assert Table.open(table).scan().count() == 3


def test_rows_are_replaced_or_removed_only_if_somebody_says_yes(tablectl, table):
    Table.open(table).delete(where="id = 1")
    before = Table.open(table).version
    assert tablectl("repush", table, "--source", "2").code == 9
    assert tablectl("repush", table, "--source", "no/table").code == 3
    assert Table.open(table).version == before
    named = ("repush", table, "--source", "2", "--commit-id", "back", "--yes", "--json")
    version = tablectl(*named).data["report"]["version"]
    assert tablectl(*named).data["report"]["version"] == version
    assert Table.open(table).scan().count() == 4
