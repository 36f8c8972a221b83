"""What happened to an instant, told afterwards."""

from __future__ import annotations

from functools import partial

import pytest

from plait import Table
from plait.errors import InstantNotFoundError, RetryableConflictError
from tests.support import build
from tests.support.build import make

rows = partial(build.rows, v=0)


@pytest.fixture
def table() -> Table:
    return make(buckets=1, upsert=rows(1, 2, 3))


def test_a_rebase_is_explained_with_winner_place_and_work(table: Table) -> None:
    with table.writer("upsert") as writer:
        writer.write(rows(1))
        winner = table.upsert(rows(2))
    found = table.inspect.explain(writer.result.instant)
    assert (found.outcome, found.redone, found.rebased, found.attempts) == ("committed", 1, 1, 2)
    (met,) = found.meetings
    assert (met.version, met.winner) == (winner.version, str(winner.instant))
    assert (met.verdict, met.buckets, met.bucket_count, met.keys) == ("rebase", ("data/0",), 1, ())


def test_a_refusal_is_explained_with_the_keys_that_both_wrote(table: Table) -> None:
    writer = table.writer("upsert").__enter__()
    writer.write(rows(1, 2, 5))
    instant = writer.instant
    winner = table.upsert(rows(2, 5, 6))
    with pytest.raises(RetryableConflictError):
        writer.__exit__(None, None, None)
    found = table.inspect.explain(str(instant))
    assert found.outcome == "rolled_back"
    assert f"version {winner.version}" in found.reason
    (met,) = found.meetings
    assert met.verdict == "retry"
    assert sorted(key["id"] for key in met.keys) == [2, 5]  # type: ignore[type-var]  # numbers
    (told,) = found.to_dict()["conflicts"]  # type: ignore[misc]  # a list
    assert (told["version"], told["winner"]) == (winner.version, str(winner.instant))
    assert (told["verdict"], told["buckets"], told["keys"]) == ("retry", ["data/0"], [*met.keys])


def test_what_met_nobody_is_explained_by_its_decision_and_not_before(table: Table) -> None:
    found = table.inspect.explain(table.upsert(rows(9)).instant)
    assert (found.outcome, found.attempts, found.meetings) == ("committed", 1, ())
    instant = table.writer("upsert").__enter__().instant
    with pytest.raises(InstantNotFoundError):
        table.inspect.explain(instant)
    table.maintenance.rollback(instant)
    found = table.inspect.explain(instant)
    assert (found.outcome, found.reason) == ("rolled_back", "requested")
