"""A catalog in memory: names, drops, and what each leaves (RFC 0047, INV-18)."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pytest

from plait import Catalog, Table
from plait.catalog.names import CREATING, DIRECTORY, DROPPED, PURGING, Row
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
from plait.storage import open_store
from plait.timeline import paths

PLACE = "tables/" + "a" * 16
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
    for letters in ("sales.größe", "sales._x-1", "sales.表"):
        catalog.create_table(letters, DDL)
    assert set(_names(catalog)) == {*("sales.trips", "sales.größe", "sales._x-1", "sales.表")}
    assert catalog.exists("sales.trips")
    assert not catalog.exists("sales.none")
    assert catalog.table("sales.trips").scan().to_arrow().num_rows == 2
    assert Table.open(catalog.location("sales.trips")).scan().to_arrow().num_rows == 2


def test_a_table_of_no_namespace_does_not_exist(catalog: Catalog) -> None:
    """As ``table_exists`` of pyiceberg says it."""
    assert not catalog.exists("none.trips")


def test_a_name_is_one_name_in_any_case_of_letters_at_every_door(catalog: Catalog) -> None:
    """INV-18: Spark and Trino write names in lower case, and would find one of two by chance."""
    catalog.create_namespace("Stock")
    with pytest.raises(TableExistsError):
        catalog.create_namespace("STOCK")
    made = catalog.create_table("Sales.Größe", DDL, record_key=["id"])
    assert _names(catalog) == ["sales.größe"]
    assert catalog.exists("SALES.GRÖSSE".replace("SS", "ß"))
    for again in ("sales.größe", "SALES.GRÖßE"):
        with pytest.raises(TableExistsError):
            catalog.create_table(again, DDL)
        assert catalog.table(again)._handle.identity == made._handle.identity
    catalog.rename("sales.GRÖßE", "STOCK.Parts")
    assert [entry.name for entry in catalog.tables("Stock")] == ["stock.parts"]
    entry = catalog.drop("Stock.PARTS")
    assert catalog.undrop(entry.location, "SALES.Back").name == "sales.back"
    catalog.drop_namespace("stocK")
    assert catalog.namespaces() == ("sales",)


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
    row = catalog._at(entry.location)
    assert catalog._replace(row, catalog._moved(row, PURGING))
    with pytest.raises(TableNotFoundError):
        catalog.undrop(entry.location)
    assert len(catalog.purge(now=True).purged) == 1, "the next one goes on"


def test_what_is_being_created_is_not_purged_before_a_day(catalog: Catalog) -> None:
    row = _put(catalog, "late", CREATING, changed_ms=catalog._now_ms())
    catalog._claim(row)
    table = Table.create(catalog._uri_of(row), DDL)
    assert list(catalog.purge(now=True).kept.values()) == ["it is being created"]
    old = _put(catalog, "late", CREATING, changed_ms=1)
    assert "grace" in catalog.purge().kept[catalog._uri_of(old)]
    assert not catalog._replace(row, catalog._moved(row, "table")), "the creator wakes up"
    with pytest.raises(TableDroppedError):
        table.append(ROWS)
    assert len(catalog.purge(now=True).purged) == 1
    with pytest.raises(TableNotFoundError):
        Table.open(catalog._uri_of(row))


def _put(
    catalog: Catalog, name: str, state: str, place: str = PLACE, *, changed_ms: int = 1
) -> Row:
    """Write a row of the catalog as somebody could who may write its table."""
    unlisted = "" if state == "table" else place
    row = Row("sales", name, unlisted, state, place, changed_ms)
    Table.open(f"{catalog.uri}/{DIRECTORY}").upsert(pa.Table.from_pylist([asdict(row)]))
    return row


@pytest.mark.parametrize("state", [CREATING, DROPPED, PURGING])
@pytest.mark.parametrize("own", [True, False])
def test_a_forged_entry_deletes_no_table_that_lives(
    catalog: Catalog, state: str, *, own: bool
) -> None:
    """INV-18: no row is a reason to delete a file; the timeline of the table is."""
    if own:
        _created(catalog, "sales.mine")
        uri = catalog.location("sales.mine")
    else:
        uri = f"{catalog.uri}/{PLACE}"
        Table.create(uri, DDL, record_key=["id"]).upsert(ROWS)
    _put(catalog, "forged", state, uri.removeprefix(f"{catalog.uri}/"))
    for now in (False, True):
        report = catalog.purge(now=now)
        assert report.purged == ()
        assert "sales.forged" in report.kept[uri]
    assert Table.open(uri).upsert(ROWS).version == 2
    if own:
        assert catalog.table("sales.mine").scan().to_arrow().num_rows == 2


@pytest.mark.parametrize("state", [CREATING, DROPPED, PURGING])
def test_a_forged_entry_deletes_no_empty_table_of_somebody_else(
    catalog: Catalog, state: str
) -> None:
    uri = f"{catalog.uri}/{PLACE}"
    Table.create(uri, DDL)
    _put(catalog, "forged", state)
    assert "sales.forged" in catalog.purge(now=True).kept[uri]
    assert Table.open(uri).append(ROWS).version == 1


def test_a_forged_purge_deletes_no_empty_table_of_the_catalog(catalog: Catalog) -> None:
    catalog.create_table("sales.mine", DDL)
    uri = catalog.location("sales.mine")
    _put(catalog, "forged", PURGING, uri.removeprefix(f"{catalog.uri}/"))
    assert "sales.forged" in catalog.purge(now=True).kept[uri]
    assert catalog.table("sales.mine").append(ROWS).version == 1


def test_two_entries_with_one_place_are_damage(catalog: Catalog) -> None:
    """INV-18: a drop of one name would drop the table of the other."""
    _created(catalog)
    uri = catalog.location("sales.trips")
    _put(catalog, "alias", "table", uri.removeprefix(f"{catalog.uri}/"))
    with pytest.raises(CorruptMetadataError) as told:
        catalog.drop("sales.alias")
    assert told.value.path == DIRECTORY


def test_files_without_a_table_are_not_deleted(catalog: Catalog) -> None:
    uri = f"{catalog.uri}/{PLACE}"
    open_store(uri, create=True).put("thesis.txt", b"words")
    for state in (CREATING, DROPPED, PURGING):
        _put(catalog, "forged", state)
        assert "sales.forged" in catalog.purge(now=True).kept[uri]
    assert open_store(uri).find("thesis.txt") == b"words"


def test_a_purge_that_died_among_the_files_is_ended(catalog: Catalog) -> None:
    """Its mark stays until the last file is gone, and is of no other table."""
    _created(catalog)
    entry = catalog.drop("sales.trips")
    row = catalog._at(entry.location)
    assert catalog._replace(row, catalog._moved(row, PURGING))
    store = open_store(entry.location)
    identity = store.find(paths.TABLE)
    store.put(paths.PURGING, b'{"format": 1, "id": "0123456789abcdef0123456789abcdef"}')
    assert paths.PURGING in catalog.purge(now=True).kept[entry.location]
    store.put(paths.PURGING, identity)
    store.delete([paths.slot(1)])
    assert len(catalog.purge(now=True).purged) == 1
    assert not list(store.list(""))


@pytest.mark.parametrize("link", ["place", "tables", "inner"])
def test_a_link_leads_no_purge_and_no_reader_out_of_the_root(tmp_path: Path, link: str) -> None:
    catalog = Catalog.create(str(tmp_path / "lake"))
    catalog.create_namespace("sales")
    _created(catalog)
    entry = catalog.drop("sales.trips")
    outside = tmp_path / "outside"
    place = Path(entry.location)
    if link == "inner":
        outside.mkdir()
        (outside / "kept").write_text("words")
        (place / "partition").symlink_to(outside)
    else:
        moved = place if link == "place" else place.parent
        moved.rename(outside)
        moved.symlink_to(outside)
    before = sorted(path for path in outside.rglob("*") if path.is_file())
    report = catalog.purge(now=True)
    assert bool(report.kept) == (link != "inner")
    assert sorted(path for path in outside.rglob("*") if path.is_file()) == before
    if link != "inner":
        with pytest.raises(CorruptMetadataError):
            catalog.undrop(entry.location)
        _put(catalog, "linked", "table", f"tables/{place.name}")
        with pytest.raises(CorruptMetadataError):
            catalog.table("sales.linked")


def test_of_two_creators_of_one_name_the_second_gets_the_table_of_the_first(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one is done while our table is made, so only the name itself tells."""
    made = Table.create

    def late(uri: str, schema: object, **definition: object) -> Table:
        table = made(uri, schema, **definition)
        monkeypatch.setattr(Table, "create", made)
        Catalog(catalog.uri).create_table("sales.trips", "other string")
        return table

    monkeypatch.setattr(Table, "create", late)
    table = catalog.create_table("sales.trips", DDL, if_not_exists=True)
    assert table.schema.names == ["other"]
    assert catalog.dropped() == (), "nothing is left of ours"
    assert _names(catalog) == ["sales.trips"]


def test_a_creation_with_an_unknown_argument_leaves_nothing(catalog: Catalog) -> None:
    with pytest.raises(TypeError):
        catalog.create_table("sales.trips", DDL, record_kee=["id"])
    assert catalog.dropped() == catalog.tables() == ()


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
        {"name": "X"},
        {"namespace": "Sales"},
        {"changed_ms": -1},
        {"changed_ms": (1 << 63) - 1},
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
