"""How much a randomised test tries: a little in ``make test``, more in ``make nightly``."""

from __future__ import annotations

import os

from hypothesis import settings

MORE = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
"""``make soak`` runs for hours."""


def share(count: int) -> int:
    """Return how many examples, seeds or schedules to try: all of so many, or a quarter.

    The profile says so that ``tests/conftest.py`` has loaded: ``--short`` is that with a quarter.
    """
    return max(1, count * min(settings().max_examples, 100) // 100)
