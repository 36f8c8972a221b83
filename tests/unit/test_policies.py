"""What two commits to one bucket mean under each policy, through the facade."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from plait import Table
from plait.errors import (
    DuplicateKeyError,
    IllegalTransitionError,
    InstantExpiredError,
    InstantNotFoundError,
    OptionError,
    RetryableConflictError,
    RolledBackError,
)
from plait.model.decision import CommitResult
from plait.model.instant import Instant
from plait.testing import Fault, FaultStore, open_wrapped
from plait.write.writer import Writer
from tests.support.build import LITTLE
from tests.support.keyed import SCHEMA, TYPES, content, make, rows


def late(
    table: Table,
    data: pa.Table,
    meanwhile: Callable[[], object] = lambda: None,
    operation: str = "upsert",
    **how: object,
) -> CommitResult:
    """Write, while somebody else commits first."""
    with table.writer(operation, **how) as writer:  # type: ignore[arg-type]  # by name
        writer.write(data)
        meanwhile()
    return writer.result


@pytest.mark.parametrize("table_type", TYPES)
def test_by_default_disjoint_keys_of_one_bucket_both_commit(table_type: str) -> None:
    """INV-07 and INV-08: the later one merges its rows into the new file of the bucket."""
    table = make(table_type)
    table.upsert(rows((1, 0, "old"), (2, 0, "old"), (3, 0, "old")))
    with table.writer("upsert") as writer:
        writer.write(rows((2, 1, "ours"), (4, 1, "ours")))
        table.upsert(rows((1, 1, "theirs"), (5, 1, "theirs")))
    assert content(table) == {1: "theirs", 2: "ours", 3: "old", 4: "ours", 5: "theirs"}
    assert writer.result.rebased == 1
    facts = table.inspect.history()[0].client
    assert facts["rebased"] == 1
    assert facts["conflicts"][0]["verdict"] == "rebase"  # type: ignore[index]  # plain values


@pytest.mark.parametrize("table_type", TYPES)
def test_by_default_the_first_commit_of_a_key_wins(table_type: str) -> None:
    """INV-07."""
    table = make(table_type)
    table.upsert(rows((1, 0, "old"), (2, 0, "old")))
    with pytest.raises(RetryableConflictError, match="same keys") as caught:
        late(table, rows((1, 1, "ours"), (2, 1, "ours")), lambda: table.upsert(rows((2, 1, "x"))))
    assert caught.value.version == 2
    assert content(table) == {1: "old", 2: "x"}
    late(
        table,
        rows((1, 1, "ours")),
        lambda: table.upsert(rows((1, 1, "theirs"))),
        on_conflict="retry",
    )
    assert content(table) == {1: "ours", 2: "x"}


@pytest.mark.parametrize("table_type", TYPES)
def test_keys_that_begin_a_bucket_are_known_from_its_files(table_type: str) -> None:
    """INV-07: the decision says "the keys of these files", and they are read."""
    table = make(table_type)
    with table.writer("insert") as writer:
        writer.write(rows((1, 0, "ours")))
        table.insert(rows((2, 0, "theirs")))
    assert content(table) == {1: "ours", 2: "theirs"}
    with pytest.raises(RetryableConflictError):
        late(table, rows((3, 0, "a")), lambda: table.insert(rows((3, 0, "b"))), "insert")


@pytest.mark.parametrize("table_type", TYPES)
def test_many_keys_are_compared_by_their_sidecars(table_type: str) -> None:
    """INV-07."""
    table = make(table_type)
    ours, theirs = ([(n, 1, who) for n in range(1200)] for who in ("ours", "theirs"))
    late(table, rows(*ours[::2]), lambda: table.upsert(rows(*theirs[1::2])))
    assert content(table) == {n: "theirs" if n % 2 else "ours" for n in range(1200)}
    with pytest.raises(RetryableConflictError):
        late(table, rows(*ours[:600]), lambda: table.upsert(rows(*theirs[599:])))


@pytest.mark.parametrize("table_type", TYPES)
def test_file_group_refuses_any_two_commits_of_one_bucket(table_type: str) -> None:
    """INV-07: as RFC-22 of Hudi has it."""
    table = make(table_type, policy="file_group")
    table.upsert(rows((1, 0, "old")))
    with pytest.raises(RetryableConflictError):
        late(table, rows((2, 1, "ours")), lambda: table.upsert(rows((3, 1, "theirs"))))


@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize(("ordering", "ours_newer"), [("ts", True), ("ts", False), (None, False)])
def test_under_merge_the_ordering_decides_whatever_the_order_of_arrival_and_else_the_later_commit(
    table_type: str, ordering: str | None, *, ours_newer: bool
) -> None:
    table = make(table_type, policy="merge", ordering=ordering)
    table.upsert(rows((1, 0, "old"), (2, 0, "old")))
    ours, theirs = (9, 5) if ours_newer else (5, 9)
    late(
        table,
        rows((1, ours, "ours"), (2, 1, "ours")),
        lambda: table.upsert(rows((1, theirs, "theirs"))),
    )
    assert content(table) == {1: "theirs" if ordering and not ours_newer else "ours", 2: "ours"}


def test_an_insert_of_a_key_that_came_meanwhile_is_told_so_under_merge() -> None:
    """INV-08."""
    table = make("cow", policy="merge")
    with pytest.raises(DuplicateKeyError):
        late(table, rows((1, 0, "ours")), lambda: table.insert(rows((1, 0, "theirs"))), "insert")
    assert content(table) == {1: "theirs"}


@pytest.mark.parametrize("policy", ["file_group", "key", "merge"])
@pytest.mark.parametrize("table_type", TYPES)
def test_an_overwrite_conflicts_with_every_write_in_its_place(table_type: str, policy: str) -> None:
    """INV-07."""
    table = make(table_type, policy=policy)
    with pytest.raises(RetryableConflictError):
        late(table, rows((1, 0, "a")), lambda: table.upsert(rows((2, 0, "theirs"))), "overwrite")
    with pytest.raises(RetryableConflictError):
        late(table, rows((3, 0, "ours")), lambda: table.overwrite(rows((4, 0, "theirs"))))
    assert content(table) == {4: "theirs"}


# --- read_from -------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["file_group", "key", "merge"])
@pytest.mark.parametrize("table_type", TYPES)
def test_an_update_that_was_computed_from_an_old_read_is_not_lost(
    table_type: str, policy: str
) -> None:
    """INV-07: the writer was opened after the other commit, its rows were read before."""
    table = make(table_type, policy=policy)
    table.upsert(rows((1, 1, "10")))
    scan = table.scan()
    value = int(scan.to_arrow()["value"][0].as_py())
    table.upsert(rows((1, 2, "11")))
    with pytest.raises(RetryableConflictError):
        late(table, rows((1, 3, str(value + 1))), read_from=scan)
    assert content(table) == {1: "11"}
    late(table, rows((1, 3, "12")), read_from=table.version)
    assert content(table) == {1: "12"}


@pytest.mark.parametrize("table_type", TYPES)
def test_other_keys_may_be_written_since_the_read(table_type: str) -> None:
    """INV-07: before the writer was opened, and while it was open."""
    table = make(table_type)
    table.upsert(rows((1, 1, "a"), (2, 1, "a"), (3, 1, "a")))
    pinned = table.snapshot()
    table.upsert(rows((2, 1, "b")))
    late(
        table,
        rows((1, 1, "ours")),
        lambda: table.upsert(rows((3, 1, "b"))),
        read_from=pinned,
    )
    assert content(table) == {1: "ours", 2: "b", 3: "b"}
    with pytest.raises(RetryableConflictError):
        late(table, rows((2, 1, "stale")), read_from=1)


def test_a_read_that_cannot_be_is_refused_before_anything_is_written() -> None:
    table, other = make("cow", properties=LITTLE), make("cow")
    for number in range(4):
        table.upsert(rows((number, 0, "x")))
    table.maintenance.clean()
    with pytest.raises(InstantExpiredError):
        table.writer("upsert", read_from=1)
    with pytest.raises(InstantNotFoundError):
        table.writer("upsert", read_from=99)
    for read in (other.scan(), other.snapshot()):
        with pytest.raises(OptionError, match="another table"):
            table.writer("upsert", read_from=read)
    with pytest.raises(OptionError, match="computed from a read"):
        table.writer("upsert", read_from=table.version, on_conflict="retry")
    assert not table.inspect.timeline().pending


@pytest.mark.long(2)
@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("kind", ["writer", "transaction"])
def test_whenever_a_recoverer_comes_the_writer_is_told_of_the_rollback(
    tmp_path: Path, table_type: str, kind: str
) -> None:
    """INV-03, INV-10: not of damage, whatever it was about to read or make durable."""
    seen = set()
    for nth in itertools.count(1):
        uri = str(tmp_path / str(nth))
        table = Table.create(uri, SCHEMA, record_key=["id"], table_type=table_type)
        table.upsert(rows((1, 0, "first"), (2, 0, "first")))
        ours, store = open_wrapped(uri, FaultStore)
        block = (ours.writer("upsert") if kind == "writer" else ours.transaction()).__enter__()
        (pending,) = table.inspect.timeline().pending
        ended: list[object] = []
        end = partial(_end, table, pending.instant, ended)
        store._script.append(Fault("step", nth=nth, run=end))
        try:
            for value in ("first of two", "ours"):  # a transaction reads what it staged before
                (block.write if isinstance(block, Writer) else block.upsert)(rows((1, 1, value)))
            block.__exit__(None, None, None)
        except RolledBackError:
            seen.add("told")
            assert ended
        else:
            seen.add("committed")
            assert content(table)[1] == "ours"
        assert content(table)[2] == "first"
        assert not table.check.verify().problems
        if not ended:  # it has fewer calls
            break
    assert seen == {"told", "committed"}


def _end(table: Table, instant: Instant, ended: list[object]) -> None:
    ended.append(instant)
    with contextlib.suppress(IllegalTransitionError, InstantNotFoundError):  # it had committed
        table.maintenance.rollback(instant)


# --- isolation -------------------------------------------------------------------------------


@pytest.mark.parametrize(("isolation", "skew"), [("snapshot", True), ("serializable", False)])
def test_write_skew_is_possible_under_snapshot_and_not_under_serializable(
    isolation: str, *, skew: bool
) -> None:
    """INV-07: each reads both rows and withdraws from one; together they overdraw."""
    table = make("cow", isolation=isolation, buckets=8)
    table.upsert(rows((1, 0, "50"), (2, 0, "50")))
    first, second = table.scan(), table.scan()
    late(table, rows((1, 1, "-40")), read_from=first)
    expected = contextlib.nullcontext() if skew else pytest.raises(RetryableConflictError)
    with expected:
        late(table, rows((2, 1, "-40")), read_from=second)
    assert (content(table)[2] == "-40") is skew


def test_a_serializable_delete_sees_rows_that_came_meanwhile() -> None:
    """INV-07: also in buckets where it had deleted nothing."""
    for isolation, left in (("snapshot", {2: "bad"}), ("serializable", {})):
        table = make("cow", isolation=isolation, buckets=8)
        table.upsert(rows((1, 0, "bad")))
        with table.writer("delete", where="value = 'bad'"):
            table.upsert(rows((2, 0, "bad")))
        assert content(table) == left
        assert not table.check.verify().problems


# --- many at once ----------------------------------------------------------------------------


@pytest.mark.long(2)
@pytest.mark.slow
@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("policy", ["key", "merge"])
def test_threads_that_fight_for_one_bucket_all_commit(table_type: str, policy: str) -> None:
    """INV-07, INV-08: no conflict is raised, and no row is lost."""
    ordering = "ts" if policy == "merge" else None
    table = make(table_type, policy=policy, ordering=ordering)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        mine = Table.open(table.inspect.describe()["uri"])  # type: ignore[arg-type]  # text
        try:
            for turn in range(3):
                key = 0 if policy == "merge" else 100 * number + turn
                mine.upsert(rows((key, 10 * turn + number, f"{number}-{turn}"), (number, 0, "own")))
        except BaseException as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    found = content(table)
    if policy == "merge":
        assert found[0] == "4-2"
        assert len(found) == 5
    else:
        expected = {100 * n + turn: f"{n}-{turn}" for n in range(1, 5) for turn in range(3)}
        assert found == expected | dict.fromkeys(range(1, 5), "own")
    assert not table.check.verify().problems
