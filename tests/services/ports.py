"""Ports for servers that may be killed, and come back on them."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

_BELOW = 32_768
"""From here on Linux gives ports to clients: one could get the port of a server that is away, even
by calling that server."""
_FROM = 15_000
_draw = random.SystemRandom()  # the tests' own seed would give every test the same ports


def free_port() -> int:
    """Give a port that nobody has at the moment, and that no client is given."""
    while True:
        port = _draw.randrange(_FROM, _BELOW)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
