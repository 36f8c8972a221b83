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
from tests.differential.judge import judge
from tests.differential.kinds import KINDS, Kind
from tests.differential.program import Block, Do, History, Look, Serve, Shape, Where, Write
from tests.differential.shrink import Difference, check, differences, shrink, sound
from tests.scheduler.choices import Given
from tests.support.effort import share

CALLS_MAX = 12
"""A client with one operation makes fewer calls before it publishes."""
ORACLE = ("program", "clauses", "model", "judge", "lineage", "undone")
ROW, OTHER = (0, "x", 101, 1), (1, "x", 102, 1)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_every_history_leaves_what_its_operations_mean_one_after_the_other(kind: Kind) -> None:
    """INV-01, INV-04, INV-07 to INV-11, INV-14 to INV-16.

    The tables after each version, all that was told and read, and what may be applied again.
    """
    seeds = kind.seeds[: share(len(kind.seeds))]
    seen = [sound(seed, kind.drawing) for seed in seeds]
    for count, least in kind.must.items():
        assert sum(map(count, seen)) >= least * len(seeds) / 100, "what it is drawn for is rare"


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("kind", ["upsert", "delete_keys"])
def test_a_key_that_moves_is_met_whenever_another_changes_it(table_type: str, kind: str) -> None:
    """INV-07, INV-08: the other comes in the middle, wherever that may be."""
    history = History(
        Shape(table_type=table_type, partitioned=True, unique=True),
        clients=(
            (Write(Do("upsert", rows=((0, "y", 101, 5), (2, "y", 102, 5)))),),
            (Write(Do(kind, rows=((0, "z", 103, 5),))),),
        ),
        start=(Do("append", rows=((0, "x", 10, 1), (1, "x", 20, 1))),),
    )
    for call in range(1, CALLS_MAX):
        assert differences(history, f"a:{call}>b") == []
        assert differences(history, f"b:{call}>a") == []


def test_a_seed_is_the_same_history_and_the_same_schedule_again() -> None:
    one, other = (run(*draw(ROUND + 7)) for _ in range(2))
    assert one.history == other.history
    assert one.schedule == other.schedule
    assert [v.rows for v in one.versions] == [v.rows for v in other.versions]


def test_a_difference_is_made_small_and_prints_as_a_test_that_fails_in_the_same_way() -> None:
    """What is not needed goes: clients, traits of a table, epochs, a replay."""
    broken = next(each for each in BROKEN if "rows were hidden" in each.name)
    history = History(
        Shape(table_type="mor", aged=True, ordered=True, told=False),
        clients=(
            (
                Write(Do("upsert", (ROW,)), epoch=0),
                Serve("restore", replay=True),
                Serve("compact"),
            ),
            (Write(Do("upsert", ((7, "x", 103, 1),))),),
        ),
        start=(Do("append", rows=((0, "x", 10, 1), OTHER)),),
    )
    evidence = run(history, Given(()), broken)
    found = Difference(None, history, evidence.schedule, tuple(judge(evidence)))
    assert found.findings
    small = shrink(found, broken)
    assert small.history.shape == Shape(table_type="mor")
    assert small.history.clients == ((Write(Do("upsert", (ROW,))), Serve("restore")),)
    known = (Block, Do, History, Look, Serve, Shape, Where, Write, differences)
    names: dict[str, Any] = {each.__name__: each for each in known}
    exec(str(small), names)
    again = names["test_the_history_found"]
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
