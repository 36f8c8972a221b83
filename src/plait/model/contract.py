"""What every client of a table must agree on: its contract, and its conflict policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final, TypeAlias

from plait.errors import OptionError
from plait.model.bucket import Partition

PARTS = ("concurrency", "lock", "failed_writes")
LOCKS = ("file", "process", "none", "lease", "zookeeper")

APART, SAME, UNKNOWN = "apart", "same", "unknown"
KEYS: Final = (APART, SAME, UNKNOWN)


@dataclass(frozen=True, slots=True)
class Contract:
    """Concurrency mode, lock provider and failed-write policy of a table."""

    concurrency: str = "multi_writer"  # or "single_writer"
    lock: str = "file"
    failed_writes: str = "lazy"  # or "eager"

    @property
    def single_writer(self) -> bool:
        """Whether a second live writer is refused."""
        return self.concurrency == "single_writer"

    def check(self) -> None:
        """Refuse a contract that cannot hold; raise OptionError."""
        _one_of("concurrency", self.concurrency, ("multi_writer", "single_writer"))
        _one_of("lock", self.lock.split(":", 1)[0], LOCKS)
        _one_of("failed_writes", self.failed_writes, ("lazy", "eager"))
        if self.failed_writes == "eager" and self.concurrency == "multi_writer":
            message = "failed_writes='eager' would let each writer roll back the other writers"
            raise OptionError(
                message,
                hint="use failed_writes='lazy', or concurrency='single_writer'",
                key="failed_writes",
                value=self.failed_writes,
            )

    def with_parts(self, parts: Mapping[str, str]) -> Contract:
        """Return it with some parts replaced; raise OptionError for what is no part of it."""
        for key in parts:
            _one_of("contract", key, PARTS)
        return replace(self, **parts)

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return asdict(self)


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


def _one_of(key: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        message = f"{key}={value!r} is unknown"
        raise OptionError(message, hint=f"one of {', '.join(allowed)}", key=key, value=value)
