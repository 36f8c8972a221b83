"""Arrow works on tables of three rows here."""

from __future__ import annotations

from tests.support.arrow import one_arrow_thread

__all__ = ["one_arrow_thread"]
