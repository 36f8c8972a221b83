"""A conflict policy of one's own: asked where rows meet rows, and held to its bounds (RFC 0014)."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from plait import (
    IncompatibleConflictError,
    Meeting,
    OptionError,
    PolicyError,
    RetryableConflictError,
    Table,
    UnsupportedFeatureError,
)
from plait.definition import policy as registry
from plait.definition.policy import Verdict
from plait.model.contract import KEYS, Rule
from plait.model.instant import Operation
from plait.testing import PolicyKit
from plait.txn.matrix import KINDS, Kind
from tests.support import build
from tests.support.build import by_id

SOURCE = '''
def by_hour(meeting):
    """Corrections of a closed day are refused; else the last one wins."""
    if meeting.partition == ("closed",):
        return "incompatible"
    return "rebase"

def careful(meeting):
    return "retry"

def updates_win(meeting):
    if meeting.keys == "apart" or meeting.ours == "update":
        return "rebase"
    return "retry"

def nonsense(meeting):
    return "compatible"

def broken(meeting):
    return 1 // 0

not_a_function = 7
'''
NAMES = ("by_hour", "careful", "updates_win", "nonsense", "broken", "not_a_function")
rows = partial(build.rows, day="open")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install a package with policies, as pip does."""
    place = tmp_path / "site"
    info = place / "house_rules-1.0.dist-info"
    info.mkdir(parents=True)
    (place / "house_rules.py").write_text(SOURCE, encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: house-rules\nVersion: 1.0\n")
    lines = [f"{name} = house_rules:{name}" for name in NAMES]
    (info / "entry_points.txt").write_text("\n".join(["[plait.policies]", *lines, ""]))
    monkeypatch.syspath_prepend(str(place))
    registry._load.cache_clear()
    yield place
    registry._load.cache_clear()
    sys.modules.pop("house_rules", None)


def make(place: Path, policy: str, isolation: str = "snapshot") -> Table:
    return Table.create(
        str(place / "t"),
        "id bigint, day string, v bigint",
        record_key=["id"],
        partition_by=["day"],
        policy=policy,
        isolation=isolation,
    )


def race(table: Table, first: pa.Table, second: pa.Table) -> None:
    """Commit the first while the second is open."""
    with table.writer("upsert") as writer:
        writer.write(second)
        table.upsert(first)


@pytest.mark.usefixtures("installed")
def test_it_may_let_the_last_one_win_and_be_stricter_in_a_partition(tmp_path: Path) -> None:
    table = make(tmp_path, "by_hour")
    race(table, rows(1, 2, v=1), rows(2, 3, v=2))
    assert by_id(table, "v") == {1: 1, 2: 2, 3: 2}
    assert not table.check.verify(history=True).problems
    with pytest.raises(IncompatibleConflictError, match="by_hour"):
        race(table, rows(7, v=1, day="closed"), rows(8, v=2, day="closed"))
    assert by_id(table, "v") == {1: 1, 2: 2, 3: 2, 7: 1}
    other = make(tmp_path / "other", "updates_win")  # it may tell operations and keys apart
    race(other, rows(1, v=1), rows(2, v=2))
    with pytest.raises(RetryableConflictError):
        race(other, rows(1, v=3), rows(1, v=4))
    assert by_id(other, "v") == {1: 3, 2: 2}


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("policy", ["by_hour", "updates_win"])
def test_it_never_puts_rows_that_were_computed_from_a_read_over_newer_ones(
    tmp_path: Path, policy: str
) -> None:
    """INV-07: a lost update is none that a policy may allow."""
    table = make(tmp_path, policy)
    table.upsert(rows(1, v=1))
    seen = table.scan()
    table.upsert(rows(1, v=100))
    with pytest.raises(RetryableConflictError):
        table.upsert(rows(1, v=2), read_from=seen)
    assert by_id(table, "v") == {1: 100}


@pytest.mark.usefixtures("installed")
def test_it_has_no_say_in_what_was_only_looked_up_nor_where_a_place_is_replaced(
    tmp_path: Path,
) -> None:
    """INV-07: write skew stays impossible under ``serializable``."""
    table = make(tmp_path, "by_hour", "serializable")
    table.upsert(rows(1, 2, v=1))
    # With a commit id it is decided, though it finds nothing and so changes nothing.
    writer = table.writer("delete", commit_id="looked").__enter__()
    writer.write(pa.table({"id": [7], "day": ["open"]}))
    table.upsert(rows(7, v=1))
    with pytest.raises(RetryableConflictError):
        writer.__exit__(None, None, None)
    writer = table.writer("overwrite").__enter__()
    writer.write(rows(2, v=2))
    table.upsert(rows(3, v=3))
    with pytest.raises(RetryableConflictError):
        writer.__exit__(None, None, None)
    assert by_id(table, "v") == {1: 1, 2: 1, 3: 3, 7: 1}


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("policy", ["nonsense", "broken"])
def test_an_answer_that_it_may_not_give_ends_the_commit(tmp_path: Path, policy: str) -> None:
    """INV-10: the commit is rolled back; the table is as the other one left it."""
    table = make(tmp_path, policy)
    with pytest.raises(PolicyError, match=policy):
        race(table, rows(1, v=1), rows(2, v=2))
    assert by_id(table, "v") == {1: 1}
    assert not table.inspect.timeline().pending


def test_who_does_not_have_it_may_read_and_not_write(tmp_path: Path, installed: Path) -> None:
    """It is named, with the group of its entry point; nothing is left behind."""
    table = make(tmp_path, "by_hour")
    table.upsert(rows(1, v=1))
    sys.path.remove(str(installed))
    registry._load.cache_clear()
    other = Table.open(str(tmp_path / "t"))
    assert by_id(other, "v") == {1: 1}
    for write in (
        lambda: other.upsert(rows(2, v=2)),
        lambda: other.delete(where="id = 1"),
        lambda: other.transaction().__enter__(),
        lambda: other.stream("loader").begin_at(epoch=1, end="1"),
    ):
        with pytest.raises(UnsupportedFeatureError, match=r"'by_hour'.*plait\.policies"):
            write()
    assert other.version == 1
    assert not other.inspect.timeline().pending
    assert not other.check.verify(history=True).problems
    other.maintenance.clean()  # a service has no rows to bring into anybody's way


@pytest.mark.usefixtures("installed")
def test_a_table_cannot_be_made_with_one_that_is_not_there(tmp_path: Path) -> None:
    for name in ("absent", "not_a_function"):
        with pytest.raises(OptionError, match=name):
            make(tmp_path, name)
    assert not (tmp_path / "t" / ".meta" / "table.json").exists()


def test_its_bounds_hold_whatever_it_answers() -> None:
    """Every function from meetings to verdicts, as far as its bounds can tell them apart."""
    rank = list(Verdict).index
    for answers in itertools.product(registry.ALLOWED, repeat=len(KEYS)):
        given = dict(zip(KEYS, answers, strict=True))
        rule = answering(given)
        for keys, computed in itertools.product(KEYS, (False, True)):
            found = registry.judge_meeting("x", rule, Meeting("upsert", "upsert", keys, computed))
            assert rank(found) >= rank(given[keys])
            if computed and keys != "apart":
                assert rank(found) >= rank(Verdict.RETRY)
            if keys == "unknown" and not computed:
                assert rank(found) == max(map(rank, answers))
    asked = {meeting.ours for meeting in PolicyKit().meetings()}  # about every operation on rows
    assert asked == {operation.value for operation, kind in KINDS.items() if kind is Kind.ROWS}
    assert Operation.OVERWRITE.value not in asked


def answering(given: Mapping[str, Verdict]) -> Rule:
    return lambda meeting: given[meeting.keys]


# --- the kit -------------------------------------------------------------------------------------


class TestCareful(PolicyKit):
    """The kit passes what keeps the laws."""

    name = "careful"
    symmetric = True

    @pytest.fixture
    def policy(self, installed: Path) -> Rule:
        import house_rules  # type: ignore[import-not-found]

        return house_rules.careful


BROKEN: dict[str, Rule] = {
    "verdict": lambda m: "compatible",
    "same": lambda m, seen=[]: "retry" if seen.append(1) or len(seen) % 3 else "rebase",
    "file": lambda m: "retry" if open("/dev/null").close() is None else "rebase",
    "strict": lambda m: "rebase" if m.keys == "unknown" else "retry",
    "symmetric": lambda m: "retry" if m.ours > m.theirs else "rebase",
}


@pytest.mark.parametrize("law", BROKEN)
def test_the_kit_finds_who_breaks_a_law(law: str) -> None:
    class Kit(PolicyKit):
        symmetric = True

    tests = [name for name in dir(Kit) if name.startswith("test_") and law in name]
    assert len(tests) == 1 or law == "same"
    with pytest.raises(AssertionError):
        getattr(Kit(), tests[0])(BROKEN[law])
