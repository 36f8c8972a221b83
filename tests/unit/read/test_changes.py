"""``Table.changes``: what is told of each operation, what is read for it, what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from plait import (
    InstantExpiredError,
    InstantNotFoundError,
    OptionError,
    SchemaMismatchError,
    Table,
)
from plait.errors import CorruptMetadataError
from plait.model.changes import ADDED, PATHS
from plait.model.decision import Decision
from plait.model.instant import Action, Operation
from plait.ports import SystemClock
from plait.read.change_scan import ADDED_COLUMNS, TYPE, ChangeScan
from plait.read.join import SortedBatch, Source, joined
from plait.testing import open_wrapped
from plait.testing.counting import CountingStore
from plait.txn.read_pin import load_read_pins
from tests.support import build
from tests.support.build import LITTLE
from tests.support.forge import forge

KINDS = pytest.mark.parametrize("kind", ["cow", "mor"])
rows = partial(build.rows, t="")


def make(kind: str = "cow", *, key: Sequence[str] = ("id",), **more: object) -> Table:
    ddl = "id bigint, v bigint, t string"
    return build.make(ddl, record_key=key, table_type=kind, **more)


def told(scan: ChangeScan) -> list[tuple[object, ...]]:
    found = scan.to_arrow().select(["_commit_version", "id", TYPE, "v"]).to_pylist()
    return sorted(tuple(row.values()) for row in found)


@KINDS
def test_each_operation_is_told_exactly(kind: str) -> None:
    table = make(kind, buckets=2)
    table.insert(rows([1, 2, 3], v=0))
    table.upsert(rows([2, 3, 4], v=1))
    table.upsert(rows([2], v=1))
    table.delete(keys=pa.table({"id": [4, 9]}))
    table.overwrite(rows([1, 3, 5], v=1))
    assert told(table.changes(0)) == [
        (1, 1, "insert", 0),
        (1, 2, "insert", 0),
        (1, 3, "insert", 0),
        (2, 2, "update_postimage", 1),
        (2, 2, "update_preimage", 0),
        (2, 3, "update_postimage", 1),
        (2, 3, "update_preimage", 0),
        (2, 4, "insert", 1),
        (4, 4, "delete", 1),
        (5, 1, "update_postimage", 1),
        (5, 1, "update_preimage", 0),
        (5, 2, "delete", 1),
        (5, 5, "insert", 1),
    ]
    assert table.changes(0).count() == {
        "insert": 5, "update_preimage": 3, "update_postimage": 3, "delete": 2,
    }  # fmt: skip


@KINDS
def test_bounds_are_versions_instants_and_times(kind: str) -> None:
    """A time stands for what was completed by then, however early it began."""
    table = make(kind)
    early = table.writer("upsert")
    early.__enter__()
    early.write(rows([1], v=1))
    SystemClock().sleep(0.005)  # an instant whose time is taken meanwhile gets a later one
    table.upsert(rows([2], v=2))
    early.__exit__(None, None, None)
    table.upsert(rows([3], v=3))
    second = table.inspect.timeline().decided[2]
    assert second.instant < table.inspect.timeline().decided[1].instant, "it began first"
    every = [(1, 2, "insert", 2), (2, 1, "insert", 1), (3, 3, "insert", 3)]
    for since in (2, "2", second.instant, str(second.instant), second.to_dict()["completed"]):
        assert told(table.changes(since)) == every[2:]  # type: ignore[arg-type]
    assert told(table.changes("2020-01-01T00:00:00Z")) == every
    assert told(table.changes(0, second.instant)) == every[:2]
    assert (
        told(table.changes(0, until=table.inspect.timeline().decided[3].to_dict()["completed"]))
        == every
    )
    assert told(table.changes(3)) == []
    assert table.changes(1, 1).to_arrow().schema.names[-3:] == ADDED_COLUMNS.names


def test_bounds_that_are_none_are_refused_by_name() -> None:
    table = make()
    table.upsert(rows([1], v=1))
    with pytest.raises(InstantNotFoundError):
        table.changes(2)
    with pytest.raises(InstantNotFoundError):
        table.changes(0, 5)
    with pytest.raises(InstantNotFoundError):
        table.changes(0, until="2020-01-01T00:00:00Z")
    with pytest.raises(InstantNotFoundError):
        table.changes("20260101000000000-0123456789abcdef")
    with pytest.raises(OptionError) as refused:
        table.changes(1, 0)
    assert refused.value.key == "until"
    with pytest.raises(OptionError) as refused:
        table.changes("yesterday")
    assert refused.value.key == "since"


def test_a_version_that_was_cleaned_is_refused_with_the_oldest_that_was_not() -> None:
    """INV-05."""
    table = make(
        properties={"clean.retain.time": "0s", "clean.grace": "0s", "clean.retain.versions": 2}
    )
    for v in range(5):
        table.upsert(rows([1], v=v))
    table.maintenance.clean()
    with pytest.raises(InstantExpiredError) as refused:
        table.changes(1)
    oldest = refused.value.oldest
    assert isinstance(oldest, int)
    assert len(told(table.changes(oldest))) == 2 * (5 - oldest)
    assert not load_read_pins(table._handle) or all(
        x.version >= oldest for x in load_read_pins(table._handle)
    )


@KINDS
def test_files_stay_while_the_changes_are_held(kind: str) -> None:
    """INV-05: a lease on ``since``."""
    table = make(
        kind,
        properties=LITTLE,
    )
    for v in range(4):
        table.upsert(rows([1, 2], v=v))
    scan = table.changes(1)
    expected = told(scan)
    table.upsert(rows([1, 2], v=9))
    assert table.maintenance.clean().spared
    assert told(scan) == expected
    assert len(expected) == 12
    del scan
    assert table.maintenance.clean().deleted


def test_columns_and_predicates_are_those_of_table_and_changes() -> None:
    table = make("mor")
    table.upsert(rows([1, 2], v=0, t="a"))
    table.upsert(rows([2, 3], v=5, t="b"))
    scan = table.changes(0, columns=["t"])
    assert scan.schema.names == ["t", *ADDED_COLUMNS.names]
    assert table.changes(0, columns=[TYPE, "id"]).schema.names == [TYPE, "id"]
    assert told(table.changes(0, where="v > 3")) == [
        (2, 2, "update_postimage", 5),
        (2, 3, "insert", 5),
    ]
    where = "_change_type = 'insert' AND _commit_version = 2 AND id > 0"
    assert told(table.changes(0, where=where)) == [(2, 3, "insert", 5)]
    assert told(table.changes(0, where=pc.field("v") == 0))[-1] == (2, 2, "update_preimage", 0)
    with pytest.raises(SchemaMismatchError):
        table.changes(0, columns=["nothing"])
    assert not load_read_pins(table._handle) or len(load_read_pins(table._handle)) == 1


def test_a_predicate_leaves_out_buckets_and_never_half_of_an_update() -> None:
    table = make(buckets=4)
    table.upsert(rows(range(40), v=0))
    table.upsert(rows(range(40), v=9))
    every = table.changes(1)
    some = table.changes(1, where="id = 7")
    assert some.window.files.num_rows * 4 == every.window.files.num_rows
    low = table.changes(1, where="v < 5").to_arrow()[TYPE].to_pylist()
    assert low == ["update_preimage"] * 40, "the files with v = 9 are still looked at"
    assert table.changes(1, where="v > 100").window.files.num_rows == 0


def test_only_buckets_that_commits_touched_are_read() -> None:
    table = make(buckets=8)
    table.upsert(rows(range(100), v=0))
    table.upsert(rows([7], v=1))
    opened, store = open_wrapped(table._handle.store.address.uri, CountingStore)
    scan = opened.changes(1)
    assert store.count("open_input", "data") == 0, "nothing is read before it is asked for"
    assert len(told(scan)) == 2
    assert store.count("open_input", "data") == 2, "one bucket, before and after"


@KINDS
def test_rows_come_in_bounded_memory_from_files_of_many_batches(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Rounds end inside of batches; the rows of an update stay next to each other."""
    monkeypatch.setattr("plait.files.reader.BATCH_BYTES", 1)
    table = make(kind, buckets=1)
    table.upsert(rows(range(0, 1000, 2), v=0))
    table.upsert(rows(range(0, 1000, 3), v=1))
    table.upsert(rows(range(0, 1000, 5), v=2))
    found = table.changes(1).to_arrow()
    for version, step in ((2, 3), (3, 5)):
        part = found.filter(pc.equal(found["_commit_version"], version)).to_pylist()
        before = {r["id"] for r in part if r[TYPE] == "update_preimage"}
        after = {r["id"] for r in part if r[TYPE] in ("update_postimage", "insert")}
        assert after == set(range(0, 1000, step))
        assert before == {i for i in after if i % 2 == 0 or (version == 3 and i % 3 == 0)}
        for at, row in enumerate(part):
            if row[TYPE] == "update_preimage":
                assert part[at + 1]["id"] == row["id"]


