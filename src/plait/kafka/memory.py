"""How the memory of a process is divided: the client's queue, what is decoded, and rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from confluent_kafka import Message

_MIB: Final = 1 << 20
_BUFFERS: Final = 3
"""A partition has two turns in memory, each of 1.5 times its buffer (RFC 0007)."""
_BUFFER_MIN: Final = 4 * _MIB
"""Below this, files would be tiny, and the bound of 1.5 does not hold."""
_QUEUE_MIN: Final = 4 * _MIB
_QUEUE_MAX: Final = 64 * _MIB
_QUEUE_SHARE: Final = 16
_AGAIN_MS: Final = 5
"""Pause of the client after its queue was full; its own default is a second."""
DECODED: Final = 8 * _MIB
"""Values that are decoded at once: texts, columns and their copies take several times as much."""


def buffer_of(memory: int, partitions: int) -> int:
    """Return the bytes of rows that a partition may buffer in a turn.

    >>> buffer_of(600 << 20, 2) >> 20
    100
    """
    return max(_BUFFER_MIN, memory // (_BUFFERS * max(1, partitions)))


def queue_settings(memory: int) -> Mapping[str, str | int]:
    """Return settings of a consumer whose queue is a share of the memory.

    librdkafka asks for more as long as its queue is smaller than the first of them, so one answer
    of each broker comes to that. An answer may be larger if a single record batch is.

    >>> queue_settings(512 << 20)["queued.max.messages.kbytes"]
    32768
    """
    queue = min(max(_QUEUE_MIN, memory // _QUEUE_SHARE), _QUEUE_MAX)
    return {
        "queued.max.messages.kbytes": queue >> 10,
        "fetch.max.bytes": queue,
        "fetch.queue.backoff.ms": _AGAIN_MS,
    }


def pieces(records: list[Message], size_max: int = DECODED) -> Iterator[list[Message]]:
    """Divide records where their values exceed a size; a larger one stands alone."""
    first, size = 0, 0
    for at, record in enumerate(records):
        more = size_of(record)
        if size + more > size_max and at > first:
            yield records[first:at]
            first, size = at, 0
        size += more
    if first < len(records):
        yield records[first:]


def size_of(record: Message) -> int:
    """Return the bytes of the value and the key of a record."""
    return len(record.value() or b"") + len(record.key() or b"")
