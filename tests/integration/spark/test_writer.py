"""``Table.writer()`` takes Spark DataFrames: staged by the executors, published by the driver."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plait import (
    BadRecordError,
    CapabilityMissingError,
    DuplicateKeyError,
    OptionError,
    RetryableConflictError,
    SchemaMismatchError,
    Table,
)
from plait.spark.exchange import SETTING
from tests.integration.spark.tables import (
    DDL,
    arrow_rows,
    assert_sound,
    assert_sound_in_the_end,
    frame,
    make,
    revisions,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


WAYS_AND_KINDS = [
    ("auto", "cow", False),
    ("auto", "mor", True),
    ("shuffle", "cow", True),
    ("shuffle", "mor", False),
]
"""How rows come to their tasks, and table types with and without partitions: every pair of them."""
PAIRS = pytest.mark.parametrize(
    ("exchange", "kind", "partitioned"), WAYS_AND_KINDS, indirect=["exchange"]
)


@pytest.fixture(params=["auto", "shuffle"])
def exchange(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """Bring rows to their tasks in each of both ways; the other suites leave it to the session."""
    spark.conf.set(SETTING, request.param)
    yield request.param
    spark.conf.unset(SETTING)


@pytest.mark.long(2)
@PAIRS
@pytest.mark.usefixtures("exchange")
def test_every_operation_gives_what_a_dict_gives(
    spark: SparkSession, tmp_path: Path, kind: str, *, partitioned: bool
) -> None:
    """INV-08: eight tasks each meet every bucket, and each operation is right."""
    table = make(tmp_path / "t", kind, partitioned=partitioned)
    model = dict.fromkeys(range(90), 1)
    table.append(frame(spark, 0, 90, 1))
    result = table.upsert(frame(spark, 60, 120, 2))
    model |= dict.fromkeys(range(60, 120), 2)
    assert revisions(table) == model
    assert (result.stats.rows_inserted, result.stats.rows_updated) == (30, 30)
    table.insert(frame(spark, 110, 130, 3), on_duplicate="skip")
    model |= dict.fromkeys(range(120, 130), 3)
    assert revisions(table) == model
    table.delete(keys=frame(spark, 0, 20, 0).select("id"))
    model = {key: value for key, value in model.items() if key >= 20}
    assert revisions(table) == model
    assert_sound(table)


@PAIRS
@pytest.mark.usefixtures("exchange")
def test_every_overwrite_replaces_what_it_names(
    spark: SparkSession, tmp_path: Path, kind: str, *, partitioned: bool
) -> None:
    """Buckets that no row came for are replaced too."""
    table = make(tmp_path / "t", kind, partitioned=partitioned)
    table.append(arrow_rows(0, 60, 1))
    table.overwrite(frame(spark, 0, 6, 4), where="id < 30")
    model = dict.fromkeys(range(6), 4) | dict.fromkeys(range(30, 60), 1)
    assert revisions(table) == model
    if partitioned:
        table.overwrite(
            frame(spark, 0, 60, 5).where("part = 'p1' and id < 4"), partitions="dynamic"
        )
        model = {key: value for key, value in model.items() if key % 3 != 1} | {1: 5}
        assert revisions(table) == model
        nothing = frame(spark, 0, 9, 3).where("id > 100")
        table.overwrite(nothing, partitions="dynamic")
        assert revisions(table) == model
    result = table.overwrite(frame(spark, 7, 8, 6))
    assert revisions(table) == {7: 6}
    assert result.stats.rows_deleted == len(model)
    table.overwrite(frame(spark, 0, 0, 7))
    assert revisions(table) == {}
    assert_sound(table)


def test_rows_without_a_key_are_appended_and_overwritten(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = make(tmp_path / "t", keyed=False, partitioned=True)
    table.append(frame(spark, 0, 30, 1))
    table.append(frame(spark, 0, 30, 1))
    assert table.scan().count() == 60
    table.overwrite(frame(spark, 0, 3, 2).where("part = 'p0'"), partitions="dynamic")
    table.overwrite(frame(spark, 1, 2, 3), where="part = 'p1' and id < 15")
    rows = table.scan().to_arrow().to_pylist()
    assert sorted(r["rev"] for r in rows if r["part"] == "p0") == [2]
    assert sorted(r["id"] for r in rows if r["part"] == "p1") == [1, *[16, 19, 22, 25, 28] * 2] or (
        sorted(r["id"] for r in rows if r["part"] == "p1") == sorted([1, *[16, 19, 22, 25, 28] * 2])
    )
    assert len([r for r in rows if r["part"] == "p2"]) == 20
    table.overwrite(frame(spark, 0, 5, 4))
    assert table.scan().count() == 5
    assert_sound(table)


def test_no_row_passes_through_the_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: str
) -> None:
    """Every way in which rows reach a driver is closed, but for the reports of tasks."""
    table = make(tmp_path / "t")
    rows = frame(spark, 0, 20_000, 1)
    kind = type(rows)
    original = kind.collect
    sizes: list[int] = []

    def closed(self: DataFrame, *args: object, **kwargs: object) -> None:
        pytest.fail("rows were asked for by the driver")

    def counted(self: DataFrame) -> list[object]:
        first = ["task", "attempt", "rows", "digest", "label"]
        assert self.columns == [*first, "status", "ledger", "error"]
        found = original(self)
        sizes.append(sum(len(row["status"]) for row in found))
        return found

    ways = ("toArrow", "toPandas", "toLocalIterator", "take", "head", "first", "tail", "show")
    for name in (*ways, "__arrow_c_stream__", "localCheckpoint", "foreachPartition"):
        monkeypatch.setattr(kind, name, closed)
    monkeypatch.setattr(kind, "collect", counted)
    table.append(rows)
    table.upsert(frame(spark, 10_000, 30_000, 2))
    table.overwrite(frame(spark, 0, 20_000, 3), where="id < 20000")
    monkeypatch.undo()
    assert table.scan().count() == 30_000
    jobs = 2 if exchange == "auto" else 1
    assert len(sizes) == 3 * jobs, "no job beside those that divide and stage"
    assert max(sizes) < 40_000, "reports name files; 20,000 rows are more than that"


def test_data_for_several_frames_comes_in_one_commit(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    with table.writer("insert") as writer:
        writer.write(frame(spark, 0, 10, 1))
        writer.write(frame(spark, 10, 20, 1).select("rev", "id"))
    assert writer.result.version == 1
    found = table.scan(where="id in (3, 13)").to_arrow().sort_by("id").to_pylist()
    assert found[0] == {"id": 3, "part": "p0", "rev": 1, "name": "name 3"}
    assert found[1] == {"id": 13, "part": None, "rev": 1, "name": None}


def test_frames_whose_types_differ_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    writer = table.writer("insert")
    with pytest.raises(SchemaMismatchError) as caught, writer:  # noqa: PT012 - raised at its end
        writer.write(frame(spark, 0, 10, 1))
        writer.write(frame(spark, 10, 20, 1).selectExpr("id", "int(rev) rev"))
    assert caught.value.column == "rev"
    assert table.version == 0 or revisions(table) == {}


@pytest.mark.parametrize(
    ("select", "column"),
    [
        ("id, name AS nombre", "nombre"),
        ("name", "id"),
        ("id, cast(rev as string) rev", "rev"),
        ("id, interval 1 month rev", "rev"),
    ],
)
def test_columns_that_do_not_fit_are_refused_before_any_job(
    spark: SparkSession, tmp_path: Path, select: str, column: str
) -> None:
    table = make(tmp_path / "t")
    rows = frame(spark, 0, 10, 1).selectExpr(*select.split(", "))
    with pytest.raises(SchemaMismatchError) as caught:
        table.append(rows)
    assert caught.value.column == column
    assert_sound(table)


@pytest.mark.parametrize(
    ("select", "column", "value"),
    [
        (["if(id = 7, null, id) id"], "id", "null"),
        (["id", "if(id = 7, 9223372036854775808bd, 1bd) rev"], "rev", "9223372036854775808"),
    ],
)
def test_values_that_do_not_fit_are_told_with_a_sample(
    spark: SparkSession, tmp_path: Path, select: list[str], column: str, value: str
) -> None:
    """Executors find them; the facts reach the caller."""
    table = make(tmp_path / "t", partitioned=True)
    rows = frame(spark, 0, 10, 1).selectExpr(*select, "part")
    with pytest.raises(BadRecordError) as caught:
        table.append(rows)
    assert caught.value.column == column
    assert caught.value.sample[column] == value
    assert revisions(table) == {}
    assert_sound(table)
    assert not list((tmp_path / "t").glob("p*/*")), "what other tasks wrote is gone"


def test_insert_of_present_keys_is_refused_with_the_keys(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = make(tmp_path / "t", buckets=1)
    table.insert(arrow_rows(0, 10, 1))
    with pytest.raises(DuplicateKeyError) as caught:
        table.insert(frame(spark, 9, 20, 2))
    assert caught.value.keys == [{"id": 9}]
    assert revisions(table) == dict.fromkeys(range(10), 1)
    assert_sound(table)


def test_rows_of_one_key_leave_the_greatest_in_order(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t", ordering="rev")
    rows = spark.range(0, 80, 1, 8).selectExpr("id % 10 id", "'p' part", "id div 10 rev", "'' name")
    table.upsert(rows)
    assert revisions(table) == dict.fromkeys(range(10), 7)
    table.upsert(frame(spark, 0, 10, 3))
    assert revisions(table) == dict.fromkeys(range(10), 7), "an older revision changes nothing"


def test_a_commit_id_is_applied_once(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    first = table.upsert(frame(spark, 0, 10, 1), commit_id="batch-1")
    again = table.upsert(frame(spark, 0, 20, 2), commit_id="batch-1")
    assert again.version == first.version
    assert revisions(table) == dict.fromkeys(range(10), 1)


@PAIRS
@pytest.mark.usefixtures("exchange")
def test_buckets_are_redone_when_others_were_first(
    spark: SparkSession, tmp_path: Path, kind: str, *, partitioned: bool
) -> None:
    """INV-07: what is published rests on what others committed meanwhile."""
    table = make(tmp_path / "t", kind, partitioned=partitioned)
    table.append(arrow_rows(0, 30, 1))
    with table.writer("upsert", on_conflict="retry") as writer:
        writer.write(frame(spark, 0, 15, 2))
        Table.open(str(tmp_path / "t")).upsert(arrow_rows(10, 40, 3, step=2))
    model = dict.fromkeys(range(30), 1) | dict.fromkeys(range(10, 40, 2), 3)
    assert revisions(table) == model | dict.fromkeys(range(15), 2)
    assert writer.result.rebased > 0
    assert_sound(table)


def test_an_overwrite_is_redone_on_what_others_wrote(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.append(arrow_rows(0, 3, 1))
    with table.writer("overwrite", on_conflict="retry") as writer:
        writer.write(frame(spark, 100, 101, 2))
        Table.open(str(tmp_path / "t")).append(arrow_rows(50, 90, 3))
    assert revisions(table) == {100: 2}
    assert_sound(table)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_an_overwrite_by_a_predicate_and_writers_of_other_keys_both_commit(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """INV-07: the tasks name the keys of the rows that they take out, those of no row's too."""
    table = make(tmp_path / "t", kind)
    table.append(arrow_rows(0, 60, 1))
    with table.writer("overwrite", where="id < 5") as writer:
        writer.write(frame(spark, 0, 2, 4))
        Table.open(str(tmp_path / "t")).upsert(arrow_rows(40, 60, 3))
    assert revisions(table) == (
        {0: 4, 1: 4} | dict.fromkeys(range(5, 40), 1) | dict.fromkeys(range(40, 60), 3)
    )
    assert_sound(table)


