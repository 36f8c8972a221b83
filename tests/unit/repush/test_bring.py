"""A table brought over from another format: equal, resumable, and refused before it is written."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog

from plait import (
    ConsentError,
    OptionError,
    RepushRefusedError,
    SchemaError,
    SchemaMismatchError,
    Table,
    TableError,
    TableExistsError,
    TableNotFoundError,
    import_table,
)
from plait.model.repush import SourceAddress
from plait.repush.begin import RepushRequest, begin
from plait.repush.source import WantedSource
from plait.services.maintenance.upkeep import finish_upkeep

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("p", pa.string()),
        pa.field("d", pa.decimal128(20, 4)),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("x", pa.float64()),
        pa.field("s", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        pa.field("l", pa.list_(pa.struct([("n", pa.int64())]))),
    ]
)


def rows(low: int, high: int, seed: int) -> pa.Table:
    dice = np.random.default_rng(seed)

    def maybe(value: object) -> object:
        return None if dice.random() < 0.2 else value

    made = [
        {
            "id": number,
            "p": maybe(str(dice.choice(["a b", "c%d", "ü/x"]))),
            "d": maybe(Decimal(int(dice.integers(-(10**9), 10**9))).scaleb(-4)),
            "at": maybe(dt.datetime(int(dice.integers(1, 9999)), 1, 2, tzinfo=dt.UTC)),
            "x": maybe(dice.random()),
            "s": maybe({"a": maybe(number % 1000), "b": maybe("z")}),
            "l": maybe([{"n": maybe(each)} for each in range(number % 3)]),
        }
        for number in range(low, high)
    ]
    return pa.Table.from_pylist(made, SCHEMA)


def hive(place: Path, parts: list[pa.Table]) -> str:
    for part in parts:
        pq.write_to_dataset(part, place, partition_cols=["p"])
    return str(place)


def plain(place: Path, parts: list[pa.Table]) -> str:
    place.mkdir()
    for number, part in enumerate(parts):
        pq.write_table(part, place / f"{number}.parquet")
    return str(place)


def places(part: pa.Table) -> list[str]:
    return ["p"] if "p" in part.column_names else []


def delta(place: Path, parts: list[pa.Table]) -> str:
    for part in parts:
        deltalake.write_deltalake(place, part, mode="append", partition_by=places(part))
    return str(place)


def delta_read_here(place: Path, parts: list[pa.Table]) -> str:
    """Declare vectors, so that Plait reads the files itself, partition columns too."""
    for part in parts:
        deltalake.write_deltalake(
            place,
            part,
            mode="append",
            partition_by=places(part),
            configuration={"delta.enableDeletionVectors": "true"},
        )
    assert "deletionVectors" in (deltalake.DeltaTable(place).protocol().reader_features or ())
    return str(place)


def iceberg(place: Path, parts: list[pa.Table]) -> str:
    catalog = InMemoryCatalog("memory", warehouse=f"file://{place}")
    catalog.create_namespace("n")
    schema = parts[0].schema
    table = catalog.create_table("n.t", schema)
    for part in parts:
        table.append(part)
    return f"iceberg:{table.metadata_location}"


def plait(place: Path, parts: list[pa.Table]) -> str:
    table = Table.create(str(place), SCHEMA, record_key="id", partition_by="p", table_type="mor")
    for part in parts:
        table.append(part)
    return str(place)


FORMATS = [hive, plain, delta, delta_read_here, iceberg, plait]


def content(found: pa.Table) -> list[dict[str, object]]:
    names = [name for name in SCHEMA.names if name in found.column_names]
    return found.select(names).sort_by("id").to_pylist()


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("write", FORMATS)
def test_an_import_has_every_row_of_its_source_once(
    write: Callable[[Path, list[pa.Table]], str], seed: int, tmp_path: Path
) -> None:
    """INV-08, INV-09: and the same call again brings none twice."""
    parts = [rows(0, 700, seed), rows(700, 1500, seed + 9)]
    if write is iceberg:  # refused: see below
        parts = [part.drop_columns("l") for part in parts]
    source, target = write(tmp_path / "old", parts), str(tmp_path / "new")
    plan = import_table(source, target, record_key="id", dry_run=True)
    assert (plan.rows, plan.record_key) == (1500, ("id",))
    with pytest.raises(TableNotFoundError):
        Table.open(target)
    assert import_table(source, target, record_key="id", rows_per_task=500).rows == 1500
    table = Table.open(target)
    assert content(table.scan().to_arrow()) == content(pa.concat_tables(parts))
    assert import_table(source, target, record_key="id").rows == 0
    assert table.scan().count() == 1500
    assert {each.name for each in table.schema if not each.nullable} == {"id"}
    assert table.check.verify().problems == ()


PAIR = pa.struct([("n", pa.int64())])


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(PAIR),
        pa.map_(pa.string(), PAIR),
        pa.list_(pa.list_(PAIR)),
        pa.struct([("l", pa.list_(PAIR))]),
        pa.map_(pa.string(), pa.list_(PAIR)),
        pa.list_(pa.struct([("m", pa.map_(pa.string(), PAIR))])),
    ],
    ids=str,
)
def test_nulls_that_pyiceberg_would_read_as_empty_are_refused_before_anything_is_written(
    kind: pa.DataType, tmp_path: Path
) -> None:
    """Nothing is lost without a word, at any depth, by an import or by a repush."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("c", kind)])
    source = iceberg(tmp_path / "old", [schema.empty_table()])
    target = str(tmp_path / "new")
    for dry_run in (True, False):
        with pytest.raises(SchemaMismatchError, match="would read null as empty") as caught:
            import_table(source, target, dry_run=dry_run)
        assert caught.value.column == "c"
    with pytest.raises(TableNotFoundError):
        Table.open(target)
    table = Table.create(target, schema, record_key="id")
    with pytest.raises(SchemaMismatchError, match="would read null as empty"):
        table.layout.repush(source=source)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.list_(pa.int64()), [None, [], [1, None]]),
        (pa.map_(pa.string(), pa.int64()), [None, [], [("a", None)]]),
        (pa.list_(pa.list_(pa.int64())), [None, [None, []], []]),
        (pa.struct([("m", pa.map_(pa.string(), pa.int64()))]), [None, {"m": None}, {"m": []}]),
    ],
    ids=str,
)
def test_other_nested_nulls_of_iceberg_are_kept(
    kind: pa.DataType, values: list[object], tmp_path: Path
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("c", kind)])
    part = pa.table({"id": range(len(values)), "c": pa.array(values, kind)}, schema=schema)
    source = iceberg(tmp_path / "old", [part])
    (file,) = (tmp_path / "old").rglob("*.parquet")
    assert pq.read_table(file)["c"].to_pylist() == values, "pyiceberg wrote other values"
    import_table(source, str(tmp_path / "new"), record_key="id")
    found = Table.open(str(tmp_path / "new")).scan().to_arrow().sort_by("id")
    assert found["c"].to_pylist() == values


