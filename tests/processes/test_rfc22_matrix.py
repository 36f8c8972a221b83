"""The test plan of Hudi's RFC-22, every cell by its name, on a disk and among processes.

{COW, MOR} x {single writer, overlapping, disjoint} x {eager, lazy} x {state from decisions, from
checkpoints} x {clean inline, beside}. The third axis is RFC-22's metadata index: here listing and
statistics come from the decisions alone, or from a checkpoint. In each cell a writer is killed when
its files are there, and what it left must be ended and deleted by whom the policy names, when it
says. A reader follows the changes, whose commits are decided in another order than they began.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

import pytest

from plait import Table
from plait.errors import OptionError, RetryableConflictError
from plait.testing.lock_kit import until
from tests.processes.hands import BREAKS, SCHEMA, Hand, Orders

TYPES = ("cow", "mor")
WRITERS = ("single", "overlapping", "disjoint")
ROLLBACKS = ("eager", "lazy")
STATES = ("from-decisions", "from-checkpoints")
CLEANS = ("clean-inline", "clean-beside")
Cell = tuple[str, str, str, str, str]
CELLS: list[Cell] = list(itertools.product(TYPES, WRITERS, ROLLBACKS, STATES, CLEANS))
HOLDS = [cell for cell in CELLS if cell[1] == "single" or cell[2] == "lazy"]
REFUSED = [cell for cell in CELLS if cell not in HOLDS]
ROUNDS = 2
RETAINED = 5
"""Versions that the reader may lag behind the cleaner."""
NEVER = 100_000


def name_of(cell: Cell) -> str:
    return "-".join(cell)


def make(path: Path, cell: Cell) -> Table:
    table_type, writers, failed_writes, state, _ = cell
    return Table.create(
        str(path / "t"),
        SCHEMA,
        record_key=["id"],
        partition_by=["place"],
        table_type=table_type,
        policy="file_group",
        failed_writes=failed_writes,
        lock="file",
        concurrency="single_writer" if writers == "single" else "multi_writer",
        properties={
            "clean.retain.time": "0s",
            "clean.grace": "0s",
            "clean.retain.versions": RETAINED,
            "recovery.interval": "30000d",  # the dead are seen to by what the cell says alone
            "checkpoint.interval": 2 if state == "from-checkpoints" else NEVER,
        },
    )


@dataclass
class Follower:
    """Reads the changes as they come, and knows what the table must hold."""

    table: Table
    at: int = 0
    held: dict[tuple[str, int], int] = field(default_factory=dict)
    followed: Event = field(default_factory=Event)

    def follow(self) -> None:
        head = self.table.version
        found = self.table.changes(since=self.at, until=head).to_arrow().to_pylist()
        # What a commit takes away comes before what it brings.
        found.sort(key=lambda row: (row["_commit_version"], row["_change_type"] in BRINGS))
        for row in found:
            key = (row["place"], row["id"])
            if row["_change_type"] in BRINGS:
                self.held[key] = row["value"]
            else:
                del self.held[key]
        self.at = head
        self.followed.set()


BRINGS = ("insert", "update_postimage")


@dataclass
class Play:
    """One cell while it runs."""

    cell: Cell
    table: Table
    broken: str | None
    first: Orders
    second: Orders
    reader: Follower
    seen: set[str] = field(default_factory=set)

    @property
    def inline(self) -> bool:
        return self.cell[4] == "clean-inline"

    def committed(self, hand: Orders) -> None:
        """After each commit its writer cleans, or leaves that to the cleaner, and others read."""
        self.reader.follow()
        self.seen |= set(self.table.handle.cache.snapshot().files["path"].to_pylist())
        if self.inline:
            hand.ask("clean")

    def files_of(self, nonce: str) -> list[str]:
        return [path for path in files_on_disk(self.table) if nonce in path]

    def gone(self, nonce: str) -> bool:
        """Read on, which lets the cleaner go on, and look whether an instant's files are there."""
        self.reader.follow()
        return not self.files_of(nonce)

    def some_deleted(self) -> bool:
        """Read on, and look whether a file that the table had is deleted."""
        self.reader.follow()
        return bool(self.seen - files_on_disk(self.table))

    def ended_by(self, nonce: str) -> int | None:
        """Return the process that rolled an instant back."""
        for entry in self.table.history():
            if any(each.nonce == nonce for each in entry.ended):
                return int(str(entry.client["pid"]))
        return None


