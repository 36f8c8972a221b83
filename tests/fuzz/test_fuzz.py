"""Every kind of file, damaged in every way: the right answer, or an error of ours that names it."""

from __future__ import annotations

import io
import itertools
import json
import resource
from collections.abc import Callable, Iterator
from unittest import mock

import pytest

from plait import Table
from plait.state.checkpoint_verification import CheckpointVerification
from plait.timeline import paths
from plait.timeline.log import Timeline
from tests.fuzz import judge as judging
from tests.fuzz.damage import DAMAGES, Case, fifo
from tests.fuzz.judge import judge
from tests.fuzz.run import PARTS, Fuzz, fuzz
from tests.fuzz.tables import OLD
from tests.support.place import quick_place

KINDS = {
    "archive", "checkpoint", "checkpoint part", "checkpoint part rebuilt", "data base", "data dv",
    "data keys", "data log", "data map", "data ordered", "heartbeat",
    "hint", "identity", "lease", "lock", "manifest", "pending inflight", "pending requested",
    "slot", "slot archived", "slot first", "slot newest",
}  # fmt: skip


pytestmark = pytest.mark.processes


@pytest.fixture
def place() -> Iterator[str]:
    with quick_place() as found:
        yield found


@pytest.mark.timeout(3600)
@pytest.mark.long(1)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_damaged_table_gives_the_right_answer_or_names_the_damage(
    place: str, part: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """INV-04, INV-05, INV-06; within 512 MB, without a hang, and nothing outside is touched."""
    report = fuzz(place, 1, seconds=None, part=part)
    with capsys.disabled():
        print(f"\n{list(report.lines())[-1]}")
    assert report.failures == []
    assert {kind for kind, _ in report.counts} == KINDS
    assert {damage for _, damage in report.counts} == set(DAMAGES)


def test_every_kind_of_file_is_damaged_in_every_way(target: Fuzz) -> None:
    pairs = [(kind, damage) for _, kind, damage in target.pairs()]
    assert sorted(pairs) == sorted(itertools.product(KINDS, DAMAGES))


@pytest.fixture(scope="module")
def target() -> Iterator[Fuzz]:
    with quick_place() as place:
        yield Fuzz(place, 1)


def problems(target: Fuzz, table: str, kind: str, damage: str) -> object:
    """Judge a case in this process, whose Plait may have a fault."""
    task = target.task(table, kind, damage, 0)
    return judge(json.loads(json.dumps(task)))["problems"]


def test_every_table_rests_on_slots_and_one_on_manifests(target: Fuzz) -> None:
    """What a checkpoint covers is not read, so damage to it shows nowhere."""
    for table, needed in target.needed.items():
        files = target.files[table]
        part = "checkpoint part rebuilt" if table == OLD else "checkpoint part"
        for kind in ("slot", "slot newest", "checkpoint", part):
            assert needed.intersection(files[kind]), (table, kind)
        bases = [*files["data base"], *files.get("data ordered", ())]
        assert needed.intersection(bases), table
    assert needed_somewhere(target, "data base")
    assert needed_somewhere(target, "data ordered")
    assert needed_somewhere(target, "manifest")


def needed_somewhere(target: Fuzz, kind: str) -> bool:
    return any(n.intersection(target.files[t].get(kind, ())) for t, n in target.needed.items())


def test_the_judge_knows_what_a_table_holds(target: Fuzz) -> None:
    model = target.models["mor"]
    wrong = {**model, "at": {k: rows[1:] for k, rows in model["at"].items()}}  # type: ignore[attr-defined]
    with mock.patch.dict(target.models, mor=wrong):
        found = str(problems(target, "mor", "lock", "empty"))
    for step in ("head: ", "filter: ", "past: ", "write: ", "clean: "):
        assert step in found


def test_one_table_was_kept_in_shape(target: Fuzz) -> None:
    """Its damage is that of bounds from files, of archived slots and of rows in an order."""
    table = Table.open(f"{target.place}/{OLD}")
    files = table.inspect.files()
    assert files["stats"].null_count == 0
    assert set(target.files[OLD]["data ordered"]) <= set(files["path"].to_pylist())
    assert len(target.files[OLD]["slot archived"]) > 5
    untold = [version for version in range(8) if not told(table, version)]
    assert untold, "no bounds are those of a rebuild"


def told(table: Table, version: int) -> bool:
    """Tell whether a decision tells the bounds of the files that it adds."""
    added = next(table._handle.cache.timeline.load_after(version - 1, limit=1)).changes.added
    return added.num_rows == 0 or added["stats"].null_count == 0


def test_a_damage_that_does_nothing_is_found(target: Fuzz) -> None:
    def nothing(_: Case) -> None: ...

    with (
        mock.patch.dict(DAMAGES, fifo=nothing),
        mock.patch("tests.fuzz.judge.flip", nothing),
    ):
        assert "nothing was damaged" in str(problems(target, "mor", "slot", fifo.__name__))


def test_too_much_memory_is_found(
    target: Fuzz, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The process that judges tells its peak after each case."""
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(target.task("mor", "lock", "flip", 0))))
    monkeypatch.setattr(judging, "MEMORY_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    judging.main()
    assert "memory: " in str(json.loads(capsys.readouterr().out)["problems"])


def _archived(self: Timeline, version: int) -> bytes | None:
    return self._store.find(paths.slot(version)) or None


def _believed(*_: object) -> bool:
    return True


FAULTS: dict[str, tuple[object, str, Callable[..., object], str, str]] = {
    "an empty slot is free": (Timeline, "find_slot", _archived, "slot newest", "empty"),
    "a checkpoint is believed": (CheckpointVerification, "agrees", _believed, "checkpoint", "lie"),
    "a gap is the head": (Timeline, "find_slot", _archived, "slot", "remove"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_plait_is_found(target: Fuzz, fault: str) -> None:
    owner, name, other, kind, damage = FAULTS[fault]
    assert problems(target, "mor", kind, damage) == []
    with mock.patch.object(owner, name, other):
        assert problems(target, "mor", kind, damage) != []
