"""Worker processes: each leads a group of its own, and dies with whoever started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TAIL_LINES = 15
_TAIL_BYTES = 64 << 10
_REAP_S = 20
_STDIN = 0


@dataclass(frozen=True, slots=True)
class Child:
    """A running process. It holds the read end of a pipe of ours: our end is its end."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        """Its process id, and that of its group."""
        return self.process.pid

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self.process.poll()

    def kill(self) -> None:
        """Kill it and everything it started (its JVM, its Python workers) at once."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_REAP_S)
        if self.process.stdin is not None:
            self.process.stdin.close()

    def tail(self) -> str:
        """Return the end of its log."""
        if not self.log.exists():
            return ""
        text = self.log.read_bytes()[-_TAIL_BYTES:].decode("utf-8", "replace")
        return "\n".join(text.splitlines()[-_TAIL_LINES:])


def start(name: str, module: str, arguments: Sequence[str], workspace: Path) -> Child:
    """Start ``python -m module`` with its output in a log."""
    log = workspace / f"{name}.log"
    with log.open("ab") as sink:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Child(name, process, log)


def die_with_parent() -> None:
    """Kill this whole group when the orchestrator is gone: its end of our stdin closes."""

    def watch() -> None:
        # not sys.stdin.read(): that holds a lock which the interpreter wants when it ends
        while os.read(_STDIN, 1):
            pass
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=watch, name="die-with-parent", daemon=True).start()
