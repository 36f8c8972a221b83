"""``Table.update`` and ``Table.merge``: what they leave, what they refuse, whom they meet."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from plait import Delete, Insert, Table, Update
from plait.errors import (
    BadRecordError,
    DuplicateKeyError,
    OptionError,
    PredicateError,
    RetryableConflictError,
    SchemaMismatchError,
    TableError,
)
from plait.model.clauses import Clauses
from plait.model.decision import CommitResult
from plait.write.request import merge_request, update_request
from plait.write.writer import Writer
from tests.support import build
from tests.support.build import again, make

SCHEMA = "id bigint, place string, n bigint, note string"
Row = tuple[str, int, int, str | None]
rows = partial(build.tuples, "id place n", note="old")


@pytest.fixture(params=["cow", "mor"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def create(kind: str, **definition: object) -> Table:
    asked = {"partition_by": ["place"], "buckets": 1, **definition}
    return build.make(SCHEMA, table_type=kind, **asked)


@pytest.fixture
def table(kind: str) -> Iterator[Table]:
    made = create(kind)
    made.upsert(rows((1, "a", 1), (2, "a", 1), (3, "b", 1)))
    made.upsert(rows((2, "a", 2), (4, "a", 2)))
    yield made
    assert not made.check.verify().problems
    assert not made.inspect.timeline().pending


def content(table: Table) -> list[Row]:
    found = table.scan().to_arrow().to_pylist()
    assert len({(row["place"], row["id"]) for row in found}) == len(found), "INV-08"
    return sorted((r["place"], r["id"], r["n"], r["note"]) for r in found)


def numbers(table: Table) -> dict[int, int]:
    return {row[1]: row[2] for row in content(table)}


# --- update ------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["update", "delete"])
def test_an_operation_whose_columns_are_gone_when_it_begins_leaves_no_instant(
    table: Table, operation: str
) -> None:
    """It was checked against what its client knew; its writer has no rows, and so no part yet."""
    other = again(table)
    other.alter.columns().rename("n", "number").commit()
    act = {"update": lambda: table.update({"n": 9}), "delete": lambda: table.delete(where="n = 1")}
    with pytest.raises(RetryableConflictError, match="column 'n' was renamed or dropped"):
        act[operation]()
    assert not other.inspect.timeline().pending
    assert other.version == 3


def test_update_computes_from_the_row_that_it_finds(table: Table) -> None:
    result = table.update({"n": "n * 10 + id", "note": "upper(note) || '!'"}, where="n = 2")
    assert result.stats.rows_updated == 2
    assert (result.stats.rows_inserted, result.stats.rows_deleted) == (0, 0)
    assert content(table) == [
        ("a", 1, 1, "old"),
        ("a", 2, 22, "OLD!"),
        ("a", 4, 24, "OLD!"),
        ("b", 3, 1, "old"),
    ]
    assert table.inspect.history()[0].operation == "update"


@pytest.mark.parametrize(
    "value", [7, "7", "cast('7' as bigint)", pc.scalar(7), pa.scalar(7), lambda _: pa.scalar(7)]
)
def test_a_value_is_sql_a_literal_an_expression_or_a_function(kind: str, value: object) -> None:
    table = create(kind)
    table.upsert(rows((1, "a", 1), (2, "b", 1)))
    table.update({"n": value}, where="place = 'b'")
    assert numbers(table) == {1: 1, 2: 7}
    table.update({"n": lambda batch: pc.multiply(batch["id"], 100)})
    assert numbers(table) == {1: 100, 2: 200}


def test_an_update_without_where_reaches_every_row_and_none_if_there_is_none(table: Table) -> None:
    assert table.update({"note": None}).stats.rows_updated == 4
    assert {row[3] for row in content(table)} == {None}
    before = table.version
    assert table.update({"n": 0}, where="id = 99").stats.rows_updated == 0
    assert table.version == before, "nothing changed: no version"


def test_an_update_of_rows_without_a_key(kind: str) -> None:
    table = create(kind, record_key=[], buckets=None)
    table.append(rows((1, "a", 1), (1, "a", 1), (2, "b", 5)))
    table.append(rows((1, "a", 3)))
    assert table.update({"n": "n + 1"}, where="n < 3").stats.rows_updated == 2
    assert sorted(table.scan().to_arrow()["n"].to_pylist()) == [2, 2, 3, 5]
    assert not table.check.verify().problems


@pytest.mark.parametrize(
    ("values", "error", "fact"),
    [
        ({}, OptionError, "values"),
        ({"id": "id + 1"}, OptionError, "record key"),
        ({"place": "'z'"}, OptionError, "partition"),
        ({"nn": 1}, SchemaMismatchError, "'n'"),
        ({"n": "nn + 1"}, PredicateError, "columns"),
        ({"n": "note"}, SchemaMismatchError, "cast"),
        ({"n": "n +"}, PredicateError, "parse"),
        ({"n": "n + note"}, PredicateError, "types"),
        ({"n": "rand()"}, PredicateError, "supported"),
        ({"n": [1]}, SchemaMismatchError, "cast"),
        ({"n": "s.n"}, PredicateError, "source"),
    ],
)
def test_what_an_update_cannot_mean_is_refused_before_anything_is_written(
    table: Table, values: dict[str, object], error: type[TableError], fact: str
) -> None:
    before = table.version
    with pytest.raises(error) as caught:
        table.update(values)
    assert fact in f"{caught.value} {caught.value.hint}"
    assert table.version == before


@pytest.mark.parametrize("value", ["10 / (n - 1)", "n + 9223372036854775807", "n + 0.5"])
def test_a_value_that_cannot_be_kept_ends_the_update_whole(table: Table, value: str) -> None:
    """INV-10: nothing of it is there."""
    before = content(table)
    with pytest.raises(BadRecordError) as caught:
        table.update({"n": value})
    assert caught.value.column == "n"
    assert content(table) == before


@pytest.mark.parametrize("value", [1e300, "1e300", "CASE WHEN d > 1e9 THEN -d ELSE 0.1 END"])
def test_a_finite_number_never_becomes_infinite(kind: str, value: object) -> None:
    table = make("id bigint, d double, f float", table_type=kind)
    infinite = pa.array([None, float("inf")], pa.float32())
    table.upsert(pa.table({"id": [1, 2], "d": [1.0, 1e300], "f": infinite}))
    merge = Update({"f": value if isinstance(value, str) else str(value)})
    for call in (
        lambda: table.update({"f": value}),
        lambda: table.merge(pa.table({"id": [1, 2]}), matched=[merge]),
    ):
        with pytest.raises(BadRecordError, match=r"'f' cannot be kept as float"):
            call()
    assert set(table.scan().to_arrow()["f"].to_pylist()) == {None, float("inf")}
    for kept in ("0.1", "f", "CAST(d AS float)", "1.5 * f", float("-inf")):
        table.update({"f": kept}, where="id = 2")  # the nearest, and what is infinite already
    assert table.scan(where="id = 2").to_arrow()["f"].to_pylist() == [float("-inf")]


def test_a_condition_guards_the_value_behind_it(table: Table) -> None:
    table.update({"n": "case when n = 1 then 0 else 10 / (n - 1) end"})
    assert numbers(table) == {1: 0, 2: 10, 3: 0, 4: 10}


# --- merge -------------------------------------------------------------------------------------

CHANGES = pa.table(
    {
        "id": [1, 2, 3, 8, 9],
        "place": ["a", "a", "b", "c", "c"],
        "n": [10, 10, 10, 10, 10],
        "op": ["u", "d", "x", "u", "d"],
    }
)


def test_the_first_clause_that_holds_decides_of_each_row(table: Table) -> None:
    stats = table.merge(
        CHANGES,
        on=["id"],
        matched=[
            Delete(when="s.op = 'd'"),
            Update({"n": "t.n + s.n", "note": "source.op || target.note"}, when="op = 'u'"),
        ],
        not_matched=[Insert({"n": "n * 2", "note": "'new'"}, when="op <> 'd'")],
        not_matched_by_source=[Update({"note": "'left'"}, when="t.n > 1"), Delete()],
    ).stats
    assert (stats.rows_inserted, stats.rows_updated, stats.rows_deleted) == (1, 2, 1)
    assert content(table) == [
        ("a", 1, 11, "uold"),
        ("a", 4, 2, "left"),
        ("b", 3, 1, "old"),
        ("c", 8, 20, "new"),
    ]
    assert table.inspect.history()[0].operation == "merge"


def test_clauses_without_values_take_the_columns_of_the_source(table: Table) -> None:
    table.merge(CHANGES, matched=[Update()], not_matched=[Insert()])
    assert ("a", 1, 10, "old") in content(table)
    assert ("c", 9, 10, None) in content(table)


def test_rows_that_only_the_table_has_are_reached_in_every_bucket(table: Table) -> None:
    table.merge(CHANGES.slice(0, 1), not_matched_by_source=[Delete()])
    assert numbers(table) == {1: 1}
    table.merge(CHANGES.slice(0, 0), not_matched_by_source=[Update({"n": 5})])
    assert numbers(table) == {1: 5}


@pytest.mark.parametrize("size", ["1 KiB", "64 MiB"])
def test_two_rows_of_one_key_in_the_source_are_refused(kind: str, size: str) -> None:
    """Also where rows were spilled in between."""
    table = create(kind, properties={"write.buffer.size": size, "write.bucket.size": size})
    table.upsert(rows((1, "a", 1)))
    source = [rows(*((i, "a", 2) for i in range(start, start + 50))) for start in (0, 50, 20)]
    with pytest.raises(DuplicateKeyError) as caught:
        table.merge(pa.concat_tables(source), matched=[Update()], not_matched=[Insert()])
    assert caught.value.keys[0].keys() == {"id"}
    assert content(table) == [("a", 1, 1, "old")]


@pytest.mark.parametrize(
    ("clauses", "error"),
    [
        ({}, OptionError),
        ({"matched": [Insert()]}, OptionError),
        ({"not_matched": [Update()]}, OptionError),
        ({"matched": [Update()], "on": ["n"]}, OptionError),
        ({"matched": [Update({"n": "n"})]}, PredicateError),
        ({"matched": [Delete(when="t.n")]}, PredicateError),
        ({"matched": [Update({"id": "t.id"})]}, OptionError),
        ({"not_matched": [Insert({"n": "t.n"})]}, PredicateError),
        ({"not_matched": [Insert({"id": "s.n"})]}, OptionError),
        ({"not_matched_by_source": [Update({"n": "s.n"})]}, PredicateError),
        ({"not_matched_by_source": [Update()]}, OptionError),
    ],
)
def test_clauses_that_cannot_mean_anything_are_refused_before_anything_is_written(
    table: Table, clauses: dict[str, list[object]], error: type[TableError]
) -> None:
    before = table.version
    with pytest.raises(error):
        table.merge(CHANGES, **clauses)  # type: ignore[arg-type]
    assert table.version == before


def test_a_source_without_the_columns_that_place_its_rows_is_refused(table: Table) -> None:
    for missing in ("id", "place"):
        with pytest.raises(SchemaMismatchError, match=missing):
            table.merge(CHANGES.drop_columns([missing]), matched=[Update()])


# --- others at the same time -------------------------------------------------------------------


def begin(table: Table, name: str, **asked: object) -> Writer:
    """Begin an update or a merge that adds 100 to rows 1 and 2, on the base of now."""
    spec = table._handle.cache.refresh().table.spec
    if name == "update":
        order = update_request({"n": "n + 100"}, spec, where="id <= 2", **asked)
        return table._writer(order).__enter__()
    clauses = Clauses((Update({"n": "t.n + s.n"}),), (Insert(),))
    writer = table._writer(merge_request(clauses, None, spec, **asked)).__enter__()
    writer.write(rows((1, "a", 100), (2, "a", 100)))
    return writer


def end(writer: Writer) -> CommitResult:
    writer.__exit__(None, None, None)
    return writer.result


NAMES = pytest.mark.parametrize("name", ["update", "merge"])


@NAMES
def test_other_keys_of_the_bucket_are_rebased_over(table: Table, name: str) -> None:
    """INV-07: the bucket is done again on what they left, without asking."""
    writer = begin(table, name)
    table.upsert(rows((4, "a", 7), (5, "a", 7)))
    table.delete(keys=pa.table({"id": [4], "place": ["a"]}))
    assert end(writer).rebased
    assert numbers(table) == {1: 101, 2: 102, 3: 1, 5: 7}


@NAMES
@pytest.mark.parametrize("policy", ["file_group", "key", "merge"])
def test_the_same_keys_are_for_the_policy_to_judge(kind: str, name: str, policy: str) -> None:
    """INV-07: first committer wins, or the increment is computed anew; never is one lost."""
    table = create(kind, policy=policy)
    table.upsert(rows((1, "a", 1), (2, "a", 1)))
    writer = begin(table, name)
    table.update({"n": "n + 1"}, where="id = 2")
    if policy == "merge":
        end(writer)
        assert numbers(table) == {1: 101, 2: 102}
    else:
        with pytest.raises(RetryableConflictError):
            end(writer)
        assert numbers(table) == {1: 1, 2: 2}
    assert not table.check.verify().problems


@NAMES
def test_a_retry_computes_from_what_the_first_left_and_a_commit_id_is_applied_once(
    table: Table, name: str
) -> None:
    """INV-09."""
    writer = begin(table, name, on_conflict="retry", commit_id="batch")
    table.update({"n": "n * 10"}, where="id in (1, 4)")
    version = end(writer).version
    assert numbers(table) == {1: 110, 2: 102, 3: 1, 4: 20}
    assert end(begin(table, name, commit_id="batch")).version == version
    assert numbers(table) == {1: 110, 2: 102, 3: 1, 4: 20}


@NAMES
def test_who_writes_after_an_update_meets_just_its_keys(table: Table, name: str) -> None:
    """INV-07, the other way round."""
    ours = table.writer("upsert").__enter__()
    ours.write(rows((4, "a", 9)))
    same = table.writer("upsert").__enter__()
    same.write(rows((1, "a", 9)))
    end(begin(table, name))
    assert end(ours).rebased
    with pytest.raises(RetryableConflictError):
        end(same)
    assert numbers(table) == {1: 101, 2: 102, 3: 1, 4: 9}


@NAMES
def test_a_transaction_runs_them_among_others(table: Table, name: str) -> None:
    with table.transaction() as tx:
        tx.upsert(rows((1, "a", 5), (6, "c", 5)))
        if name == "update":
            tx.update({"n": "n + 1"}, where="n = 5")
        else:
            clause = Update({"n": "t.n + s.n"})
            tx.merge(rows((1, "a", 1), (6, "c", 1)), matched=[clause])
        tx.delete(where="n = 1")
        table.upsert(rows((7, "a", 8)))
    assert numbers(table) == {1: 6, 2: 2, 4: 2, 6: 6, 7: 8}
    assert tx.result.rebased


# --- read_from ---------------------------------------------------------------------------------


def test_read_modify_write_in_one_call_loses_no_update(table: Table) -> None:
    """INV-07: whoever wrote the same keys since the read was first."""
    seen = table.scan(where="id = 1")
    row = seen.to_arrow().to_pylist()[0]
    table.upsert(rows((1, "a", 50)))
    grown = rows((1, "a", row["n"] + 1))
    with pytest.raises(RetryableConflictError):
        table.upsert(grown, read_from=seen)
    with pytest.raises(RetryableConflictError):
        table.overwrite(grown, where="place = 'a'", read_from=seen.version)
    with pytest.raises(RetryableConflictError):
        table.delete(keys=grown.select(["id", "place"]), read_from=seen)
    with pytest.raises(RetryableConflictError):
        table.update({"n": row["n"] + 1}, where="id = 1", read_from=seen)
    with pytest.raises(RetryableConflictError):
        table.merge(grown, matched=[Update()], read_from=seen)
    assert numbers(table)[1] == 50
    table.upsert(rows((1, "a", 51)), read_from=table.scan())
    assert table.insert(rows((9, "a", 1)), read_from=seen).version == table.version
    assert numbers(table)[1] == 51
