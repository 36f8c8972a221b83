"""A checkpoint saves time; whatever happens to it, the state is the same (INV-11)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from plait.errors import CorruptMetadataError
from plait.services.verify.state_replay import difference
from plait.state.cache import StateCache
from plait.state.checkpoint import (
    list_checkpoints,
    load_checkpoint,
    load_newest,
    write_checkpoint,
)
from plait.state.events import TABLES, Events, LiveEntry
from plait.state.lineage import Horizons
from plait.state.state import TableState
from plait.storage.port import Store
from plait.testing import Fault, FaultStore, SeqIds, sim_ports
from plait.testing.wrapper import WrappedStore
from plait.timeline import paths
from tests.support.forge import reseal_checkpoint
from tests.support.histories import History, seen
from tests.support.protocol import listed, memory

T = TypeVar("T")


@pytest.fixture
def history() -> History:
    """Checkpoints at 4, 6 and 8 that share parts, and two versions more."""
    made = History.begin(memory())
    ports = sim_ports()
    for _ in range(10):
        made.run([("add", 2, 1), ("mask", 0, 0)] if made.version < 3 else [("add", 0, 1)])
        if made.version in (4, 6, 8):
            made.state = write_checkpoint(made.store, made.state, ports)
        if made.version == 10:
            break
    assert list_checkpoints(made.store) == [4, 6, 8]
    assert len(made.state.parts) == 2
    return made


def opened(store: Store) -> TableState:
    return StateCache(store, sim_ports()).refresh()


def whole(history: History, state: TableState) -> None:
    """The state has everything, for readers of each version and for the look-up of commits."""
    assert difference(history.store, state, history.replayed()) is None
    for version in range(history.version + 1):
        assert seen(state, history.store, version) == history.live[version]
    assert state.commits(history.store).num_rows == history.version + 1


@pytest.mark.parametrize(
    "body", [None, b"", b"4", b"6\n", b"99", b"x", b"\xff", b"9" * 1000, b"1" * 5000], ids=range(9)
)
def test_a_client_starts_from_the_newest_checkpoint_whatever_the_hint_says(
    history: History, body: bytes | None
) -> None:
    """INV-11: a wrong hint, or one that cannot be read, costs nothing but time."""
    state = opened(history.store)
    assert (state.checkpoint, state.version) == (8, 10)
    whole(history, state)
    if body is None:
        history.store.delete([paths.CHECKPOINT_HINT])
        silent = Fault("error", "find", paths.CHECKPOINT_HINT, times=99)
        assert opened(FaultStore(history.store, [silent])).checkpoint == 8
        assert opened(history.store).checkpoint == 8
    else:
        history.store.put(paths.CHECKPOINT_HINT, body)
    whole(history, opened(history.store))


@pytest.mark.parametrize(
    "body",
    [None, b"", b"{}", b"[]", b"rubbish", b'{"checksum":1,"state":2}', b"[" * 100_000],
    ids=range(7),
)
def test_a_damaged_checkpoint_is_passed_over(history: History, body: bytes | None) -> None:
    """INV-11: an older one is taken, or the decisions."""
    for version in (8, 6, 4):
        history.store.delete([paths.checkpoint(version)])
        if body is not None:
            history.store.put(paths.checkpoint(version), body)
        state = opened(history.store)
        assert state.checkpoint < version
        whole(history, state)


def part(table: object, path: object, rows: object) -> dict[str, object]:
    files = [[table, path, rows, ""]]
    return {"parts": [{"first": 0, "last": 8, "files": files}]}


INSIDE = f"{paths.CHECKPOINTS}/x"


@pytest.mark.long(7)
@pytest.mark.parametrize(
    "nonsense",
    [
        {"features": ["other-1"]},
        {"features": "slots-1"},
        {"version": 7},
        {"final": 9},
        {"final": -1},
        {"raised": {}},
        {"raised": [[3, 9]]},
        {"raised": [[1, 2], [2, 1]]},
        {"table": []},
        {"parts": {}},
        {"parts": [[]]},
        {"late": {}},
        {"reservations": {}},
        {"streams": {}},
        part("other", INSIDE, 1),
        part("added", "data/x", 1),
        part("added", f"{paths.CHECKPOINTS}/../x", 1),
        part("added", 7, 1),
        part("added", INSIDE, 0),
        part("added", INSIDE, -1),
        part("added", INSIDE, 1 << 60),
    ],
    ids=range(21),
)
def test_a_sealed_checkpoint_that_makes_no_sense_is_not_loaded(
    history: History, nonsense: dict[str, object]
) -> None:
    """INV-04, INV-11: whoever wrote it."""
    reseal_checkpoint(history.store, 8, **nonsense)
    with pytest.raises(CorruptMetadataError):
        load_checkpoint(history.store, 8)
    whole(history, opened(history.store))


@pytest.mark.parametrize("damage", ["missing", "rubbish"])
def test_damaged_parts_are_made_up_for_by_the_decisions(history: History, damage: str) -> None:
    """INV-11."""
    for path in part_files(history.store):
        history.store.delete([path])
        if damage == "rubbish":
            history.store.put(path, b"rubbish")
        whole(history, opened(history.store))


def test_damaged_parts_without_their_decisions_are_an_error(history: History) -> None:
    """INV-04: never an empty answer."""
    history.store.delete(part_files(history.store))
    for version in range(5):
        history.store.put(paths.slot(version), b"")
    state = opened(history.store)
    with pytest.raises(CorruptMetadataError):
        state.snapshot(history.store)


def test_a_client_whose_parts_were_collected_never_leaves_a_checkpoint_without_them(
    history: History,
) -> None:
    """INV-11: it checks that the parts it shares with older checkpoints are there."""
    idle = opened(history.store)
    history.store.delete(part_files(history.store))
    late = write_checkpoint(history.store, idle, sim_ports())
    assert late.checkpoint == 10
    names = {file.path for part in late.parts for file in part.files}
    assert names
    assert names <= set(listed(history.store, paths.CHECKPOINTS))
    for version in range(9):
        history.store.put(paths.slot(version), b"")  # so that nothing makes up for a part
    state = opened(history.store)
    for version in range(history.version + 1):
        assert seen(state, history.store, version) == history.live[version]


def test_a_client_that_slept_rests_on_no_part_that_a_clean_condemned(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-11: the parts are there until the grace is over, and no longer."""
    monkeypatch.setattr("plait.state.checkpoint._GROWTH", 0)  # as if each part were large
    idle = opened(history.store)
    doomed = part_files(history.store)
    going = {"path": doomed, "removed": [9] * len(doomed), "version": [10] * len(doomed)}
    gone = Events(condemned=pa.Table.from_pydict(going, schema=TABLES["condemned"]))
    slept = replace(idle, tail=(*idle.tail, LiveEntry(10, None, gone)))
    late = write_checkpoint(history.store, slept, sim_ports())
    named = {file.path for part in late.parts for file in part.files}
    assert named.isdisjoint(doomed)
    assert named <= set(part_files(history.store))


