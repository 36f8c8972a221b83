"""Work is bounded by what it does, not by how long it takes: calls are counted, not seconds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_CALLS = frozenset({"call", "c_call"})


class OutOfStepsError(BaseException):
    """A block made more calls than it may; no handler of the code under test stops it."""


@contextmanager
def at_most(steps: int) -> Iterator[None]:
    """Let this thread make so many calls of Python and C functions in the block, and no more.

    Raises:
        OutOfStepsError: it makes another one.
    """
    left = steps

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal left
        left -= event in _CALLS
        if left < 0:
            sys.setprofile(None)
            message = f"more than {steps} calls"
            raise OutOfStepsError(message)

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(before)
