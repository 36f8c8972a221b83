"""A scan as a dataset of pyarrow: every method ours, files pinned, and no more of them opened."""

from __future__ import annotations

import gc
import pickle  # noqa: TID251 - what other processes are sent
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import plait.polars
from plait import (
    CapabilityMissingError,
    InstantExpiredError,
    OptionError,
    ScanDataset,
    ScanScanner,
    SchemaMismatchError,
    Table,
    TableNotFoundError,
)
from plait.errors import PredicateError
from plait.read.dataset import ScanFragment
from plait.state import part_file, selected
from tests.support.build import LITTLE, again, make, rows
from tests.support.opened import opened_files

TYPES = ["cow", "mor"]


def changed(table_type: str, **definition: Any) -> Table:
    """Make a table in which rows were replaced and deleted, a column renamed and one added."""
    table = make("id bigint, v double, s string", table_type=table_type, buckets=4, **definition)
    table.upsert(rows(range(100), v=float, s=str))
    table.upsert(rows(range(0, 100, 3), v=-1.0, s="x"))
    table.delete(where="id < 10")
    table.alter.columns().rename("s", "text").add("n", "bigint", default=7).commit()
    table.upsert(rows(200, 201, v=0.0, text="y", n=1))
    return table


@pytest.mark.parametrize("table_type", TYPES)
def test_every_way_to_read_a_dataset_gives_the_rows_of_the_scan(table_type: str) -> None:
    """INV-04: each row once, none that is hidden, with the names, defaults and types of now."""
    table = changed(table_type)
    scan = table.scan()
    expected = scan.to_arrow()
    dataset = scan.to_dataset()
    by = [("id", "ascending")]
    assert isinstance(dataset, ds.Dataset)
    assert dataset.schema.equals(scan.schema)
    assert dataset.version == table.version
    found = {
        "to_table": dataset.to_table(),
        "to_batches": pa.Table.from_batches(dataset.to_batches(), scan.schema),
        "reader": dataset.scanner().to_reader().read_all(),
        "scan_batches": pa.Table.from_batches(
            [tagged.record_batch for tagged in dataset.scanner().scan_batches()]
        ),
        "stream": pa.table(dataset),
        "fragments": pa.concat_tables(each.to_table() for each in dataset.get_fragments()),
        "filter": dataset.filter(pc.field("id") >= 0).to_table(),
        "sorted": dataset.sort_by("id").to_table(),
        "taken": dataset.take(list(range(expected.num_rows))),
        "head": dataset.head(10_000),
    }
    for name, each in found.items():
        assert each.sort_by(by).to_pylist() == expected.sort_by(by).to_pylist(), name
    assert dataset.count_rows() == expected.num_rows
    assert sum(each.count_rows() for each in dataset.get_fragments()) == expected.num_rows


@pytest.mark.parametrize("table_type", TYPES)
def test_a_projection_is_what_pyarrow_makes_of_it(table_type: str) -> None:
    table = changed(table_type)
    memory = ds.InMemoryDataset(table.scan().to_arrow())
    dataset = table.scan().to_dataset()
    by = [("a", "ascending")]
    for projection in (
        {"a": pc.field("id")},
        {"a": pc.field("id") * 2, "b": pc.scalar(1)},
        {"a": pc.scalar("same")},
    ):
        found = dataset.to_table(columns=projection)
        wanted = memory.to_table(columns=projection)
        assert found.schema.types == wanted.schema.types
        assert found.sort_by(by).to_pylist() == wanted.sort_by(by).to_pylist()
        scanner = dataset.scanner(columns=projection)
        assert scanner.projected_schema.equals(found.schema)
        assert scanner.to_table().num_rows == scanner.to_table().num_rows == found.num_rows
        assert scanner.head(3).num_rows == 3
    assert dataset.to_table(columns=["n", "id"]).column_names == ["n", "id"]
    assert dataset.to_table(columns=[]).num_rows == memory.count_rows()
    sizes = [batch.num_rows for batch in dataset.to_batches(batch_size=7)]
    assert max(sizes) <= 7
    assert sum(sizes) == memory.count_rows()


