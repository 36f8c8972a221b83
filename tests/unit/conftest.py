"""A table in memory under a simulated clock: where the protocol is the subject."""

from __future__ import annotations

import pytest

from plait.storage.memory import MemoryStore
from plait.testing import SimClock
from tests.support.protocol import create, memory


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


@pytest.fixture
def store(clock: SimClock) -> MemoryStore:
    made = memory(clock)
    create(made)
    return made
