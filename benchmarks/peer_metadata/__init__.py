"""Metadata of large tables as the peers write them, without a data file."""

from __future__ import annotations

FILE_ROWS = 10_000
FILE_BYTES = 1 << 27
Pair = list[dict[str, str]]
"""The least and the greatest value of each column of a file, as texts."""
