"""What generated columns promise (RFC 0031)."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pyarrow as pa
import pytest

from plait import (
    BadRecordError,
    ConstraintError,
    Delete,
    Insert,
    OptionError,
    PredicateError,
    SchemaError,
    SchemaMismatchError,
    Table,
    Update,
)
from plait.expr.alter import parse_steps
from plait.kafka.decode import RowCheck
from plait.model.steps import AddColumn, GenerateColumn
from plait.testing import CountingStore, open_wrapped
from plait.timeline.features import GENERATED
from tests.support.forge import decision_at
from tests.support.memory import forget
from tests.support.protocol import beside

_NAMES = itertools.count()
DDL = "id bigint, at timestamp, price int, amount int, day date, total bigint"
RULES = {"day": "day(at)", "total": "price * amount"}
BEGIN = dt.datetime(2026, 1, 30, 20, tzinfo=dt.UTC)


@pytest.fixture
def uri() -> Iterator[str]:
    name = f"memory://generated-columns-{next(_NAMES)}"
    yield name
    forget(name)


def make(uri: str, **how: object) -> Table:
    asked: dict[str, object] = {"record_key": "id", "buckets": 2, "generated": RULES, **how}
    return Table.create(uri, DDL, **asked)  # type: ignore[arg-type]  # of several tests


def again(table: Table) -> Table:
    return Table.open(str(table.describe()["uri"]))


def rows(ids: Sequence[int], price: int | None = 2, hours: int = 12) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "at": pa.array([BEGIN + dt.timedelta(hours=hours * n) for n in ids], _ZONED),
            "price": pa.array([price] * len(ids), pa.int32()),
            "amount": pa.array(ids, pa.int32()),
        }
    )


_ZONED = pa.timestamp("us", "UTC")


def content(table: Table, where: str | None = None) -> dict[int, dict[str, object]]:
    return {row["id"]: row for row in again(table).scan(where=where).to_arrow().to_pylist()}


def require_generated(table: Table) -> None:
    """INV-04: every row has the value that plain Python computes."""
    for row in content(table).values():
        moment, price, amount = row["at"], row["price"], row["amount"]
        assert row["day"] == (moment.date() if isinstance(moment, dt.datetime) else None)
        known = isinstance(price, int) and isinstance(amount, int)
        assert row["total"] == (price * amount if known else None)  # type: ignore[operator]  # of numbers
    assert not table.verify(data=True).problems


def wrong(ids: Sequence[int], **others: object) -> pa.Table:
    """Return rows of which one brings another value."""
    values = [2 * n for n in ids[:-1]] + [77]
    return rows(ids).append_column("total", pa.array(values, pa.int64()))


def _streamed(table: Table, more: pa.Table) -> None:
    with table.stream("app").writer("upsert", after=None, end="1") as writer:
        writer.write(more)


def _in_a_block(table: Table, more: pa.Table) -> None:
    with table.transaction() as block:
        block.upsert(more)


WRITES: dict[str, Callable[[Table, pa.Table], object]] = {
    "append": lambda table, more: table.append(more),
    "insert": lambda table, more: table.insert(more),
    "upsert": lambda table, more: table.upsert(more),
    "upsert of some": lambda table, more: table.upsert(
        more.drop_columns(["amount"]), missing_columns="keep"
    ),
    "overwrite": lambda table, more: table.overwrite(more),
    "overwrite where": lambda table, more: table.overwrite(more, where="id > 1"),
    "merge": lambda table, more: table.merge(more, matched=[Update()], not_matched=[Insert()]),
    "stream": _streamed,
    "block": _in_a_block,
}


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("name", WRITES)
def test_every_operation_computes_what_rows_do_not_bring(uri: str, name: str, kind: str) -> None:
    table = make(uri, table_type=kind)
    table.append(rows([1, 2]))
    WRITES[name](table, rows([3, 4], price=5))
    found = content(table)
    assert found[4]["day"] == dt.date(2026, 2, 1)
    assert found[4]["total"] == (None if name == "upsert of some" else 20)
    require_generated(table)


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("name", [name for name in WRITES if name != "upsert of some"])
def test_no_operation_makes_a_row_with_another_value(uri: str, name: str, kind: str) -> None:
    """INV-03: nothing of the write is visible, and the error says what is wrong."""
    table = make(uri, table_type=kind)
    table.append(rows([1, 2]))
    before = content(table)
    with pytest.raises(ConstraintError) as caught:
        WRITES[name](table, wrong([3, 4, 5]))
    facts = caught.value.facts
    assert (facts["constraint"], facts["column"]) == ("total GENERATED", "total")
    assert (facts["predicate"], facts["rows"]) == ("total = price * amount", 1)
    assert facts["sample"]["total"] == "77"
    assert content(table) == before
    require_generated(table)


def test_values_that_are_the_same_may_come_and_null_counts_as_none(uri: str) -> None:
    table = make(uri)
    given = rows([1, 2, 3]).append_column("total", pa.array([2, None, 6], pa.int64()))
    table.append(given.append_column("day", pa.nulls(3, pa.date32())))
    require_generated(table)
    assert content(table)[2]["total"] == 4


def test_every_wrong_row_in_memory_is_counted(uri: str) -> None:
    table = make(uri)
    with pytest.raises(ConstraintError) as caught:
        table.append(
            pa.concat_tables(
                [
                    rows([1, 2]).append_column("total", pa.array([2, 4])),
                    wrong([3]),
                    wrong([4]),
                    wrong([5]),
                ]
            )
        )
    assert caught.value.facts["rows"] == 3


def test_a_given_zero_with_other_bytes_is_stored_as_it_is_computed(uri: str) -> None:
    table = Table.create(uri, "x double, y double", generated={"y": "x * 0"})
    table.append(pa.table({"x": [-1.0], "y": [0.0]}))
    assert str(table.scan().to_arrow()["y"][0].as_py()) == "-0.0"


# --- updates and merges --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_an_update_of_a_source_computes_the_column_again(uri: str, kind: str) -> None:
    table = make(uri, table_type=kind)
    table.append(rows(range(6)))
    table.update({"price": "price + id", "at": "TIMESTAMP '2027-05-05 23:59:59Z'"}, where="id > 3")
    found = content(table)
    assert (found[5]["total"], found[5]["day"]) == (35, dt.date(2027, 5, 5))
    require_generated(table)
    table.update({"price": "3", "total": "amount * 3"}, where="id = 1")
    with pytest.raises(ConstraintError, match="total GENERATED"):
        table.update({"total": "total + 1"}, where="id = 1")
    require_generated(table)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_merge_and_a_partial_upsert_compute_from_the_new_row(uri: str, kind: str) -> None:
    table = make(uri, table_type=kind)
    table.append(rows(range(6)))
    source = pa.table({"id": [1, 2, 9], "p": pa.array([10, 20, 30], pa.int32())})
    table.merge(
        source,
        matched=[Delete(when="s.id = 2"), Update({"price": "s.p"})],
        not_matched=[Insert({"id": "s.id", "price": "s.p", "amount": "1"})],
        not_matched_by_source=[Update({"amount": "7"}, when="t.id = 5")],
    )
    found = content(table)
    assert [found[n]["total"] for n in (1, 5, 9)] == [10, 14, 30]
    assert 2 not in found
    some = pa.table({"id": [1, 3], "price": pa.array([4, 5], pa.int32())})
    table.upsert(some, missing_columns="keep")
    found = content(table)
    assert [found[n]["total"] for n in (1, 3)] == [4, 15]
    require_generated(table)


def test_an_order_by_a_generated_column_ends_with_an_update_of_its_source(uri: str) -> None:
    table = make(uri, properties={"cluster.by": "total"})
    table.append(rows([3, 1, 2]))
    table.append(rows([6, 5, 4]))
    table.cluster()
    ordered = set(table.files()["order"].to_pylist()) - {-1, 0}
    assert ordered
    table.update({"price": "-price"})
    assert not ordered & set(table.files()["order"].to_pylist())
    require_generated(table)


def test_a_transform_can_be_the_value_of_an_update(uri: str) -> None:
    table = Table.create(uri, "id bigint, at timestamp, day date, shard int", record_key="id")
    table.append(rows([1, 2]).select(["id", "at"]))
    table.update({"day": "day(at)", "shard": "bucket(4, id)"})
    table.alter().generate("day", "day(at)").generate("shard", "bucket(4, id)").commit()
    source = rows([1], hours=50).select(["id", "at"])
    table.merge(source, matched=[Update({"at": "s.at", "day": "day(s.at)"})])
    assert content(table)[1]["day"] == dt.date(2026, 2, 1)
    for text in ("day(nothing)", "day(shard)", "bucket(x, id)", "day(at, id)"):
        with pytest.raises(PredicateError):
            table.update({"day": text})


# --- what is refused when it is made -------------------------------------------------------------


@pytest.mark.parametrize(
    ("generated", "how", "error"),
    [
        ({"nothing": "day(at)"}, {}, SchemaMismatchError),
        ({"day": "day(nothing)"}, {}, PredicateError),
        ({"day": "day(price)"}, {}, SchemaError),
        ({"day": "bucket(0, price)"}, {}, SchemaError),
        ({"day": "hour(at)"}, {}, SchemaError),
        ({"total": "bucket(4, price)"}, {}, SchemaError),
        ({"total": "price +"}, {}, PredicateError),
        ({"total": "random(price)"}, {}, PredicateError),
        ({"total": "price / amount"}, {}, SchemaError),
        ({"total": "length(price)"}, {}, PredicateError),
        ({"total": "length(lower(CAST(price AS string)))"}, {}, SchemaError),
        ({"total": "7"}, {}, SchemaError),
        ({"total": "total + 1"}, {}, SchemaError),
        (
            {"total": "price * 2", "day": "CASE WHEN total > 0 THEN DATE '2026-01-01' END"},
            {},
            SchemaError,
        ),
        ({"price": "amount * 2", "total": "price * 2"}, {}, SchemaError),
        ({"id": "CAST(price AS bigint)"}, {}, SchemaError),
        ({"total": "price * 2"}, {"partition_by": "total"}, OptionError),
        ({"day": "day(at)"}, {"partition_by": "month(day)"}, OptionError),
    ],
)
def test_what_cannot_be_generated_is_refused_before_a_table_is_made(
    uri: str, generated: dict[str, str], how: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        make(uri, generated=generated, **how)
    assert make(uri).version == 0


def test_a_row_whose_value_cannot_be_computed_is_named(uri: str) -> None:
    table = Table.create(uri, "a int, b int, c int", generated={"c": "a + b"})
    most = pa.array([(1 << 31) - 1], pa.int32())
    with pytest.raises(BadRecordError, match="overflow"):
        table.append(pa.table({"a": most, "b": most}))
    assert table.version == 0


def test_a_generated_column_may_be_required(uri: str) -> None:
    ddl = "id bigint, x double, y double not null"
    table = Table.create(uri, ddl, record_key="id", ordering="y", generated={"y": "x * 2"})
    table.upsert(pa.table({"id": [1], "x": [1.0]}))
    for bad in (None, float("nan")):
        with pytest.raises(BadRecordError) as caught:
            table.upsert(pa.table({"id": [1], "x": pa.array([bad], pa.float64())}))
        assert caught.value.facts["column"] == "y"
    table.upsert(pa.table({"id": [1, 2], "x": [0.5, 0.5]}))
    assert content(table)[1] == {"id": 1, "x": 1.0, "y": 2.0}


# --- changes of columns --------------------------------------------------------------------------


def test_the_expression_follows_new_names(uri: str) -> None:
    table = make(uri, partition_by="day")
    table.append(rows([1, 2]))
    change = table.alter().rename("at", "the moment").rename("price", "each").rename("total", "sum")
    change.commit()
    more = rows([3]).rename_columns(["id", "the moment", "each", "amount"])
    table.append(more)
    found = content(table)
    assert (found[3]["sum"], found[3]["day"]) == (6, dt.date(2026, 2, 1))
    assert table.describe()["partition_by"] == ["day(`the moment`)"]
    assert content(table, "day = DATE '2026-02-01'").keys() == {3}
    assert table.scan(version=1, where="day = DATE '2026-01-31'").count() == 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda change: change.drop("price"), "'total' is generated"),
        (lambda change: change.drop("at"), "generated"),
        (lambda change: change.widen("price", "bigint"), "keeps its type"),
        (lambda change: change.default("total", 3), "default"),
        (lambda change: change.generate("total", "total + 1"), "cannot be generated from"),
        (lambda change: change.generate("price", "amount"), "'total' is generated"),
        (lambda change: change.generate("id", "price"), "record key"),
        (lambda change: change.generate("price", None), "not generated"),
        (lambda change: change.generate("no", "price"), "no column"),
        (lambda change: change.add("n", "int", default=1).generate("n", "price"), "default"),
    ],
)
def test_what_a_column_is_generated_from_stays(
    uri: str, change: Callable[..., object], why: str
) -> None:
    table = make(uri)
    table.append(rows([1, 2]))
    with pytest.raises(SchemaError, match=why):
        change(table.alter()).commit()  # type: ignore[attr-defined]  # of an alteration
    require_generated(again(table))
    assert table.version == 1


def test_a_column_of_the_partitions_cannot_become_generated_but_after_a_repush(uri: str) -> None:
    table = make(uri, generated={}, partition_by="day")
    table.append(rows([1]).append_column("day", pa.array([dt.date(2026, 1, 31)])))
    with pytest.raises(SchemaError, match="partition"):
        table.alter().generate("day", "day(at)").commit()
    table.repush(partition_by="day(at)")
    table.alter().generate("day", "day(at)").commit()
    table.upsert(rows([1, 2]).append_column("total", pa.nulls(2, pa.int64())))
    assert {row["day"] for row in content(table).values()} == {dt.date(2026, 1, 31)}


def test_a_source_is_free_again_without_its_column(uri: str) -> None:
    table = make(uri)
    table.alter().drop("total").widen("price", "bigint").generate("day", None).drop("at").commit()
    table.append(pa.table({"id": [1], "price": [1 << 40], "amount": pa.array([1], pa.int32())}))
    assert content(table)[1]["day"] is None
    # An older schema has it, by which older versions are read.
    assert GENERATED in decision_at(table.handle.store, 2).writer_features


def test_only_rows_that_have_the_value_let_a_column_become_generated(uri: str) -> None:
    table = make(uri, generated={})
    table.append(rows([1, 2, 3]))
    change = table.alter().generate("total", "price * amount")
    with pytest.raises(ConstraintError) as caught:
        change.commit()
    assert (caught.value.facts["rows"], caught.value.facts["column"]) == (3, "total,price,amount")
    with pytest.raises(ConstraintError):
        change.plan()
    table.update({"total": "price * amount"}, where="id < 3")
    table.delete(where="id = 3")
    assert change.commit()
    assert change.commit() is None
    with pytest.raises(ConstraintError):
        table.alter().generate("total", "price + amount").commit()
    table.alter().generate("day", "day(at)").generate("day", None).commit()
    table.append(rows([4]))
    assert content(table)[4]["total"] == 8


def test_rows_that_come_while_others_are_looked_at_are_looked_at_too(uri: str) -> None:
    table = make(uri, generated={})
    client = beside(table, "publish", lambda: table.append(rows([1])))
    with pytest.raises(ConstraintError):
        client.alter().generate("total", "price * amount").commit()
    assert not table.scan(where="total is not null").count()


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_writer_that_is_at_work_computes_the_column_in_its_commit(uri: str, kind: str) -> None:
    """INV-07: it stages its rows again."""
    table = make(uri, generated={}, table_type=kind)
    work = ExitStack()
    work.enter_context(again(table).writer("upsert")).write(
        rows([1, 2])
        .append_column("day", pa.nulls(2, pa.date32()))
        .append_column("total", pa.nulls(2, pa.int64()))
    )
    bad = ExitStack()
    other = wrong([3]).append_column("day", pa.nulls(1, pa.date32()))
    bad.enter_context(again(table).writer("upsert")).write(other)
    change = table.alter().generate("total", "price * amount").generate("day", "day(at)")
    change.add("half", "int").generate("half", "CAST(price / 2 AS int)").commit()
    work.close()
    with pytest.raises(ConstraintError):
        bad.close()
    assert {row["half"] for row in content(table).values()} == {1}
    require_generated(table)


def test_a_restore_brings_back_what_was_generated_then(uri: str) -> None:
    table = make(uri)
    table.append(rows([1]))
    table.alter().generate("total", None).commit()
    table.append(wrong([2, 3]))
    with pytest.raises(ConstraintError):
        table.alter().generate("total", "price * amount").commit()
    table.restore(version=1)
    table.append(rows([4]))
    require_generated(table)
    assert content(table).keys() == {1, 4}
    with pytest.raises(ConstraintError):
        table.append(wrong([5]))


# --- partitions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize(
    ("where", "partitions"),
    [
        ("at >= TIMESTAMP '2026-02-02 00:00:00Z'", 1),
        ("at = TIMESTAMP '2026-01-30 20:00:00Z'", 1),
        ("at < TIMESTAMP '2026-02-01 00:00:00Z'", 2),
        ("day = DATE '2026-01-31'", 1),
        ("day > DATE '2026-01-31' AND price = 2", 2),
        ("day IN (DATE '2026-01-31', DATE '2030-01-01')", 1),
        ("day IS NULL", 0),
        ("price = 2", 4),
    ],
)
def test_predicates_on_the_source_and_on_the_column_skip_partitions(
    uri: str, kind: str, where: str, partitions: int
) -> None:
    """INV-04: nothing that matches is skipped, and nothing else is opened."""
    table = make(uri, partition_by="day", buckets=1, table_type=kind)
    table.append(rows(range(6)))
    plain = make(f"{uri}-plain", buckets=1)
    plain.append(rows(range(6)))
    stranger, store = open_wrapped(uri, CountingStore)
    store.reset()
    scan = stranger.scan(where=where)
    scan.to_arrow()
    opened = {call.path for call in store.calls if call.operation == "open_input"}
    assert len([path for path in opened if path.endswith(".parquet")]) == partitions
    assert scan.plan.pruned_by_partition == 4 - partitions
    assert content(table, where) == content(plain, where)
    forget(f"{uri}-plain")


def test_a_predicate_on_the_column_is_decided_without_a_file(uri: str) -> None:
    """What the partition says of a column needs no bounds and no row."""
    table = make(uri, partition_by="day", buckets=1, properties={"metadata.statistics": "off"})
    table.append(rows(range(6)))
    plan = again(table).scan(where="day = DATE '2026-01-31'").plan
    assert (plan.files.num_rows, plan.condition) == (1, None)
    assert again(table).scan(where="day = DATE '2026-01-31'").count() == 2


def test_a_bucket_as_a_column_divides_the_table_and_is_found_by_its_source(uri: str) -> None:
    ddl = "id bigint, user string, shard int"
    table = Table.create(
        uri, ddl, record_key="id", partition_by="SHARD", generated={"shard": "bucket(8, user)"}
    )
    users = [f"user {n}" for n in range(40)]
    table.append(pa.table({"id": range(40), "user": users}))
    assert table.describe()["partition_by"] == ["bucket(8, user)"]
    plan = table.scan(where="user = 'user 7'").plan
    assert plan.files.num_rows == 1
    (row,) = table.scan(where="user = 'user 7'").to_arrow().to_pylist()
    assert table.scan(where=f"shard = {row['shard']}").plan.files.num_rows == 1
    assert table.scan(where=f"shard = {row['shard']}").count() == sum(
        each["shard"] == row["shard"] for each in content(table).values()
    )


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_rows_keep_their_place_in_a_table_that_a_generated_column_divides(
    uri: str, kind: str
) -> None:
    """INV-08: no update moves a row out of the partition in which others look for it."""
    table = make(uri, partition_by=["day"], table_type=kind)
    table.append(rows(range(6)))
    with pytest.raises(OptionError, match="part of the partition"):
        table.update({"at": "TIMESTAMP '2030-01-01 00:00:00Z'"})
    table.upsert(rows([1, 2], price=9))
    some = rows([3], price=8).select(["id", "at", "price"])
    table.upsert(some, missing_columns="keep")
    keys = rows([0, 1]).select(["id", "at"])
    table.delete(keys=keys)
    table.overwrite(rows([4, 5], price=1), partitions="dynamic")
    table.overwrite(rows([3], price=1), where="day = DATE '2026-02-01'")
    with pytest.raises(BadRecordError, match="predicate of the overwrite"):
        table.overwrite(rows([0]), where="day = DATE '2026-02-01'")
    assert content(table).keys() == {2, 3, 5}
    require_generated(table)


def test_keys_that_name_the_column_alone_are_refused(uri: str) -> None:
    """They would be removed in every partition, and seem to say in which."""
    table = make(uri, partition_by="day")
    twice = rows([0, 0]).set_column(1, "at", rows([0, 5])["at"])
    table.append(twice)
    keys = pa.table({"id": [0], "day": [dt.date(2026, 1, 30)]})
    with pytest.raises(SchemaMismatchError, match="lack at"):
        table.delete(keys=keys)
    assert table.scan().count() == 2
    table.delete(keys=twice.slice(0, 1).select(["id", "at"]))
    assert table.scan().count() == 1
    table.delete(keys=keys.select(["id"]))
    assert table.scan().count() == 0


def test_rows_from_before_are_found_among_the_changes(uri: str) -> None:
    """INV-04: a change read shows what was there before the column was generated."""
    table = make(uri, generated={}, partition_by="day(at)", buckets=1)
    table.append(rows([1, 2]))
    table.update({"day": "day(at)"})
    table.alter().generate("day", "day(at)").commit()
    table.append(rows([3]))
    changes = table.changes(since=0, where="day IS NULL").to_arrow()
    assert sorted(changes["_change_type"].to_pylist()) == ["insert"] * 2 + ["update_preimage"] * 2
    assert table.scan(where="day IS NULL").plan.files.num_rows == 0
    assert table.scan(version=1, where="day IS NULL").count() == 2


def test_a_time_to_live_by_the_column_removes_whole_partitions(uri: str) -> None:
    table = make(uri, partition_by="day", ttl="day 30d partition", table_type="mor")
    table.append(rows([0, 2], hours=-24 * 365))
    table.append(rows([5], hours=24 * 36_500))
    assert table.expire().files_removed == 2
    assert content(table).keys() == {5}


# --- repush, compare, features, text -------------------------------------------------------------


def test_a_repush_may_divide_by_the_column(uri: str) -> None:
    table = make(uri)
    table.append(rows(range(6)))
    with pytest.raises(OptionError, match="generated as SQL"):
        table.repush(partition_by="total")
    table.repush(partition_by="day", buckets=1)
    assert table.describe()["partition_by"] == ["day(at)"]
    table.upsert(rows([1, 7]))
    assert table.scan(where="day = DATE '2026-01-31'").plan.pruned_by_partition > 0
    require_generated(table)


def test_a_repush_from_another_table_computes_the_column(uri: str) -> None:
    table = make(uri)
    table.append(rows([1]))
    other = Table.create(
        f"{uri}-source", "id bigint, at timestamp, price int, amount int", record_key="id"
    )
    other.append(rows([1, 2, 3], price=4))
    table.repush(source=f"{uri}-source")
    assert content(table)[3]["total"] == 12
    require_generated(table)
    forget(f"{uri}-source")


def test_older_writers_refuse_the_table_and_older_readers_read_it(uri: str) -> None:
    table = make(uri)
    table.append(rows([1]))
    decision = decision_at(table.handle.store, 1)
    assert GENERATED in decision.writer_features
    assert GENERATED not in decision.features
    plain = Table.create(f"{uri}-plain", DDL)
    assert GENERATED not in decision_at(plain.handle.store, 0).writer_features
    forget(f"{uri}-plain")


def test_sinks_get_the_computed_values_and_none_gets_a_wrong_one(uri: str) -> None:
    """RFC 0022: a sink has what the table has, before the table has it."""
    sink = Table.create(f"{uri}-sink", DDL, record_key="id")
    table = make(uri, replicas=[f"near={uri}-sink"])
    table.upsert(rows([1, 2]))
    with pytest.raises(ConstraintError):
        table.upsert(wrong([3, 4]))
    assert content(sink) == content(table)
    assert content(sink).keys() == {1, 2}
    require_generated(sink)
    forget(f"{uri}-sink")


def test_the_kafka_sink_asks_no_record_for_a_generated_value(uri: str) -> None:
    """Records without it would be dead letters."""
    ddl = "id bigint not null, v bigint not null, y bigint not null"
    table = Table.create(uri, ddl, record_key="id", generated={"y": "v * 2"})
    check = RowCheck.of(table.handle.cache.known().table.spec)
    kinds = pa.schema([(field.name, field.type) for field in table.schema])
    records = pa.Table.from_pylist([{"id": 1, "v": 2, "y": None}, {"id": 2, "v": None}], kinds)
    assert [each.at for each in check.refused(records)] == [1]
    table.append(records.slice(0, 1))
    assert content(table)[1]["y"] == 4


def test_rows_may_bring_further_columns_beside(uri: str) -> None:
    table = make(uri)
    table.upsert(rows([1]).append_column("note", pa.array(["x"])), evolve="add")
    assert content(table)[1]["note"] == "x"
    require_generated(table)


def test_sql_says_what_is_generated() -> None:
    added = parse_steps("ADD COLUMN `the day` date GENERATED ALWAYS AS (day(at))")
    assert [type(each) for each in added] == [AddColumn, GenerateColumn]
    assert added[1] == GenerateColumn("`the day`", "day(at)")
    assert parse_steps("alter column d set expression as ((a + b) * 2)") == (
        GenerateColumn("d", "(a + b) * 2"),
    )
    assert parse_steps("ALTER COLUMN d DROP EXPRESSION") == (GenerateColumn("d", None),)


def test_sql_makes_a_generated_column(uri: str) -> None:
    table = make(uri, generated={})
    table.alter().sql("ADD COLUMN `the day` date GENERATED ALWAYS AS (day(at))").commit()
    table.append(rows([1]))
    assert content(table)[1]["the day"] == dt.date(2026, 1, 31)
