"""Each operation of a catalog, dead at each of its storage calls in turn; then it is repeated.

Every store of the catalog and of its tables counts into one script, so the crash may hit the
table of names, the table itself, or what is between them (INV-18).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from plait import Catalog, storage
from plait.catalog.names import TableName
from plait.errors import TableDroppedError, TableError
from plait.services.definition.drop import drop_table
from plait.storage import memory
from plait.testing.faults import SimulatedCrashError
from tests.support.catalog_steps import DDL, ROWS, create, drop, prepared, purge, rename, undrop
from tests.support.memory import forget
from tests.support.mortal import Mortal

_NUMBERS = itertools.count()


@pytest.fixture
def uri() -> str:
    return f"memory://catalog-crash-{next(_NUMBERS)}"


@pytest.fixture
def mortal(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Mortal]]:
    monkeypatch.setattr(storage, "MemoryStore", Mortal)
    Mortal.left, Mortal.thread = None, threading.get_ident()
    yield Mortal
    Mortal.left = Mortal.rival = None


def _stored(uri: str) -> set[str]:
    """Return the places below a root that have files; in memory each is a store of its own."""
    places = [place for place in memory._SPACES if place.startswith(f"{uri}/tables/")]
    return {place for place in places if any(storage.open_store(place).list(""))}


def _check(catalog: Catalog, *, purged: bool) -> None:
    """INV-18: whatever happened, each table has one entry, and each name is a table or says why."""
    entries = [*catalog.tables(), *catalog.dropped()]
    places = [entry.location for entry in entries]
    assert len(places) == len(set(places))
    assert _stored(catalog.uri) <= set(places), "no table is without an entry"
    assert purged or any("old" in e.name or "moved" in e.name for e in entries)
    for entry in catalog.tables():
        with suppress(TableDroppedError):
            rows = catalog.table(entry.name).scan().to_arrow().num_rows
            assert rows == 2 or (rows == 0 and entry.name != "a.old")


OPERATIONS = {
    "create": (create, lambda _: None, ["a.new", "a.old"]),
    "rename": (rename, lambda _: None, ["b.moved"]),
    "drop": (drop, lambda _: None, []),
    "undrop": (undrop, drop, ["a.old"]),
    "purge": (purge, drop, []),
}


@pytest.mark.long(5)
@pytest.mark.parametrize("name", OPERATIONS)
def test_what_a_crash_leaves_is_ended_by_a_repetition(
    mortal: type[Mortal], name: str, uri: str
) -> None:
    operation, before, names = OPERATIONS[name]
    calls = 0
    for calls in range(10_000):
        place = f"{uri}-{calls}"
        catalog = prepared(place)
        before(catalog)
        mortal.left = calls
        with suppress(SimulatedCrashError):
            operation(catalog)
        crashed, mortal.left = mortal.left < 0, None
        catalog = Catalog(place)
        _check(catalog, purged=name == "purge")
        operation(catalog)
        _check(catalog, purged=name == "purge")
        assert [entry.name for entry in catalog.tables()] == names
        for entry in catalog.tables():
            catalog.table(entry.name).upsert(ROWS)
        if name == "purge":
            assert catalog.dropped() == ()
            assert not _stored(place)
        forget(place)
        if not crashed:
            break
    assert calls > 10


def _between(mortal: type[Mortal], call: int, rival: Callable[[], object]) -> None:
    """Let somebody else act just before a storage call of ours."""
    mortal.rival, mortal.rival_at = rival, mortal.counted + call


RACES = {
    "rename": lambda c: c.rename("a.old", "b.moved"),
    "drop": lambda c: c.drop("a.old"),
    "create": lambda c: c.create_table("b.moved", DDL),
    "drop-namespace": lambda c: c.drop_namespace("b"),
}


@pytest.mark.long(4)
@pytest.mark.parametrize("theirs", RACES)
@pytest.mark.parametrize("ours", RACES)
def test_two_at_once_are_as_one_after_the_other(
    mortal: type[Mortal], ours: str, theirs: str, uri: str
) -> None:
    """Another client acts between any two storage calls of ours: the result is that of an order."""
    orders = [
        _outcome(f"{uri}-{k}", pair) for k, pair in enumerate(((ours, theirs), (theirs, ours)))
    ]
    if {ours, theirs} == {"drop", "rename"}:  # a drop is of the table, whatever its name is then
        orders.append((("a", "b"), [], ["moved"]))
    for call in range(1, 10_000):
        place = f"{uri}-race-{call}"
        catalog, other = prepared(place), Catalog(place)
        _between(mortal, call, lambda c=other: _try(theirs, c))
        _try(ours, catalog)
        acted = mortal.rival is None
        mortal.rival = None
        if not acted:
            break
        assert _names(Catalog(place)) in orders, call
        _check(Catalog(place), purged=False)
        forget(place)
    assert call > 10


def _try(name: str, catalog: Catalog) -> None:
    with suppress(TableError):
        RACES[name](catalog)


def _outcome(place: str, names: tuple[str, str]) -> object:
    catalog = prepared(place)
    for name in names:
        _try(name, catalog)
    try:
        return _names(catalog)
    finally:
        forget(place)


def _names(catalog: Catalog) -> object:
    """Return what can be seen, without the places, which are drawn."""
    gone = sorted(entry.name.split(".")[1] for entry in catalog.dropped())
    return catalog.namespaces(), [entry.name for entry in catalog.tables()], gone


def _half_dropped(catalog: Catalog) -> None:
    """Drop as somebody who dies between the decision and the row."""
    drop_table(catalog._handle(catalog._require(TableName("a", "old"))))


def _undrop_again(catalog: Catalog) -> None:
    """Drop and undrop, both whole."""
    drop(catalog)
    undrop(catalog)


BEFORE = {"living": lambda _: None, "dropped": drop, "half-dropped": _half_dropped}
RIVALS = {
    "drop": drop,
    "undrop": undrop,
    "drop-undrop": _undrop_again,
    "rename": lambda c: c.rename("a.old", "b.old"),
    "purge": purge,
}


@pytest.mark.long(8)
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("theirs", RIVALS)
@pytest.mark.parametrize("ours", ["drop", "undrop"])
def test_what_the_catalog_says_of_a_drop_is_what_the_table_says(
    mortal: type[Mortal], ours: str, theirs: str, before: str, uri: str
) -> None:
    """INV-18: whoever acts between two storage calls, no table listed as dropped takes writes."""
    for call in range(1, 10_000):
        place = f"{uri}-{call}"
        catalog, other = prepared(place), Catalog(place)
        BEFORE[before](catalog)
        table = catalog._handle(next(r for r in catalog._rows("name = 'old'")))
        _between(mortal, call, lambda c=other: _attempt(RIVALS[theirs], c))
        _attempt({"drop": drop, "undrop": undrop}[ours], catalog)
        acted = mortal.rival is None
        mortal.rival = None
        if not acted:
            break
        catalog = Catalog(place)
        _check(catalog, purged=theirs == "purge")
        row = next(iter(catalog._rows("name = 'old'")), None)
        if row is not None:
            dropped = bool(table.cache.refresh().table.contract.dropped)
            assert dropped or row.state == "table", (call, row)
            ended = before != "half-dropped" or theirs != "rename"  # a drop may find no such name
            assert not ended or dropped == (row.state != "table"), (call, row)
        forget(place)
    assert call > 2


def _attempt(operation: Callable[[Catalog], None], catalog: Catalog) -> None:
    with suppress(TableError, StopIteration):  # it is not there, or went meanwhile
        operation(catalog)
