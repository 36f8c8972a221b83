"""Commands that delete or mend: what they show, ask, do and refuse."""

from __future__ import annotations

import os
import shutil

import pytest

from plait import Table
from tests.unit.cli.conftest import SCHEMA

# --- clean -----------------------------------------------------------------------------------


def _data_files(uri):
    found = [os.path.join(d, f) for d, _, names in os.walk(uri) for f in names if ".meta" not in d]
    return sorted(os.path.relpath(path, uri) for path in found)


def test_clean_deletes_what_its_dry_run_shows_and_only_when_told_so(tablectl, table, tmp_path):
    before = _data_files(table)
    planned = tablectl("clean", table, "--dry-run", "--json").data
    assert planned["report"] is None
    refused = tablectl("clean", table, "--json")
    assert (refused.code, refused.out) == (9, "")
    assert _data_files(table) == before
    done = tablectl("clean", table, "--yes", "--json").data
    assert done["plan"]["condemn"] == planned["plan"]["condemn"]
    assert set(done["report"]["deleted"]) <= set(planned["plan"]["condemn"])
    assert sorted(set(before) - set(done["report"]["deleted"])) == _data_files(table)
    assert len(_data_files(table)) < len(before)
    assert Table.open(table).scan().to_arrow().num_rows == 4
    Table.create(str(tmp_path / "new"), SCHEMA)
    nothing = tablectl("clean", tmp_path / "new")
    assert (nothing.code, nothing.err) == (0, "")


def test_a_clean_can_be_undone_until_its_grace_is_over(tablectl, table):
    Table.open(table).alter.set({"clean.grace": "1h"})
    before = _data_files(table)
    done = tablectl("clean", table, "--json").data
    assert (done["report"]["deleted"], done["plan"]["condemn"]) == ([], [])
    assert done["plan"]["held"] > 0
    oldest = tablectl("describe", table, "--json").data["horizon"]
    undone = tablectl("clean", table, "--undo", "--json").data
    assert (undone["undone"], undone["horizon"]) == ([done["report"]["version"]], 0)
    assert tablectl("describe", table, "--json").data["horizon"] < oldest
    again = tablectl("clean", table, "--undo")
    assert (again.code, "nothing to undo" in again.err) == (0, True)
    assert _data_files(table) == before
    assert tablectl("clean", table, "--now", "--yes", "--json").data["report"]["deleted"]


@pytest.mark.parametrize("wrong", [("--undo", "--now"), ("--since", "3"), ("--undo", "--dry-run")])
def test_an_undo_with_options_of_a_clean_is_a_usage_error(tablectl, table, wrong):
    assert tablectl("clean", table, *wrong).code == 2


def test_foreign_files_are_listed_and_removed_when_nobody_needs_them(tablectl, table):
    place = os.path.join(table, os.path.dirname(_data_files(table)[0]))
    lost = os.path.join(place, f"00000-20260101000000000-{'e' * 16}-0-0000.base.parquet")
    notes = os.path.join(place, "notes.txt")
    for path in (lost, notes):
        with open(path, "w") as file:
            file.write("?")
    listed = tablectl("foreign", "list", table, "--json").data["foreign"]
    assert {file["owner"] for file in listed} == {"unknown", "strange"}
    assert "nobody knows its instant" in tablectl("foreign", "list", table).out
    assert tablectl("foreign", "remove", table, "--json").code == 9
    planned = tablectl("foreign", "remove", table, "--dry-run", "--json").data["plan"]
    assert [os.path.join(table, file["path"]) for file in planned] == [lost]
    done = tablectl("foreign", "remove", table, "--yes", "--json").data["report"]
    assert (done["removed"], len(done["ended"])) == ([planned[0]["path"]], 1)
    assert (os.path.exists(lost), os.path.exists(notes)) == (False, True)
    assert tablectl("foreign", "remove", table).code == 0


# --- repair ----------------------------------------------------------------------------------


def test_repair_takes_lost_bytes_from_a_copy_only_after_a_question(tablectl, table, tmp_path):
    copy = str(tmp_path / "copy")
    shutil.copytree(table, copy)
    slot = os.path.join(table, ".meta/timeline", f"{0:020d}", f"{1:020d}.json")
    os.remove(slot)
    alone = tablectl("repair", table, "--json")
    assert (alone.code, alone.data["plan"]["findings"][0]["answer"]) == (8, "choose")
    planned = tablectl("repair", table, "--from", copy, "--dry-run", "--json")
    assert [each["answer"] for each in planned.data["plan"]["findings"]] == ["mend"]
    assert tablectl("repair", table, "--from", copy, "--json").code == 9
    assert not os.path.exists(slot)
    done = tablectl("repair", table, "--from", copy, "--yes", "--json")
    assert (done.code, len(done.data["report"]["mended"])) == (0, 1)
    assert os.path.exists(slot)
    assert tablectl("verify", table).code == 0
    assert tablectl("repair", table, "--from", str(tmp_path / "none")).code == 2
