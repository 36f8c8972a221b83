"""What a person sees while it runs: a live table on a terminal, plain lines in a pipe."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self, TextIO

from examples.quickstart.status import Status

_QUIET_S = 10.0
"""A pipe is never silent for longer."""


class Progress(Protocol):
    """Shows how the run goes."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def step(self, text: str, now_s: float) -> None:
        """Say what the run as a whole does now."""
        ...

    def update(self, statuses: Mapping[str, Status], now_s: float) -> None:
        """Show the processes."""
        ...


class Silent:
    """Shows nothing."""

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *exc: object) -> None:
        """End."""

    def step(self, text: str, now_s: float) -> None:
        """Show nothing."""

    def update(self, statuses: Mapping[str, Status], now_s: float) -> None:
        """Show nothing."""


class Lines(Silent):
    """One line a change."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown: dict[str, str] = {}
        self._written_s = 0.0

    def step(self, text: str, now_s: float) -> None:
        """Write a line."""
        self._write(now_s, text)

    def update(self, statuses: Mapping[str, Status], now_s: float) -> None:
        """Write a line for each process whose phase changed."""
        for name, status in statuses.items():
            if self._shown.get(name) == status.phase or status.phase == "waiting":
                continue
            self._shown[name] = status.phase
            self._write(now_s, f"  {name:<12} {status.phase:<24} {status.rows_text}".rstrip())
        busy = [f"{s.name}: {s.phase}" for s in statuses.values() if s.ended_s is None]
        if now_s - self._written_s > _QUIET_S and busy:
            self._write(now_s, f"  ... {', '.join(busy)}")

    def _write(self, now_s: float, text: str) -> None:
        self._written_s = now_s
        self._stream.write(f"[{now_s:6.1f} s] {text}\n")
        self._stream.flush()


def progress_on(stream: TextIO, *, silent: bool, color: bool) -> Progress:
    """Choose the form that fits the stream."""
    if silent:
        return Silent()
    if not stream.isatty():
        return Lines(stream)
    from examples.quickstart.live import Live  # noqa: PLC0415 - rich loads only on a terminal

    return Live(stream, color=color)
