"""Processes of one sink that are killed, stopped, and told to go; others come in their place."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.services.process import die_with_parent

SESSION_MS = 3_000
STOPPED_S = 5.0
"""So long a process stands still: its partitions have gone to others when it wakes."""
PATIENCE_S = 5
_END_S = 120
_CLIENT = {
    "session.timeout.ms": SESSION_MS,
    "heartbeat.interval.ms": 500,
    "reconnect.backoff.max.ms": 500,
    "log_level": 0,
}


@dataclass(slots=True, eq=False)
class Member:
    """One process, and its log."""

    process: subprocess.Popen[bytes]
    log: Path
    stopped_until: float = 0.0
    doomed: bool = False
    """Whether it was killed or told to go."""


@dataclass(slots=True)
class Fleet:
    """As many processes as are wanted."""

    command: Sequence[str]
    folder: Path
    count: int
    members: list[Member] = field(default_factory=list)
    started: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    """Why processes ended that nobody had killed."""

    @classmethod
    def of(cls, uri: str, bootstrap: str, topic: str, folder: Path, count: int) -> Fleet:
        """Run ``tablectl sink kafka``."""
        order = [
            *(sys.executable, "-m", "plait.cli", "sink", "kafka", uri),
            *("--bootstrap", bootstrap, "--topic", topic, "--interval", "0.5"),
            *("--patience", str(PATIENCE_S), "--log-level", "info"),
        ]
        for key, value in _CLIENT.items():
            order += ["--client", f"{key}={value}"]
        return cls(order, folder, count)

    def tend(self) -> None:
        """Start processes until there are enough; wake those that stood still long enough."""
        now = time.monotonic()
        for each in self.members:
            if each.stopped_until and now >= each.stopped_until:
                each.process.send_signal(signal.SIGCONT)
                each.stopped_until = 0.0
        for each in self.members:
            if each.process.poll() is not None and not each.doomed:
                self.ended[reason_of(each)] += 1
        self.members = [each for each in self.members if each.process.poll() is None]
        while sum(not each.doomed for each in self.members) < self.count:
            self.members.append(self._start())

    def wait(self, seconds: float) -> None:
        """Tend them for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.tend()
            time.sleep(0.05)

    def kill(self, draw: random.Random) -> None:
        """End one by SIGKILL."""
        victim = self._one(draw)
        victim.doomed = True
        victim.process.kill()
        victim.process.wait()

    def stop(self, draw: random.Random) -> None:
        """Let one stand still for longer than its session."""
        victim = self._one(draw)
        victim.process.send_signal(signal.SIGSTOP)
        victim.stopped_until = time.monotonic() + STOPPED_S

    def leave(self, draw: random.Random) -> None:
        """Tell one to go; another one joins."""
        victim = self._one(draw)
        victim.doomed = True
        victim.process.send_signal(signal.SIGCONT)
        victim.process.terminate()

    def end(self) -> list[int]:
        """Tell all to go; return their exit codes."""
        for each in self.members:
            each.process.send_signal(signal.SIGCONT)
            each.process.terminate()
        codes = [each.process.wait(_END_S) for each in self.members]
        self.members.clear()
        return codes

    def _one(self, draw: random.Random) -> Member:
        self.tend()
        return draw.choice([each for each in self.members if not each.doomed])

    def _start(self) -> Member:
        self.started += 1
        path = self.folder / f"sink-{self.started}.log"
        with path.open("wb") as log:
            process = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - no threads of Python's
            )
        return Member(process, path)


def reason_of(member: Member) -> str:
    """Return why a process ended, as its log tells."""
    text = member.log.read_text(errors="replace")
    found = re.findall(r"^error\[[^\n]*", text, re.MULTILINE)
    said = found[-1] if found else text[-200:]
    return f"exit {member.process.returncode}: {said[:160]}"
