"""Values that are computed once."""

from __future__ import annotations

import os
import signal
import threading

from plait.model.cached import cached_property


class Slow:
    """Computes a value for as long as its test wants."""

    def __init__(self, begun: threading.Event, go: threading.Event) -> None:
        self._begun, self._go = begun, go

    @cached_property
    def value(self) -> int:
        """Wait, then say 1."""
        self._begun.set()
        assert self._go.wait(60)
        return 1


def test_a_child_computes_a_value_that_a_thread_of_its_parent_was_computing() -> None:
    """With one lock for all objects it would wait for ever: nobody there gives the lock back."""
    begun, go, ready = threading.Event(), threading.Event(), threading.Event()
    ready.set()
    thread = threading.Thread(target=lambda: Slow(begun, go).value)
    thread.start()
    assert begun.wait(60)
    child = os.fork()
    if not child:
        signal.alarm(30)
        os._exit(Slow(threading.Event(), ready).value)
    go.set()
    thread.join()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 1


def test_a_value_is_computed_once_and_kept() -> None:
    ready = threading.Event()
    ready.set()
    slow = Slow(threading.Event(), ready)
    assert slow.value == 1
    assert vars(slow)["value"] == 1
