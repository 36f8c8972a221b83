"""Where a process of ``tablectl`` starts: a signal is heard before anything large is imported.

A command that runs until it is told to stop ends with code 0 when it is told. It says so itself
once it runs (``stopping.py``). What it needs takes a second to import, and a signal in this time
would end the process as one that failed. Nothing has been done then, so it ends at once.
"""

from __future__ import annotations

import os
import signal
import sys

_WAITING = (frozenset({"sink", "kafka"}), frozenset({"serve-catalog"}))
"""The words on the command line of each such command."""


def main() -> int:
    """Run ``tablectl``; return its exit code."""
    if any(words <= {*sys.argv[1:]} for words in _WAITING):
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, _leave)
    from plait.cli.main import main as run  # noqa: PLC0415 - only now, as the module says

    return run()


def _leave(*_: object) -> None:
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
