"""A stream of several writers as real processes over a control topic: killed, stopped, woken."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plait import Table
from plait.stream.messages import parse_offsets
from tests.processes.stream_worker import APPLICATION, BASE, FENCED, main
from tests.services.forked import Forked

pytestmark = [pytest.mark.processes, pytest.mark.timeout(3600)]

WRITERS = (0, 1)
KILLS = int(os.environ.get("PLAIT_KILLS", "4"))
MOST_ROLLBACKS = 5
"""Two turns of the older one, one that it began as it woke, one that the newer one gave up when the
writers came to it, and the turn that was open in the end."""
SILENCE_S = 120
"""So long may nothing happen before the run counts as stuck."""


class Crew:
    """A coordinator and writers, each a process, and the table that they write."""

    def __init__(self, directory: Path, *, keyed: bool) -> None:
        self.directory = directory
        properties = {"heartbeat.interval": "1s", "heartbeat.timeout": "20s"}
        self.table = Table.create(
            str(directory / "table"),
            "id bigint",
            record_key=["id"] if keyed else [],
            buckets=2 if keyed else None,
            properties=properties,
        )
        (directory / "operation").write_text("upsert" if keyed else "append")
        self.running: dict[str, Forked] = {}
        self.all: list[Forked] = []

    def start(self, role: str, number: int = 0) -> Forked:
        process = Forked(main, role, self.directory, number, log=self.directory / "log")
        self.running[role if role == "coordinator" else f"w{number}"] = process
        self.all.append(process)
        return process

    def again(self, name: str) -> Forked:
        """Start another one under a name."""
        role, number = ("coordinator", 0) if name == "coordinator" else ("writer", int(name[1:]))
        return self.start(role, number)

    def epoch(self) -> int:
        position = self.table.stream(APPLICATION).position
        return -1 if position is None else position.epoch

    def wait(self, what: str, done: Callable[[], bool]) -> None:
        since = time.monotonic()
        while not done():
            if time.monotonic() - since > SILENCE_S:
                raise AssertionError(what, (self.directory / "log").read_text()[-4000:])
            time.sleep(0.01)

    def advance(self, epochs: int) -> None:
        """Wait for so many more epochs."""
        wanted = self.epoch() + epochs
        self.wait(f"epoch {wanted}", lambda: self.epoch() >= wanted)

    def finish(self) -> dict[str, int]:
        """Let the sources run out, and what they gave be decided; give how far they came."""
        names = [f"w{number}" for number in WRITERS]
        for name in names:
            (self.directory / name).unlink(missing_ok=True)
        (self.directory / "last").touch()

        def decided() -> bool:
            if not all((self.directory / name).exists() for name in names):
                return False
            ends = {name: (self.directory / name).read_text() for name in names}
            position = self.table.stream(APPLICATION).position
            return position is not None and parse_offsets(position.end) == ends

        self.wait("everything is decided", decided)
        (self.directory / "end").touch()
        assert self.running["coordinator"].wait(SILENCE_S) == 0
        return {name: int((self.directory / name).read_text()) for name in names}

    def check(self, ends: dict[str, int]) -> None:
        """Compare every row with the sources, and the timeline with itself."""
        self.close()
        found = sorted(self.table.scan().to_arrow()["id"].to_pylist())
        expected = [BASE * n + at for n in WRITERS for at in range(ends[f"w{n}"])]
        assert found == expected, f"{len(found)} of {len(expected)} rows"
        audit = self.table.stream(APPLICATION).audit()
        assert audit.problems == ()
        assert audit.rows == len(expected)
        assert audit.proven == len(audit.epochs)
        report = self.table.check.verify()
        assert report.problems == (), report.to_dict()
        assert self.table.inspect.timeline().pending == (), (
            "the last coordinator ended the turns of all"
        )

    def rollbacks(self) -> list[str]:
        """Return why instants were rolled back."""
        every = self.table._handle.cache.timeline.load_after(-1, limit=100_000)
        return [ended.reason for each in every for ended in each.rolled_back]

    def close(self) -> None:
        for process in self.all:
            process.stop()
        self.all.clear()


@pytest.fixture
def crew(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Crew]:
    made = Crew(tmp_path, keyed=request.param)
    yield made
    made.close()


@pytest.mark.long(1)
@pytest.mark.parametrize("crew", [False, True], indirect=True, ids=["append", "upsert"])
def test_every_row_is_there_once_though_anyone_is_killed(crew: Crew) -> None:
    """INV-09: coordinator and writers die by kill -9 in turn; others go on in their places."""
    chance = random.Random(5)
    crew.start("coordinator")
    for number in WRITERS:
        crew.start("writer", number)
    names = ["coordinator", "w0", "coordinator", "w1"]
    for at in range(KILLS):
        crew.advance(1)
        time.sleep(chance.random() * 0.2)
        name = names[at % len(names)]
        crew.running[name].send(signal.SIGKILL)
        crew.running[name].wait()
        crew.again(name)
    crew.advance(1)
    crew.check(crew.finish())


@pytest.mark.long(1)
@pytest.mark.parametrize("crew", [False, True], indirect=True, ids=["append", "upsert"])
def test_a_coordinator_that_slept_finds_its_successor_and_ends(crew: Crew) -> None:
    """INV-09: of two live coordinators the one that was stopped is fenced; versions are few."""
    older = crew.start("coordinator")
    for number in WRITERS:
        crew.start("writer", number)
    crew.advance(2)
    older.send(signal.SIGSTOP)
    newer = crew.start("coordinator")
    crew.advance(2)
    older.send(signal.SIGCONT)
    assert older.wait(SILENCE_S) == FENCED
    assert newer.wait(0) is None, "the newer one goes on"
    crew.advance(2)
    crew.check(crew.finish())
    epochs = crew.epoch() + 1
    why = crew.rollbacks()
    assert crew.table.version == epochs + len(why)
    carried = [reason for reason in why if "carried" in reason]  # a writer was slow
    assert len(why) - len(carried) <= MOST_ROLLBACKS, f"{why} for {epochs} epochs"
