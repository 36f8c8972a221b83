"""Arrow on tables of three rows: its thread pools only cost time."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest


@pytest.fixture(autouse=True, scope="module")
def one_arrow_thread() -> Iterator[None]:
    before = pa.cpu_count()
    pa.set_cpu_count(1)
    yield
    pa.set_cpu_count(before)
