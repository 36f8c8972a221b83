"""How much a randomised test tries: a little in ``make test``, more in ``make nightly``."""

from __future__ import annotations

import itertools
import os

import pytest
from hypothesis import HealthCheck, settings

MORE = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
"""``make soak`` runs for hours."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let ``make test`` ask for the short form."""
    parser.addoption("--short", action="store_true", help="some parameters of what is marked long")


def pytest_configure(config: pytest.Config) -> None:
    """Choose how many examples a property gets, before tests are imported."""
    for name, examples in {"default": 100, "short": 25, "soak": 2000}.items():
        settings.register_profile(
            name,
            deadline=None,
            max_examples=examples,
            suppress_health_check=[HealthCheck.too_slow],
        )
    form = "short" if config.getoption("short") else "default"
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", form))


def share(count: int) -> int:
    """Return how many examples, seeds or schedules to try: all, or with ``--short`` a quarter."""
    return max(1, count * min(settings().max_examples, 100) // 100)


def places() -> itertools.count[int]:
    """Number the places where something may fail: every one, or with ``--short`` each fourth."""
    return itertools.count(1, 4 // share(4))
