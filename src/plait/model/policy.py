"""What a conflict policy of one's own is given to judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from plait.model.bucket import Partition

APART, SAME, UNKNOWN = "apart", "same", "unknown"
KEYS: Final = (APART, SAME, UNKNOWN)


@dataclass(frozen=True, slots=True)
class Meeting:
    """Two commits that wrote rows into one bucket; theirs was first.

    >>> Meeting("upsert", "delete", "same").keys
    'same'
    """

    ours: str
    """Our operation: ``append``, ``insert``, ``upsert``, ``update``, ``delete``, ``merge`` or
    ``transaction``."""
    theirs: str
    """Their operation."""
    keys: str
    """``apart``: they wrote none of our keys; ``same``: at least one; ``unknown``: nobody can
    tell."""
    computed: bool = False
    """Whether our rows were computed from a read that the caller named."""
    partition: Partition = ()
    """The values of the bucket's partition, as text."""
    bucket: int = 0


Rule: TypeAlias = Callable[[Meeting], str]
"""A conflict policy: ``rebase``, ``retry`` or ``incompatible`` for a meeting. A pure function."""
