"""Which tests ``scripts/check.py`` runs: those of a marker, and the short form of the long ones."""

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


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out what the short form leaves out of the tests that are marked ``long``.

    ``long(3)`` keeps three of a test's parameter sets: the first, and others at even distances.
    ``long(0)`` keeps none. The same ones are kept in every run, on every machine.
    """
    families: dict[tuple[str, int], list[pytest.Item]] = {}
    for item in items:
        mark = item.get_closest_marker("long")
        if mark is not None:
            (keep,) = mark.args
            families.setdefault((item.nodeid.partition("[")[0], keep), []).append(item)
    left: list[pytest.Item] = []
    for (_, keep), family in families.items():
        family.sort(key=lambda item: item.nodeid)  # they come in random order
        kept = {number * len(family) // keep for number in range(keep)}
        left += [item for number, item in enumerate(family) if number not in kept]
    gone = set(left)
    items[:] = [item for item in items if item not in gone]
    config.hook.pytest_deselected(items=left)


@cache
def _says(file: Path, marker: str) -> bool:
    return f"mark.{marker}" in file.read_text("utf-8")
