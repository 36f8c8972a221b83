"""Each command on a real table: shapes, exit codes, and the rules of what destroys."""

from __future__ import annotations

import json
import os
import re

import pyarrow as pa
import pytest

from plait import Table
from plait.cli.flow import lay_out
from plait.errors import RetryableConflictError
from plait.model.instant import Instant, Operation, State
from plait.storage import open_store
from plait.timeline import paths
from plait.timeline.pending import PendingInstant, write_requested
from tests.unit.cli.conftest import SCHEMA, rows

ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


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
    ran = tablectl(
        "create", uri, "--schema", SCHEMA, "--key", "id", "--partition", "day", "--type", "mor",
        "--ordering", "x", "--buckets", 4, "--property", "commit.retries=3", "--json",
    )  # fmt: skip
    data = _documented(ran, uri, "create")
    assert data["version"] == 0
    assert data["table_type"] == "mor"
    assert data["bucket_spec"] == {"id": 0, "key": ["id"], "count": 4}
    assert data["partition_by"] == ["day"]
    assert data["ordering"] == "x"
    assert data["properties"] == {"commit.retries": "3"}


def test_create_reads_the_schema_from_a_file(tablectl, tmp_path):
    (tmp_path / "s.sql").write_text("id bigint,\n  name string\n")
    ran = tablectl("create", tmp_path / "t", "--schema", f"@{tmp_path / 's.sql'}")
    assert (ran.code, ran.err) == (0, "")
    assert Table.open(str(tmp_path / "t")).schema.names == ["id", "name"]
    assert tablectl("create", tmp_path / "u", "--schema", "@nowhere.sql").code == 2


def test_create_refuses_to_replace_a_table_and_leaves_it(tablectl, table):
    ran = tablectl("create", table, "--schema", "other int")
    assert ran.code == 9
    assert ran.err.startswith("error[exists]: ")
    assert tablectl("create", table, "--schema", "other int", "--if-not-exists").code == 0
    assert Table.open(table).version == 2


def test_create_names_the_nearest_option(tablectl, tmp_path):
    ran = tablectl("create", tmp_path / "t", "--schema", SCHEMA, "--property", "lock.wiat=1s")
    assert ran.code == 2
    assert "lock.wait" in ran.err
    assert not (tmp_path / "t" / ".meta").exists()


def test_describe_json_has_the_documented_fields(tablectl, table):
    data = _documented(tablectl("describe", table, "--json"), table, "describe")
    assert {"uri", "version", "horizon", "rows", "files", "bytes", "schema"} <= set(data)
    assert (data["version"], data["rows"]) == (2, 4)


def test_describe_text_shows_sizes_for_people(tablectl, table):
    ran = tablectl("describe", table)
    assert re.search(r"^rows +4$", ran.out, re.MULTILINE)
    assert re.search(r"^bytes +[\d.]+ (Ki)?B \([\d,]+ bytes\)$", ran.out, re.MULTILINE)


@pytest.mark.parametrize(
    "command",
    ["describe", "history", "timeline", "files", "schema", "locks", "writers", "readers", "verify"],
)
def test_no_table_at_the_place_ends_in_3(tablectl, tmp_path, command):
    ran = tablectl(command, tmp_path / "nothing")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.startswith("error[not_found]: ")
    assert list(tmp_path.iterdir()) == []


def test_schema_lists_columns_with_their_roles(tablectl, table):
    data = _documented(tablectl("schema", table, "--json"), table, "schema")
    assert data["columns"] == [
        {"name": "id", "type": "bigint", "nullable": False, "role": ["key"]},
        {"name": "day", "type": "string", "nullable": True, "role": ["partition"]},
        {"name": "x", "type": "double", "nullable": True, "role": ["ordering"]},
    ]


def test_files_are_listed_with_plain_sizes(tablectl, table):
    data = _documented(tablectl("files", table, "--json"), table, "files")
    assert data["total"] == len(data["files"]) == 1
    [file] = data["files"]
    assert list(file) == [
        "path", "partition", "bucket", "kind", "rows", "masked", "bytes", "version",
    ]  # fmt: skip
    assert (file["partition"], file["rows"], file["version"]) == (["a"], 4, 2)
    assert os.path.getsize(os.path.join(table, file["path"])) == file["bytes"]


