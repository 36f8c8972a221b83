"""An executor without a thread: a task runs when somebody waits for it, or a test says so."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class Later(Executor):
    """Runs tasks in their order, in the thread of whoever asks for one."""

    def __init__(self) -> None:
        self._tasks: list[Task] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Keep a task."""
        self._tasks.append(Task(self, lambda: fn(*args, **kwargs)))
        return self._tasks[-1]

    def run(self, last: Task | None = None) -> None:
        """Run what is kept, up to one task or all."""
        while self._tasks:
            task = self._tasks.pop(0)
            task.run()
            if task is last:
                return

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Run what is kept, or drop it."""
        if cancel_futures:
            self._tasks.clear()
        elif wait:
            self.run()


class Task(Future[Any]):
    """A task that runs when its outcome is asked for."""

    def __init__(self, owner: Later, work: Callable[[], object]) -> None:
        super().__init__()
        self._owner, self._work = owner, work

    def run(self) -> None:
        """Do the work, unless it was cancelled."""
        if not self.set_running_or_notify_cancel():
            return
        try:
            self.set_result(self._work())
        except BaseException as error:
            self.set_exception(error)
            raise

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Run it if it has not run, and return what it raised."""
        if not self.done():
            self._owner.run(self)
        return super().exception(timeout)
