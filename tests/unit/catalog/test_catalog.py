"""A catalog in memory: names, drops, and what each leaves (RFC 0047, INV-18)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from plait import Catalog, Table
from plait.catalog.names import DIRECTORY
from plait.errors import (
    CorruptMetadataError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    OptionError,
    SchemaError,
    TableDroppedError,
    TableError,
    TableExistsError,
    TableNotFoundError,
)

DDL = "id bigint, v bigint"
ROWS = pa.table({"id": [1, 2], "v": [10, 20]})
HOSTILE = [
    *("", ".", "..", "trips", "a.b.c", ".trips", "sales.", "../../etc.passwd", "/etc.x", "a/b.c"),
    *("sales.tr ips", "sales.a\0b", "sales.a\nb", "sales.a'b", 'sales."a"', "sales.a\\b"),
    *("sales.-a", "-s.a", "sales.a%2e%2e", "sales.e\u0301", "sales.\u202ea", "sales.\ud800"),
    *("sales." + "a" * 129, "s" * 129 + ".a", "sales.a;DROP", "sales..a", "s\u2028.a", "~.a"),
]


@pytest.fixture
def catalog(uri: str) -> Catalog:
    made = Catalog.create(uri)
    made.create_namespace("sales")
    return made


def _names(catalog: Catalog) -> list[str]:
    return [entry.name for entry in catalog.tables()]


def _created(catalog: Catalog, name: str = "sales.trips") -> Table:
    table = catalog.create_table(name, DDL, record_key=["id"])
    table.upsert(ROWS)
    return table


def test_a_place_without_a_catalog_is_told_and_not_listed_as_empty(uri: str) -> None:
    with pytest.raises(TableNotFoundError) as told:
        Catalog(uri)
    assert told.value.uri == uri
    assert Catalog.create(uri).namespaces() == Catalog.create(uri).tables() == ()


def test_a_table_is_found_by_its_name_and_by_its_location(catalog: Catalog) -> None:
    _created(catalog)
    for letters in ("sales.Trips", "sales.größe", "sales._x-1", "sales.表"):
        catalog.create_table(letters, DDL)
    assert set(_names(catalog)) == {
        *("sales.trips", "sales.Trips", "sales.größe", "sales._x-1", "sales.表")
    }
    assert catalog.exists("sales.trips")
    assert not catalog.exists("sales.none")
    assert catalog.table("sales.trips").scan().to_arrow().num_rows == 2
    assert Table.open(catalog.location("sales.trips")).scan().to_arrow().num_rows == 2


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_refused_before_anything_is_written(catalog: Catalog, name: str) -> None:
    _created(catalog)
    before = catalog._names.version
    for call in (
        catalog.exists,
        catalog.table,
        catalog.drop,
        lambda text: catalog.create_table(text, DDL),
        lambda text: catalog.rename("sales.trips", text),
        lambda text: catalog.rename(text, "sales.x"),
    ):
        with pytest.raises(OptionError) as told:
            call(name)
        assert told.value.key == "name"
    if "." in name:
        with pytest.raises(OptionError):
            catalog.create_namespace(name)
    assert catalog._names.version == before


def test_a_rename_moves_the_name_alone_and_takes_no_other(catalog: Catalog) -> None:
    table, place = _created(catalog), catalog.location("sales.trips")
    catalog.create_namespace("old")
    catalog.create_table("sales.cars", DDL)
    with pytest.raises(TableExistsError):
        catalog.rename("sales.trips", "sales.cars")
    with pytest.raises(NamespaceNotFoundError):
        catalog.rename("sales.trips", "none.trips")
    with pytest.raises(TableNotFoundError):
        catalog.rename("sales.none", "sales.some")
    catalog.rename("sales.trips", "old.rides")
    assert _names(catalog) == ["old.rides", "sales.cars"]
    assert catalog.location("old.rides") == place
    assert table.upsert(ROWS).version == 2, "a writer does not notice"


def test_creating_twice_gives_one_table(catalog: Catalog) -> None:
    _created(catalog)
    with pytest.raises(TableExistsError):
        catalog.create_table("sales.trips", DDL)
    again = catalog.create_table("sales.trips", "other string", if_not_exists=True)
    assert again.schema.names == ["id", "v"]
    with pytest.raises(NamespaceNotFoundError):
        catalog.create_table("none.trips", DDL)
    with pytest.raises(SchemaError):
        catalog.create_table("sales.bad", DDL, record_key=["none"])
    assert catalog.dropped() == (), "nothing is left of what was refused"


def test_a_namespace_goes_only_without_tables(catalog: Catalog) -> None:
    _created(catalog)
    with pytest.raises(TableExistsError):
        catalog.create_namespace("sales")
    catalog.create_namespace("sales", if_not_exists=True)
    with pytest.raises(NamespaceNotEmptyError) as told:
        catalog.drop_namespace("sales")
    assert told.value.tables == ["sales.trips"]
    catalog.drop("sales.trips")
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace("sales")
    catalog.purge(now=True)
    catalog.drop_namespace("sales")
    with pytest.raises(NamespaceNotFoundError):
        catalog.tables("sales")
    assert catalog.namespaces() == ()


def test_a_drop_refuses_writers_that_live_and_readers_that_come(catalog: Catalog) -> None:
    """INV-12: the commit was staged before the drop, and finds it in its slot."""
    table = _created(catalog)
    writer = table.writer("upsert")
    writer.__enter__()
    writer.write(ROWS)
    entry = catalog.drop("sales.trips")
    with pytest.raises(TableDroppedError) as told:
        writer.__exit__(None, None, None)
    assert told.value.uri == entry.location
    assert told.value.dropped
    for use in (
        table.scan,
        table.snapshot,
        lambda: table.get([1]),
        lambda: table.changes(since=0),
        lambda: table.upsert(ROWS),
        lambda: table.delete(where="id = 1"),
        lambda: table.alter.set({"clean.grace": "2h"}),
        table.maintenance.clean,
        lambda: Table.open(entry.location),
    ):
        with pytest.raises(TableDroppedError):
            use()
    with pytest.raises(TableNotFoundError):
        catalog.table("sales.trips")
    assert _created(catalog).scan().to_arrow().num_rows == 2, "the name is free"


def test_a_drop_is_taken_back_with_every_row_until_the_purge(catalog: Catalog) -> None:
    table = _created(catalog)
    entry = catalog.drop("sales.trips")
    assert [(e.name, e.state) for e in catalog.dropped()] == [("sales.trips", "dropped")]
    _created(catalog)
    with pytest.raises(TableExistsError):
        catalog.undrop(entry.location)
    assert catalog.undrop(entry.location, "sales.back").name == "sales.back"
    back = catalog.table("sales.back")
    assert back.scan().to_arrow().sort_by("id").equals(ROWS.cast(back.schema))
    state = back._handle.cache.refresh()
    assert "dropped-1" not in state.table.features, "older clients read it again"
    back.upsert(ROWS)
    assert table.scan().to_arrow().num_rows == 2
    catalog.drop("sales.back")
    catalog.purge(now=True)
    with pytest.raises(TableNotFoundError):
        catalog.undrop(entry.location)


def test_a_purge_waits_for_the_grace_and_for_readers(catalog: Catalog) -> None:
    """INV-05: a read pin that was taken before the drop keeps the files."""
    table = _created(catalog)
    scan = table.scan()
    entry = catalog.drop("sales.trips")
    assert set(catalog.purge().kept) == {entry.location}
    assert "reader" in catalog.purge(now=True).kept[entry.location]
    assert scan.to_arrow().num_rows == 2
    del scan
    assert [each.location for each in catalog.purge(now=True).purged] == [entry.location]
    assert catalog.dropped() == ()
    with pytest.raises(TableNotFoundError) as told:
        Table.open(entry.location)
    assert not isinstance(told.value, TableDroppedError)
    assert catalog.purge(now=True).purged == ()


def test_an_undrop_beside_a_purge_is_refused(catalog: Catalog) -> None:
    """The purge has decided, and died before it deleted a file."""
    _created(catalog)
    entry = catalog.drop("sales.trips")
    assert catalog._begin_purge(catalog._at(entry.location), now=True) is None
    with pytest.raises(TableNotFoundError):
        catalog.undrop(entry.location)
    assert len(catalog.purge().purged) == 1, "the next one goes on, whatever the grace"


def test_what_is_being_created_is_not_purged_before_a_day(catalog: Catalog) -> None:
    from plait.catalog.catalog import CREATING, Row

    place = "tables/" + "a" * 16
    row = Row("sales", "late", place, CREATING, place, catalog._now_ms())
    catalog._commit("name = 'late'", lambda _: _put(row))
    assert list(catalog.purge(now=True).kept.values()) == ["it is being created"]
    old = Row("sales", "late", place, CREATING, place, 1)
    catalog._commit("name = 'late'", lambda _: _put(old))
    Table.create(f"{catalog.uri}/{place}", DDL)
    assert len(catalog.purge().purged) == 1
    with pytest.raises(TableNotFoundError):
        Table.open(f"{catalog.uri}/{place}")
    with pytest.raises(TableNotFoundError):  # the creator wakes up
        catalog._commit("name IN ('', 'late')", lambda rows: catalog._named(rows, row))


def _put(row):
    from plait.catalog.catalog import _Change

    return _Change(put=[row])


@pytest.mark.parametrize(
    "lie",
    [
        {"place": "../../etc"},
        {"place": "/etc/passwd"},
        {"place": "tables/../../../x"},
        {"place": "tables/0123456789ABCDEF"},
        {"place": ".catalog"},
        {"state": "other"},
        {"name": "../x"},
        {"name": "a" * 200},
        {"unlisted": "tables/0123456789abcdef"},
        {"namespace": "a/b"},
        {"namespace": ""},
    ],
)
def test_an_entry_that_leads_elsewhere_is_damage(catalog: Catalog, lie: dict[str, str]) -> None:
    honest = {
        "namespace": "sales",
        "name": "x",
        "unlisted": "",
        "state": "table",
        "place": "tables/0123456789abcdef",
        "changed_ms": 1,
    }
    forged = pa.Table.from_pylist([{**honest, **lie}])
    Table.open(f"{catalog.uri}/{DIRECTORY}").upsert(forged)
    with pytest.raises(CorruptMetadataError) as told:
        catalog.purge(now=True) if "unlisted" in lie else catalog.tables()
    assert told.value.path == DIRECTORY


def test_a_forged_time_of_a_drop_is_damage() -> None:
    from plait.definition.table_def import TableDef

    made = Table.create("memory://forged-drop", DDL)._handle.cache.known().table.to_dict()
    made["contract"]["dropped"] = "soon"
    with pytest.raises(CorruptMetadataError):
        TableDef.from_dict(made, where="here")


def test_an_error_of_the_catalog_is_one_of_a_table(catalog: Catalog) -> None:
    for call in (lambda: catalog.table("sales.none"), lambda: catalog.tables("none")):
        with pytest.raises(TableError) as told:
            call()
        assert isinstance(told.value, TableNotFoundError)
        assert told.value.hint


def test_a_catalog_by_a_relative_path_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-18: else a drop finds no table, and a purge forgets one that lives."""
    monkeypatch.chdir(tmp_path)
    catalog = Catalog.create("lake")
    catalog.create_namespace("sales")
    table = _created(catalog)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    location = catalog.location("sales.trips")
    assert location.startswith(f"{tmp_path}/lake/tables/")
    assert catalog.table("sales.trips").scan().count() == 2
    catalog.drop("sales.trips")
    with pytest.raises(TableDroppedError):
        table.append(ROWS)
    # Any client takes the location that another one says.
    Catalog("../lake").undrop(location)
    assert catalog.table("sales.trips").scan().count() == 2