def test_files_as_lines_respect_the_limit(tablectl, table):
    Table.open(table).upsert(rows(9, day="b"))
    lines = tablectl("files", table, "--jsonl", "--limit", 1).out.splitlines()
    assert len(lines) == 1
    assert json.loads(lines[0])["kind"] == "base"
    ran = tablectl("files", table, "--limit", 1)
    assert "1 of 2 files" in ran.err


def test_set_changes_properties_in_one_decision(tablectl, table):
    ran = tablectl("set", table, "commit.retries=7", "lock.wait=9s", "--json")
    data = _documented(ran, table, "set")
    assert data["version"] == 3
    assert data["properties"]["commit.retries"] == "7"
    assert Table.open(table).properties["lock.wait"] == "9s"


@pytest.mark.parametrize("value", ["commit.retries", "=3", "commit.retries=many", "no.such=1"])
def test_set_refuses_what_is_not_a_property(tablectl, table, value):
    assert tablectl("set", table, value).code == 2
    assert Table.open(table).version == 2


# --- history, timeline -----------------------------------------------------------------------


def test_history_json_has_the_documented_fields_newest_first(tablectl, table):
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


def test_history_says_when_there_is_more(tablectl, table):
    assert tablectl("history", table, "--limit", 1, "--json").data["more"] is True
    ran = tablectl("history", table, "--limit", 1)
    assert "--limit 0 shows all" in ran.err
    assert len(tablectl("history", table, "--limit", 0, "--jsonl").out.splitlines()) == 3


def test_timeline_shows_who_overlapped_whom(tablectl, table):
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


def test_timeline_text_has_a_line_a_version(tablectl, table):
    lines = tablectl("timeline", table).out.splitlines()
    assert lines[0].split() == [
        "version",
        "operation",
        "who",
        "base",
        "took",
        "when",
        "overlapped",
        "note",
    ]
    assert [line.split()[0] for line in lines[1:]] == ["0", "1", "2"]


def test_timeline_lays_out_a_table_at_version_0(tmp_path):
    table = Table.create(str(tmp_path / "t"), SCHEMA)
    [span] = lay_out(table.inspect.timeline())
    assert (span.version, span.overlapped, span.redone, span.note) == (0, (), 0, "")


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


def test_rollback_of_the_failed_shows_its_plan_and_does_nothing_on_a_dry_run(tablectl, table):
    dead, alive = _leave_pending(table), _leave_pending(table, nonce="a" * 16, age_s=0)
    data = tablectl("rollback", table, "--failed", "--dry-run", "--json").data
    assert data["plan"] == {"instants": [dead], "alive": [], "spared": [alive]}
    assert (data["dry_run"], data["ended"]) == (True, [])
    assert Table.open(table).version == 2


def test_rollback_of_the_failed_ends_the_dead_and_spares_the_living(tablectl, table):
    dead, alive = _leave_pending(table), _leave_pending(table, nonce="a" * 16, age_s=0)
    ran = tablectl("rollback", table, "--failed", "--yes", "--json")
    assert ran.data["ended"] == [{"instant": dead, "outcome": "rolled_back", "files_deleted": 0}]
    view = Table.open(table).inspect.timeline()
    assert [str(entry.instant) for entry in view.pending] == [alive]
    assert [str(each) for each in view.decided[-1].ended] == [dead]
    again = tablectl("rollback", table, "--failed", "--yes", "--json")
    assert (again.code, again.data["ended"]) == (0, [])


def test_rollback_without_yes_is_refused_in_a_pipe(tablectl, table):
    _leave_pending(table)
    ran = tablectl("rollback", table, "--failed")
    assert ran.code == 9
    assert "error[refused]" in ran.err
    assert Table.open(table).version == 2


def test_rollback_asks_at_a_terminal(tablectl, table):
    dead = _leave_pending(table)
    assert tablectl("rollback", table, dead, answer="n\n").code == 9
    assert Table.open(table).version == 2
    ran = tablectl("rollback", table, dead, answer="y\n")
    assert ran.code == 0
    assert "roll back 1 instant(s)? [y/N]" in ran.err
    assert Table.open(table).version == 3


