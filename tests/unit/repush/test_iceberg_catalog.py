"""Tables of Iceberg that a catalog knows by name, brought over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from plait import (
    ConsentError,
    OptionError,
    RepushRefusedError,
    Table,
    TableNotFoundError,
    import_table,
)
from plait.model.repush import SourceAddress
from plait.repush.begin import RepushRequest, begin
from plait.repush.source import WantedSource

NAME = "catalog://lake/sales.eu.trips"
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])


def rows(low: int, high: int) -> pa.Table:
    columns = {
        "id": range(low, high),
        "v": [None if n % 7 == 0 else f"v{n}" for n in range(low, high)],
    }
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    return {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }


@pytest.fixture
def catalog(options: dict[str, str]) -> Iterator[SqlCatalog]:
    with closing(SqlCatalog("lake", **options)) as made:
        made.create_namespace("sales")
        made.create_namespace(("sales", "eu"))
        yield made


def content(place: Path) -> list[dict[str, object]]:
    return Table.open(str(place)).scan().to_arrow().sort_by("id").to_pylist()


@pytest.mark.parametrize("address", [NAME, f"iceberg:{NAME}"])
def test_a_table_is_found_by_its_name_in_a_catalog(
    address: str, catalog: SqlCatalog, options: dict[str, str], tmp_path: Path
) -> None:
    table = catalog.create_table("sales.eu.trips", SCHEMA)
    table.append(rows(0, 50))
    table.append(rows(50, 80))
    table.delete("id < 20")
    plan = import_table(address, str(tmp_path / "new"), source_options=options, dry_run=True)
    assert (plan.rows, plan.source) == (60, f"iceberg:{NAME}")
    with pytest.raises(TableNotFoundError):
        Table.open(str(tmp_path / "new"))
    done = import_table(address, str(tmp_path / "new"), record_key="id", source_options=options)
    assert done.source_version == table.current_snapshot().snapshot_id
    assert content(tmp_path / "new") == rows(20, 80).to_pylist()
    assert import_table(address, str(tmp_path / "new"), record_key="id").rows == 0  # over


def test_an_import_goes_on_in_the_snapshot_with_which_it_began(
    catalog: SqlCatalog, options: dict[str, str], tmp_path: Path
) -> None:
    """INV-09: the name stays the same, and the metadata file does not."""
    table = catalog.create_table("sales.eu.trips", SCHEMA)
    table.append(rows(0, 50))
    target = Table.create(str(tmp_path / "new"), SCHEMA, record_key="id")
    wanted = WantedSource(SourceAddress.of(f"iceberg:{NAME}"), options, given=True)
    begin(target._handle, RepushRequest(source=wanted, commit_id=f"import iceberg:{NAME}"))
    table.append(rows(50, 80))
    import_table(NAME, str(tmp_path / "new"), source_options=options)
    assert content(tmp_path / "new") == rows(0, 50).to_pylist()


def test_a_snapshot_that_expired_meanwhile_is_refused_and_the_target_is_empty(
    catalog: SqlCatalog, options: dict[str, str], tmp_path: Path
) -> None:
    table = catalog.create_table("sales.eu.trips", SCHEMA)
    table.append(rows(0, 50))
    first = table.current_snapshot().snapshot_id
    target = Table.create(str(tmp_path / "new"), SCHEMA, record_key="id")
    wanted = WantedSource(SourceAddress.of(f"iceberg:{NAME}"), options, given=True)
    begin(target._handle, RepushRequest(source=wanted, commit_id=f"import iceberg:{NAME}"))
    table.append(rows(50, 80))
    table.maintenance.expire_snapshots().by_id(first).commit()
    with pytest.raises(RepushRefusedError):
        import_table(NAME, str(tmp_path / "new"), source_options=options)
    assert content(tmp_path / "new") == []


@pytest.mark.parametrize(
    "address",
    ["catalog://lake/sales.eu.none", "catalog://lake/none.t", "catalog://lake", "catalog://"],
)
def test_a_name_that_no_table_has_is_refused_before_anything_is_written(
    address: str, catalog: SqlCatalog, options: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(OptionError) as caught:
        import_table(address, str(tmp_path / "new"), source_options=options)
    assert caught.value.key == "source"
    assert not (tmp_path / "new").exists()


def test_a_catalog_that_is_not_there_is_not_made(options: dict[str, str], tmp_path: Path) -> None:
    """A look at a source writes nothing there, either."""
    with closing(SqlCatalog("lake", **options, init_catalog_tables="false")):
        before = (tmp_path / "catalog.db").read_bytes()
        with pytest.raises(OptionError):
            import_table(NAME, str(tmp_path / "new"), source_options=options)
        assert (tmp_path / "catalog.db").read_bytes() == before


def test_what_the_metadata_of_a_table_says_is_not_done(
    catalog: SqlCatalog, options: dict[str, str], tmp_path: Path
) -> None:
    """RFC 0037: who may write a table in a catalog chooses no class and no server."""
    properties = {
        "py-io-impl": "there.is.no.such.Class",
        "s3.endpoint": "http://127.0.0.1:9",
        "s3.access-key-id": "other",
    }
    made = catalog.create_table("sales.eu.trips", SCHEMA)
    made.append(rows(0, 9))
    file = Path(made.metadata_location.removeprefix("file://"))
    file.write_text(json.dumps(json.loads(file.read_text()) | {"properties": properties}))
    with pytest.raises(ValueError, match="Could not initialize FileIO"):
        catalog.load_table("sales.eu.trips")  # the library would have done it
    import_table(NAME, str(tmp_path / "new"), source_options=options)
    assert content(tmp_path / "new") == rows(0, 9).to_pylist()


def test_files_outside_of_the_table_are_asked_for(
    catalog: SqlCatalog, options: dict[str, str], tmp_path: Path
) -> None:
    elsewhere = f"file://{tmp_path}/elsewhere"
    properties = {"write.data.path": elsewhere}
    table = catalog.create_table("sales.eu.trips", SCHEMA, properties=properties)
    table.append(rows(0, 9))
    with pytest.raises(ConsentError):
        import_table(NAME, str(tmp_path / "new"), source_options=options)
    allow = f"{tmp_path}/elsewhere/*"
    import_table(NAME, str(tmp_path / "new"), source_options=options, allow=allow)
    assert content(tmp_path / "new") == rows(0, 9).to_pylist()


def test_a_target_in_the_directory_of_the_table_is_refused(
    catalog: SqlCatalog, options: dict[str, str]
) -> None:
    table = catalog.create_table("sales.eu.trips", SCHEMA)
    table.append(rows(0, 9))
    inside = f"{table.location().removeprefix('file://')}/new"
    for source in (NAME, table.metadata_location):
        given = options if source == NAME else None
        with pytest.raises(OptionError, match="in the directory of its source"):
            import_table(source, inside, source_options=given)
    assert not Path(inside).exists()


def test_vectors_of_version_3_hide_their_rows(
    catalog: SqlCatalog, options: dict[str, str], tmp_path: Path
) -> None:
    """INV-17: of more rows than one batch has, some vectors to a snapshot."""
    old = Table.create(
        str(tmp_path / "old"),
        SCHEMA,
        record_key="id",
        table_type="mor",
        buckets=2,
        properties={"publish": "iceberg", "publish.iceberg.deletes": "vectors"},
    )
    old.append(rows(0, 200_000))
    old.delete(where="id >= 1000 and id < 9000 or id = 199999")
    old.upsert(rows(150_000, 150_100))
    old.maintenance.publish()
    newest = f"v{old.version}.metadata.json"
    catalog.register_table("sales.eu.trips", f"file://{tmp_path}/old/metadata/{newest}")
    assert catalog.load_table("sales.eu.trips").format_version == 3
    import_table(NAME, str(tmp_path / "new"), record_key="id", source_options=options)
    assert content(tmp_path / "new") == old.scan().to_arrow().sort_by("id").to_pylist()


def test_the_command_finds_a_catalog_in_the_configuration_of_pyiceberg(
    catalog: SqlCatalog, options: dict[str, str], tmp_path: Path
) -> None:
    catalog.create_table("sales.eu.trips", SCHEMA).append(rows(0, 9))
    lines = [f"    {name}: {value}" for name, value in options.items()]
    (tmp_path / ".pyiceberg.yaml").write_text("\n".join(["catalog:", "  lake:", *lines, ""]))
    command = [sys.executable, "-m", "plait.cli", "import", NAME, str(tmp_path / "new")]
    environment = {**os.environ, "PYICEBERG_HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr
    assert content(tmp_path / "new") == rows(0, 9).to_pylist()
