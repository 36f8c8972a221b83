"""Staging: durable, announced, redone bucket by bucket, and without a trace when it is closed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from plait.arrow.engine import ArrowEngine
from plait.arrow.task import Task
from plait.errors import OptionError, StorageError
from plait.files.data_file import parse_path
from plait.model.bucket import BucketId, partition_parse, partition_path
from plait.model.changes import Changes, WriteStatus
from plait.model.schema import Schema
from plait.storage.local import LocalStore
from tests.support.livetable import LiveTable

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("v", pa.string())])
_NUMBERS = itertools.count()
TYPES = pytest.mark.parametrize("table_type", ["cow", "mor"])


def table_of(table_type: str, **definition: object) -> LiveTable:
    definition.setdefault("key", ["id"])
    uri = f"memory://staging-{next(_NUMBERS)}"
    return LiveTable(uri, SCHEMA, table_type=table_type, **definition)  # type: ignore[arg-type]


def rows(ids: Iterable[int], v: str = "x", day: str = "mon") -> pa.Table:
    ids = list(ids)
    return pa.table([ids, [day] * len(ids), [v] * len(ids)], schema=SCHEMA)


def values(table: LiveTable) -> dict[object, object]:
    found = [(row["id"], row["v"]) for row in table.rows()]
    assert len(dict(found)) == len(found), "INV-08"
    return dict(sorted(found))  # type: ignore[type-var]


def touched(changes: Changes) -> frozenset[BucketId]:
    pairs = zip(changes.touched["partition"], changes.touched["bucket"], strict=True)
    return frozenset((partition_parse(p.as_py()), b.as_py()) for p, b in pairs)


def paths(status: WriteStatus) -> set[str]:
    changes = status.changes
    named = (changes.added["path"], changes.masked["dv_path"], changes.touched["key_path"])
    return {path for column in named for path in column.to_pylist() if path is not None}


@TYPES
def test_a_redone_bucket_stands_on_what_others_committed_meanwhile(table_type: str) -> None:
    table = table_of(table_type, buckets=4)
    table.write("upsert", rows(range(100)))
    base = table.snapshot()
    ours = table.staging("upsert")
    ours.write(rows(range(50, 120), "ours"))
    first = ours.stage(base, None)
    table.version += 1  # an instant of their own
    theirs = table.write("upsert", rows([1, 2, 3], "theirs"))
    again = ours.stage(table.snapshot(), touched(theirs.changes))
    assert touched(again.changes) == touched(first.changes)
    table.apply(again.changes)
    found = values(table)
    assert {i for i, v in found.items() if v == "theirs"} == {1, 2, 3}
    assert {i for i, v in found.items() if v == "ours"} == set(range(50, 120))
    assert len(found) == 120
    useless = set(again.changes.garbage["path"].to_pylist())
    assert paths(first) - paths(again) <= useless
    assert not useless & paths(again)
    ours.close()


@TYPES
@pytest.mark.parametrize(
    ("operation", "data", "where", "left"),
    [
        ("delete", [5, 1], None, {2, 3, 4}),
        ("delete", None, "id in (1, 5)", {2, 3, 4}),
        ("overwrite", [1], "id <= 2", {1, 3, 4, 5}),
        ("overwrite", [9], None, {9}),
    ],
)
def test_every_operation_can_be_redone(
    table_type: str, operation: str, data: list[int] | None, where: str | None, left: set[int]
) -> None:
    table = table_of(table_type, buckets=1)
    table.write("upsert", rows([1, 2, 3]))
    ours = table.staging(operation, where=where)
    if data is not None:
        ours.write(rows(data))
    ours.stage(table.snapshot(), None)
    table.version += 1
    theirs = table.write("upsert", rows([4, 5], "theirs"))
    again = ours.stage(table.snapshot(), touched(theirs.changes))
    table.apply(again.changes)
    assert set(values(table)) == left
    ours.close()


def test_a_base_is_written_anew_as_a_log_when_others_gave_the_bucket_one() -> None:
    table = table_of("mor", buckets=1)
    ours = table.staging("upsert")
    ours.write(rows([1, 2], "ours"))
    first = ours.stage(table.snapshot(), None)
    assert first.changes.added["kind"].to_pylist() == ["base"]
    table.version += 1
    theirs = table.write("upsert", rows([2, 3], "theirs"))
    again = ours.stage(table.snapshot(), touched(theirs.changes))
    table.apply(again.changes)
    assert sorted(table.files["kind"].to_pylist()) == ["base", "log"]
    assert values(table) == {1: "ours", 2: "ours", 3: "theirs"}
    assert first.changes.added["path"].to_pylist() == again.changes.garbage["path"].to_pylist()
    ours.close()


@TYPES
def test_redoing_keeps_rows_that_were_spilled_or_flushed(table_type: str) -> None:
    options = {"write.buffer.size": "8KiB", "write.bucket.size": "2KiB"}
    table = table_of(table_type, buckets=2, options=options)
    ours = table.staging("upsert")
    for start in range(0, 2000, 100):
        ours.write(rows(range(start, start + 150), f"v{start}"))
    status = ours.stage(table.snapshot(), None)
    assert status.stats.flushes > 10
    for _ in range(3):
        status = ours.stage(table.snapshot(), touched(status.changes))
    table.apply(status.changes)
    found = values(table)
    assert set(found) == set(range(2050))
    assert found[149] == "v100"
    ours.close()


@TYPES
@pytest.mark.parametrize("key", [("id",), ()])
def test_everything_named_is_durable_when_staging_returns(
    tmp_path: Path, table_type: str, key: tuple[str, ...]
) -> None:
    class Watching(LocalStore):
        kept: set[str]

        def persist(self, paths: Iterable[str]) -> None:
            named = set(paths)
            assert not named & self.kept
            self.kept |= named
            super().persist(named)

    store = Watching(str(tmp_path))
    store.kept = set()
    table = table_of(table_type, key=key, partition_by=["day"], store=store, buckets=1)
    add = "upsert" if key else "append"
    for operation, data, where in [
        (add, rows(range(3000)), None),
        (add, rows(range(1000, 2000), "y"), None),
        ("delete", None, "id < 1500"),
    ]:
        staging = table.staging(operation, where=where)
        if data is not None:
            staging.write(data)
        status = staging.stage(table.snapshot(), None)
        assert paths(status) <= store.kept
        status = staging.stage(table.snapshot(), touched(status.changes))
        assert paths(status) <= store.kept
        staging.close()
        table.apply(status.changes)


@TYPES
@pytest.mark.parametrize("key", [("id",), ()])
def test_a_partition_is_announced_before_a_file_appears_in_it(
    tmp_path: Path, table_type: str, key: tuple[str, ...]
) -> None:
    options = {"write.buffer.size": "4KiB", "write.bucket.size": "1KiB"}
    store = LocalStore(str(tmp_path))
    table = table_of(table_type, key=key, partition_by=["day"], store=store, options=options)
    asked: list[object] = []

    def announce(partitions: Iterable[tuple[str | None, ...]]) -> None:
        for partition in partitions:
            assert partition not in asked
            asked.append(partition)
            place = tmp_path / partition_path(partition)
            assert not place.exists() or not any(place.iterdir())

    staging = ArrowEngine(store=store).staging(table.plan("upsert" if key else "append"), announce)
    for number in range(40):
        staging.write(rows(range(100), day=f"day {number % 7}"))
    status = staging.stage(table.snapshot(), None)
    staging.close()
    written = {partition_parse(text) for text in status.changes.added["partition"].to_pylist()}
    assert written <= set(asked)
    assert len(written) == 7


def test_tasks_of_one_instant_never_share_a_name() -> None:
    table = table_of("mor", buckets=1)
    statuses = []
    for label in ("0-17", "1-18"):
        staging = table.staging("upsert", task=Task(label))
        staging.write(rows([1, 2] if label == "0-17" else [3, 4]))
        status = staging.stage(table.snapshot(), None)
        statuses.append(WriteStatus.from_bytes(status.to_bytes()))
        staging.close()
    together = WriteStatus.concat(statuses)
    table.apply(together.changes)
    assert set(values(table)) == {1, 2, 3, 4}
    names = [parse_path(path) for path in together.changes.added["path"].to_pylist()]
    assert {name.attempt for name in names if name} == {"0-17-0000", "1-18-0000"}


def test_a_task_overwrites_partitions_that_it_is_told_of() -> None:
    table = table_of("cow", partition_by=["day"])
    table.write("upsert", rows([1], day="mon"), rows([2], day="tue"), rows([3], day="wed"))
    task = Task("driver", partitions=(("mon",), ("tue",)))
    staging = table.staging("overwrite", overwrite="partitions", task=task)
    status = staging.stage(table.snapshot(), None)
    staging.close()
    table.apply(status.changes)
    assert set(values(table)) == {3}


@TYPES
def test_nothing_local_is_left_when_a_writer_is_closed(tmp_path: Path, table_type: str) -> None:
    options = {"write.buffer.size": "4KiB", "write.bucket.size": "1KiB"}
    table = table_of(table_type, options=options)
    engine = ArrowEngine(store=table.store, spill_directory=str(tmp_path))
    staging = engine.staging(table.plan("upsert"), lambda partitions: None)
    for number in range(30):
        staging.write(rows(range(number, number + 100)))
    if table_type == "mor":
        staging.stage(table.snapshot(), None)
    staging.close()
    staging.close()
    assert list(tmp_path.iterdir()) == []


def test_a_failing_store_is_reported_to_the_writer() -> None:
    class Broken(LocalStore):
        def filesystem(self) -> object:
            message = "no space left"
            raise StorageError(message, path="data")

    table = table_of("mor", store=Broken("/nonexistent"), buckets=1)
    staging = table.staging("upsert")
    staging.write(rows([1]))
    with pytest.raises(StorageError):
        staging.stage(table.snapshot(), None)
    staging.close()


def test_rows_of_a_merge_on_read_past_can_be_rewritten() -> None:
    table = table_of("mor", buckets=2)
    table.write("upsert", rows(range(100)))
    table.write("upsert", rows(range(20, 60), "y"))
    table.write("delete", pa.table({"id": [0, 30]}))
    table.spec = replace(table.spec, layout=replace(table.spec.layout, table_type="cow"))
    table.write("upsert", rows([1, 31, 200], "z"))
    found = values(table)
    assert set(found) == set(range(100)) - {0, 30} | {200}
    assert [found[i] for i in (1, 2, 31, 32, 200)] == ["z", "x", "z", "y", "z"]
    assert table.files["masked"].to_pylist() == [0, 0]


@TYPES
def test_rows_of_an_older_schema_are_merged_with_new_ones(table_type: str) -> None:
    table = table_of(table_type, buckets=1)
    table.write("upsert", rows([1, 2, 3]))
    fields = [
        *table.spec.schema.arrow,
        pa.field("new", pa.int32(), metadata={"PARQUET:field_id": "9"}),
    ]
    old = table.spec.schema
    table.spec = replace(table.spec, schema=Schema(1, pa.schema(fields)))
    data = rows([2, 4], "y").append_column("new", pa.array([7, 8], pa.int32()))
    staging = table.staging("upsert")
    staging.write(data)
    snapshot = replace(table.snapshot(), schemas={0: old, 1: table.spec.schema})
    status = staging.stage(snapshot, None)
    staging.close()
    kept = status.changes.added["schema_id"].to_pylist()
    assert kept == [1]
    removed = status.changes.removed.num_rows
    assert removed == (1 if table_type == "cow" else 0)


def test_files_that_are_not_sorted_are_merged_all_the_same() -> None:
    table = table_of("mor", key=[], buckets=1)
    table.write("append", rows([5, 1, 9, 3]))
    keyed = table_of("cow", buckets=1, store=table.store)
    bucket = pa.array([0], pa.int32())
    at = table.files.schema.get_field_index("bucket")
    field = table.files.schema.field("bucket")
    keyed.files, keyed.version = table.files.set_column(at, field, bucket), table.version
    for table_type in ("cow", "mor"):
        keyed.spec = replace(keyed.spec, layout=replace(keyed.spec.layout, table_type=table_type))
        keyed.write("upsert", rows([3, 4], table_type))
        assert set(values(keyed)) == {1, 3, 4, 5, 9}


def test_the_engine_takes_arrow_data_and_nothing_else() -> None:
    engine = ArrowEngine()
    assert engine.name == "arrow"
    assert engine.accepts(rows([1]))
    assert engine.accepts(rows([1]).to_pandas())
    assert not engine.accepts([{"id": 1}])
    staging = table_of("cow").staging("upsert")
    with pytest.raises(OptionError):
        staging.write([{"id": 1}])
    staging.close()
