"""A repush from tables of other formats: Delta, Iceberg, plain files of Parquet (RFC 0025)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog

from plait import OptionError, RepushRefusedError, SchemaMismatchError, Table
from plait.model.consent import NOTHING, given
from plait.model.repush import SourceAddress
from plait.repush.begin import RepushRequest, begin
from plait.repush.iceberg import iceberg_source
from plait.repush.load import Load
from plait.repush.run import PROGRESS
from plait.repush.shadow import Shadow
from plait.repush.source import WantedSource
from tests.support.protocol import beside
from tests.support.repush_steps import FIRST, SCHEMA, again, content, make, rows

IMPORTED = sorted([(1, "x", 5), (2, "x", 5), (3, "y", 6), (4, "y", 6), (90, "z", 7)])
PARTS = (rows(1, 2, v=5), rows(3, 4, p="y", v=6), rows(90, p="z", v=7))


def delta(place: Path) -> str:
    for part in PARTS:
        deltalake.write_deltalake(place, part, mode="append", partition_by=["p"])
    return f"delta:{place}"


def iceberg(place: Path) -> str:
    catalog = InMemoryCatalog("memory", warehouse=f"file://{place}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", SCHEMA)
    for part in PARTS:
        table.append(part)
    table.append(rows(200))
    table.delete("id = 200")
    return f"iceberg:{table.metadata_location}"


def parquet(place: Path) -> str:
    place.mkdir()
    for number, part in enumerate(PARTS):
        pq.write_table(part, place / f"{number}.parquet")
    (place / "_SUCCESS").write_bytes(b"")
    return f"parquet:{place}"


def partitioned(place: Path) -> str:
    """Write files in directories of Hive, the column of which stands in no file."""
    for number, part in enumerate(PARTS):
        directory = place / f"p={part['p'][0]}"
        directory.mkdir(parents=True, exist_ok=True)
        pq.write_table(part.drop_columns(["p"]), directory / f"{number}.parquet")
    return f"parquet:{place}"


def pattern(place: Path) -> str:
    parquet(place)
    pq.write_table(rows(1), place / "other.pq")
    return f"parquet:{place}/*.parquet"


FORMATS = [delta, iceberg, parquet, partitioned, pattern]


def wanted(source: str) -> RepushRequest:
    return RepushRequest(source=WantedSource(SourceAddress.of(source), given=True), rows_per_task=2)


@pytest.mark.parametrize("write", FORMATS)
def test_an_import_brings_every_row_and_carries_over_what_is_committed_since(
    write: Callable[[Path], str], tmp_path: Path
) -> None:
    """A kill after any task is gone on with, and no task is loaded twice (INV-09)."""
    source, table = (
        write(tmp_path / "source"),
        Table.open(make()._handle.store.address.uri, allow=f"{tmp_path}/*"),
    )
    opened = begin(table._handle, wanted(source))
    assert opened.source is not None
    assert opened.source.rows == 5
    table.upsert(rows(2, 50, v=9))
    shadow = Shadow.open(table._handle, opened)
    load = Load.of(table._handle, shadow)
    assert len(load.parts) > 1
    load.run(shadow, shadow.progress())
    report = table.layout.repush(source=source, rows_per_task=2)
    assert report.rows_loaded < 5
    expected = {row[0]: row for row in IMPORTED} | {2: (2, "x", 9), 50: (50, "x", 9)}
    assert content(table) == sorted(expected.values())
    assert not table.check.verify(data=True).problems


def test_a_delta_table_is_read_in_the_version_with_which_the_repush_began(tmp_path: Path) -> None:
    source, table = delta(tmp_path / "source"), make()
    begin(table._handle, wanted(source))
    deltalake.write_deltalake(tmp_path / "source", rows(300), mode="overwrite")
    table.layout.repush(source=source)
    assert content(table) == IMPORTED


@pytest.mark.parametrize("write", [delta, parquet, iceberg])
def test_a_source_that_went_away_ends_the_repush_with_its_name(
    write: Callable[[Path], str], tmp_path: Path
) -> None:
    """Nothing of the table changes, and a cancel ends it."""
    source, table = write(tmp_path / "source"), make()
    begin(table._handle, wanted(source))
    (tmp_path / "source").rename(tmp_path / "gone")
    with pytest.raises(RepushRefusedError) as caught:
        table.layout.repush(source=source)
    assert caught.value.source == source
    assert content(table) == FIRST
    table.layout.cancel()
    with pytest.raises(OptionError):
        table.layout.repush(source=source)


@pytest.mark.parametrize(
    ("at", "lacks"), [("0", "v"), ("1", "v"), ("p=z/0", "v"), ("z", "p"), ("7", None)]
)
def test_plain_files_that_lack_a_column_or_have_another_type_are_refused(
    at: str, lacks: str | None, tmp_path: Path
) -> None:
    """Whichever file comes first: nulls would stand for values that nobody wrote."""
    write = partitioned if lacks == "p" else parquet
    source, table = write(tmp_path / "source"), make()
    file = tmp_path / "source" / f"{at}.parquet"
    file.parent.mkdir(exist_ok=True)
    other = rows(7).set_column(2, "v", pa.array(["text"]))
    pq.write_table(other if lacks is None else rows(7).drop_columns([lacks]), file)
    before = table.version
    with pytest.raises(SchemaMismatchError, match=lacks and f"'{lacks}'"):
        table.layout.repush(source=source)
    assert again(table).version == before


@pytest.mark.parametrize("change", ["more", "fewer", "other"])
def test_plain_files_that_changed_since_are_refused(change: str, tmp_path: Path) -> None:
    """Nobody could tell which rows of them were loaded."""
    source, table = parquet(tmp_path / "source"), make()
    begin(table._handle, wanted(source))
    match change:
        case "more":
            pq.write_table(rows(301), tmp_path / "source" / "9.parquet")
        case "fewer":
            (tmp_path / "source" / "1.parquet").unlink()
        case _:
            pq.write_table(rows(1, 2, 3, v=8), tmp_path / "source" / "0.parquet")
    with pytest.raises(RepushRefusedError):
        table.layout.repush(source=source)
    assert content(table) == FIRST


def replaced(place: Path) -> None:
    pq.write_table(rows(91, p="z", v=8), place / "2.parquet")


def damaged(place: Path) -> None:
    (place / "2.parquet").write_bytes(b"PAR1")


def deleted(place: Path) -> None:
    for file in place.rglob("*.parquet"):
        file.unlink()


@pytest.mark.parametrize(
    ("write", "change"),
    [
        (parquet, replaced),
        (parquet, damaged),
        (parquet, deleted),
        (delta, deleted),
        (iceberg, deleted),
    ],
)
def test_files_that_change_while_they_are_read_end_the_repush_with_the_name_of_the_source(
    write: Callable[[Path], str], change: Callable[[Path], None], tmp_path: Path
) -> None:
    """Rows of before and of after would be mixed, and their number would not tell."""
    source = write(tmp_path / "source")
    table = beside(make(), PROGRESS, lambda: change(tmp_path / "source"))
    with pytest.raises(RepushRefusedError) as caught:
        table.layout.repush(source=source, rows_per_task=2)
    assert caught.value.source == source
    assert content(table) == FIRST
    table.layout.cancel()


@pytest.mark.parametrize("write", [delta, iceberg, parquet])
def test_columns_that_do_not_fit_are_refused_before_anything_is_written(
    write: Callable[[Path], str], tmp_path: Path
) -> None:
    source = write(tmp_path / "source")
    for number, schema in enumerate(("id bigint, p string", "id bigint, p bigint, v bigint")):
        table = Table.create(f"memory://import-columns-{tmp_path.name}-{number}/t", schema)
        with pytest.raises(SchemaMismatchError):
            table.layout.repush(source=source)
        assert table.version == 0


@pytest.mark.parametrize("kind", ["delta", "iceberg", "plait"])
def test_the_directory_of_a_table_is_no_directory_of_plain_files(kind: str, tmp_path: Path) -> None:
    """Files of every version are in it: rows would come twice, and removed ones again."""
    place, table = tmp_path / "source", make()
    match kind:
        case "delta":
            delta(place)
        case "iceberg":
            iceberg(place)
        case _:
            theirs = Table.create(str(place), SCHEMA)
            theirs.append(rows(1, 2))
            theirs.maintenance.compact(full=True)
    with pytest.raises(OptionError):
        table.layout.repush(source=f"parquet:{place}")
    assert table.version == 4


def test_an_address_leads_to_the_same_place_from_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet(tmp_path / "source")
    table = make()
    monkeypatch.chdir(tmp_path)
    begin(table._handle, wanted("parquet:source"))
    monkeypatch.chdir("/")
    table.layout.repush(source=f"parquet:{tmp_path}/source", rows_per_task=2)
    assert content(table) == IMPORTED


def test_properties_in_the_metadata_of_iceberg_are_not_kept(tmp_path: Path) -> None:
    """RFC 0037: the library would do what they say; the name mapping alone tells how to read."""
    mapping = '[{"field-id": 1, "names": ["id"]}]'
    told = {"py-io-impl": "os.system", "s3.endpoint": "x", "schema.name-mapping.default": mapping}
    catalog = InMemoryCatalog("memory", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("n")
    file = Path(catalog.create_table("n.t", SCHEMA).metadata_location.removeprefix("file://"))
    file.write_text(json.dumps({**json.loads(file.read_text()), "properties": told}))
    source = iceberg_source(given(str(file)), {}, None, NOTHING)
    assert set(source.scan._table_metadata.properties) == {"schema.name-mapping.default"}
