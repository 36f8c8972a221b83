"""Tables that Hudi wrote on Spark, brought over."""

from __future__ import annotations

import datetime as dt
import zipfile
from decimal import Decimal
from pathlib import Path

import hudi
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plait import ConsentError, OptionError, RepushRefusedError, Table, import_table
from plait.model.repush import SourceAddress
from plait.repush.begin import RepushRequest, begin
from plait.repush.source import WantedSource

HERE = Path(__file__).parent / "hudi"
COW, OVERWRITTEN = (
    "cow-v8_complexkeygen_hivestyle",
    "cow-v6_simplekeygen_nonhivestyle_overwritetable",
)
MOR, DELETED = "mor-v6_simplekeygen_nonhivestyle", "mor-v6_trips_8i3d"


def unpacked(name: str, place: Path) -> Path:
    with zipfile.ZipFile(HERE / f"{name}.zip") as archive:
        archive.extractall(place)
    return place / name.partition("-")[2]


def in_files(table: Path, names: list[str]) -> dict[str, dict[str, object]]:
    """Return the rows of the newest data files, as Arrow reads them, by Hudi's key."""
    files = [
        table / each.base_file_relative_path()
        for each in hudi.HudiTable(str(table)).get_file_slices()
    ]
    rows = (row for file in files for row in pq.read_table(file, partitioning=None).to_pylist())
    return {row["_hoodie_record_key"]: {name: row[name] for name in names} for row in rows}


@pytest.mark.parametrize(
    ("name", "key", "places"),
    [(COW, ["id", "name"], ["byteField", "shortField"]), (OVERWRITTEN, ["id"], ["byteField"])],
)
def test_a_copy_on_write_table_has_the_rows_of_its_newest_files(
    name: str, key: list[str], places: list[str], tmp_path: Path
) -> None:
    """INV-04: also where older files lie beside them, and with every type, nested and not."""
    old = unpacked(name, tmp_path)
    plan = import_table(str(old), str(tmp_path / "new"), record_key=key, dry_run=True)
    assert (plan.source, list(plan.partition_by)) == (f"hudi:{old}", places)
    assert any("record key" in each for each in plan.lost)
    done = import_table(str(old), str(tmp_path / "new"), record_key=key)
    found = Table.open(str(tmp_path / "new")).scan().to_arrow()
    assert not [each for each in found.column_names if each.startswith("_hoodie")]
    expected = list(in_files(old, found.column_names).values())
    assert done.rows == len(expected) > 0
    assert len(list(old.rglob("*.parquet"))) > len(expected) or name == COW
    by_id = [("id", "ascending")]
    assert found.sort_by(by_id).to_pylist() == sorted(expected, key=lambda row: int(str(row["id"])))
    assert (
        str(int(done.source_version or 0))
        == hudi.HudiTable(str(old)).get_timeline().get_latest_commit_timestamp()
    )


def test_log_files_of_a_merge_on_read_table_count(tmp_path: Path) -> None:
    """INV-04: updates and deletes that no data file has yet."""
    old = unpacked(MOR, tmp_path)
    assert any(each.has_log_files() for each in hudi.HudiTable(str(old)).get_file_slices())
    import_table(f"hudi:{old}", str(tmp_path / "new"), record_key="id", rows_per_task=1)
    found = Table.open(str(tmp_path / "new")).scan().to_arrow().sort_by("id").to_pylist()
    shown = [(row["id"], row["name"], row["isActive"]) for row in found]
    assert shown == [(1, "Alice", False), (2, "Bob", False), (3, "Carol", True), (4, "Diana", True)]
    assert found[2]["decimalField"] == Decimal("11111.22222")
    assert found[2]["timestampField"] == dt.datetime(2023, 4, 3, 14, 3, tzinfo=dt.UTC)
    assert found[2]["structField"]["child_struct"] == {
        "child_field1": 456.789,
        "child_field2": True,
    }

    trips = unpacked(DELETED, tmp_path / "trips")
    done = import_table(str(trips), str(tmp_path / "left"), record_key="uuid")
    left = Table.open(str(tmp_path / "left")).scan().to_arrow()
    before = in_files(trips, left.column_names)
    assert (len(before), done.rows, left.num_rows) == (8, 5, 5)
    assert all(row == before[str(row["uuid"])] for row in left.to_pylist())


def begun(source: str, target: Path, schema: pa.Schema) -> None:
    """Begin an import, and be killed."""
    handle = Table.create(str(target), schema)._handle
    wanted = WantedSource(SourceAddress.of(source), given=True)
    begin(handle, RepushRequest(source=wanted, commit_id=f"import {source}"))


def test_an_import_goes_on_in_the_instant_with_which_it_began(tmp_path: Path) -> None:
    """INV-09: later commits of the source do not come in between; lost files are told."""
    later = unpacked(OVERWRITTEN, tmp_path / "later")
    timeline = later / ".hoodie"
    held = [each for each in timeline.iterdir() if ".replacecommit" in each.name]
    assert held
    bodies = {each: each.read_bytes() for each in held}
    for each in held:
        each.unlink()  # before the overwrite
    schema = import_schema(later)
    begun(f"hudi:{later}", tmp_path / "new", schema)
    begun(f"hudi:{later}", tmp_path / "lost", schema)
    rows = in_files(later, schema.names)
    for each, body in bodies.items():
        each.write_bytes(body)
    assert len(in_files(later, schema.names)) == 1 < len(rows)
    assert import_table(str(later), str(tmp_path / "new")).rows == len(rows)
    for each in later.glob("10/*.parquet"):
        each.unlink()
    with pytest.raises(RepushRefusedError):
        import_table(str(later), str(tmp_path / "lost"))
    assert Table.open(str(tmp_path / "lost")).scan().count() == 0


def import_schema(place: Path) -> pa.Schema:
    return pa.schema(hudi.HudiTable(str(place)).get_schema()).remove_metadata()


def test_what_is_no_table_and_links_elsewhere_are_refused(tmp_path: Path) -> None:
    (tmp_path / "none" / ".hoodie").mkdir(parents=True)
    for place in (tmp_path / "none", tmp_path / "nothing"):
        with pytest.raises(OptionError):
            import_table(f"hudi:{place}", str(tmp_path / "new"))
    old = unpacked(COW, tmp_path)
    file = next(old.rglob("*.parquet"))
    file.rename(tmp_path / "elsewhere.parquet")
    file.symlink_to(tmp_path / "elsewhere.parquet")
    with pytest.raises(ConsentError):
        import_table(str(old), str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()
    allow = str(tmp_path / "elsewhere.parquet")
    assert import_table(str(old), str(tmp_path / "new"), allow=allow).rows == 4


def test_partition_columns_that_files_lack_are_refused(tmp_path: Path) -> None:
    old = unpacked(COW, tmp_path)
    said = old / ".hoodie" / "hoodie.properties"
    dropped = "hoodie.datasource.write.drop.partition.columns"
    said.write_text(said.read_text().replace(f"{dropped}=false", f"{dropped}=true"))
    with pytest.raises(OptionError, match=r"drop\.partition\.columns"):
        import_table(str(old), str(tmp_path / "new"))
