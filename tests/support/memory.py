"""Stores in memory that a test is done with."""

from __future__ import annotations

from plait.storage import memory


def forget(uri: str) -> None:
    """Drop everything that is stored under a name, and free its memory."""
    memory._SPACES.pop(uri.rstrip("/"), None)
