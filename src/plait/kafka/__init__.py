"""The Kafka sink: many processes write a topic into one table, exactly once (RFC 0019).

Each source partition is a writer of the group commit in ``plait.stream``. This room reads records,
decodes them, and carries the group's messages over a control topic.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plait.kafka.settings import SinkSettings
    from plait.kafka.sink import KafkaSink
    from plait.kafka.topic_sink import TopicSink

__all__ = ["KafkaSink", "SinkSettings", "TopicSink"]

_ROOMS = {
    "KafkaSink": "plait.kafka.sink",
    "SinkSettings": "plait.kafka.settings",
    "TopicSink": "plait.kafka.topic_sink",
}


def __getattr__(name: str) -> object:
    """Import a name when it is first asked for."""
    if name not in _ROOMS:
        raise AttributeError(f"module 'plait.kafka' has no attribute {name!r}")
    return getattr(importlib.import_module(_ROOMS[name]), name)
