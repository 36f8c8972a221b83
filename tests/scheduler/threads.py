"""Threads that are used again: a schedule costs no start of a thread, only its switches."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Worker:
    """A thread that runs one task after the other, and waits for its turn inside of each."""

    def __init__(self) -> None:
        # A plain lock as a binary semaphore: several times faster than threading.Semaphore.
        self._turn = threading.Lock()
        self._turn.acquire()
        self._task: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._live, name="plait-lane", daemon=True)
        self._thread.start()

    @property
    def here(self) -> bool:
        """Whether the caller runs in this worker."""
        return threading.current_thread() is self._thread

    def give(self, task: Callable[[], None]) -> None:
        """Say what it runs at its next turn."""
        self._task = task

    def wake(self) -> None:
        """Give it the turn."""
        self._turn.release()

    def wait(self) -> None:
        """Wait for the turn; called inside of a task."""
        self._turn.acquire()

    def _live(self) -> None:
        while True:
            self._turn.acquire()
            task, self._task = self._task, None
            if task is not None:
                task()


_IDLE: list[Worker] = []


def take() -> Worker:
    """Give a worker that nobody else uses."""
    try:
        return _IDLE.pop()
    except IndexError:
        return Worker()


def put_back(worker: Worker) -> None:
    """Let others use a worker, whose task is about to end."""
    _IDLE.append(worker)
