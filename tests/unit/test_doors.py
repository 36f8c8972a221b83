"""Every door that takes the location of a table or a catalog understands the same ones."""

from __future__ import annotations

import pickle  # noqa: TID251 - to be refused by it
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait.polars
from plait import Catalog, Table, import_table
from plait.cli.main import main
from plait.cli.render import Streams
from plait.errors import OptionError, StorageError, TableNotFoundError
from plait.model.consent import Consent
from plait.spark.options import READING, SourceOptions
from plait.storage import open_store
from tests.unit.cli.conftest import Pipe

DDL = "id bigint"
DOORS: dict[str, Callable[..., object]] = {
    "Table.create": lambda place: Table.create(place, DDL),
    "Table.open": Table.open,
    "Catalog": Catalog,
    "Catalog.create": Catalog.create,
    "import to": lambda place: import_table("files", place),
    "import from": lambda place: import_table(place, "memory://imported"),
    "polars.scan": plait.polars.scan,
    "polars.scan with options": lambda place: plait.polars.scan(place, allow="s3://b/x"),
    "open_store": open_store,
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty directory, beside an empty home."""
    there, here = tmp_path / "home", tmp_path / "here"
    there.mkdir()
    (here / "files").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), here / "files" / "a.parquet")
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(there))
    return there


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("place", ["", " ", "\t\n", "a\0b", None, b"lake", 7])
def test_what_is_no_location_is_refused_at_every_door(door: str, place: object) -> None:
    """``""`` was the root of the file system for catalogs."""
    with pytest.raises(OptionError) as refused:
        DOORS[door](place)
    assert (refused.value.key, refused.value.hint) == ("uri", "pass a path or a URL")


@pytest.mark.parametrize("command", ["namespace", "create", "list", "describe", "probe"])
def test_the_command_line_refuses_what_is_no_location(command: str) -> None:
    more = {"namespace": ["a"], "create": ["--schema", DDL]}.get(command, [])
    streams = Streams(Pipe(), Pipe(), Pipe())
    assert main([command, "", *more], streams) == 2
    assert "is not a location of a table" in streams.err.getvalue()  # type: ignore[attr-defined]  # a Pipe


def test_the_options_of_spark_refuse_what_is_no_location() -> None:
    for given in ({"path": " "}, {"path": "a.b", "catalog": ""}, {"path": "a.b", "catalog": " "}):
        with pytest.raises(OptionError):
            SourceOptions.of(given, READING).table()


def test_a_path_is_a_location_at_every_door(tmp_path: Path) -> None:
    catalog = Catalog.create(tmp_path / "lake")
    catalog.create_namespace("a")
    assert Catalog(tmp_path / "lake").uri == catalog.uri == str(tmp_path / "lake")
    assert Table.create(tmp_path / "t", DDL).version == Table.open(tmp_path / "t").version
    assert import_table(Path("files"), tmp_path / "brought").rows == 1
    assert plait.polars.scan(tmp_path / "brought").collect().rows() == [(1,)]
    assert plait.polars.scan(tmp_path / "brought", allow="s3://b/x").collect().rows() == [(1,)]


def test_a_catalog_has_one_uri_however_its_place_is_spelled(tmp_path: Path) -> None:
    Catalog.create("lake")
    for place in (f"file://{tmp_path}/here/lake", f"file:{tmp_path}/here/lake/", "lake/", "./lake"):
        assert Catalog(place).uri == f"{tmp_path}/here/lake"


@pytest.mark.parametrize("kind", ["", "table:", "parquet:"])
def test_a_tilde_is_the_home_directory_at_every_door(kind: str, home: Path) -> None:
    """As for Polars and DuckDB; a shell expands it only where no prefix stands before it."""
    Table.create("~/t", DDL).append(pa.table({"id": [1]}))
    (home / "files").mkdir()
    pq.write_table(pa.table({"id": [1]}), home / "files" / "a.parquet")
    source = "~/files" if kind == "parquet:" else "~/t"
    assert import_table(f"{kind}{source}", f"~/to-{kind.strip(':')}").rows == 1
    Catalog.create("~")
    assert Catalog("~").uri == str(home)
    assert plait.polars.scan("~/t").collect().rows() == [(1,)]
    assert SourceOptions.of({"path": "~/t"}, READING).table().version == 1
    assert main(["describe", "~/t"], Streams(Pipe(), Pipe(), Pipe())) == 0
    assert sorted(each.name for each in Path().iterdir()) == ["files"]


def test_other_names_with_a_tilde_are_directories() -> None:
    for place in ("./~", "~user", "a/~"):
        Table.create(place, DDL)
    assert sorted(each.name for each in Path().iterdir()) == ["a", "files", "~", "~user"]
    with pytest.raises(TableNotFoundError):
        Table.open("~")


def test_an_allowed_place_with_a_tilde_is_the_one_that_metadata_has(home: Path) -> None:
    assert Consent.of("~/*").allows(f"{home}/x")
    assert not Consent.of("./*").allows(f"{home}/x")


def test_an_error_of_the_store_names_the_table_that_could_not_be_created(tmp_path: Path) -> None:
    """It named ``.meta/table.json`` alone, which is in every table."""
    with pytest.raises(StorageError) as failed:
        Table.create("/proc/self/plait", DDL)
    assert "/proc/self/plait" in failed.value.message
    assert failed.value.hint


def test_a_table_and_a_catalog_say_what_they_are_and_what_to_pickle(tmp_path: Path) -> None:
    table, catalog = Table.create("t", DDL), Catalog.create("lake")
    here = tmp_path / "here"
    assert repr(table) == f"Table('{here}/t')"
    assert repr(catalog) == f"Catalog('{here}/lake')"
    for opened, advice in ((table, "Table.open"), (catalog, "pass its location")):
        with pytest.raises(TypeError, match=advice):
            pickle.dumps(opened)
