"""Where a store is: the value from which any process opens it."""

from __future__ import annotations

from dataclasses import dataclass

from plait.errors import redacted_url


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Where a store is and how to reach it; executors open their own from it.

    ``open_store`` makes it from the URI and the options that a caller passes. ``Store.address`` is
    that of an open store.
    """

    uri: str
    options: tuple[tuple[str, object], ...] = ()

    def __repr__(self) -> str:
        """Hide secrets: the options and the users of URLs."""
        return f"StoreAddress({redacted_url(self.uri)!r})"
