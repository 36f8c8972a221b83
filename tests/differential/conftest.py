"""Arrow works on tables of three rows here, and indexes of them grow all the time."""

from __future__ import annotations

import pytest

from tests.support.arrow import one_arrow_thread

__all__ = ["one_arrow_thread"]


@pytest.fixture(autouse=True)
def _runs_are_made_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer adds to a record index what came in two versions."""
    monkeypatch.setattr("plait.services.index.build.FOLD_LAG_MAX", 2)