def test_a_key_that_is_there_twice_is_damage_and_no_change() -> None:
    """INV-08."""
    twice, once = ([SortedBatch(pa.table({"id": ids}))] for ids in ([1, 1], [1]))
    with pytest.raises(CorruptMetadataError):
        list(joined([Source(iter(twice))], [Source(iter(once))], ["id"], 1 << 20))
    (rows,) = joined([Source(iter(once))], [Source(iter(twice))], ["id"], 1 << 20)
    assert rows.repeated.tolist() == [1]


def test_what_compaction_writes_is_no_change() -> None:
    """Its action says so: the files that it rewrote are not even looked at."""
    table = make(buckets=1)
    table.upsert(rows([1], v=1))
    path = table.inspect.files()["path"][0].as_py()

    def compact(decision: Decision) -> Decision:
        at = decision.changes.added.schema.get_field_index("path")
        added = decision.changes.added.set_column(at, "path", [["data/nowhere.parquet"]])
        gone = pa.table({"path": [path]}, schema=PATHS)
        changes = replace(decision.changes, added=added.cast(ADDED), removed=gone)
        return replace(
            decision, changes=changes, action=Action.COMPACTION, operation=Operation.COMPACT
        )

    forge(table._handle.store, compact, like=1)
    assert table.version == 2
    assert told(table.changes(0)) == [(1, 1, "insert", 1)]
    assert table.changes(1).window.files.num_rows == 0


def test_every_form_of_rows_is_there() -> None:
    table = make()
    table.upsert(rows([1, 2], v=1))
    scan = table.changes(0, columns=["id"])
    assert scan.to_reader().read_all() == scan.to_arrow()
    assert scan.to_pandas()["_change_type"].tolist() == ["insert"] * 2
    assert scan.to_polars()["id"].to_list() == [1, 2]
    assert duckdb.sql("SELECT count(*) FROM scan").fetchall() == [(2,)]
    assert repr(scan).startswith("ChangeScan(since=0, until=1")
