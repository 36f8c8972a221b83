"""A writer, and a drop, an undrop or a purge between any two of its calls (INV-12, INV-18)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress

import pytest

from plait import Catalog, storage
from plait.errors import TableError
from plait.timeline.log import Timeline
from tests.support.build import ids, rows
from tests.support.catalog_steps import drop, killing, prepared, purge, undrop
from tests.support.memory import forget
from tests.support.mortal import Mortal

_NUMBERS = itertools.count()
RIVALS: dict[str, tuple[Callable[[Catalog], None], ...]] = {
    "drop": (drop,),
    "drop, purge": (drop, purge),
    "drop, undrop": (drop, undrop),
    "drop, undrop, purge": (drop, undrop, purge),
}


def _after_drop(location: str) -> list[str]:
    """Return what was decided in a table after it was dropped."""
    found = Timeline(storage.open_store(location)).load_after(-1, limit=100)
    operations = [each.operation.value for each in found]
    return operations[operations.index("property") + 1 :]


@pytest.mark.long(2)
@pytest.mark.parametrize("rival", RIVALS)
def test_a_dropped_table_takes_no_writes_and_a_living_one_is_never_purged(rival: str) -> None:
    for call in range(1, 10_000):
        place = f"memory://catalog-writer-{next(_NUMBERS)}"
        with killing():
            catalog, other = prepared(place), Catalog(place)
            table = catalog.table("a.old")
            location = catalog.location("a.old")
            Mortal.rival = lambda other=other: [act(other) for act in RIVALS[rival]]
            Mortal.rival_at = Mortal.counted + call
            written = False
            with suppress(TableError):
                table.upsert(rows(3))
                written = True
            acted, Mortal.rival = Mortal.rival is None, None
            catalog = Catalog(place)
            if rival == "drop" and acted:
                assert [each.state for each in catalog.dropped()] == ["dropped"]
                assert "upsert" not in _after_drop(location), call
            elif "undrop" in rival:
                assert ids(catalog.table("a.old")) == [1, 2] + [3] * written, call
            catalog.purge(now=True)
            if "undrop" not in rival and acted:
                assert catalog.dropped() == (), "nobody needs it any more"
                assert [*storage.open_store(location).list("")] == [], "no file came back"
        forget(place)
        if not acted:
            assert written
            break
    assert call > 5
