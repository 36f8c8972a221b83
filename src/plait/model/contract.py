"""The contract: what every client of a table must agree on before it writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from plait.errors import OptionError

PARTS = ("concurrency", "lock", "failed_writes")
LOCKS = ("file", "process", "none", "lease", "zookeeper")


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
            message = "failed_writes='eager' would have each writer end the others' failed work"
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


def _one_of(key: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        message = f"{key}={value!r} is not known"
        raise OptionError(message, hint=f"one of {', '.join(allowed)}", key=key, value=value)
