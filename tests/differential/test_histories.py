"""Random concurrent histories against a table in plain Python; see docs/spec/histories.md.

``make test`` runs more of them, by ``scripts/histories.py``.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from tests.differential.broken import BROKEN
from tests.differential.counts import Counts
from tests.differential.draw import ROUND, draw
from tests.differential.evidence import run
from tests.differential.program import (
    Block,
    Do,
    History,
    Look,
    Shape,
    Where,
    Write,
)
from tests.differential.shrink import check, differences, first, shrink

SHARE = 20
ORACLE = ("program", "clauses", "model", "judge", "lineage", "undone")


@pytest.mark.long(1)
@pytest.mark.parametrize("begin", range(0, 60, SHARE))
def test_every_history_leaves_what_its_operations_mean_one_after_the_other(begin: int) -> None:
    """INV-07, INV-08, INV-10: the tables after each version, and all that was told and read."""
    for seed in range(begin, begin + SHARE):
        found = check(seed)
        assert found is None, f"{shrink(found)}"


def test_a_seed_is_the_same_history_and_the_same_schedule_again() -> None:
    one, other = (run(*draw(ROUND + 7)) for _ in range(2))
    assert one.history == other.history
    assert one.schedule == other.schedule
    assert [v.rows for v in one.versions] == [v.rows for v in other.versions]


@pytest.mark.timeout(600)
def test_a_difference_is_made_small_and_prints_as_a_test_that_fails_in_the_same_way() -> None:
    broken = next(each for each in BROKEN if "no two commits" in each.name)
    found = first((broken.seed, *range(ROUND)), broken)
    assert found is not None
    small = shrink(found, broken)
    assert small.history.turns <= 2
    names: dict[str, Any] = {
        name: globals()[name] for name in ("Block", "Do", "History", "Look", "Shape", "Where")
    }
    names |= {"Write": Write, "differences": differences}
    exec(str(small), names)
    again = names[f"test_the_history_of_seed_{found.seed}"]
    again()
    with broken(), pytest.raises(AssertionError):
        again()


def test_what_is_never_exercised_is_named() -> None:
    counts = Counts()
    for seed in range(6):
        check(seed, counts=counts)
    assert "no merge was committed under merge, snapshot" in counts.missing()
    assert "nothing was refused under key, serializable" in counts.missing()
    assert "there was never a named read refused" in counts.missing()


@pytest.mark.parametrize("name", ORACLE)
def test_the_oracle_shares_no_code_with_what_it_judges(name: str) -> None:
    tree = ast.parse((Path(__file__).parent / f"{name}.py").read_text())
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    rooms = {module.split(".")[1] for module in modules if module.startswith("plait.")}
    assert rooms <= {"errors", "testing"}


# --- what once differed ------------------------------------------------------------------------


def test_a_key_that_was_looked_up_and_left_alone_counts_as_read() -> None:
    """Write skew by a skipped key in one place and a delete that finds nothing in another."""
    history = History(
        Shape(isolation="serializable", partitioned=True),
        clients=(
            (Write(Do("skip", rows=((0, "x", 101, 3),))),),
            (
                Block(
                    (
                        Do("skip", rows=((1, "y", 103, 3),)),
                        Do("delete_keys", rows=((0, "x", 104, 3),), placed=True),
                    )
                ),
            ),
        ),
    )
    assert differences(history, "start>b b:5>a") == []


def test_a_delete_by_key_alone_counts_as_a_read_of_places_without_files() -> None:
    history = History(
        Shape(
            table_type="mor",
            policy="file_group",
            isolation="serializable",
            partitioned=True,
            buckets=2,
        ),
        clients=(
            (Write(Do("delete_keys", rows=((1, "y", 101, 2), (2, "x", 103, 3)))),),
            (Write(Do("skip", rows=((2, "x", 104, 0),))),),
        ),
        start=(Do("append", rows=((1, "y", 50, 5),)),),
    )
    assert differences(history, "a:2>b b:2>a a:3>b") == []


def test_a_transaction_that_reads_claims_what_its_merge_left_alone() -> None:
    history = History(
        Shape(),
        clients=(
            (Block((Look(), Do("merge", rows=((0, "y", 101, 3),), clauses=("new_high",)))),),
            (Write(Do("delete_where", where=Where("id", "<>", 2))),),
        ),
        start=(Do("append", rows=((0, "x", 10, 1),)),),
    )
    assert differences(history, "a:3>b") == []


def test_a_transaction_that_reads_after_it_wrote_claims_what_it_looked_up() -> None:
    history = History(
        Shape(partitioned=True),
        clients=(
            (Block((Do("merge", rows=((0, "x", 106, 7),), clauses=("newer",)), Look())),),
            (Write(Do("overwrite_partitions", rows=((0, "x", 107, 7),))),),
        ),
    )
    assert differences(history, "a:2>b b:2>a a:3>b") == []


def test_a_delete_from_a_named_read_counts_where_no_file_is_left() -> None:
    history = History(
        Shape(),
        clients=(
            (
                Write(
                    Do("delete_keys", rows=((0, "x", 101, 5),)),
                    read=Where("p", "=", "y"),
                    named="version",
                ),
            ),
            (Write(Do("merge", rows=((1, "y", 102, 1),), clauses=("rest_drop",))),),
        ),
        start=(Do("append", rows=((0, "x", 10, 1),)),),
    )
    assert differences(history, "a:3>b") == []