def test_every_public_method_of_pyarrow_is_ours() -> None:
    """One that is inherited would ask the object underneath, which cannot be read."""
    inherited = {"scan_options"}
    for ours, theirs in (
        (ScanDataset, ds.Dataset),
        (ScanDataset, ds.UnionDataset),
        (ScanFragment, ds.Fragment),
        (ScanScanner, ds.Scanner),
    ):
        made = {"from_batches", "from_dataset", "from_fragment"}  # make another scanner
        for name in dir(theirs):
            if name.startswith("_") or name in made | inherited:
                continue
            owners = [base for base in ours.__mro__ if name in vars(base)]
            attributes = {"dataset_schema", "projected_schema"} if ours is ScanScanner else set()
            assert name in attributes or owners[0].__module__.startswith("plait."), name


def test_what_passes_our_methods_by_gets_an_error() -> None:
    """Not an empty table, and no rows that were deleted."""
    dataset = changed("mor").scan().to_dataset()
    for read in (
        lambda: next(iter(ds.Dataset._get_fragments(dataset, None))).to_table(),
        lambda: ds.Dataset.sort_by(dataset, "id"),
        lambda: ds.Scanner.from_dataset(dataset).to_table(),
        lambda: ds.UnionDataset(dataset.schema, [dataset]).to_table(),
        lambda: ds.InMemoryDataset(pa.table({"id": [1]})).join(dataset, "id"),
    ):
        with pytest.raises(OSError, match="its own methods"):
            read()


def test_unknown_columns_options_and_filters_are_refused() -> None:
    dataset = changed("cow").scan(["id", "v"]).to_dataset()
    with pytest.raises(SchemaMismatchError):
        dataset.to_table(columns=["nope"])
    with pytest.raises(PredicateError):
        dataset.to_table(filter=pc.field("nope") == 1)
    with pytest.raises(PredicateError):
        dataset.filter(pc.field("text") == "x")  # a column of the table, not of the dataset
    with pytest.raises(TypeError):
        dataset.scanner(filtre=1)
    with pytest.raises(OptionError):
        dataset.to_table(batch_size=0)
    with pytest.raises(OptionError):
        dataset.replace_schema(pa.schema([("id", pa.int32())]))
    with pytest.raises(ValueError, match="filter"):
        dataset.filter(pc.field("id") > 1).get_fragments()
    with pytest.raises(OptionError):
        changed("cow").scan(limit=3).to_dataset()
    assert dataset.to_table(use_threads=False, batch_readahead=3).num_columns == 2
    fewer = dataset.replace_schema(dataset.schema.remove(0))
    assert fewer.to_table().column_names == ["v"]


def test_a_dataset_is_joined_and_written_as_others_are(tmp_path: Path) -> None:
    table = changed("mor")
    dataset = table.scan().to_dataset()
    names = ds.InMemoryDataset(pa.table({"id": [10, 11, 5], "name": ["a", "b", "c"]}))
    joined = dataset.join(names, "id", join_type="inner").to_table()
    assert sorted(joined["id"].to_pylist()) == [10, 11]
    assert (
        dataset.join(dataset, "id", right_suffix="_r").to_table().num_rows == table.scan().count()
    )
    ds.write_dataset(dataset, tmp_path, format="parquet")
    assert ds.dataset(tmp_path).count_rows() == table.scan().count()


