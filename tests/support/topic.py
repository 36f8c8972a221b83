"""A control topic in a file: messages between processes of one machine.

Everybody appends, and reads all that comes after it has opened: its own messages too, as on a topic
of one partition. A message is a line, written by one call that appends; a process that is killed
while it writes leaves half a line, which the next one's leading newline ends. So a message may be
lost, and none is changed. It grows for ever, which is why it serves tests and not users.
"""

from __future__ import annotations

import os
from pathlib import Path

from plait.ports import SystemClock

_PACE_S = 0.005


class FileTopic:
    """One end: the coordinator's or a writer's, which are the same here."""

    def __init__(self, path: Path) -> None:
        """Open the topic; it is made by whoever comes first."""
        self._out = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._in = path.open("rb", buffering=0)
        self._in.seek(0, os.SEEK_END)
        self._rest = b""
        self._lines: list[bytes] = []

    def send(self, message: bytes) -> None:
        """Send to all."""
        assert b"\n" not in message
        os.write(self._out, b"\n" + message + b"\n")

    def receive(self, wait_s: float) -> bytes | None:
        """Take the next message; None if none comes in time."""
        clock = SystemClock()
        until = clock.monotonic() + wait_s
        while not self._lines:
            *lines, self._rest = (self._rest + self._in.read()).split(b"\n")
            self._lines = [line for line in reversed(lines) if line]
            if not self._lines and clock.monotonic() >= until:
                return None
            if not self._lines:
                clock.sleep(_PACE_S)
        return self._lines.pop()

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._out)
        self._in.close()
