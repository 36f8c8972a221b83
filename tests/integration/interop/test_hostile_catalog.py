"""Rows of a catalog under random damage: a clear error, and no living table is harmed (INV-18)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from contextlib import suppress
from random import Random

import pyarrow as pa
import pytest

from plait import Catalog, Table
from plait.catalog.rest import Answer, IcebergRest, Request
from plait.errors import TableError
from tests.support.build import ids
from tests.support.effort import share
from tests.support.memory import forget

_NUMBERS = itertools.count()
NASTY = (
    *("", "a", "old", "b", ".", "..", "a.b", "a'b", "a' OR '1'='1", "../x", "/etc", "x" * 200),
    *("\x00", "٣", "A", "ﬁ", "namespace", "table", "creating", "dropped", "purging", "-", "_"),
)
PATHS = (
    *("/v1/config", "/v1/namespaces", "/v1/namespaces/a", "/v1/namespaces/a/tables"),
    *("/v1/namespaces/a/tables/old", "/v1/namespaces/b/tables", "/v1/namespaces/a/tables/gone"),
)


@pytest.fixture
def catalog() -> Catalog:
    """Give a catalog with a living table and a dropped one."""
    uri = f"memory://hostile-rows-{next(_NUMBERS)}"
    made = Catalog.create(uri)
    for namespace in "ab":
        made.create_namespace(namespace)
    for name in ("a.old", "a.gone"):
        table = made.create_table(name, "id bigint", record_key=["id"])
        table.upsert(pa.table({"id": [1, 2]}))
    made.drop("a.gone")
    return made


def _damage(catalog: Catalog, draw: Random) -> None:
    """Change values of rows, or write rows that nobody wrote, as whoever may write the table."""
    names = Table.open(f"{catalog.uri}/.catalog")
    found = names.scan().to_arrow()
    known = found.to_pylist()
    places = [row["place"] for row in known if row["place"]]
    made = []
    for _ in range(draw.randrange(1, 4)):
        row = dict(draw.choice(known))
        for key in draw.sample(sorted(row), draw.randrange(1, 4)):
            nasty = draw.choice([*NASTY, *places, f"tables/{draw.randrange(1 << 64):016x}"])
            hostile_ms = draw.choice([-1, 0, 1 << 62])
            row[key] = hostile_ms if key == "changed_ms" else nasty
        made.append(row)
    unique = {(row["namespace"], row["name"], row["unlisted"]): row for row in made}
    names.upsert(pa.Table.from_pylist(list(unique.values()), schema=found.schema))


ACTS: dict[str, Callable[[Catalog], object]] = {
    "namespaces": lambda c: c.namespaces(),
    "tables": lambda c: c.tables(),
    "tables of": lambda c: c.tables("a"),
    "dropped": lambda c: c.dropped(),
    "table": lambda c: c.table("a.old").scan().to_arrow(),
    "rename": lambda c: c.rename("a.old", "b.moved"),
    "create": lambda c: c.create_table("b.new", "id bigint", record_key=["id"]),
    "drop namespace": lambda c: c.drop_namespace("b"),
    "undrop": lambda c: [c.undrop(each.location) for each in c.dropped()],
    "purge": lambda c: c.purge(now=True),
}


@pytest.mark.parametrize("seed", range(share(40)))
def test_damaged_rows_end_in_an_error_and_harm_no_table_that_lives(
    catalog: Catalog, seed: int
) -> None:
    draw = Random(seed)
    living = catalog.table("a.old")
    outside = Table.create(f"{catalog.uri}-outside", "id bigint", record_key=["id"])
    outside.upsert(pa.table({"id": [7]}))
    _damage(catalog, draw)
    for name in draw.sample(sorted(ACTS), 5):
        with suppress(TableError):
            ACTS[name](Catalog(catalog.uri))
    assert ids(living) == [1, 2], "a living table is never purged"
    assert ids(outside) == [7]
    living.upsert(pa.table({"id": [3]}))
    for uri in (f"{catalog.uri}-outside", f"{catalog.uri}/.catalog"):
        forget(uri)


@pytest.mark.parametrize("seed", range(share(40)))
def test_answers_about_damaged_rows_are_errors_that_tell_nothing(
    catalog: Catalog, seed: int
) -> None:
    """RFC 0047: an answer names neither paths of the server nor causes."""
    draw = Random(seed)
    rest = IcebergRest(catalog)
    _damage(catalog, draw)
    for path in draw.sample(PATHS, 4):
        answer: Answer = rest.answer(Request(draw.choice(["GET", "HEAD"]), path))
        assert answer.status.value in (200, 204, 400, 404, 503), (path, answer)
        if answer.status.value >= 400:
            assert "tables/" not in json.dumps(answer.said), answer
