"""The live table of a run on a terminal, through rich."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self, TextIO

from rich.console import Console, Group
from rich.live import Live as RichLive
from rich.spinner import Spinner
from rich.table import Table as RichTable
from rich.text import Text

from examples.quickstart.status import Status

_STYLES = {"committed": "green", "killed": "red", "rolled back": "yellow", "failed": "bold red"}


class Live:
    """One row a process; what was done before stays above."""

    def __init__(self, stream: TextIO, *, color: bool) -> None:
        self._console = Console(file=stream, no_color=not color, highlight=False)
        self._spinner = Spinner("dots")
        self._live = RichLive(console=self._console, refresh_per_second=8, transient=False)

    def __enter__(self) -> Self:
        """Begin."""
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Leave the last state on the screen."""
        self._live.stop()

    def step(self, text: str, now_s: float) -> None:
        """Write what is done now above the table."""
        self._console.print(Text(f"[{now_s:6.1f} s] {text}"))

    def update(self, statuses: Mapping[str, Status], now_s: float) -> None:
        """Draw the processes."""
        table = RichTable(box=None, padding=(0, 2, 0, 0))
        for column in ("process", "pid", "does", "phase"):
            table.add_column(column)
        table.add_column("rows", justify="right")
        table.add_column("elapsed", justify="right")
        for status in statuses.values():
            style = next((v for k, v in _STYLES.items() if status.phase.startswith(k)), "cyan")
            table.add_row(
                Text(status.name, style="bold"),
                Text("" if status.pid is None else str(status.pid)),
                Text(status.does),
                Text(status.phase, style=style),
                Text("" if status.rows is None else f"{status.rows:,}"),
                Text(f"{status.elapsed(now_s):.1f} s"),
            )
        running = any(status.ended_s is None for status in statuses.values())
        self._live.update(Group(table, self._spinner) if running else table)