def files_on_disk(table: Table) -> set[str]:
    root = Path(str(table.describe()["uri"]))
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return {str(path) for path in found if path.parts[0] != ".meta"}


@contextmanager
def cleaning(hand: Hand, how: str, followed: Event) -> Iterator[None]:
    """Clean beside the block whenever the reader has moved on, or not at all."""
    if how == "clean-inline":
        yield
        return
    done, errors = Event(), list[BaseException]()

    def run() -> None:
        while followed.wait() and not done.is_set():
            followed.clear()
            try:
                hand.ask("clean")
            except BaseException as error:  # noqa: BLE001 - shown below
                errors.append(error)
                return

    thread = Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        done.set()
        followed.set()
        thread.join()
    assert errors == []


def play(
    path: Path, cell: Cell, broken: str | None = None, other: Callable[[str], Orders] | None = None
) -> None:
    """INV-03 to INV-08 in one cell."""
    table = make(path, cell)
    uri = str(table.describe()["uri"])
    with (
        Hand(uri, broken) as first,
        Hand(uri, broken) if other is None else other(uri) as second,
        Hand(uri, broken) as doomed,
        Hand(uri, broken) as cleaner,
    ):
        assert isinstance(second, Orders)
        cast = Play(cell, table, broken, first, second, Follower(table))
        with cleaning(cleaner, cell[4], cast.reader.followed):
            for value in range(ROUNDS):
                ROUND[cell[1]](cast, value)
            dead = fail(cast, doomed)
            see_it_cleaned(cast, dead, cleaner)
            for _ in range(RETAINED + 2):
                write(cast, first)
                cast.committed(first)
            # A cleaner beside comes when it comes: it is waited for, and not counted in commits.
            deleted = until(cast.some_deleted, wait_s=0 if cast.inline else PATIENCE[broken])
            assert deleted, "what no version needs that is kept is deleted"
    expected = EXPECTED[cell[1]] | {("a", 1): ROUNDS}
    assert cast.reader.held == expected
    assert content(table) == expected
    assert not table.timeline.pending
    assert not table.verify().problems


def content(table: Table) -> dict[tuple[str, int], int]:
    found = table.scan().to_arrow().to_pylist()
    return {(row["place"], row["id"]): row["value"] for row in found}


def single(cast: Play, value: int) -> None:
    """One writer after the other, each in a process of its own."""
    hand = (cast.first, cast.second)[value % 2]
    hand.ask("upsert", place="a", value=value, ids=(1, 2), held=False)
    cast.committed(hand)
    assert cast.reader.held == {("a", 1): value, ("a", 2): value}


def overlapping(cast: Play, value: int) -> None:
    """Two writers of one file group at once: the first commits, the other is refused."""
    cast.first.stage("a", -1, 2, 3)
    cast.second.stage("a", value, 1, 2)
    cast.second.go_on()
    cast.committed(cast.second)
    with pytest.raises(RetryableConflictError):
        cast.first.go_on()
    assert cast.reader.held == {("a", 1): value, ("a", 2): value}


def disjoint(cast: Play, value: int) -> None:
    """Two writers of different file groups at once: both commit, the later one first."""
    began = [cast.first.stage("a", value, 1), cast.second.stage("b", value, 1)]
    cast.second.go_on()
    cast.committed(cast.second)
    cast.first.go_on()
    cast.committed(cast.first)
    assert cast.reader.held == {("a", 1): value, ("b", 1): value}
    older, younger = (version_of(cast.table, nonce) for nonce in began)
    assert younger < older


def version_of(table: Table, nonce: str) -> int:
    return next(e.version for e in table.history() if str(e.instant).endswith(nonce))


LAST = ROUNDS - 1
EXPECTED = {
    "single": {("a", 2): LAST},
    "overlapping": {("a", 2): LAST, ("b", 7): ROUNDS},
    "disjoint": {("b", 1): LAST, ("b", 7): ROUNDS},
}
ROUND = {"single": single, "overlapping": overlapping, "disjoint": disjoint}


