"""Directories for tests that need a file system and no disk: nothing of theirs must outlive power.

The calls are those of a disk, and so is the protocol; what is saved is the wait for a medium.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_MEMORY = Path("/dev/shm")
_FREE_BYTES_MIN = 256 << 20


@contextlib.contextmanager
def quick_place() -> Iterator[str]:
    """Give a directory in memory where there is room for one, and delete it at the end."""
    roomy = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _FREE_BYTES_MIN
    place = tempfile.mkdtemp(prefix="plait-tests-", dir=_MEMORY if roomy else None)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
