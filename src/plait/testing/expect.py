"""What the kits need of a test runner, without one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from plait.errors import TableError

E = TypeVar("E", bound=TableError)


class Refusal(Generic[E]):
    """Holds the error once it was raised."""

    error: E


@contextmanager
def refused(kind: type[E]) -> Iterator[Refusal[E]]:
    """Expect an error of a kind; its facts can be looked at afterwards."""
    refusal = Refusal[E]()
    try:
        yield refusal
    except kind as error:
        refusal.error = error
        return
    raise AssertionError(f"no {kind.__name__} was raised")
