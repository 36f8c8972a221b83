"""Each command on a real table: shapes, exit codes, and the rules of what destroys."""

from __future__ import annotations

import json
import os
import re

import pyarrow as pa
import pytest

from plait import Table
from plait.errors import RetryableConflictError
from plait.model.instant import Instant, Operation, State
from plait.storage import open_store
from plait.timeline import paths
from plait.timeline.pending import PendingInstant, write_requested
from tests.unit.cli.conftest import SCHEMA, rows

ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
NOBODY = "20260101000000000-0123456789abcdef"
"""An instant that no table has."""


def _documented(ran, uri, command):
    document = json.loads(ran.out)
    assert (ran.code, ran.err) == (0, "")
    assert list(document) == ["schema", "command", "table", "data"]
    assert (document["schema"], document["command"]) == ("tablectl/v1", command)
    assert document["table"] == str(uri)
    return document["data"]


# --- create, describe, schema, files, set ----------------------------------------------------


def test_create_makes_the_table_that_was_described(tablectl, tmp_path):
    uri = tmp_path / "t"
    (tmp_path / "s.sql").write_text(SCHEMA.replace(", ", ",\n  "))
    ran = tablectl(
        "create", uri, "--schema", f"@{tmp_path / 's.sql'}", "--key", "id", "--partition", "day",
        "--type", "mor", "--ordering", "x", "--buckets", 4, "--property", "commit.retries=3",
        "--json",
    )  # fmt: skip
    data = _documented(ran, uri, "create")
    assert Table.open(str(uri)).schema.names == ["id", "day", "x"]
    assert (data["version"], data["table_type"]) == (0, "mor")
    assert data["bucket_spec"] == {"id": 0, "key": ["id"], "count": 4}
    assert (data["partition_by"], data["ordering"]) == (["day"], "x")
    assert data["properties"] == {"commit.retries": "3"}


def test_create_refuses_what_is_there_and_what_is_not_known(tablectl, table, tmp_path):
    ran = tablectl("create", table, "--schema", "other int")
    assert ran.code == 9
    assert ran.err.startswith("error[exists]: ")
    assert tablectl("create", table, "--schema", "other int", "--if-not-exists").code == 0
    assert Table.open(table).version == 2
    assert tablectl("create", tmp_path / "u", "--schema", "@nowhere.sql").code == 2
    ran = tablectl("create", tmp_path / "u", "--schema", SCHEMA, "--property", "lock.wiat=1s")
    assert ran.code == 2
    assert "lock.wait" in ran.err, "the nearest option"
    assert not (tmp_path / "u" / ".meta").exists()


@pytest.mark.parametrize(
    "command",
    ["describe", "history", "timeline", "files", "schema", "locks", "writers", "readers", "verify"],
)
def test_no_table_at_the_place_ends_in_3(tablectl, tmp_path, command):
    ran = tablectl(command, tmp_path / "nothing")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.startswith("error[not_found]: ")
    assert list(tmp_path.iterdir()) == []


def test_describe_and_schema_tell_the_table_to_programs_and_people(tablectl, table):
    data = _documented(tablectl("describe", table, "--json"), table, "describe")
    assert {"uri", "version", "horizon", "rows", "files", "bytes", "schema"} <= set(data)
    assert (data["version"], data["rows"]) == (2, 4)
    ran = tablectl("describe", table)
    assert re.search(r"^rows +4$", ran.out, re.MULTILINE)
    assert re.search(r"^bytes +[\d.]+ (Ki)?B \([\d,]+ bytes\)$", ran.out, re.MULTILINE)
    data = _documented(tablectl("schema", table, "--json"), table, "schema")
    assert data["columns"] == [
        {"name": "id", "type": "bigint", "nullable": False, "role": ["key"]},
        {"name": "day", "type": "string", "nullable": True, "role": ["partition"]},
        {"name": "x", "type": "double", "nullable": True, "role": ["ordering"]},
    ]


def test_files_are_listed_with_plain_sizes_up_to_the_limit(tablectl, table):
    data = _documented(tablectl("files", table, "--json"), table, "files")
    assert data["total"] == len(data["files"]) == 1
    [file] = data["files"]
    assert list(file) == [
        "path", "partition", "bucket", "kind", "rows", "masked", "bytes", "version",
    ]  # fmt: skip
    assert (file["partition"], file["rows"], file["version"]) == (["a"], 4, 2)
    assert os.path.getsize(os.path.join(table, file["path"])) == file["bytes"]
    Table.open(table).upsert(rows(9, day="b"))
    [line] = tablectl("files", table, "--jsonl", "--limit", 1).out.splitlines()
    assert json.loads(line)["kind"] == "base"
    assert "1 of 2 files" in tablectl("files", table, "--limit", 1).err