def moved(batches):
    import secrets

    import pyarrow as pa

    for batch in batches:
        ids = [secrets.randbelow(1 << 50) for _ in range(batch.num_rows)]
        yield pa.record_batch({"id": ids, "rev": [2] * len(ids)})


def test_a_query_that_gives_other_rows_is_redone_from_files_or_not_at_all(
    spark: SparkSession, tmp_path: Path, exchange: str
) -> None:
    """Half of one evaluation and half of another would lose rows."""
    table = make(tmp_path / "t")
    table.append(arrow_rows(0, 30, 1))
    moving = spark.range(0, 40, 1, 4).mapInArrow(moved, "id bigint, rev bigint")
    writer = table.writer("upsert", on_conflict="retry", missing_columns="keep")
    refused = pytest.raises(RetryableConflictError) if exchange == "shuffle" else nullcontext()
    with refused as caught, writer:
        writer.write(moving)
        Table.open(str(tmp_path / "t")).upsert(arrow_rows(0, 30, 3))
    found = revisions(table)
    assert {key: found[key] for key in range(30)} == dict.fromkeys(range(30), 3)
    if caught is None:
        assert len(found) == 30 + 40, "one evaluation, whole"
        assert writer.result.rebased > 0
    else:
        assert caught.value.rows_before is not None
        assert len(found) == 30
    assert_sound(table)