@pytest.mark.parametrize("table_type", TYPES)
def test_predicates_of_duckdb_and_polars_open_the_bucket_of_a_key_alone(
    table_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = changed(table_type)
    dataset = table.scan().to_dataset()
    every = table.scan().plan.files_total
    paths = opened_files(monkeypatch)
    assert duckdb.sql("SELECT v, n FROM dataset WHERE id = 12").fetchall() == [(-1.0, 7)]
    assert 0 < len(set(paths)) <= every // 2
    paths.clear()
    lazy = pl.scan_pyarrow_dataset(dataset).filter(pl.col("id") == 12).select("v")
    assert lazy.collect().rows() == [(-1.0,)]
    assert 0 < len(set(paths)) <= every // 2
    paths.clear()
    assert [each.path for each in dataset.get_fragments(pc.field("id") == 1000)] == []
    assert len(list(dataset.get_fragments(pc.field("id") == 12))) <= every // 2
    assert dataset.to_table(filter=pc.field("v") > 1e6).num_rows == 0
    assert paths == []


@pytest.mark.parametrize("table_type", TYPES)
def test_a_limit_opens_no_more_files_than_it_needs(
    table_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make("id bigint, day string", table_type=table_type, partition_by="day", buckets=2)
    table.upsert(rows(range(400), day=lambda key: f"d{key % 20}"))
    dataset = table.scan().to_dataset()
    paths = opened_files(monkeypatch)
    assert dataset.head(1).num_rows == 1
    assert len(paths) == 1
    assert duckdb.sql("SELECT * FROM dataset LIMIT 1").fetchall()
    assert len(paths) <= 3
    paths.clear()
    assert dataset.head(2, filter=pc.field("id") + 0 >= 0).num_rows == 2
    assert len(paths) == 1


def readers(table: Table) -> int:
    gc.collect()
    return len(table.inspect.readers())


def test_a_dataset_keeps_its_files_until_it_is_dropped() -> None:
    """INV-05: as long as a snapshot does, also through what was made of it."""
    table = make(table_type="mor", properties=LITTLE)
    table.upsert(rows(range(20), v=0))
    dataset = table.scan().to_dataset()
    made = [
        dataset.filter(pc.field("id") > 3),
        next(iter(dataset.get_fragments())),
        dataset.scanner(),
        dataset.to_reader(),
        dataset.to_reader(columns=["v"]),
        table.scan().narrowed(limit=3),
    ]
    table.upsert(rows(range(20), v=1))
    table.maintenance.compact(full=True)
    table.maintenance.clean()
    assert dataset.to_table()["v"].to_pylist() == [0] * 20
    del dataset
    assert readers(table) == 2
    for _ in range(len(made)):
        assert readers(table) >= 1
        made.pop()
    assert readers(table) == 0


def test_a_pickled_dataset_is_opened_anew_at_its_version(tmp_path: Path) -> None:
    """INV-05: the other process has a read pin of its own."""
    table = make(uri=tmp_path / "t", properties=LITTLE)
    table.upsert(rows(range(20), v=0))
    scan = table.scan(["v"], where=pc.field("id") < 5)
    body = pickle.dumps(scan.to_dataset().filter(pc.field("v") == 0))
    assert len(body) < 5_000
    table.upsert(rows(range(20), v=1))
    copy = pickle.loads(body)
    assert readers(table) == 2
    assert copy.to_table().to_pylist() == [{"v": 0}] * 5
    snapshot = table.snapshot(version=1)
    assert pickle.loads(pickle.dumps(snapshot.scan(limit=3))).count() == 3
    del copy, scan, snapshot
    assert readers(table) == 0
    table.maintenance.clean()
    with pytest.raises(InstantExpiredError):
        pickle.loads(body)


def test_a_pickled_scan_of_another_table_in_its_place_is_refused(tmp_path: Path) -> None:
    table = make(uri=tmp_path / "t", append=rows(1, v=1))
    body = pickle.dumps(table.scan())
    (tmp_path / "t").rename(tmp_path / "gone")
    make(uri=tmp_path / "t", append=rows(1, v=1))
    with pytest.raises(TableNotFoundError):
        pickle.loads(body)


def test_a_table_in_memory_can_be_pickled_for_the_same_process_alone() -> None:
    table = make(append=rows(1, v=1))
    body = pickle.dumps(table.scan())
    assert pickle.loads(body).count() == 1
    other = body.replace(b"memory://made", b"memory://gone")
    with pytest.raises(CapabilityMissingError):
        pickle.loads(other)


def test_a_file_of_a_dataset_is_no_scan_that_another_process_can_open() -> None:
    fragment = next(iter(changed("cow").scan().to_dataset().get_fragments()))
    with pytest.raises(TypeError, match="splits"):
        pickle.dumps(fragment)


@pytest.mark.parametrize("table_type", TYPES)
def test_a_dataset_of_a_large_table_loads_the_bounds_that_a_predicate_looks_at(
    table_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-04: of a large table no bounds are loaded before a predicate asks for them."""
    monkeypatch.setattr(selected, "WHOLE_ROWS_MAX", 1)
    monkeypatch.setattr(part_file, "WHOLE_BYTES_MAX", 1)
    table = make(
        "id bigint, v double", table_type=table_type, properties={"checkpoint.interval": 1}
    )
    for at in range(6):
        table.upsert(rows(range(at * 10, at * 10 + 10), v=at))
    large = again(table)
    scan = large.scan()
    assert scan.snapshot.total is not None
    dataset, lazy = scan.to_dataset(), plait.polars.scan(scan)
    table.upsert(rows(range(100), v=100.0))
    table.maintenance.compact(full=True)
    paths = opened_files(monkeypatch)
    assert dataset.to_table(filter=pc.field("v") > 1e6).num_rows == 0
    assert lazy.filter(pl.col("v") > 1e6).collect().height == 0
    assert paths == []
    assert dataset.to_table(filter=pc.field("v") > 4).num_rows == 10
    assert lazy.filter(pl.col("v") > 4).collect().height == 10
    assert dataset.count_rows() == 60


def test_a_filter_names_its_columns() -> None:
    """INV-04: a position is another column for whoever reads fewer columns than there are."""
    table = changed("mor")
    scan = table.scan()
    dataset = scan.to_dataset()
    fragment = next(dataset.get_fragments())
    for expression in (
        pc.field(0) > 50,
        (pc.field(0) > 50) & (pc.field("text") == "x"),
        ~(pc.field("text").isin(["x"]) | (pc.field(1) < 0)),
    ):
        for read in (
            lambda where: table.scan(where=where),
            lambda where: table.snapshot().scan(where=where),
            lambda where: table.changes(since=0, where=where),
            lambda where: scan.narrowed(where=where),
            lambda where: table.scan(where=where).splits(),
            dataset.filter,
            dataset.count_rows,
            lambda where: next(dataset.get_fragments(where)),
            lambda where: dataset.scanner(filter=where),
            lambda where: dataset.to_table(filter=where),
            lambda where: dataset.head(3, filter=where),
            fragment.count_rows,
            lambda where: fragment.to_table(filter=where),
        ):
            with pytest.raises(PredicateError, match="name the columns") as caught:
                read(expression)
            assert "pc.field('name')" in caught.value.hint
    # A projection is of the columns that the dataset shows.
    assert dataset.to_table(columns={"a": pc.field(1)})["a"].equals(dataset.to_table()["v"])
    assert dataset.count_rows(filter=pc.field("text") == "FieldPath(0)") == 0


@pytest.mark.parametrize("table_type", TYPES)
def test_a_large_table_is_narrowed_although_others_cleaned_the_version(
    table_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-05: the read pin keeps the files. The newest state does not know the version."""
    monkeypatch.setattr(selected, "WHOLE_ROWS_MAX", 1)
    keeps_little = {"clean.retain.versions": 1, "clean.retain.time": "1ms"}
    table = make(
        "id bigint, v double",
        table_type=table_type,
        uri=tmp_path / "t",
        properties={"checkpoint.interval": 1, **keeps_little},
    )
    for at in range(4):
        table.upsert(rows(range(40), v=at))
    reader, writer = again(table), again(table)
    scan = reader.scan()
    assert scan.snapshot.total is not None
    dataset, lazy = scan.to_dataset(), plait.polars.scan(scan)
    for at in range(3):
        writer.upsert(rows(range(40), v=10 + at))
        writer.maintenance.compact(full=True)
        writer.maintenance.clean(now=True)
    with pytest.raises(InstantExpiredError):
        reader.scan(version=scan.version)
    assert dataset.to_table(filter=pc.field("id") > 5)["v"].to_pylist() == [3.0] * 34
    assert dataset.count_rows(filter=pc.field("v") > 5) == 0
    assert lazy.filter(pl.col("id") > 5).collect()["v"].to_list() == [3.0] * 34
    assert sum(each.count_rows() for each in dataset.get_fragments(pc.field("id") > 5)) == 40
    assert sum(part.to_arrow().num_rows for part in scan.narrowed(where="id > 5").splits()) == 34


@pytest.mark.parametrize("table_type", TYPES)
def test_rows_are_filtered_by_the_version_that_wrote_them(table_type: str) -> None:
    """INV-04: bounds of that column leave out the rows that their own commit wrote."""
    table = make(
        "id bigint, v double",
        table_type=table_type,
        buckets=2,
        properties={"rows.written": "on"},
    )
    for at in range(3):
        table.upsert(rows(range(at * 10, at * 10 + 20), v=at))
    table.maintenance.compact(full=True)
    scan = table.scan(["id", "_written"])
    memory = scan.to_arrow()
    dataset, lazy = scan.to_dataset(), plait.polars.scan(scan)
    assert len(set(memory["_written"].to_pylist())) == 3
    for version in range(5):
        for wanted, asked, text in (
            (pc.field("_written") > version, pl.col("_written") > version, ">"),
            (pc.field("_written") == version, pl.col("_written") == version, "="),
            (~(pc.field("_written") > version), ~(pl.col("_written") > version), "<="),
        ):
            ids = sorted(memory.filter(wanted)["id"].to_pylist())
            narrower = table.scan(where=f"_written {text} {version}")
            by_duckdb = duckdb.sql(f"SELECT id FROM dataset WHERE _written {text} {version}")
            for found in (
                dataset.to_table(filter=wanted)["id"].to_pylist(),
                dataset.filter(wanted).to_table(columns=["id"])["id"].to_pylist(),
                table.scan(["id"], where=wanted).to_arrow()["id"].to_pylist(),
                narrower.to_arrow()["id"].to_pylist(),
                [each for part in narrower.splits() for each in part.to_arrow()["id"].to_pylist()],
                lazy.filter(asked).collect()["id"].to_list(),
                [each for (each,) in by_duckdb.fetchall()],
            ):
                assert sorted(found) == ids, (version, text)
            assert narrower.count() == dataset.count_rows(filter=wanted) == len(ids)
            assert narrower.read_predicate is None
            assert "_written" not in narrower.schema.names
    both = (pc.field("_written") > 1) & (pc.field("id") < 25)
    assert dataset.count_rows(filter=both) == memory.filter(both).num_rows
    with pytest.raises(PredicateError):
        make("id bigint").scan(where="_written > 1")
    with pytest.raises(PredicateError):
        table.delete(where="_written > 1")


def test_no_column_comes_back_that_a_scan_left_out() -> None:
    scan = changed("cow").scan(["id", "v"])
    assert scan.narrowed(columns=["v"]).schema.names == ["v"]
    with pytest.raises(SchemaMismatchError):
        scan.narrowed(columns=["text"])
    with pytest.raises(SchemaMismatchError):
        scan.to_dataset().replace_schema(pa.schema([("text", pa.string())]))
    with pytest.raises(SchemaMismatchError):
        plait.polars.scan(scan, ["text"])


@pytest.mark.parametrize("table_type", TYPES)
def test_a_dataset_stays_filtered_without_the_column_of_the_filter(
    table_type: str, tmp_path: Path
) -> None:
    table = make("id bigint, v double", table_type=table_type, uri=tmp_path / "t")
    table.upsert(rows(range(20), v=float))
    filtered = table.scan().to_dataset().filter(pc.field("v") >= 15)
    fewer = filtered.replace_schema(pa.schema([filtered.schema.field("id")]))
    again_fewer = fewer.filter(pc.field("id") < 18)
    for dataset, ids in ((fewer, range(15, 20)), (again_fewer, range(15, 18))):
        for each in (dataset, pickle.loads(pickle.dumps(dataset))):
            assert sorted(each.to_table()["id"].to_pylist()) == list(ids)
            assert each.count_rows() == len(ids)
            assert each.schema.names == ["id"]
    with pytest.raises(PredicateError):
        fewer.filter(pc.field("v") < 18)


@pytest.mark.parametrize("table_type", TYPES)
def test_a_membership_of_duckdb_opens_the_buckets_of_its_keys_alone(
    table_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes IN as what is NULL where the column is."""
    table = changed(table_type)
    trips, every = table.scan().to_dataset(), table.scan().plan.files_total
    connection = duckdb.connect()
    connection.register("trips", trips)
    paths = opened_files(monkeypatch)
    found = connection.execute("SELECT v, n FROM trips WHERE id IN (12)").fetchall()
    assert found == [(-1.0, 7)]
    assert 0 < len(set(paths)) <= every // 2