def test_lists_of_structs_that_are_never_null_come_from_iceberg_too(tmp_path: Path) -> None:
    fields = [("id", pa.int64()), ("c", pa.list_(PAIR))]
    schema = pa.schema([pa.field(*each, nullable=False) for each in fields])
    values = [[], [{"n": 1}, {"n": None}]]
    part = pa.table({"id": [0, 1], "c": values}, schema=schema)
    target = str(tmp_path / "new")
    import_table(iceberg(tmp_path / "old", [part]), target, record_key="id")
    assert Table.open(target).scan().to_arrow().sort_by("id")["c"].to_pylist() == values


@pytest.mark.parametrize("write", [hive, delta, delta_read_here, plait])
def test_partitions_of_the_source_are_those_of_the_table_by_default(
    write: Callable[[Path, list[pa.Table]], str], tmp_path: Path
) -> None:
    source, target = write(tmp_path / "old", [rows(0, 50, 1)]), str(tmp_path / "new")
    assert import_table(source, target, dry_run=True).partition_by == ("p",)
    assert import_table(source, target, partition_by=(), dry_run=True).partition_by == ()


def published(place: Path) -> Table:
    """Make a table whose Delta log has vectors of more than one batch, and renamed columns."""
    properties = {"publish": "delta"}
    table = Table.create(
        str(place), SCHEMA, record_key="id", table_type="mor", buckets=2, properties=properties
    )
    table.append(rows(0, 6000, 3))
    table.delete(where="id >= 100 and id < 2500")
    table.delete(where="id = 5999")
    table.alter.columns().rename("x", "y").rename("s.a", "c").rename("l.element.n", "m").commit()
    table.update({"y": "1.5"}, where="id < 60")
    return table


