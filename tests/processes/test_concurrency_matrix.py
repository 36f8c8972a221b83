"""The test plan of Hudi's RFC-22, every cell by its name, on a file system and among processes.

{COW, MOR} x {single writer, overlapping, disjoint} x {eager, lazy} x {state from decisions, from
checkpoints} x {with, without statistics} x {clean inline, beside}. Two of the axes are RFC-22's
metadata index: listing and statistics come from the decisions alone, or from a checkpoint; or there
are none of columns, and they are made again at the end. Each service runs beside the writers in
cells of its own. In each cell a writer is killed when its files are there, and what it left must be
ended and deleted by whom the policy names, when it says. A reader follows the changes, whose
commits are decided in another order than they began.

Where no service runs, half of the cells are played: those in which, with each of the first three
axes, every pair of values of the last three occurs. ``make matrix`` plays the other half too. There
each cell is also seen to fail with each of its features switched off, and some of the cells are
played for an hour, again and again on one table.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

import pytest

from plait import Table
from plait.errors import OptionError, RetryableConflictError, SingleWriterError, TableError
from plait.model.instant import Operation
from plait.ports import SystemClock
from plait.state.checkpoint import list_checkpoints
from plait.testing.lock_kit import until
from tests.processes.hands import BREAKS, SCHEMA, Hand, Orders
from tests.support.place import quick_place

_log = logging.getLogger(__name__)
TYPES = ("cow", "mor")
WRITERS = ("single", "overlapping", "disjoint")
ROLLBACKS = ("eager", "lazy")
STATES = ("from-decisions", "from-checkpoints")
STATISTICS = ("with-statistics", "without-statistics")
CLEANS = ("clean-inline", "clean-beside")
ALONE = "no-service"
SERVICES: dict[str, Operation] = {
    "compaction": Operation.COMPACT,
    "clustering": Operation.CLUSTER,
    "archive": Operation.ARCHIVE,
}
"""What runs beside the writers (an order of ``hands``), and what its decisions are called."""


class Cell(NamedTuple):
    """One cell of the matrix."""

    table_type: str
    writers: str
    rollback: str
    state: str
    statistics: str
    clean: str
    service: str = ALONE
    policy: str = "file_group"

    @property
    def keyed(self) -> bool:
        """A keyed bucket of copy-on-write is one file; a clustering has tables of both kinds."""
        return self.service not in ("compaction", "clustering") or self.table_type == "mor"


PLACES = list(itertools.product(TYPES, WRITERS, ROLLBACKS))
OTHERS = list(itertools.product(STATES, STATISTICS, CLEANS))


def _beside() -> Iterator[Cell]:
    """Let each service run beside all writers; the other axes take turns."""
    places = [place for place in PLACES if place[1] == "single" or place[2] == "lazy"]
    for number, (service, place) in enumerate(itertools.product(SERVICES, places)):
        turn = 3 * number + number // len(OTHERS)
        state, *rest = OTHERS[turn % len(OTHERS)]
        if service == "archive":  # it moves what two checkpoints cover
            state = "from-checkpoints"
        yield Cell(*place, state, *rest, service)


def _by_key() -> Iterator[Cell]:
    """Let writers overlap in file groups where keys alone conflict."""
    for table_type, others in itertools.product(TYPES, OTHERS[::2]):
        yield Cell(table_type, "overlapping", "lazy", *others, policy="key")


CELLS = [
    *(Cell(*place, *others) for place in PLACES for others in OTHERS),
    *_beside(),
    *_by_key(),
]
HOLDS = [cell for cell in CELLS if cell.writers == "single" or cell.rollback == "lazy"]
REFUSED = [cell for cell in CELLS if cell not in HOLDS]


def _is_played(cell: Cell) -> bool:
    """Tell whether a cell is in the short form: two of its last axes tell the third, by place."""
    turn = PLACES.index(cell[:3]) + OTHERS.index(cell[3:6]).bit_count()
    return WHOLE or cell.service != ALONE or turn % 2 == 0


WHOLE = os.environ.get("PLAIT_MATRIX") == "whole"
"""Whether ``make matrix`` runs."""
LONG_S = 60 * float(os.environ.get("PLAIT_MATRIX_MINUTES", "0"))
"""How long each cell of the long row is played; 0: once."""
PLAYED = [cell for cell in HOLDS if _is_played(cell)]
ROUNDS = 2
RETAINED = 5
"""Versions that the reader may lag behind the cleaner."""
NEVER = 100_000
NOWHERE = "value > 1000000"
"""No row is there, and the bounds of each file say so."""


def name_of(cell: Cell) -> str:
    return "-".join(cell)


def make(path: Path, cell: Cell) -> Table:
    return Table.create(
        str(path / "t"),
        SCHEMA,
        record_key=["id"] if cell.keyed else [],
        partition_by=["place"],
        table_type=cell.table_type,
        policy=cell.policy,
        failed_writes=cell.rollback,
        lock="file",
        concurrency="single_writer" if cell.writers == "single" else "multi_writer",
        properties={
            "clean.retain.time": "0s",
            "clean.grace": "0s",
            "clean.retain.versions": RETAINED,
            "archive.keep": 1,
            "recovery.interval": "30000d",  # the dead are seen to by what the cell says alone
            "checkpoint.interval": 2 if cell.state == "from-checkpoints" else NEVER,
            "metadata.statistics": "on" if cell.statistics == "with-statistics" else "off",
        },
    )


@dataclass
class Follower:
    """Reads the changes as they come, and knows what the table must hold."""

    table: Table
    at: int = 0
    held: dict[tuple[str, int], int] = field(default_factory=dict)
    followed: Event = field(default_factory=Event)
    served: Event = field(default_factory=Event)
    """Set whenever it has moved on: one for the cleaner, one for the service beside."""

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
        self.served.set()


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
    others: dict[tuple[str, int], int] = field(default_factory=dict)
    """The rows that were written beside those who died."""

    def holds(self, expected: dict[tuple[str, int], int]) -> bool:
        """Tell whether the reader has these rows, and those of before."""
        return self.reader.held == {**self.others, **expected}

    @property
    def inline(self) -> bool:
        return self.cell.clean == "clean-inline"

    def committed(self, hand: Orders) -> None:
        """After each commit its writer cleans, or leaves that to the cleaner, and others read."""
        self.reader.follow()
        self.seen |= set(self.table._handle.cache.snapshot().files["path"].to_pylist())
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

    def served(self) -> bool:
        """Read on, which lets the service go on, and look whether it decided anything."""
        self.reader.follow()
        operation = SERVICES[self.cell.service].value
        return any(entry.operation == operation for entry in self.table.inspect.history())

    def ended_by(self, nonce: str) -> int | None:
        """Return the process that rolled an instant back."""
        for entry in self.table.inspect.history():
            if any(each.nonce == nonce for each in entry.ended):
                return int(str(entry.client["pid"]))
        return None


def files_on_disk(table: Table) -> set[str]:
    root = Path(str(table.inspect.describe()["uri"]))
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return {str(path) for path in found if path.parts[0] != ".meta"}


@contextmanager
def asking(hand: Hand, order: str | None, followed: Event) -> Iterator[None]:
    """Give an order beside the block whenever the reader has moved on, or not at all."""
    if order is None:
        yield
        return
    done, errors = Event(), list[BaseException]()

    def run() -> None:
        while followed.wait() and not done.is_set():
            followed.clear()
            try:
                hand.ask(order)
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
    uri = str(table.inspect.describe()["uri"])
    with (
        Hand(uri, broken) as first,
        Hand(uri, broken) if other is None else other(uri) as second,
        Hand(uri, broken) as doomed,
        Hand(uri, broken) as cleaner,
        Hand(uri, broken) as keeper,
    ):
        assert isinstance(second, Orders)
        reader = Follower(table)
        cast = Play(cell, table, broken, first, second, reader)
        service = None if cell.service == ALONE else cell.service
        with asking(cleaner, None if cast.inline else "clean", reader.followed):
            with asking(keeper, service, reader.served):
                for value in range(ROUNDS):
                    ROUND[cell.writers](cast, value)
            dead = fail(cast, doomed)
            see_it_cleaned(cast, dead, cleaner)
            with asking(keeper, service, reader.served):
                for _ in range(RETAINED + 2):
                    write(cast, first)
                    cast.committed(first)
                # Who works beside comes when it comes: it is waited for, and no commit is counted.
                if service is not None:
                    assert until(cast.served, wait_s=PATIENCE[broken]), "the service does its part"
            deleted = until(cast.some_deleted, wait_s=0 if cast.inline else PATIENCE[broken])
            assert deleted, "what no version needs that is kept is deleted"
        expected = {**cast.others, **EXPECTED[cell.writers], ("a", 1): ROUNDS}
        assert reader.held == content(table) == expected
        checkpoints = list_checkpoints(table._handle.store)
        assert bool(checkpoints) == (cell.state == "from-checkpoints")
        see_statistics(cast)
    assert content(table) == expected
    assert not table.inspect.timeline().pending
    assert not table.check.verify().problems


def see_statistics(cast: Play) -> None:
    """Bounds are told or not, as the table says; those that are not are made again from files."""
    files = cast.table.inspect.files()
    if cast.cell.statistics == "without-statistics":
        assert files["stats"].null_count == files.num_rows
        assert cast.table.scan(where=NOWHERE).plan.files.num_rows == files.num_rows
        cast.first.ask("rebuild")
    opened = Table.open(str(cast.table.inspect.describe()["uri"]))
    assert opened.inspect.files()["stats"].null_count == 0
    assert opened.scan(where=NOWHERE).plan.files.num_rows == 0


def content(table: Table) -> dict[tuple[str, int], int]:
    found = table.scan().to_arrow().to_pylist()
    return {(row["place"], row["id"]): row["value"] for row in found}


def single(cast: Play, value: int) -> None:
    """One writer after the other, each in a process of its own."""
    hand = (cast.first, cast.second)[value % 2]
    hand.ask("upsert", place="a", value=value, ids=(1, 2), held=False)
    cast.committed(hand)
    assert cast.holds({("a", 1): value, ("a", 2): value})
    hand.stage("a", value, 1, 2)
    with pytest.raises(SingleWriterError):
        (cast.first, cast.second)[1 - value % 2].ask(
            "upsert", place="a", value=-1, ids=(1,), held=False
        )
    hand.go_on()
    cast.committed(hand)


def overlapping(cast: Play, value: int) -> None:
    """Two writers of one file group at once, in turn with a key of both and with none.

    The first commits. The other is refused, unless only keys conflict and they share none.
    """
    apart = value % 2 and cast.cell.keyed
    both = apart and cast.cell.policy == "key"
    cast.first.stage("a", value if both else -1, *((3,) if apart else (2, 3)))
    cast.second.stage("a", value, 1, 2)
    cast.second.go_on()
    cast.committed(cast.second)
    if both:
        cast.first.go_on()
        cast.committed(cast.first)
        cast.others["a", 3] = value
    else:
        with pytest.raises(RetryableConflictError):
            cast.first.go_on()
    assert cast.holds({("a", 1): value, ("a", 2): value})


def disjoint(cast: Play, value: int) -> None:
    """Two writers of different file groups at once: both commit, the later one first."""
    began = [cast.first.stage("a", value, 1), cast.second.stage("b", value, 1)]
    cast.second.go_on()
    cast.committed(cast.second)
    cast.first.go_on()
    cast.committed(cast.first)
    assert cast.holds({("a", 1): value, ("b", 1): value})
    older, younger = (version_of(cast.table, nonce) for nonce in began)
    assert younger < older


def version_of(table: Table, nonce: str) -> int:
    return next(e.version for e in table.inspect.history() if str(e.instant).endswith(nonce))


LAST = ROUNDS - 1
EXPECTED = {
    "single": {("a", 2): LAST},
    "overlapping": {("a", 2): LAST, ("b", 7): ROUNDS},
    "disjoint": {("b", 1): LAST, ("b", 7): ROUNDS},
}
ROUND = {"single": single, "overlapping": overlapping, "disjoint": disjoint}


def fail(cast: Play, doomed: Hand) -> str:
    """Kill a writer whose files are there; where there may be others, one is at work beside it."""
    several = cast.cell.writers != "single"
    if several:
        cast.second.stage("b", ROUNDS, 7)
        cast.others["b", 7] = ROUNDS
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
    writers, failed_writes, state = cast.cell.writers, cast.cell.rollback, cast.cell.state
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
        newest = [entry for entry in cast.table.inspect.history() if entry.action != "clean"]
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


@pytest.fixture
def place() -> Iterator[Path]:
    """Give a directory in memory: processes share it as they share a disk."""
    with quick_place() as found:
        yield Path(found)


@pytest.mark.long(12)
@pytest.mark.parametrize("cell", PLAYED, ids=name_of)
def test_rfc22(place: Path, cell: Cell) -> None:
    """INV-03 to INV-08 in each cell of the matrix."""
    play(place, cell)


@pytest.mark.long(4)
@pytest.mark.parametrize("cell", REFUSED, ids=name_of)
def test_rfc22_refuses_eager_rollback_with_many_writers(tmp_path: Path, cell: Cell) -> None:
    """It would take the work of the living for that of the dead."""
    with pytest.raises(OptionError, match="eager"):
        make(tmp_path, cell)


def duties(cell: Cell) -> list[str]:
    """Return what each feature of a cell can be made to leave out; one of each axis at least."""
    statistics = cell.statistics == "with-statistics"
    found = {
        "a second writer is let in": cell.writers == "single",
        "file groups are not told apart": cell.writers == "disjoint" and cell.keyed,
        "file_group rebases disjoint keys": cell.writers == "overlapping"
        and cell.keyed
        and cell.policy == "file_group",
        "key refuses disjoint keys": cell.policy == "key",
        "eager rolls nobody back": cell.rollback == "eager",
        "lazy rolls nobody back": cell.rollback == "lazy" and cell.clean == "clean-inline",
        "clean does nothing": cell.writers != "single" or cell.clean == "clean-inline",
        "checkpoints are left out": cell.state == "from-checkpoints",
        "bounds are left out": statistics,
        "bounds are told though they are off": not statistics,
        "rebuild does nothing": not statistics,
        f"{cell.service} does nothing": cell.service != ALONE,
    }
    return [name for name, there in found.items() if there]


EVERY = [(broken, cell) for cell in HOLDS for broken in duties(cell)]


def _some() -> Iterator[tuple[str, Cell]]:
    """Choose each duty with each kind of writers, in turn of both types of table."""
    chosen: dict[tuple[str, str], tuple[str, Cell]] = {}
    for number, (broken, cell) in enumerate(EVERY):
        chosen.setdefault((broken, cell.writers), EVERY[number])
    yield from chosen.values()


LEFT_OUT = EVERY if WHOLE else list(_some())


def shown(each: object) -> str:
    return name_of(each) if isinstance(each, Cell) else str(each)


@pytest.mark.long(6)
@pytest.mark.parametrize(
    ("broken", "cell"),
    LEFT_OUT,
    ids=shown,
)
def test_rfc22_fails_when_a_duty_is_left_out(place: Path, broken: str, cell: Cell) -> None:
    """The matrix itself is tested: whatever a cell has, it is seen to be missed."""
    with pytest.raises((AssertionError, TableError, pytest.fail.Exception)):
        play(place, cell, broken)


def test_rfc22_misses_every_duty_of_every_cell() -> None:
    assert {broken for broken, _ in LEFT_OUT} == {broken for broken, _ in EVERY} == set(BREAKS)
    assert {cell for _, cell in EVERY} == set(HOLDS)


LONG = [
    Cell("cow", "overlapping", "lazy", "from-checkpoints", "with-statistics", "clean-beside"),
    Cell(
        "mor",
        "overlapping",
        "lazy",
        "from-decisions",
        "with-statistics",
        "clean-inline",
        policy="key",
    ),
    Cell("mor", "disjoint", "lazy", "from-checkpoints", "without-statistics", "clean-beside"),
    Cell("cow", "single", "eager", "from-checkpoints", "with-statistics", "clean-inline"),
]


@pytest.mark.long(1)
@pytest.mark.timeout(LONG_S + 1800)
@pytest.mark.parametrize("cell", LONG, ids=name_of)
def test_rfc22_holds_again_and_again_on_one_table(
    place: Path, cell: Cell, record_property: Callable[[str, object], None]
) -> None:
    """INV-03 to INV-08, for an hour in ``make matrix``: rounds, and a writer killed after each."""
    table = make(place, cell)
    uri, clock = str(table.inspect.describe()["uri"]), SystemClock()
    until, turns = clock.monotonic() + LONG_S, 0
    with Hand(uri) as first, Hand(uri) as second, Hand(uri) as cleaner:
        cast = Play(cell, table, None, first, second, Follower(table))
        order = None if cast.inline else "clean"
        with asking(cleaner, order, cast.reader.followed):
            while turns < 2 or clock.monotonic() < until:
                for value in range(ROUNDS):
                    ROUND[cell.writers](cast, value)
                with Hand(uri) as doomed:
                    dead = fail(cast, doomed)
                assert until_gone(cast, dead), "what the dead left is deleted"
                turns += 1
    assert cast.reader.held == content(table)
    assert not table.inspect.timeline().pending
    assert not table.check.verify(data=True).problems
    record_property("turns", turns)
    _log.warning("%s: %d writers killed in %d versions", name_of(cell), turns, table.version)


def until_gone(cast: Play, dead: str) -> bool:
    """Write on until the files of a dead writer are deleted."""

    def gone() -> bool:
        write(cast, cast.first)
        cast.committed(cast.first)
        return cast.gone(dead)

    return until(gone, wait_s=PATIENCE[None])


PATIENCE = {None: 120.0, **dict.fromkeys(BREAKS, 1.0)}
"""So many seconds what must come may take; what is broken does not come."""
