"""``tablectl diff``: what commits changed, for people and programs."""

from __future__ import annotations

import json

from plait import Table
from tests.support.build import rows


def test_diff_counts_all_rows_and_shows_the_first(tablectl, tmp_path):
    uri = str(tmp_path / "t")
    table = Table.create(uri, "id bigint, x bigint", record_key=["id"], buckets=1)
    table.upsert(rows(1, 2, 3, x=1))
    table.upsert(rows(3, 4, x=2))
    table.delete(where="id = 1")
    data = tablectl("diff", uri, "--since", 1, "--limit", 2, "--json").data
    assert (data["since"], data["until"], data["more"]) == (1, 3, True)
    assert data["counts"] == {
        "insert": 1, "update_preimage": 1, "update_postimage": 1, "delete": 1,
    }  # fmt: skip
    assert [(r["id"], r["x"], r["_change_type"]) for r in data["rows"]] == [
        (3, 1, "update_preimage"),
        (3, 2, "update_postimage"),
    ]
    lines = tablectl("diff", uri, "--since", 2, "--jsonl").out.splitlines()
    assert [json.loads(line)["_change_type"] for line in lines] == ["delete"]
    shown = tablectl("diff", uri, "--since", 0, "--until", 1)
    assert (shown.code, shown.err) == (0, "")
    assert "0 -> 1" in shown.out
    empty = tablectl("diff", uri, "--since", 3, "--json").data
    assert (empty["rows"], empty["more"]) == ([], False)


def test_diff_refuses_bounds_that_are_none(tablectl, tmp_path):
    uri = str(tmp_path / "t")
    Table.create(uri, "id bigint", record_key=["id"])
    assert tablectl("diff", uri, "--since", 9).code == 3
    assert tablectl("diff", uri, "--since", "soon").code == 2


def test_compare_shows_what_differs_and_ends_with_the_code_of_problems(tablectl, tmp_path):
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    for uri, x in ((one, 1), (two, 2)):
        table = Table.create(uri, "id bigint, x bigint", record_key=["id"], buckets=x)
        table.upsert(rows(1, 2, x=1))
        table.upsert(rows(2, 3, x=x))
    same = tablectl("compare", one, one, "--versions", 2, 2)
    assert (same.code, same.err) == (0, "")
    found = tablectl("compare", one, two, "--json")
    assert (found.code, found.data["equal"], found.data["changed"]) == (8, False, 2)
    shown = tablectl("compare", one, two, "--columns", "id, x", "--limit", 1)
    assert shown.code == 8
    assert [line.split()[0] for line in shown.out.splitlines() if "2" in line][-1] == "after"
    assert tablectl("compare", one, two, "--columns", "id").code == 0
    assert tablectl("compare", one, two, "--where", "id = 1").code == 0
    assert tablectl("compare", one, str(tmp_path / "three")).code == 3
    assert tablectl("compare", one, two, "--columns", "none").code == 2