def test_vectors_and_renamed_columns_of_delta_are_read_as_the_log_says(tmp_path: Path) -> None:
    """INV-17: what the table published is what an import of it has."""
    table, target = published(tmp_path / "old"), str(tmp_path / "new")
    features = deltalake.DeltaTable(str(tmp_path / "old")).protocol().reader_features
    assert {"columnMapping", "deletionVectors"} <= set(features or ())
    import_table(f"delta:{tmp_path / 'old'}", target, record_key="id", rows_per_task=1000)
    found = Table.open(target).scan().to_arrow().sort_by("id")
    assert found.to_pylist() == table.scan().to_arrow().sort_by("id").to_pylist()
    assert found.num_rows == 6000 - 2400 - 1


def test_a_vector_hides_rows_of_its_whole_file_and_not_of_each_batch(tmp_path: Path) -> None:
    """INV-17: a file of more rows than one batch has."""
    table = Table.create(
        str(tmp_path / "old"),
        "id bigint",
        record_key="id",
        table_type="mor",
        buckets=1,
        properties={"publish": "delta"},
    )
    table.append(pa.table({"id": range(300_000)}))
    table.delete(where="id < 5 or (id >= 150000 and id < 150010)")
    import_table(f"delta:{tmp_path / 'old'}", str(tmp_path / "new"), record_key="id")
    found = Table.open(str(tmp_path / "new")).scan().to_arrow()["id"].to_pylist()
    assert sorted(found) == [*range(5, 150_000), *range(150_010, 300_000)]


def test_files_with_other_names_than_the_log_says_are_refused(tmp_path: Path) -> None:
    published(tmp_path / "old")
    # Make the log call a column by a name that no file has: its id is there under another one.
    for commit in (tmp_path / "old" / "_delta_log").glob("*.json"):
        text = commit.read_text()
        commit.write_text(text.replace(r"physicalName\":\"x\"", r"physicalName\":\"other\""))
    for checkpoint in (tmp_path / "old" / "_delta_log").glob("*checkpoint*"):
        checkpoint.unlink()
    with pytest.raises(RepushRefusedError) as caught:
        import_table(f"delta:{tmp_path / 'old'}", str(tmp_path / "new"), record_key="id")
    assert "under the name" in str(caught.value)


def test_a_path_of_a_delta_log_that_leads_elsewhere_is_asked_for_first(tmp_path: Path) -> None:
    delta_read_here(tmp_path / "old", [rows(0, 5, 1)])
    secret = tmp_path / "secret.parquet"
    pq.write_table(rows(5, 9, 1), secret)
    add = {"path": f"file://{secret}", "partitionValues": {"p": "a"}, "modificationTime": 0}
    add |= {"size": secret.stat().st_size, "dataChange": True}
    commit = tmp_path / "old" / "_delta_log" / f"{1:020d}.json"
    commit.write_text(json.dumps({"add": add}) + "\n")
    with pytest.raises(ConsentError):
        import_table(f"delta:{tmp_path / 'old'}", str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("year", [1, 1600, 1899, 2026, 9000])
def test_int96_keeps_its_instants(year: int, tmp_path: Path) -> None:
    when = dt.datetime(year, 3, 4, 5, 6, 7, 89, tzinfo=dt.UTC)
    (tmp_path / "old").mkdir()
    times = pa.array([when, None], pa.timestamp("us", "UTC"))
    table = pa.table({"id": [1, 2], "at": times})
    path = tmp_path / "old" / "a.parquet"
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    assert pq.ParquetFile(path).schema.column(1).physical_type == "INT96"
    plan = import_table(str(tmp_path / "old"), str(tmp_path / "new"), dry_run=True)
    assert plan.columns["at"] == "timestamp"
    assert "INT96" in plan.lost[0]
    import_table(str(tmp_path / "old"), str(tmp_path / "new"))
    found = Table.open(str(tmp_path / "new")).scan().to_arrow()
    assert found["at"].to_pylist() == [when, None]


def test_comments_of_delta_and_iceberg_are_kept(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), metadata={"comment": "what it is"})])
    deltalake.write_deltalake(tmp_path / "old", pa.table({"id": [1]}, schema))
    import_table(str(tmp_path / "old"), str(tmp_path / "new"))
    described = Table.open(str(tmp_path / "new")).inspect.describe()
    assert "what it is" in json.dumps(described["schema"])


