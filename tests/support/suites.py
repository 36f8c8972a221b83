"""The markers whose tests ``scripts/check.py`` runs by themselves."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

SUITES = frozenset({"processes", "spark", "s3", "zookeeper", "kafka"})


def require_found(item: pytest.Item) -> None:
    """Refuse a test that ``scripts/check.py`` would not find: it goes by the text of files."""
    for marker in {mark.name for mark in item.iter_markers()} & SUITES:
        if not _says(item.path, marker):
            message = f"{item.nodeid}: marked {marker}, but its file does not say mark.{marker}"
            raise pytest.UsageError(message)


@cache
def _says(file: Path, marker: str) -> bool:
    return f"mark.{marker}" in file.read_text("utf-8")
