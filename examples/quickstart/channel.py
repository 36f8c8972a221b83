"""How the processes of a run talk: small files in one directory, so that a post-mortem can read.

``<name>.events`` has one JSON line an event; ``go`` appears when everyone may publish.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from plait.ports import Clock, SystemClock

_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that a process says of itself."""

    phase: str
    facts: dict[str, object] = field(default_factory=dict)


class Channel:
    """One process's end."""

    def __init__(self, workspace: Path, name: str, clock: Clock | None = None) -> None:
        self._go = workspace / "go"
        self._events = workspace / f"{name}.events"
        self._clock = clock or SystemClock()

    def say(self, phase: str, **facts: object) -> None:
        """Append an event."""
        with self._events.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"phase": phase, **facts}) + "\n")

    def wait_for_go(self) -> None:
        """Wait until everyone has begun; the parent's death ends this process, not this wait."""
        while not self._go.exists():
            self._clock.sleep(_POLL_S)


class Listener:
    """The orchestrator's end."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._read: dict[str, int] = {}

    def listen(self, name: str) -> list[Event]:
        """Return what a process has said since the last call; a half-written line waits."""
        path = self._workspace / f"{name}.events"
        if not path.exists():
            return []
        body = path.read_bytes()[self._read.get(name, 0) :]
        whole = body[: body.rfind(b"\n") + 1]
        self._read[name] = self._read.get(name, 0) + len(whole)
        lines = [json.loads(line) for line in whole.decode().splitlines()]
        return [Event(str(line.pop("phase")), line) for line in lines]

    def go(self) -> None:
        """Let everyone write and publish."""
        (self._workspace / "go").touch()
