"""The transport of stream messages: a port of two methods, and its form within one process.

A transport may lose messages, repeat them, and deliver them to receivers that they do not concern.
It must keep their order between one sender and one receiver, as a topic of one partition does.
"""

from __future__ import annotations

import queue
import threading
from typing import Protocol

from plait.stream.messages import EncodedMessage


class Endpoint(Protocol):
    """One end of a transport. Messages of the coordinator's end go to every writer."""

    def send(self, message: EncodedMessage) -> None:
        """Send a message; any thread may call it."""
        ...

    def receive(self, wait_s: float) -> bytes | None:
        """Return the next message; None if none arrives in time."""
        ...


class Hub:
    """Carries messages between threads of one process: one coordinator, any number of writers.

    >>> hub = Hub()
    >>> coordinator, writer = hub.coordinator(), hub.writer()
    >>> coordinator.send(b"hear")
    >>> writer.receive(0)
    b'hear'
    """

    def __init__(self) -> None:
        self._up: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._down: list[queue.SimpleQueue[bytes]] = []
        self._lock = threading.Lock()

    def coordinator(self) -> Endpoint:
        """Return the coordinator's end."""
        return _Coordinating(self._up, self._down, self._lock)

    def writer(self) -> Endpoint:
        """Return the end of one more writer; it receives what is sent from now on."""
        mine: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        with self._lock:
            self._down.append(mine)
        return _Writing(mine, self._up)


class _Coordinating:
    def __init__(
        self,
        up: queue.SimpleQueue[bytes],
        down: list[queue.SimpleQueue[bytes]],
        lock: threading.Lock,
    ) -> None:
        self._up, self._down, self._lock = up, down, lock

    def send(self, message: bytes) -> None:
        # Under one lock, so that all writers get the messages in one order.
        with self._lock:
            for each in self._down:
                each.put(message)

    def receive(self, wait_s: float) -> bytes | None:
        return _take(self._up, wait_s)


class _Writing:
    def __init__(self, down: queue.SimpleQueue[bytes], up: queue.SimpleQueue[bytes]) -> None:
        self._down, self._up = down, up

    def send(self, message: bytes) -> None:
        self._up.put(message)

    def receive(self, wait_s: float) -> bytes | None:
        return _take(self._down, wait_s)


def _take(source: queue.SimpleQueue[bytes], wait_s: float) -> bytes | None:
    try:
        return source.get(timeout=wait_s) if wait_s > 0 else source.get_nowait()
    except queue.Empty:
        return None
