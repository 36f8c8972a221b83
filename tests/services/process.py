"""A child process that dies with its parent and writes to a log file."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

_PR_SET_PDEATHSIG = 1
_STOP_S = 60


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends; on Linux."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Service(ABC):
    """A server for a block of a test; whatever ends the block stops it."""

    @abstractmethod
    def stop(self) -> None:
        """End it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class Process:
    """Start from the main thread: the kernel's signal comes when the starting thread ends."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        *,
        user: int | None = None,
    ) -> None:
        self._log = log
        with log.open("wb") as sink:
            self._child = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                user=user,
                group=user,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - no threads yet
            )

    @property
    def output(self) -> str:
        """What it has written."""
        return self._log.read_text(errors="replace")

    def wait_for(self, text: str, *, wait_s: float = 300) -> str:
        """Wait until a line with this text is written; give what follows it."""
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline and self._child.poll() is None:
            for line in self.output.splitlines(keepends=True):
                if text in line and line.endswith("\n"):
                    return line.split(text, 1)[1].strip()
            time.sleep(0.02)
        message = f"no {text!r} (exit {self._child.poll()}):\n{self.output[-4000:]}"
        raise RuntimeError(message)

    def pause(self) -> None:
        """Stop it in its tracks, as a machine that sleeps does."""
        self._child.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._child.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it."""
        self._child.kill()
        self._child.wait(_STOP_S)

    def stop(self) -> None:
        """End it."""
        if self._child.poll() is None:
            self.resume()
            self._child.terminate()
            try:
                self._child.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait(_STOP_S)
