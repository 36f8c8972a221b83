"""Places in memory for tables, and a table under a simulated clock."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from plait.storage.memory import MemoryStore
from plait.testing import SimClock
from tests.support.memory import forget
from tests.support.protocol import create, memory

_NAMES = itertools.count()


@pytest.fixture
def uri() -> Iterator[str]:
    name = f"memory://unit-{next(_NAMES)}"
    yield name
    forget(name)


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


@pytest.fixture
def store(clock: SimClock) -> MemoryStore:
    made = memory(clock)
    create(made)
    return made
