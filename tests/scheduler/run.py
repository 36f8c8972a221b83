"""One schedule: lanes that hand a baton from call to call, as a strategy chooses.

Each lane is a thread, and only the one that has the baton runs. It stops before every call; the
strategy is asked, in that very thread, who goes on and what happens to the call. So a step
without a switch costs a function call, and a run is a pure function of the strategy's choices.
"""

from __future__ import annotations

import contextlib
import gc
import math
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar, cast

from plait.errors import StorageError
from plait.storage.port import FileInfo
from plait.testing.faults import SimulatedCrashError
from tests.scheduler import threads
from tests.scheduler.points import (
    GO,
    MESSAGE_EVENTS,
    ON_LISTS,
    AbandonError,
    Allowed,
    Lane,
    Point,
    Strategy,
)
from tests.scheduler.world import READS, Call, Ghost, Process, World

T = TypeVar("T")
CALLS_MAX = 3_000
"""A schedule with more calls than this does not end by itself."""
_WAIT_S = 60
_ELSEWHERE = ("lock", "send", "receive")
"""Calls that need no store."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a schedule's program: a call with its answer, or an event."""

    lane: str
    call: Call
    answer: object = None
    event: str = ""


class Run:
    """Runs lanes to their end."""

    def __init__(self, world: World, strategy: Strategy, allowed: Allowed) -> None:
        self.world, self.strategy, self.allowed = world, strategy, allowed
        self.lanes: list[Lane] = []
        self.processes: list[Process] = []
        self.ghosts: list[Ghost] = []
        self.moves: list[tuple[str, str]] = []
        """Every choice that was not the default, and where."""
        self.lines: list[Line] = []
        self.ends: list[object] = []
        """The ends of the topic on which actors send messages."""
        self.points = 0
        self.events = 0
        self.abandoned = False
        self.lock_taken: Callable[[], bool] = lambda: False
        self.lock_lose: Callable[[], None] = lambda: None
        self.before_write: Callable[[Call], None] = lambda _: None
        self.after_write: Callable[[Call, object], None] = lambda *_: None
        self._active: Lane | None = None
        self._starting = True
        self._over = False
        self._finished = False
        self._broken: BaseException | None = None
        self._main = threading.Lock()
        self._main.acquire()

    # --- from outside ----------------------------------------------------------------------

    def add(self, name: str, process: Process, task: Callable[[], object]) -> Lane:
        """Add a lane; it runs up to its first call when the schedule begins."""
        lane = Lane(name, process, task)
        lane.worker.give(lambda: self._live(lane))
        self.lanes.append(lane)
        return lane

    def execute(self) -> None:
        """Run all lanes to their end."""
        with _undisturbed():
            try:
                self._execute()
            finally:
                self._finished = True

    def _execute(self) -> None:
        for lane in list(self.lanes):
            self._active = lane
            lane.worker.wake()
            self._wait()
        self._starting = False
        self._active = None
        first = self._choose(None)
        if first is not None:
            first.worker.wake()
            self._wait()
        if self._broken is not None:
            raise self._broken

    def _wait(self) -> None:
        if not self._main.acquire(timeout=_WAIT_S):
            stands = [f"{lane.name} at {lane.pending}" for lane in self.lanes if not lane.done]
            message = f"a lane neither stopped nor ended: {stands}"
            raise TimeoutError(message)

    # --- from inside of lanes --------------------------------------------------------------

    def call(self, process: Process, call: Call, action: Callable[[], T]) -> T:
        """Stop before a call of the running lane, then make it as the schedule says."""
        if self._finished:  # a finaliser: what died in the schedule is no more
            raise _failed(call)
        lane = self._running(process)
        if process.cut and call.operation not in _ELSEWHERE:
            raise _failed(call)
        lane.calls += 1
        fate = self._stop(lane, call)
        if self._over or process.dead:
            raise SimulatedCrashError
        if fate == GO:
            return self._answered(lane, call, self._make(call, action))
        self.events += 1
        lane.history = hash((lane.history, fate))
        if fate in ON_LISTS:
            return self._listed(lane, call, action, fate)
        if fate in MESSAGE_EVENTS:
            return self._sent(lane, call, action, fate)
        process.hurt = True
        process.cut = fate in ("cut_before", "cut_after")
        if fate in ("crash_after", "lost_reply", "cut_after"):
            self._make(call, action)
        if fate in ("delay", "vanish"):
            self.ghosts.append(Ghost(f"~{lane.name}{lane.calls}", call, action))
        self.lines.append(Line(lane.name, call, None, fate))
        if fate in ("crash_before", "crash_after", "vanish"):
            process.dead = True
            raise SimulatedCrashError
        raise _failed(call)

    def wait_until(
        self, process: Process, what: str, ready: Callable[[], bool], wait_s: float = 0
    ) -> bool:
        """Let others run until something holds; False if nobody is left to bring it about.

        Of lanes that all wait, the one whose time is over first goes on.
        """
        if self._finished:
            return False
        lane = self._running(process)
        lane.ready, lane.timed_out = ready, False
        lane.wakes_s = self.world.idle_s + wait_s
        while not (lane.timed_out or ready()):
            self._stop(lane, Call("wait", what))
            if self._over or process.dead:
                raise SimulatedCrashError
        lane.ready = None
        return not lane.timed_out

    def _running(self, process: Process) -> Lane:
        lane = self._active
        if lane is None or self._over or process.dead:
            raise SimulatedCrashError
        if not lane.worker.here:
            message = f"{process.name} makes calls in a thread that the schedule does not know"
            raise ForeignThreadError(message)
        return lane

    def _stop(self, lane: Lane, call: Call) -> str:
        lane.pending, lane.fresh = call, False
        if self._starting:
            self._main.release()
            lane.worker.wait()
        else:
            chosen = self._choose(lane)
            if chosen is not lane and chosen is not None:
                chosen.worker.wake()
                lane.worker.wait()
        fate, lane.fate = lane.fate, GO
        return fate

    def _make(self, call: Call, action: Callable[[], T]) -> T:
        if call.operation in READS:
            return action()
        self.before_write(call)
        answer = action()
        self.after_write(call, answer)
        return answer

    def _answered(self, lane: Lane, call: Call, answer: T) -> T:
        self.lines.append(Line(lane.name, call, answer))
        lane.history = hash((lane.history, call, digest(answer)))
        return answer

    def _listed(self, lane: Lane, call: Call, action: Callable[[], T], fate: str) -> T:
        """List now and answer later; torn: what is late in the order is seen later too.

        Both are what real listings do: they take time, and pages. What was there all the while
        is in them.
        """
        early = action()
        self.lines.append(Line(lane.name, call, early, fate))
        self._stop(lane, Call("answer", call.path))
        if self._over or lane.process.dead:
            raise SimulatedCrashError
        if fate == "torn":
            early = cast(
                "T", _torn(cast("list[FileInfo]", early), cast("list[FileInfo]", action()))
            )
        return self._answered(lane, Call("answer", call.path), early)

    def _sent(self, lane: Lane, call: Call, action: Callable[[], T], fate: str) -> T:
        """Let a message be lost, arrive after others, or twice; its sender learns nothing."""
        if fate == "twice":
            self._make(call, action)
        if fate != "lost":
            self.ghosts.append(Ghost(f"~{lane.name}{lane.calls}", call, action))
        self.lines.append(Line(lane.name, call, None, fate))
        return cast("T", None)

    def _live(self, lane: Lane) -> None:
        try:
            lane.result = lane.task()
        except BaseException as error:  # noqa: BLE001 - the schedule's outcome
            lane.error = error
        lane.done = True
        threads.put_back(lane.worker)
        if self._starting:
            self._main.release()
            return
        chosen = self._choose(lane)
        if chosen is None:
            self._main.release()
        else:
            chosen.worker.wake()

    # --- choosing --------------------------------------------------------------------------

    def _choose(self, lane: Lane | None) -> Lane | None:
        """Give who goes on; None at the end. Landings and jumps happen on the way."""
        try:
            chosen = None if self._over else self._next(lane)
        except AbandonError:
            self.abandoned = self._over = True
        except BaseException as error:  # noqa: BLE001 - raised again by execute
            self._broken, self._over = error, True
        if self._over:
            chosen = next((each for each in self.lanes if not each.done), None)
        self._active = chosen
        return chosen

    def _next(self, lane: Lane | None) -> Lane | None:
        arrived = False
        while True:
            point = Point(self, lane, arrived=arrived)
            if point.current is None and not point.others:
                waiting = [each for each in self.lanes if not each.done]
                if not waiting:
                    return None
                stuck = min(waiting, key=lambda each: (not each.process.dead, each.wakes_s))
                stuck.timed_out = True
                if stuck.wakes_s < math.inf:
                    self.world.idle_s = max(self.world.idle_s, stuck.wakes_s)
                continue
            self.points += 1
            if self.points > CALLS_MAX:
                message = f"still going after {CALLS_MAX} calls"
                raise RunawayError(message)
            move = self.strategy.choose(point)
            if move != point.default:
                self.moves.append((point.key, move))
            chosen = self._carry_out(point, move)
            if chosen is None:
                continue
            if move[0] != ">" or not self.allowed.events or chosen.fresh:
                return chosen
            lane, arrived = chosen, True

    def _carry_out(self, point: Point, move: str) -> Lane | None:
        kind, what = move[0], move[1:]
        if move == GO:
            return point.current
        if kind == "!" and point.current is not None:
            point.current.fate = what
            return point.current
        if kind == ">" and what[0] != "~":
            return next(lane for lane in self.lanes if lane.name == what)
        if kind == "^":
            return self._beat(next(each for each in self.processes if each.name == what))
        if kind == ">":
            self._land(what)
        elif kind == "+":
            self.world.advance(float(what))
            self.events += 1
            self.lines.append(Line("", Call("time", f"{what} s later")))
        elif move == "-lock":
            self.events += 1
            self.lock_lose()
            self.lines.append(Line("", Call("lock", "lost by its holder")))
        return None

    def _land(self, name: str) -> None:
        ghost = next(each for each in self.ghosts if each.name == name)
        self.ghosts.remove(ghost)
        answer = self._make(ghost.call, ghost.action)
        self.lines.append(Line(name, ghost.call, answer, "lands"))

    def _beat(self, process: Process) -> Lane:
        self.events += 1
        process.beats += 1
        step = process.steps[(process.beats - 1) % len(process.steps)]
        return self.add(f"{process.name}^{process.beats}", process, step)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Keep the cyclic collector away, which would run finalisers wherever it comes by.

    A finaliser that dies with its process is no news.
    """
    collecting, tell = gc.isenabled(), sys.unraisablehook

    def hear(unraisable: sys.UnraisableHookArgs) -> None:
        if not isinstance(unraisable.exc_value, SimulatedCrashError):
            tell(unraisable)

    gc.disable()
    sys.unraisablehook = hear
    try:
        yield
    finally:
        sys.unraisablehook = tell
        if collecting:
            gc.enable()


class ForeignThreadError(Exception):
    """An actor made a call in a thread of its own: its order is nobody's to choose."""


class RunawayError(Exception):
    """A schedule that does not end."""


def _failed(call: Call) -> StorageError:
    message = f"{call.operation} of {call.path} failed"
    return StorageError(message, hint="as the schedule ordered", path=call.path)


def digest(answer: object) -> object:
    """Give what an answer says, so that equal answers are equal."""
    if isinstance(answer, list):
        return tuple(answer)
    plain = answer is None or isinstance(answer, (bool, bytes))
    return answer if plain else type(answer).__name__


def _torn(early: list[FileInfo], late: list[FileInfo]) -> list[FileInfo]:
    names = sorted({info.path for info in (*early, *late)})
    middle = names[len(names) // 2] if names else ""
    parts: Iterator[FileInfo] = (info for info in early if info.path < middle)
    return [*parts, *(info for info in late if info.path >= middle)]