def fail(cast: Play, doomed: Hand) -> str:
    """Kill a writer whose files are there; where there may be others, one is at work beside it."""
    several = cast.cell[1] != "single"
    if several:
        cast.second.stage("b", ROUNDS, 7)
    dead = doomed.stage("d", 99, 1, 2)
    assert cast.files_of(dead), "it was killed before it had written"
    assert cast.ended_by(dead) is None
    doomed.kill()
    if several:
        cast.second.go_on()
        cast.reader.follow()
    return dead


def see_it_cleaned(cast: Play, dead: str, cleaner: Hand) -> None:
    """The dead is ended by whom the contract names, and its files are deleted when it says."""
    _, writers, failed_writes, state, _ = cast.cell
    first, second = cast.first, cast.second
    write(cast, first)
    if not cast.inline:
        hands = {first.pid, second.pid, cleaner.pid} if writers == "single" else {cleaner.pid}
        if state == "from-checkpoints":
            hands |= {first.pid, second.pid}
        assert until(lambda: cast.gone(dead), wait_s=PATIENCE[cast.broken])
        assert cast.ended_by(dead) in hands
        return
    if writers == "single":
        assert cast.ended_by(dead) == first.pid
        newest = [entry for entry in cast.table.history() if entry.action != "clean"]
        ends = [entry for entry in newest if any(each.nonce == dead for each in entry.ended)]
        assert ends[0].version < newest[0].version, "before the next one wrote"
    if failed_writes == "eager":
        assert cast.files_of(dead) == [], "nobody cleaned, and nobody needs to"
    elif state == "from-checkpoints":
        write(cast, first)  # a checkpoint falls due, and with it the dead
        write(cast, first)
        assert cast.ended_by(dead) in {first.pid, second.pid}
        assert cast.files_of(dead) == []
    else:
        assert cast.files_of(dead), "lazy: the files wait"
        assert writers == "single" or cast.ended_by(dead) is None, "nobody had a cause to end it"
        first.ask("clean")
        assert cast.ended_by(dead) == first.pid
        assert cast.files_of(dead) == []


def write(cast: Play, hand: Orders) -> None:
    """Commit far from what the dead wrote; nobody cleans."""
    hand.ask("upsert", place="a", value=ROUNDS, ids=(1,), held=False)
    cast.reader.follow()


@pytest.mark.parametrize("cell", HOLDS, ids=name_of)
def test_rfc22(tmp_path: Path, cell: Cell) -> None:
    """INV-03 to INV-08 in each cell of the matrix."""
    play(tmp_path, cell)


@pytest.mark.parametrize("cell", REFUSED, ids=name_of)
def test_rfc22_refuses_eager_rollback_with_many_writers(tmp_path: Path, cell: Cell) -> None:
    """It would take the work of the living for that of the dead."""
    with pytest.raises(OptionError, match="eager"):
        make(tmp_path, cell)


LEFT_OUT: list[tuple[str, Cell]] = [
    ("clean does nothing", ("cow", "single", "eager", "from-decisions", "clean-inline")),
    ("clean does nothing", ("mor", "disjoint", "lazy", "from-checkpoints", "clean-beside")),
    ("clean does nothing", ("cow", "overlapping", "lazy", "from-decisions", "clean-beside")),
    ("lazy rolls nobody back", ("mor", "single", "lazy", "from-decisions", "clean-inline")),
    ("lazy rolls nobody back", ("cow", "overlapping", "lazy", "from-checkpoints", "clean-inline")),
    ("lazy rolls nobody back", ("mor", "disjoint", "lazy", "from-decisions", "clean-beside")),
    ("eager rolls nobody back", ("cow", "single", "eager", "from-checkpoints", "clean-inline")),
    ("eager rolls nobody back", ("mor", "single", "eager", "from-decisions", "clean-inline")),
]


@pytest.mark.parametrize(("broken", "cell"), LEFT_OUT, ids=str)
def test_rfc22_fails_when_a_duty_is_left_out(tmp_path: Path, broken: str, cell: Cell) -> None:
    """The matrix itself is tested: processes that do not clean or roll back are found."""
    assert cell in HOLDS
    with pytest.raises(AssertionError):
        play(tmp_path, cell, broken)


def test_rfc22_misses_every_duty() -> None:
    assert {broken for broken, _ in LEFT_OUT} == set(BREAKS)


PATIENCE = {None: 120.0, **dict.fromkeys(BREAKS, 1.0)}
"""So many seconds what must come may take; what is broken does not come."""
