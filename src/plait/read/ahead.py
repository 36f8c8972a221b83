"""Run several producers ahead of one consumer, in order and within bounds."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

_EXIT_POLL_S = 0.2


def read_ahead(
    sources: Iterable[Callable[[], Iterator[T]]], *, width: int, depth: int
) -> Iterator[T]:
    """Return the items of every source, one source after another, while later ones already run.

    At most ``width`` sources run at once, each at most ``depth`` items ahead of its consumer, so
    ``width * (depth + 1)`` items are alive at most, however slow the consumer is. An error of a
    source is raised at its place. Closing the iterator stops every source.
    """
    waiting = iter(sources)
    lanes: deque[_Lane[T]] = deque(_Lane(s, depth) for s in itertools.islice(waiting, width))
    try:
        while lanes:
            yield from lanes[0].items()
            lanes.popleft()
            lanes.extend(_Lane(source, depth) for source in itertools.islice(waiting, 1))
    finally:
        for lane in lanes:
            lane.stop()


class _Lane(Generic[T]):
    """One source, run by a thread of its own into a bounded queue; by the consumer without one."""

    def __init__(self, source: Callable[[], Iterator[T]], depth: int) -> None:
        self._source, self._depth = source, depth
        self._ready: deque[T] = deque()
        self._changed = threading.Condition()
        self._stopped = self._finished = False
        self._error: BaseException | None = None
        self._inline = False
        try:
            # No daemon: one inside Arrow when the interpreter ends takes the process with it.
            threading.Thread(target=self._run, name="plait-read-ahead", daemon=False).start()
        except RuntimeError:  # no thread can be had: the consumer reads when it comes
            self._inline = True

    def _run(self) -> None:
        try:
            items = self._source()
            for item in items:
                if not self._put(item):
                    break
        except BaseException as error:  # noqa: BLE001 - raised again where it is consumed
            self._error = error
        with self._changed:
            self._finished = True
            self._changed.notify_all()

    def _put(self, item: T) -> bool:
        with self._changed:
            while not self._changed.wait_for(self._has_room, timeout=_EXIT_POLL_S):
                # The program ends, and whoever was to take the items will not.
                self._stopped = not threading.main_thread().is_alive()
            if not self._stopped:
                self._ready.append(item)
            self._changed.notify_all()
            return not self._stopped

    def _has_room(self) -> bool:
        return self._stopped or len(self._ready) < self._depth

    def items(self) -> Iterator[T]:
        """Return the items as they come; raise what the source raised."""
        if self._inline:
            yield from self._source()
            return
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._finished or self._ready)
                if not self._ready:
                    break
                item = self._ready.popleft()
                self._changed.notify_all()
            yield item
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Let the thread end at its next item; what is held is dropped."""
        with self._changed:
            self._stopped = True
            self._ready.clear()
            self._changed.notify_all()