def fails_once(marker: str) -> Callable[[object], object]:
    """Give an Arrow function whose first attempt fails after it has given some rows."""

    def give(batches):
        import os

        from pyspark import TaskContext

        for number, batch in enumerate(batches):
            name = f"{marker}-{TaskContext.get().partitionId()}"
            if number and not os.path.exists(name):
                with open(name, "w"):
                    pass
                message = "the first attempt fails"
                raise RuntimeError(message)
            yield batch

    return give


@pytest.mark.usefixtures("exchange")
@pytest.mark.parametrize(
    ("exchange", "keyed"),
    [("auto", True), ("shuffle", True), ("auto", False)],  # rows without a key go no way
    indirect=["exchange"],
)
def test_a_task_that_is_tried_again_leaves_its_rows_once(
    spark: SparkSession, tmp_path: Path, *, keyed: bool
) -> None:
    """What the attempt that failed has written is named by nobody, and condemned."""
    table = make(tmp_path / "t", keyed=keyed)
    table.alter.set({"write.buffer.size": "64KiB", "write.bucket.size": "16KiB"})
    rows = frame(spark, 0, 30_000, 1, tasks=2)
    shaky = rows.mapInArrow(fails_once(str(tmp_path / "failed")), rows.schema)
    table.append(shaky)
    assert len(list(tmp_path.glob("failed-*"))) == 2
    assert table.scan().count() == 30_000
    assert sorted(table.scan(["id"]).to_arrow()["id"].to_pylist()) == list(range(30_000))
    report = table.check.verify()
    assert report.problems == ()
    assert not report.notes, report.to_dict()