def part_files(store: Store) -> list[str]:
    return [path for path in listed(store, paths.CHECKPOINTS) if path.endswith(".parquet")]


def test_two_writers_of_one_checkpoint_leave_one_that_is_whole(history: History) -> None:
    """INV-11: the loser's parts stay unnamed and are taken away."""
    one, other = opened(history.store), opened(history.store)
    first = write_checkpoint(history.store, one, sim_ports(ids=SeqIds("a")))
    before = listed(history.store, paths.CHECKPOINTS)
    second = write_checkpoint(history.store, other, sim_ports(ids=SeqIds("b")))
    assert second.checkpoint == first.checkpoint == 10
    assert listed(history.store, paths.CHECKPOINTS) == before
    whole(history, second)
    whole(history, opened(history.store))


def test_a_crash_while_writing_a_checkpoint_leaves_a_table_that_opens() -> None:
    """INV-11: before each call, which is after the one before it."""
    for nth in range(1, 30):
        history = History.begin(memory()).run([("add", 1, 0)] * 3)
        store = FaultStore(history.store, [Fault("crash_before", nth=nth)])
        try:
            write_checkpoint(store, history.state, sim_ports())
        except BaseException:  # noqa: BLE001 - a simulated crash
            whole(history, opened(history.store))
            history.step(("add", 1, 0))
            written = write_checkpoint(history.store, opened(history.store), sim_ports())
            whole(history, written)
        else:
            assert nth > 5
            return
    pytest.fail("the operation did not end")


class Meeting(WrappedStore):
    """Lets two readers of the same part meet before either goes on."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._met = threading.Barrier(2)
        self._first = True

    def call(self, operation: str, path: str, run: Callable[[], T]) -> T:
        if path.endswith("-added.parquet"):
            self._met.wait(300)
        return run()


def test_threads_that_share_a_state_load_its_parts_once_each(history: History) -> None:
    """INV-04: no file is seen twice because two threads asked at the same time."""
    state = load_newest(history.store)
    assert state is not None
    store = Meeting(history.store)
    first = state.parts[:1]
    shared = replace(state, parts=first)
    found: list[int] = []

    def read() -> None:
        found.append(shared.folded(store).files.num_rows)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    files = shared.folded(history.store).files["path"].to_pylist()
    assert found == [len(files)] * 2
    assert len(set(files)) == len(files)


def test_files_of_masks_that_wait_to_be_condemned_are_not_forgotten() -> None:
    """INV-05, INV-06: what one clean has no room for, a later one still finds."""
    history = History.begin(memory())
    history.run([("add", 2, 1), ("mask", 0, 1), ("mask", 0, 1), ("add", 0, 1)])
    masks = history.state.folded(history.store).masks
    ended = masks.filter(pc.is_valid(masks["until"]))["dv_path"].drop_null().to_pylist()
    assert ended
    state = replace(history.state, horizons=Horizons(4)).squeezed()
    assert set(ended) <= set(state.folded(history.store).masks["dv_path"].to_pylist())
