"""What SIGTERM and SIGINT do to a command that runs until it is told to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Stopping:
    """Notes the signals that ask the process to stop."""

    def __init__(self) -> None:
        """Handle the signals from now on; only the main thread may do so."""
        self.asked = threading.Event()
        self._at_once = False
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, self._hear)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """End with code 0 at the first signal, wherever the block is; later ones change nothing.

        Raises:
            SystemExit: the process was asked to stop.
        """
        self._at_once = True
        try:
            yield
        except SystemError as error:
            # A function in C that lets a signal be handled may give a result all the same.
            if isinstance(error.__cause__, SystemExit):
                raise SystemExit(0) from error
            raise
        finally:
            self._at_once = False

    def _hear(self, *_: object) -> None:
        first = not self.asked.is_set()
        self.asked.set()
        if first and self._at_once:
            raise SystemExit(0)