def test_set_changes_properties_in_one_decision(tablectl, table):
    ran = tablectl("set", table, "commit.retries=7", "lock.wait=9s", "--json")
    data = _documented(ran, table, "set")
    assert data["version"] == 3
    assert data["properties"]["commit.retries"] == "7"
    assert Table.open(table).properties["lock.wait"] == "9s"
    data = tablectl("set", table, "contract.lock=none", "--json").data
    assert data["properties"]["contract.lock"] == "none"
    assert Table.open(table).version == 4


@pytest.mark.parametrize(
    "values",
    [
        ("commit.retries",),
        ("=3",),
        ("commit.retries=many",),
        ("no.such=1",),
        ("contract.lock=none", "commit.retries=3"),
    ],
    ids=" ".join,
)
def test_set_refuses_what_is_not_a_property_and_a_contract_beside_one(tablectl, table, values):
    assert tablectl("set", table, *values).code == 2
    assert Table.open(table).version == 2


@pytest.mark.parametrize(
    "arguments",
    [("clean", "--yes"), ("rollback", "--failed"), ("set", "commit.retries=3"), ("describe",)],
    ids=lambda arguments: arguments[0],
)
def test_a_table_of_another_contract_than_expected_is_refused(tablectl, tmp_path, arguments):
    """INV-12."""
    create = ("create", tmp_path / "t", "--schema", "id bigint", "--if-not-exists")
    assert tablectl(*create, "--expect", "lock=file").code == 0
    assert tablectl(*create, "--expect", "lock=none").code == 9
    name, *rest = arguments
    expected = ("--expect", "lock=file", "--expect", "concurrency=multi_writer")
    assert tablectl(name, tmp_path / "t", *rest, *expected).code == 0
    refused = tablectl(name, tmp_path / "t", *rest, "--expect", "lock=none", "--json")
    assert (refused.code, refused.error["error"]) == (9, "contract")
    wrong = tablectl(name, tmp_path / "t", *rest, "--expect", "locks=none", "--json")
    assert wrong.code == 2


# --- history, timeline -----------------------------------------------------------------------


def test_history_is_told_newest_first_and_whether_there_is_more(tablectl, table):
    data = _documented(tablectl("history", table, "--json"), table, "history")
    assert [entry["version"] for entry in data["entries"]] == [2, 1, 0]
    assert data["more"] is False
    newest = data["entries"][0]
    assert {
        "version", "instant", "action", "operation", "completed", "base", "commit_id",
        "ended", "stats", "client",
    } <= set(newest)  # fmt: skip
    assert ISO.fullmatch(newest["completed"])
    assert (newest["operation"], newest["commit_id"]) == ("upsert", "second")
    assert newest["client"]["pid"] == os.getpid()
    assert tablectl("history", table, "--limit", 1, "--json").data["more"] is True
    assert "--limit 0 shows all" in tablectl("history", table, "--limit", 1).err
    assert len(tablectl("history", table, "--limit", 0, "--jsonl").out.splitlines()) == 3


def test_timeline_shows_who_overlapped_whom(tablectl, table):
    lines = tablectl("timeline", table).out.splitlines()
    titles = ["version", "operation", "who", "base", "took", "when", "overlapped", "note"]
    assert lines[0].split() == titles
    assert [line.split()[0] for line in lines[1:]] == ["0", "1", "2"]
    slow = Table.open(table)
    with slow.writer("upsert") as writer:
        writer.write(rows(7, day="slow"))
        Table.open(table).upsert(rows(8, day="quick"))
        data = tablectl("timeline", table, "--json").data
        [pending] = data["pending"]
        assert (pending["pid"], pending["alive"]) == (os.getpid(), True)
        assert "alive" in tablectl("timeline", table).out
    entries = {
        entry["version"]: entry for entry in tablectl("timeline", table, "--json").data["entries"]
    }
    assert entries[4]["overlapped"] == [3]
    assert entries[3]["overlapped"] == []
    assert entries[4]["began"] == 2
    assert entries[4]["duration_ms"] >= 0
    assert ISO.fullmatch(entries[4]["started"])
    assert (entries[0]["overlapped"], entries[0]["redone"]) == ([], 0)


# --- rollback --------------------------------------------------------------------------------


def _leave_pending(uri, *, nonce="d" * 16, age_s=3600):
    """Leave what a dead writer leaves: a record that nobody touches any more."""
    store = open_store(uri)
    instant = Instant.at(store.now_ms(), nonce)
    pending = PendingInstant(
        instant, State.REQUESTED, Operation.UPSERT, 2, (("a",),), "elsewhere", 4711, 0, 1.0
    )
    write_requested(store, pending)
    then = store.now_ms() / 1000 - age_s
    os.utime(os.path.join(uri, paths.requested(instant)), (then, then))
    return str(instant)