def test_a_job_that_fails_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t", partitioned=True)
    rows = frame(spark, 0, 100, 1).selectExpr(
        "id", "part", "if(id = 99, raise_error('no such row'), rev) rev", "name"
    )
    with pytest.raises(Exception, match="no such row"):
        table.append(rows)
    assert revisions(table) == {}
    assert_sound_in_the_end(table, 0)


def test_a_table_in_this_process_is_refused(spark: SparkSession) -> None:
    table = Table.create(f"memory://spark-{os.getpid()}", DDL, record_key=["id"])
    with pytest.raises(CapabilityMissingError):
        table.append(frame(spark, 0, 3, 1))
    with pytest.raises(CapabilityMissingError):
        table.scan().to_spark(spark)


def test_arrow_data_and_frames_do_not_mix_in_one_writer(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = make(tmp_path / "t")
    rows = frame(spark, 0, 3, 1)
    with table.writer("insert") as writer:
        writer.write(rows)
        with pytest.raises(OptionError):
            writer.write(rows.toArrow())
    assert len(revisions(table)) == 3


def test_frames_are_not_removed_from_an_upsert_with_a_remedy(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Rows of a frame have no order, so nothing would say which of them a removal concerns."""
    table = make(tmp_path / "t")
    with (
        pytest.raises(OptionError, match="the engine spark does not take removals") as caught,
        table.writer("upsert") as writer,
    ):
        writer.remove(frame(spark, 0, 3, 1))
    assert "Delete" in caught.value.hint
    assert_sound(table)
