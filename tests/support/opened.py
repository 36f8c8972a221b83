"""The data files that a reader opens."""

from __future__ import annotations

from typing import Any

import pytest

from plait.read import slices


def opened_files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which each data file that is opened from now on is added, by its path."""
    opened: list[str] = []

    class Noted(slices.OpenFile):
        def __init__(self, store: Any, file: Any, schemas: Any) -> None:
            opened.append(file.path)
            super().__init__(store, file, schemas)

    monkeypatch.setattr(slices, "OpenFile", Noted)
    return opened
