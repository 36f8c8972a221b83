"""Operations of a catalog that die at one of their storage calls, in whichever table that is.

What tests/fault and the crash certificate share.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import NamedTuple
from unittest import mock

import pyarrow as pa

from plait import Catalog, storage
from plait.errors import TableDroppedError
from plait.testing import StoreCall
from plait.testing.faults import SimulatedCrashError
from tests.support.mortal import Mortal

DDL = "id bigint"
ROWS = pa.table({"id": [1, 2]})
_NUMBERS = itertools.count()


def prepared(uri: str) -> Catalog:
    """Make a catalog of two namespaces and one table."""
    catalog = Catalog.create(uri)
    catalog.create_namespace("a")
    catalog.create_namespace("b")
    catalog.create_table("a.old", DDL, record_key=["id"]).upsert(ROWS)
    return catalog


def create(catalog: Catalog) -> None:
    catalog.create_table("a.new", DDL, record_key=["id"], if_not_exists=True)


def rename(catalog: Catalog) -> None:
    if catalog.exists("a.old"):
        catalog.rename("a.old", "b.moved")


def drop(catalog: Catalog) -> None:
    if catalog.exists("a.old"):
        catalog.drop("a.old")


def undrop(catalog: Catalog) -> None:
    place = next(e.location for e in (*catalog.dropped(), *catalog.tables()) if "old" in e.name)
    catalog.undrop(place)


def purge(catalog: Catalog) -> None:
    catalog.purge(now=True)


@dataclass(frozen=True)
class CatalogCase:
    """An operation, and what was done before."""

    run: Callable[[Catalog], None]
    first: Callable[[Catalog], None] = lambda _: None


CASES = {
    "catalog: create": CatalogCase(create),
    "catalog: rename": CatalogCase(rename),
    "catalog: drop": CatalogCase(drop),
    "catalog: undrop": CatalogCase(undrop, drop),
    "catalog: purge": CatalogCase(purge, drop),
}


class Left(NamedTuple):
    """What a death left."""

    sees: str
    """The tables, by their names."""
    entries: str
    """Those of tables without a name, by their states."""
    removed: str


def deaths(case: CatalogCase, reads: Collection[str]) -> Iterator[tuple[StoreCall | None, Left]]:
    """Kill an operation before each call that changes something, and after the last one."""
    with killing():
        place, catalog = _begun(case)
        Mortal.calls.clear()
        case.run(catalog)
        calls, end = list(Mortal.calls), _unlisted(catalog)
        changing = [at for at, call in enumerate(calls) if call.operation not in reads]
        for at in (*changing, len(calls)):
            place, catalog = _begun(case)
            Mortal.left = at
            with suppress(SimulatedCrashError):
                case.run(catalog)
            Mortal.left = None
            catalog = Catalog(place)
            sees, entries = _named(catalog), _unlisted(catalog)
            case.run(catalog)
            stays = _unlisted(catalog) - end
            removed = "a purge, after a day" if stays else "next write" if entries - end else ""
            call = None if at == len(calls) else calls[at]
            left = ", ".join(f"{n} `{state}`" for state, n in sorted(entries.items())) or "nothing"
            yield call and replace(call, path=_inside(call.path)), Left(sees, left, removed)


@contextmanager
def killing() -> Iterator[None]:
    """Let all stores in memory be those of one process, which may die."""
    Mortal.left, Mortal.thread = None, threading.get_ident()
    try:
        with mock.patch.object(storage, "MemoryStore", Mortal):
            yield
    finally:
        Mortal.left = Mortal.rival = None


def _begun(case: CatalogCase) -> tuple[str, Catalog]:
    place = f"memory://catalog-steps-{next(_NUMBERS)}"
    catalog = prepared(place)
    case.first(catalog)
    return place, catalog


def _inside(uri: str) -> str:
    """Return a path in the root of the catalog."""
    return uri.removeprefix("memory://").partition("/")[2]


def _named(catalog: Catalog) -> str:
    found = []
    for entry in catalog.tables():
        try:
            catalog.table(entry.name)
            found.append(f"`{entry.name}`")
        except TableDroppedError:
            found.append(f"`{entry.name}`, told to be dropped")
    return ", ".join(found) or "no table"


def _unlisted(catalog: Catalog) -> Counter[str]:
    return Counter(entry.state for entry in catalog.dropped())
