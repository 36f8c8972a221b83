"""The progress of the sink on a terminal: the lag of each partition."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table as RichTable

from plait.kafka.status import SinkStatus

_QUIET_S = 2.0


class View:
    """Shows steps and lag: a live table on a terminal, lines in a pipe, or nothing."""

    def __init__(self, stream: TextIO, *, silent: bool, color: bool) -> None:
        self._console = Console(file=stream, no_color=not color, highlight=False, quiet=silent)
        live = self._console.is_terminal and not silent
        self._live = Live(console=self._console, refresh_per_second=4) if live else None
        self._written_s = 0.0

    def running(self) -> AbstractContextManager[object]:
        """Show the live table for as long as the block lasts."""
        return nullcontext() if self._live is None else self._live

    def step(self, text: str, now_s: float) -> None:
        """Print what is done now."""
        self._console.print(f"[{now_s:6.1f} s] {text}", markup=False, soft_wrap=True)

    def update(
        self, status: SinkStatus, produced: int, killed: Collection[int], now_s: float
    ) -> None:
        """Show how far the sink is."""
        coordinator = status.coordinator
        who = "none"
        if coordinator is not None and coordinator.pid not in killed:
            who = f"process {coordinator.pid}"
        applied = max(0, produced - (status.lag or 0))
        text = f"{applied:,} of {produced:,} events are in the table; coordinator: {who}"
        if self._live is not None:
            self._live.update(_table(status, text))
        elif now_s >= self._written_s + _QUIET_S:
            self._written_s = now_s
            self.step(f"  {text}", now_s)


def _table(status: SinkStatus, text: str) -> RichTable:
    table = RichTable(box=None, padding=(0, 2, 0, 0), caption=text, caption_justify="left")
    for column in ("partition", "in the table to", "end", "lag"):
        table.add_column(column, justify="left" if column == "partition" else "right")
    for each in status.partitions:
        numbers = (each.offset.number, each.end, each.lag)
        table.add_row(str(each.source), *(f"{n or 0:,}" for n in numbers))
    return table
