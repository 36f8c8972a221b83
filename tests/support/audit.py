"""An audit hook for a process that reads what a stranger wrote: what it may not do, it has noted.

The hook sees what Python does. Native code (Arrow, librdkafka, libpq) is seen from outside: the
parent listens at the addresses that the stranger names, and compares the places outside.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

HOSTILE = "plait_hostile"
"""Whatever is named so must not be imported, opened or asked for."""
_PROCESSES = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty")
_SOCKETS = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto")


@dataclass
class Audit:
    """What happened while it watched."""

    outside: str
    """A directory that nothing may touch."""
    found: list[str] = field(default_factory=list)
    watching: bool = False

    def install(self) -> None:
        """Add the hook; it cannot be taken away again."""
        sys.addaudithook(self._hear)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Watch for the time of a block."""
        self.watching = True
        try:
            yield
        finally:
            self.watching = False

    def _hear(self, event: str, args: tuple[object, ...]) -> None:
        if not self.watching:
            return
        if event in _PROCESSES or event in _SOCKETS or HOSTILE in self._told(event, args):
            self.found.append(f"{event} {args!r:.200}")

    def _told(self, event: str, args: tuple[object, ...]) -> str:
        """Return the names in an event: modules, paths, databases."""
        if event in ("compile", "exec", "object.__getattr__", "marshal.loads"):
            return ""
        names = [os.fsdecode(each) for each in args if isinstance(each, (str, bytes, os.PathLike))]
        within = any(os.path.abspath(name).startswith(self.outside) for name in names)
        return HOSTILE if within else " ".join(names)
