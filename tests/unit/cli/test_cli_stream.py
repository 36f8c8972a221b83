"""``tablectl stream audit``: what it proves, and how it ends."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from plait import Table
from plait.model.decision import Span, Token
from plait.model.document import sealed_checksum
from plait.storage import open_store
from plait.timeline import codec, paths


@pytest.fixture(name="table")
def table_fixture(tmp_path):
    """A stream of three epochs, and commits of others between them."""
    table = Table.create(str(tmp_path / "t"), "id bigint")
    stream = table.stream("loader")
    for end in (3, 5, 9):
        position = stream.position
        start = int(position.end) if position else 0
        with stream.writer(after=position, end=str(end)) as writer:
            writer.write(pa.table({"id": range(start, end)}))
        table.append(pa.table({"id": [0]}))
    return str(tmp_path / "t")


def test_an_audit_lists_every_epoch_of_a_stream_that_is_known(tablectl, table):
    ran = tablectl("stream", "audit", table, "loader", "--json")
    assert ran.code == 0
    assert (ran.data["rows"], ran.data["proven"], ran.data["problems"]) == (9, 3, [])
    assert [(e["epoch"], e["start"], e["end"], e["rows"]) for e in ran.data["epochs"]] == [
        (0, "", "3", 3),
        (1, "3", "5", 2),
        (2, "5", "9", 4),
    ]
    assert [e["offsets"][""] for e in ran.data["epochs"]] == [["", "3"], ["3", "5"], ["5", "9"]]
    assert len({e["digest"] for e in ran.data["epochs"]}) == 3
    assert [e["version"] for e in ran.data["epochs"]] == [1, 3, 5]
    lines = tablectl("stream", "audit", table, "loader", "--jsonl").out.splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [0, 1, 2]
    text = tablectl("stream", "audit", table, "loader", "--limit", 1).out
    assert "contiguous         yes" in text
    assert "3 of 3 epochs" in text
    assert len(text.splitlines()) == 9, "of the epochs only the newest"
    unknown = tablectl("stream", "audit", table, "loder", "--json")
    assert (unknown.code, unknown.error["error"]) == (3, "not_found")
    assert "loader" in unknown.error["hint"]


def test_an_audit_lists_what_each_source_gave(tablectl, tmp_path):
    table = Table.create(str(tmp_path / "s"), "id bigint")
    spans = (Span("orders-0", "", "17"), Span("orders-1", "", "9"))
    token = Token("loader", 0, "", "x", spans)
    stream = table.stream("loader")
    with stream.writer_of(token, "append", on_conflict="retry", on_duplicate="raise") as writer:
        writer.write(pa.table({"id": [1]}))
    ran = tablectl("stream", "audit", tmp_path / "s", "loader", "--json")
    assert ran.data["epochs"][0]["offsets"] == {"orders-0": ["", "17"], "orders-1": ["", "9"]}
    text = tablectl("stream", "audit", tmp_path / "s", "loader").out
    assert "orders-1" in text
    assert ran.data["epochs"][0]["digest"] in text


def test_a_gap_ends_in_its_own_exit_code(tablectl, table):
    """Forged: the table itself takes no such token."""
    handle = Table.open(table)._handle
    last = handle.cache.timeline.find(5)
    forged = replace(last, tokens=(replace(last.tokens[0], start="4"),))
    store = open_store(handle.store.address)
    store.put(paths.slot(5), codec.encode(forged))
    following = handle.cache.timeline.find(6)
    seal = sealed_checksum(codec.encode(forged))
    store.put(paths.slot(6), codec.encode(replace(following, previous=seal)))
    ran = tablectl("stream", "audit", table, "loader", "--json")
    assert ran.code == 8
    assert [p["kind"] for p in ran.data["problems"]] == ["gap"]
    assert ran.data["problems"][0]["version"] == 5
    found = {problem.invariant for problem in Table.open(table).check.verify().problems}
    assert found == {"INV-09"}
