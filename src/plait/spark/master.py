"""What the setting ``spark.master`` tells of the machine."""

from __future__ import annotations

import os
import re

_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", re.ASCII)


def local_cores(master: str) -> int | None:
    """Return the cores that Spark uses where all of it runs in one process; None elsewhere.

    >>> local_cores("local[2,3]"), local_cores("local"), local_cores("spark://host:7077")
    (2, 1, None)
    """
    found = _LOCAL.fullmatch(master)
    if found is None:
        return None
    if found[1] == "*":
        return os.cpu_count() or 1
    return int(found[1] or 1)