def test_rollback_of_a_living_instant_says_so_in_its_plan(tablectl, table):
    alive = _leave_pending(table, age_s=0)
    assert "ALIVE" in tablectl("rollback", table, alive, "--dry-run").out


def test_rollback_of_what_is_committed_is_refused(tablectl, table):
    committed = str(Table.open(table).inspect.history()[0].instant)
    ran = tablectl("rollback", table, committed, "--yes")
    assert ran.code == 9
    assert "error[illegal_transition]" in ran.err


def test_rollback_of_an_unknown_instant_ends_in_3(tablectl, table):
    assert tablectl("rollback", table, "20260101000000000-0123456789abcdef", "--yes").code == 3


@pytest.mark.parametrize("arguments", [(), ("--failed", "20260101000000000-0123456789abcdef")])
def test_rollback_takes_either_an_instant_or_failed(tablectl, table, arguments):
    assert tablectl("rollback", table, *arguments).code == 2


# --- verify ----------------------------------------------------------------------------------


def test_verify_of_a_sound_table_ends_in_0(tablectl, table):
    data = _documented(tablectl("verify", table, "--json"), table, "verify")
    assert list(data) == ["problems", "notes", "checked"]
    assert data["problems"] == []
    assert data["checked"]


def test_verify_names_invariant_and_path_and_ends_in_8(tablectl, table):
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


def test_set_changes_the_contract_by_itself(tablectl, tmp_path):
    Table.create(str(tmp_path / "t"), "id bigint", record_key=["id"])
    data = tablectl("set", tmp_path / "t", "contract.lock=none", "--json").data
    assert data["properties"]["contract.lock"] == "none"
    mixed = tablectl("set", tmp_path / "t", "contract.lock=file", "commit.retries=3")
    assert (mixed.code, Table.open(str(tmp_path / "t")).version) == (2, 1)


def test_verify_history_reads_the_timeline_alone(tablectl, tmp_path):
    table = Table.create(str(tmp_path / "t"), "id bigint", record_key=["id"])
    table.upsert(pa.table({"id": [1]}))
    ran = tablectl("verify", tmp_path / "t", "--history", "--json")
    assert (ran.code, ran.data["checked"]["windows"]) == (0, 1)
    assert "files" not in ran.data["checked"]


@pytest.mark.parametrize(
    "arguments",
    [("clean", "--yes"), ("rollback", "--failed"), ("set", "commit.retries=3"), ("describe",)],
    ids=lambda arguments: arguments[0],
)
def test_a_table_of_another_contract_than_expected_is_refused(tablectl, tmp_path, arguments):
    """INV-12."""
    tablectl("create", tmp_path / "t", "--schema", "id bigint")
    name, *rest = arguments
    expected = ("--expect", "lock=file", "--expect", "concurrency=multi_writer")
    assert tablectl(name, tmp_path / "t", *rest, *expected).code == 0
    refused = tablectl(name, tmp_path / "t", *rest, "--expect", "lock=none", "--json")
    assert (refused.code, refused.error["error"]) == (9, "contract")
    wrong = tablectl(name, tmp_path / "t", *rest, "--expect", "locks=none", "--json")
    assert wrong.code == 2


def test_create_if_not_exists_tells_when_the_table_is_not_as_expected(tablectl, tmp_path):
    create = ("create", tmp_path / "t", "--schema", "id bigint", "--if-not-exists")
    assert tablectl(*create, "--expect", "lock=file").code == 0
    assert tablectl(*create, "--expect", "lock=none").code == 9


# --- probe -----------------------------------------------------------------------------------


def test_probe_tells_what_a_store_can_do(tablectl):
    ran = tablectl("probe", "memory://probed", "--json")
    data = _documented(ran, "memory://probed", "probe")
    assert data["fit"]
    assert data["swaps"]
    assert "proven" in tablectl("probe", "memory://probed").err


def test_probe_ends_in_its_own_code_where_no_table_can_be_written(tablectl, tmp_path):
    ran = tablectl("probe", f"local://{tmp_path}")
    assert ran.code == 8
    assert "not known to have an atomic put-if-absent" in ran.out
