"""The lock ``none``: no lock. The slots alone give safety; order and fairness are left to luck."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plait.locks.port import Holder


@dataclass(frozen=True, slots=True)
class _HeldByNobody:
    token: int | None = None
    lost: str | None = None


class NoLock:
    """Grants everybody at once."""

    name = "none"

    @contextmanager
    def acquire(self, *, wait_s: float, owner: str) -> Iterator[_HeldByNobody]:  # noqa: ARG002 - the port's
        """Grant."""
        yield _HeldByNobody()

    def holder(self) -> Holder | None:
        """Tell that nobody does."""
        return None