def test_rows_that_share_a_key_leave_an_empty_table_that_the_mended_source_fills(
    tmp_path: Path,
) -> None:
    source, target = plain(tmp_path / "old", [rows(0, 5, 1)]), str(tmp_path / "new")
    twice = tmp_path / "old" / "9.parquet"
    pq.write_table(rows(3, 7, 1), twice)
    with pytest.raises(RepushRefusedError):
        import_table(source, target, record_key="id")
    assert Table.open(target).scan().count() == 0
    twice.unlink()
    assert import_table(source, target, record_key="id").rows == 5


def test_a_target_that_exists_is_left_alone(tmp_path: Path) -> None:
    source, target = plain(tmp_path / "old", [rows(0, 5, 1)]), str(tmp_path / "new")
    table = Table.create(target, SCHEMA, record_key="id")
    table.append(rows(50, 51, 1))
    with pytest.raises(TableExistsError):
        import_table(source, target, record_key="id")
    assert table.version == 1


@pytest.mark.parametrize(
    ("name", "began", "again"),
    [
        ("record_key", "id", "p"),
        ("partition_by", "p", ()),
        ("ordering", None, "x"),
        ("table_type", "mor", "cow"),
        ("buckets", 3, 4),
        ("bucket_by", None, "p"),
        ("lock", "process", "none"),
        ("properties", {"write.bucket.size": "1MiB"}, {"write.bucket.size": "2MiB"}),
        ("properties", {}, {"write.bucket.size": "2MiB"}),
    ],
)
@pytest.mark.parametrize("over", [False, True])
def test_an_import_that_began_otherwise_is_not_gone_on_with(
    over: bool, name: str, began: object, again: object, tmp_path: Path
) -> None:
    """What the caller names is never ignored, while the import is open and once it is over."""
    source, target = plain(tmp_path / "old", [rows(0, 5, 1)]), str(tmp_path / "new")
    first: dict[str, object] = {"record_key": "id", name: began}
    if over:
        import_table(source, target, **first)  # type: ignore[call-overload]  # by name
        table = Table.open(target)
        table.alter.set({"write.bucket.size": "3MiB"})
        table.layout.repush(buckets=5, table_type="mor", partition_by=())
    else:  # as a crash leaves it, once the repush began
        given = {name: value for name, value in first.items() if value is not None}
        handle = Table.create(target, SCHEMA, **given)._handle  # type: ignore[arg-type]  # by name
        wanted = WantedSource(SourceAddress.of(f"parquet:{source}"), given=True)
        begin(handle, RepushRequest(source=wanted, commit_id=f"import parquet:{source}"))
    with pytest.raises(OptionError) as caught:
        import_table(source, target, **{**first, name: again})  # type: ignore[call-overload]
    assert caught.value.key == (next(iter(again)) if isinstance(again, dict) else name)
    assert import_table(source, target, **first).rows == (0 if over else 5)  # type: ignore[call-overload]
    assert import_table(source, target).rows == 0  # what is not named is as it was
    assert Table.open(target).scan().count() == 5


def test_a_source_that_cannot_be_read_for_a_moment_costs_no_copy(tmp_path: Path) -> None:
    """INV-11: what was copied stays, and the same call goes on."""
    source, target = plain(tmp_path / "old", [rows(0, 5, 1)]), str(tmp_path / "new")
    handle = Table.create(target, SCHEMA, record_key="id")._handle
    wanted = WantedSource(SourceAddress.of(f"parquet:{source}"), given=True)
    begin(handle, RepushRequest(source=wanted, commit_id=f"import parquet:{source}"))
    (tmp_path / "old").rename(tmp_path / "away")
    with pytest.raises(RepushRefusedError, match="once the source can be read"):
        import_table(source, target)
    assert handle.cache.refresh().table.repush is not None
    (tmp_path / "away").rename(tmp_path / "old")
    assert import_table(source, target).rows == 5


