"""A clean that retains nothing comes between any two storage calls of a read (INV-05).

Whoever reads the newest version gets its rows. ``InstantExpiredError`` is for who named a version
that is gone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pytest

from plait import InstantExpiredError, Table
from tests.support.cleaning import ROWS, Cleaned, Interrupted
from tests.support.effort import MORE
from tests.support.memory import forget

AT_MOST: Final = 10
"""So many places are tried of a read that makes more calls, unless `make soak` runs it."""
Read = Callable[[Table], object]


def shown(rows: pa.Table) -> dict[int, tuple[object, ...]]:
    return {row["id"]: tuple(row.values()) for row in rows.to_pylist()}


def folded(changes: pa.Table) -> dict[int, tuple[object, ...]]:
    """Put changes together to what the newest version shows."""
    found: dict[int, tuple[object, ...]] = {}
    for row in sorted(changes.to_pylist(), key=lambda each: each["_commit_version"]):
        if row["_change_type"] in ("insert", "update_postimage"):
            found[row["id"]] = (row["id"], row["place"], row["v"])
        elif row["_change_type"] == "delete":
            found.pop(row["id"], None)
    return found


def of_block(table: Table) -> object:
    with table.transaction() as block:
        return shown(block.scan().to_arrow())


def built(table: Table, *, anew: bool) -> object:
    table.index.build(anew=anew)
    return shown(table.get(list(ROWS)))


def repaired(table: Table) -> object:
    """Look for damage, of which there is none."""
    return table.check.repair_from_replica(table._handle.store.address.uri, dry_run=True).buckets


NEWEST: dict[str, tuple[Read, object]] = {
    "scan": (lambda table: shown(table.scan().to_arrow()), ROWS),
    "scan where": (lambda table: table.scan(where="id = 3").to_arrow()["v"].to_pylist(), [30]),
    "get": (lambda table: shown(table.get(list(ROWS))), ROWS),
    "get of a value": (lambda table: table.get([3])["v"].to_pylist(), [30]),
    "files": (lambda table: table.inspect.files()["rows"].to_pylist() != [], True),
    "describe": (lambda table: table.inspect.describe()["rows"], len(ROWS)),
    "history": (lambda table: table.inspect.history()[-1].operation, "create"),
    "compare": (lambda table: table.inspect.compare(table.scan()).equal, True),
    "scan of a block": (of_block, ROWS),
    "verify": (lambda table: table.check.verify().problems, ()),
    "verify of the index": (lambda table: table.index.verify().missing, 0),
    "state of the index": (lambda table: table.index.status().usable, True),
    "index": (lambda table: built(table, anew=False), ROWS),
    "index anew": (lambda table: built(table, anew=True), ROWS),
    "bounds made again": (lambda table: table.maintenance.rebuild_metadata().unread, ()),
    "plan of an expiry": (
        lambda table: table.maintenance.expire(ttl="written 1d", dry_run=True).tasks,
        (),
    ),
    "plan of columns": (
        lambda table: len(table.alter.columns().add_check("c", "v >= 0").commit(dry_run=True)),
        3,
    ),
    "check": (
        lambda table: table.alter.columns().add_check("c", "v >= 0").commit().version > 0,
        True,
    ),
    "repair from itself": (repaired, ()),
    "plan of a clean": (lambda table: table.maintenance.clean(dry_run=True).horizon >= 0, True),
    "foreign": (lambda table: table.check.foreign(), ()),
}
NAMED: Final[dict[str, Read]] = {
    "version": lambda table: shown(table.scan(version=4).to_arrow()),
    "changes": lambda table: folded(table.changes(since=0).to_arrow()),
    "changes to the newest": lambda table: folded(table.changes(since=0, until=4).to_arrow()),
}
"""They name a version that may be gone."""


@pytest.fixture(scope="module", params=["cow", "mor"])
def cleaned(request: pytest.FixtureRequest) -> Cleaned:
    return Cleaned(request.param)


def attempts(cleaned: Cleaned, read: Read, *, warm: bool) -> list[object]:
    """Read with a clean before each storage call in turn; give the answers, errors among them."""
    table, store = cleaned.attempt(warm=warm)
    found: list[object] = [answered(read, table)]
    step = 1 if MORE else max(1, store.calls // AT_MOST)
    for at in range(random.Random(store.calls).randrange(step), store.calls, step):
        table, interrupted = cleaned.attempt(warm=warm)
        interrupted.at = at
        found.append(answered(read, table))
        let_go(interrupted)
    let_go(store)
    return found


def answered(read: Read, table: Table) -> object:
    try:
        return read(table)
    except InstantExpiredError as error:
        return error


def let_go(store: Interrupted) -> None:
    forget(store.inner.address.uri)


@pytest.mark.long(8)
@pytest.mark.slow
@pytest.mark.parametrize("name", NEWEST)
def test_a_read_of_the_newest_version_gives_its_rows_whatever_is_cleaned_meanwhile(
    cleaned: Cleaned, name: str
) -> None:
    read, right = NEWEST[name]
    warm = cleaned.table_type == "mor"  # each is half of the cases
    assert [each for each in attempts(cleaned, read, warm=warm) if each != right] == []


@pytest.mark.long(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMED)
def test_a_read_of_a_version_gives_its_rows_or_says_that_it_is_gone(
    cleaned: Cleaned, name: str
) -> None:
    warm = cleaned.table_type == "cow"
    found = attempts(cleaned, NAMED[name], warm=warm)
    gone = [each for each in found if isinstance(each, InstantExpiredError)]
    assert [each for each in found if each != ROWS and each not in gone] == []
    assert all(each.version in (0, 4) for each in gone)
    assert found[0] == ROWS
