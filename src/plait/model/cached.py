"""Properties whose value is computed once for each object, without a lock."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

T = TypeVar("T")


class cached_property(functools.cached_property[T]):  # noqa: N801, TID251 - without its lock
    """A property that is computed at its first use.

    Up to Python 3.11, that of the standard library has one lock for all objects. If a process forks
    while another of its threads computes a value, nobody in the child ever gives the lock back, and
    whoever asks there waits for ever. Without the lock two threads may compute the same value at
    once, as from Python 3.12 on.

    >>> class Square:
    ...     @cached_property
    ...     def area(self) -> int:
    ...         print("computed")
    ...         return 4
    >>> square = Square()
    >>> square.area + square.area
    computed
    8
    """

    lock: AbstractContextManager[None]

    def __init__(self, compute: Callable[[Any], T]) -> None:
        """Decorate the method that computes the value."""
        super().__init__(compute)
        self.lock = nullcontext()