def test_what_no_table_can_have_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    pq.write_table(pa.table({"t": pa.array([1], pa.time64("us"))}), tmp_path / "old" / "a.parquet")
    with pytest.raises(SchemaError) as caught:
        import_table(str(tmp_path / "old"), str(tmp_path / "new"))
    assert caught.value.column == "t"
    (tmp_path / "hudi" / ".hoodie").mkdir(parents=True)
    for nothing in (tmp_path / "none", tmp_path / "hudi"):  # of the latter, no more is there
        with pytest.raises(OptionError):
            import_table(str(nothing), str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("mode", ["name", "id"])
def test_columns_mapped_before_delta_had_features_are_not_read_as_nulls(
    mode: str, tmp_path: Path
) -> None:
    """Reader version 2 has column mapping, and names no feature."""
    old = tmp_path / "old"
    (old / "_delta_log").mkdir(parents=True)
    columns = {"id": ("col-7", "long", pa.int64()), "v": ("col-8", "string", pa.string())}
    fields, stored = [], []
    for number, (name, (physical, kind, arrow)) in enumerate(columns.items(), start=1):
        note = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
        fields.append({"name": name, "type": kind, "nullable": True, "metadata": note})
        stored.append(pa.field(physical, arrow, metadata={"PARQUET:field_id": str(number)}))
    pq.write_table(
        pa.table([pa.array([1, 2]), pa.array(["x", None])], schema=pa.schema(stored)),
        old / "f.parquet",
    )
    actions = [
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        {
            "metaData": {
                "id": "t",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [],
                "configuration": {"delta.columnMapping.mode": mode},
            }
        },
        {
            "add": {
                "path": "f.parquet",
                "partitionValues": {},
                "size": (old / "f.parquet").stat().st_size,
                "modificationTime": 1,
                "dataChange": True,
            }
        },
    ]
    log = old / "_delta_log" / f"{0:020d}.json"
    log.write_text("\n".join(map(json.dumps, actions)))
    import_table(str(old), str(tmp_path / "new"), record_key="id")
    found = Table.open(str(tmp_path / "new")).scan().to_arrow().sort_by("id").to_pylist()
    assert found == [{"id": 1, "v": "x"}, {"id": 2, "v": None}]


@pytest.mark.parametrize("write", [delta, delta_read_here])
def test_partitions_of_bytes_in_delta_are_refused(
    write: Callable[[Path, list[pa.Table]], str], tmp_path: Path
) -> None:
    """The library would return the six letters of an escape for each byte."""
    source = write(tmp_path / "old", [pa.table({"id": [1], "p": [b"a"]})])
    with pytest.raises(SchemaError, match="partitioned by 'p' of type binary"):
        import_table(source, str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def _folders(place: Path, *folders: str, **more: object) -> str:
    for number, folder in enumerate(folders, start=1):
        (place / folder).mkdir(parents=True)
        columns = {"id": [number], **{name: [value] for name, value in more.items()}}
        pq.write_table(pa.table(columns), place / folder / "0.parquet")
    return str(place)


def test_a_folder_with_leading_zeros_keeps_its_text(tmp_path: Path) -> None:
    source = _folders(tmp_path / "old", "n=7/zip=01234", "n=8/zip=1234", "n=8/zip=-0")
    import_table(source, str(tmp_path / "new"))
    found = Table.open(str(tmp_path / "new")).scan().to_arrow().sort_by("id")
    assert found["zip"].to_pylist() == ["01234", "1234", "-0"]
    assert found["n"].to_pylist() == [7, 8, 8]


def test_a_folder_whose_name_begins_with_an_underscore_can_be_a_partition(tmp_path: Path) -> None:
    source = _folders(tmp_path / "old", "_day=1", "_day=2", "_temporary", "_day=3/.x=1")
    import_table(source, str(tmp_path / "new"))
    found = Table.open(str(tmp_path / "new")).scan().to_arrow().sort_by("id")
    assert found["_day"].to_pylist() == [1, 2]


def test_a_column_in_the_file_and_in_its_folder_has_to_be_the_same(tmp_path: Path) -> None:
    same = _folders(tmp_path / "same", "k=a", k="a")
    assert import_table(same, str(tmp_path / "new")).rows == 1
    for value in ("b", None, "aa"):
        other = _folders(tmp_path / f"other-{value}", "k=a", k=pa.scalar(value, pa.string()))
        with pytest.raises(SchemaError, match="has column 'k' beside the 'a' of its folder"):
            import_table(other, str(tmp_path / f"new-{value}"))


def test_rows_that_share_a_key_are_told_with_the_key(tmp_path: Path) -> None:
    source = plain(tmp_path / "old", [pa.table({"id": [1, 41, 41]})])
    with pytest.raises(RepushRefusedError, match=r"share a key, such as \{'id': 41\}"):
        import_table(source, str(tmp_path / "new"), record_key="id")


@pytest.mark.parametrize("inside", ["", "/new", "/a/new"])
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_target_in_its_source_is_refused_and_the_source_stays_readable(
    scheme: str, inside: str, tmp_path: Path
) -> None:
    source = scheme + plain(tmp_path / "old", [pa.table({"id": [1]})])
    with pytest.raises(OptionError, match="in the directory of its source"):
        import_table(source, f"{tmp_path}/old{inside}")
    assert [each.name for each in (tmp_path / "old").iterdir()] == ["0.parquet"]
    assert import_table(source, f"{tmp_path}/old-2").rows == 1


@pytest.mark.parametrize("write", [delta, delta_read_here])
def test_a_partition_called_as_hive_calls_null_is_a_text_in_delta(
    write: Callable[[Path, list[pa.Table]], str], tmp_path: Path
) -> None:
    """A log tells null from this text, and so does the table."""
    source = write(tmp_path / "old", [pa.table({"id": [1, 2], "p": ["text", None]})])
    (log,) = (tmp_path / "old" / "_delta_log").glob("*0.json")
    told = log.read_text().replace('"p":"text"', '"p":"__HIVE_DEFAULT_PARTITION__"')
    log.write_text(told)
    import_table(source, str(tmp_path / "new"))
    found = Table.open(str(tmp_path / "new")).scan().to_arrow().sort_by("id")
    assert found["p"].to_pylist() == ["__HIVE_DEFAULT_PARTITION__", None]


@pytest.mark.parametrize("write", [plain, delta, delta_read_here, iceberg])
@pytest.mark.parametrize("deep", [True, False])
def test_columns_that_differ_in_case_alone_are_refused_by_name(
    deep: bool, write: Callable[[Path, list[pa.Table]], str], tmp_path: Path
) -> None:
    pair = {"t": 1, "T" if write in (plain, iceberg) else "U": 2}
    part = pa.table({"s": [pair]} if deep else {name: [each] for name, each in pair.items()})
    source = write(tmp_path / "old", [part])
    for log in (tmp_path / "old").glob("_delta_log/*.json"):  # deltalake would not write it
        log.write_text(log.read_text().replace(r"\"name\":\"U\"", r"\"name\":\"T\""))
    with pytest.raises(TableError, match=r"'t'|'T'|: T|: t") as caught:
        import_table(source, str(tmp_path / "new"))
    assert caught.value.hint
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("history", [False, True])
def test_an_import_that_is_to_be_published_is(tmp_path: Path, history: bool) -> None:
    """INV-17: no commit of a writer has to come before others can read it."""
    deltalake.write_deltalake(tmp_path / "s", pa.table({"id": [1, 2]}))
    deltalake.write_deltalake(tmp_path / "s", pa.table({"id": [3]}), mode="append")
    properties = {"publish": "delta,iceberg", "publish.deadline": "1h"}
    import_table(
        f"delta:{tmp_path / 's'}", str(tmp_path / "t"), properties=properties, history=history
    )
    finish_upkeep()
    table = Table.open(str(tmp_path / "t"))
    assert [each.lag_versions for each in table.inspect.publications()] == [0, 0]
    found = deltalake.DeltaTable(str(tmp_path / "t"))
    assert sorted(found.to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3]
