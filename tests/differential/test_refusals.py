"""Nobody is refused without need: operations on one key beside those on another, in every pair.

The random histories judge every refusal in the same way (``refusals.py``); they have few tables in
which two operations meet in a bucket and in no row.
"""

from __future__ import annotations

import itertools

import pytest

from plait.errors import RetryableConflictError
from tests.differential.evidence import run
from tests.differential.judge import judge
from tests.differential.program import Do, History, Row, Shape, Where, Write
from tests.differential.shrink import differences
from tests.scheduler.choices import Given
from tests.scheduler.program import read_moves
from tests.support.effort import MORE

ROWS: tuple[Row, ...] = ((0, "x", 10, 1), (1, "x", 20, 1), (2, "x", 30, 1), (3, "x", 40, 1))
STARTS = {
    "cow": (Do("append", rows=ROWS),),
    "mor": tuple(Do("append", rows=(row,)) for row in ROWS),
}
"""One bucket, of one file or of one for each row, which goes whole with its row."""


def operations(key: int, fresh: int) -> dict[str, Do]:
    """Everything that writes a row of one key, there or not, by name."""
    mine: Row = (key, "x", 100 + key, 5)
    new: Row = (fresh, "x", 100 + fresh, 5)
    only = Where("id", "=", key)
    return {
        "delete_where": Do("delete_where", where=only),
        "delete_all_that_match": Do("delete_where", where=Where("v", "=", 10 * (key + 1))),
        "delete_keys": Do("delete_keys", rows=(mine,)),
        "update": Do("update", where=only, values="inc"),
        "upsert": Do("upsert", rows=(mine,)),
        "insert": Do("insert", rows=(new,)),
        "skip": Do("skip", rows=(new,)),
        "overwrite_where": Do("overwrite_where", rows=(mine,), where=only),
        "overwrite_where_nothing": Do(
            "overwrite_where", rows=(new,), where=Where("id", "=", fresh)
        ),
        "merge": Do("merge", rows=(mine,), clauses=("take", "new")),
        "merge_drop": Do("merge", rows=(mine,), clauses=("drop",)),
    }


PAIRS = tuple(itertools.product(operations(1, 11), repeat=2))
SHAPES = tuple(
    Shape(table_type=kind, isolation=isolation, policy=policy, partitioned=unique, unique=unique)
    for kind in ("cow", "mor")
    for isolation, policy, unique in (
        ("snapshot", "key", False),
        ("snapshot", "key", True),
        ("serializable", "key", False),
        ("snapshot", "merge", False),
    )
)


@pytest.mark.long(2)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_writers_of_different_keys_of_one_bucket_both_commit_whatever_they_do(shape: Shape) -> None:
    """README: commits to different keys both succeed, even in the same bucket."""
    ours, theirs = operations(1, 11), operations(2, 12)
    for one, other in PAIRS if MORE else PAIRS[SHAPES.index(shape) :: len(SHAPES)]:
        history = History(
            shape, ((Write(ours[one]),), (Write(theirs[other]),)), STARTS[shape.table_type]
        )
        for schedule in ("a:3>b", "a:5>b", "b:5>a"):
            found = differences(history, schedule)
            assert found == [], f"{one} beside {other}, {schedule}: {found}"


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_who_replaces_rows_by_a_predicate_meets_rows_that_came_into_it(shape: Shape) -> None:
    """INV-07: two overwrites of the same rows do not both stand, though they share no key."""
    mine = [Do("overwrite_where", ((i, "x", i, 5),), Where("id", ">", 10)) for i in (11, 12)]
    clients = tuple((Write(do),) for do in mine)
    evidence = run(History(shape, clients, STARTS[shape.table_type]), Given(read_moves("a:5>b")))
    assert judge(evidence) == []
    errors = {told.client: told.error for told in evidence.told}
    assert errors["b"] is None
    assert isinstance(errors["a"], RetryableConflictError)
    assert errors["a"].facts["version"] == len(STARTS[shape.table_type]) + 1