def test_rollback_of_the_failed_shows_its_plan_ends_the_dead_and_spares_the_living(tablectl, table):
    dead, alive = _leave_pending(table), _leave_pending(table, nonce="a" * 16, age_s=0)
    data = tablectl("rollback", table, "--failed", "--dry-run", "--json").data
    assert data["plan"] == {"instants": [dead], "alive": [], "spared": [alive]}
    assert (data["dry_run"], data["ended"]) == (True, [])
    assert "ALIVE" in tablectl("rollback", table, alive, "--dry-run").out
    assert Table.open(table).version == 2
    ran = tablectl("rollback", table, "--failed", "--yes", "--json")
    assert ran.data["ended"] == [{"instant": dead, "outcome": "rolled_back", "files_deleted": 0}]
    view = Table.open(table).inspect.timeline()
    assert [str(entry.instant) for entry in view.pending] == [alive]
    assert [str(each) for each in view.decided[-1].ended] == [dead]
    again = tablectl("rollback", table, "--failed", "--yes", "--json")
    assert (again.code, again.data["ended"]) == (0, [])


def test_rollback_asks_at_a_terminal_and_is_refused_in_a_pipe(tablectl, table):
    dead = _leave_pending(table)
    ran = tablectl("rollback", table, "--failed")
    assert ran.code == 9
    assert "error[refused]" in ran.err
    assert tablectl("rollback", table, dead, answer="n\n").code == 9
    assert Table.open(table).version == 2
    ran = tablectl("rollback", table, dead, answer="y\n")
    assert ran.code == 0
    assert "roll back 1 instant(s)? [y/N]" in ran.err
    assert Table.open(table).version == 3


def test_rollback_takes_one_instant_that_is_known_and_pending(tablectl, table):
    committed = str(Table.open(table).inspect.history()[0].instant)
    ran = tablectl("rollback", table, committed, "--yes")
    assert ran.code == 9
    assert "error[illegal_transition]" in ran.err
    assert tablectl("rollback", table, NOBODY, "--yes").code == 3
    assert tablectl("rollback", table).code == 2
    assert tablectl("rollback", table, "--failed", NOBODY).code == 2


# --- verify, conflict, probe -----------------------------------------------------------------


def test_verify_names_invariant_and_path_and_ends_in_8(tablectl, table):
    data = _documented(tablectl("verify", table, "--json"), table, "verify")
    assert list(data) == ["problems", "notes", "checked"]
    assert data["problems"] == []
    assert data["checked"]
    history = tablectl("verify", table, "--history", "--json")
    assert (history.code, history.data["checked"]["windows"]) == (0, 2)
    assert "files" not in history.data["checked"], "the timeline alone"
    [file] = tablectl("files", table, "--json").data["files"]
    os.remove(os.path.join(table, file["path"]))
    ran = tablectl("verify", table, "--json")
    assert ran.code == 8
    assert any(
        p["path"] == file["path"] and p["invariant"].startswith("INV-")
        for p in ran.data["problems"]
    )
    text = tablectl("verify", table)
    assert text.code == 8
    assert file["path"] in text.out
    assert "problem(s) found" in text.err


def test_damaged_metadata_ends_in_7(tablectl, table):
    slot = os.path.join(table, paths.slot(2))
    os.chmod(slot, 0o644)
    with open(slot, "r+b") as file:
        file.seek(200)
        file.write(b"XX")
    ran = tablectl("describe", table)
    assert ran.code == 7
    assert ran.err.startswith("error[corrupt]: ")
    verified = tablectl("verify", table, "--json")
    assert verified.code == 8
    assert paths.slot(2) in [problem["path"] for problem in verified.data["problems"]]


def test_conflict_explain_tells_winner_keys_and_verdict(tablectl, tmp_path):
    table = Table.create(str(tmp_path / "t"), "id bigint", record_key=["id"], buckets=1)
    table.upsert(pa.table({"id": [1, 2]}))
    writer = table.writer("upsert").__enter__()
    writer.write(pa.table({"id": [2, 3]}))
    instant = writer.instant
    table.upsert(pa.table({"id": [2]}))
    with pytest.raises(RetryableConflictError):
        writer.__exit__(None, None, None)
    data = tablectl("conflict", "explain", tmp_path / "t", instant, "--json").data
    assert data["outcome"] == "rolled_back"
    assert [(c["version"], c["verdict"], c["keys"]) for c in data["conflicts"]] == [
        (2, "retry", [{"id": 2}])
    ]
    text = tablectl("conflict", "explain", tmp_path / "t", instant).out
    assert "both wrote the same keys" in text


def test_probe_tells_what_a_store_can_do_and_ends_in_8_where_no_table_can_be_written(
    tablectl, tmp_path
):
    ran = tablectl("probe", "memory://probed", "--json")
    data = _documented(ran, "memory://probed", "probe")
    assert data["fit"]
    assert data["swaps"]
    assert "proven" in tablectl("probe", "memory://probed").err
    ran = tablectl("probe", f"local://{tmp_path}")
    assert ran.code == 8
    assert "not known to have an atomic put-if-absent" in ran.out
