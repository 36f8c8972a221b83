"""Changes of columns beside writers: every short order; random ones are in test_seeds.py.

INV-04, INV-07, INV-08, and RFC 0027: every version shows its own columns and rows, no row breaks a
constraint of its version, an id is never given out twice, and nobody is refused without need.
"""

from __future__ import annotations

import itertools

import pytest

from tests.interleave.altering import PARTS, altering
from tests.interleave.altering import VERIFIED as MORE
from tests.scheduler import explore_all

SHORT = [
    ("cow", ("reshape", "put")),
    ("mor", ("reshape", "compact")),
    ("mor", ("rename", "delete")),
    ("cow", ("rename and add", "update")),
    ("mor", ("check", "put bad")),
    ("cow", ("require", "put null")),
    ("cow", ("drop", "bring")),
    ("cow", ("bring", "bring same")),
    ("mor", ("bring", "bring other")),
    ("cow", ("add", "drop and add")),
    ("mor", ("generate", "put")),
    ("cow", ("generate", "put bad")),
]
_PAIRED = [name for name in PARTS if name != "generate"]  # it stands in the way of half of them
EVERY = [*itertools.product(("cow", "mor"), itertools.combinations(_PAIRED, 2)), *SHORT[-2:]]


def _named(actors: str | tuple[str, ...]) -> str:
    return actors if isinstance(actors, str) else "+".join(actors).replace(" ", "_")


@pytest.mark.long(4)
@pytest.mark.parametrize(("table_type", "actors"), EVERY if MORE else SHORT, ids=_named)
def test_every_version_is_right_in_every_short_order_of_a_change_of_columns_and_another_client(
    table_type: str, actors: tuple[str, str]
) -> None:
    switches = 2 if MORE and (table_type, actors) in SHORT else 1
    report = explore_all(altering(table_type, *actors), switches=switches)
    assert report.failure is None, str(report.failure)
    assert report.complete
    assert MORE or len(report.traces) > 2
