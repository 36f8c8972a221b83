"""The Arrow engine: the default, for everything that is or becomes Arrow in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from plait.model.bucket import Partition
from plait.model.plan import WritePlan
from plait.storage.port import Store
from plait.write.source import accepts
from plait.write.staging import ArrowStaging, Task


class ArrowEngine:
    """Stages Arrow data, pandas and Polars frames, and anything with an Arrow C stream."""

    def __init__(self, *, store: Store | None = None, spill_directory: str | None = None) -> None:
        """Make the engine.

        Args:
            store: used instead of opening the store of each plan.
            spill_directory: where runs are spilled; by default where the system keeps
                temporary files.
        """
        self._store = store
        self._task = Task(spill_directory=spill_directory)

    @property
    def name(self) -> str:
        """Its name."""
        return "arrow"

    def accepts(self, data: object) -> bool:
        """Tell whether this engine takes such data."""
        return accepts(data)

    def staging(
        self, plan: WritePlan, announce: Callable[[Iterable[Partition]], None]
    ) -> ArrowStaging:
        """Begin one writer's work."""
        return ArrowStaging(plan, announce, task=self._task, store=self._store)
