"""How far one process of a run is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Status:
    """How far one process is."""

    name: str
    does: str
    phase: str = "waiting"
    rows: int | None = None
    pid: int | None = None
    started_s: float = 0.0
    ended_s: float | None = None

    def elapsed(self, now_s: float) -> float:
        """Return the seconds that it has been running."""
        return (now_s if self.ended_s is None else self.ended_s) - self.started_s

    @property
    def rows_text(self) -> str:
        """The rows that it writes."""
        return "" if self.rows is None else f"{self.rows:,} rows"
