"""Where a partition is read next: whether Kafka has it, and where to begin instead."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from plait.errors import OffsetsLostError, OptionError, TopicReplacedError
from plait.kafka.client import Clients, Topic
from plait.kafka.sources import SourceOffset, SourcePartition

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_MS: Final = 1000


class OffsetRange(NamedTuple):
    """What Kafka has of a partition."""

    topic: Topic
    first: int
    """The first offset that it has."""
    end: int
    """The one after the last."""


def find_bounds(
    clients: Clients, topics: Mapping[str, Topic]
) -> Iterator[tuple[SourcePartition, OffsetRange]]:
    """Look at every partition of some topics.

    Raises:
        StorageError: the brokers do not answer.
    """
    consumer = clients.consumer()
    try:
        for topic in topics.values():
            for number in range(topic.partitions):
                source = SourcePartition(topic.name, number)
                yield source, OffsetRange(topic, *clients.bounds(consumer, *source))
    finally:
        consumer.close()


def require_place(text: str) -> None:
    """Refuse what is not a place in a partition.

    Raises:
        OptionError: it is neither earliest nor latest, nor a time, nor an offset.
    """
    if text not in (EARLIEST, LATEST) and not is_offset(text):
        moment_of(text)


def find_place(
    clients: Clients, source: SourcePartition, bounds: OffsetRange, text: str
) -> SourceOffset:
    """Find the offset that a place stands for.

    Args:
        clients: asked where the place is a time.
        source: the partition.
        bounds: what Kafka has of it.
        text: earliest, latest, an offset, or a time: the first record that is as new.

    Raises:
        OptionError: it is not a place.
        OffsetsLostError: it is an offset that Kafka does not have.
        StorageError: the brokers do not answer.
    """
    if text == EARLIEST:
        number = bounds.first
    elif text == LATEST:
        number = bounds.end
    elif is_offset(text):
        number = int(text)
    else:
        found = clients.find_time(*source, moment_of(text))
        # Kafka itself has just named it: it may lie beyond the end that was asked for before.
        return SourceOffset(bounds.end if found is None else found, bounds.topic.id)
    if not bounds.first <= number <= bounds.end:
        raise OffsetsLostError(
            f"{source} has no offset {number}: Kafka has {bounds.first} to {bounds.end}",
            hint="choose one of these, earliest or latest",
            source=str(source),
            next=number,
            first=bounds.first,
            end=bounds.end,
        )
    return SourceOffset(number, bounds.topic.id)


def find_problem(at: SourceOffset, bounds: OffsetRange) -> str:
    """Say why a partition cannot go on from an offset; empty if it can."""
    if at.topic_id != bounds.topic.id:
        return "the topic was deleted and made again"
    if not bounds.first <= at.number <= bounds.end:
        return f"Kafka has {bounds.first} to {bounds.end}"
    return ""


def require_there(source: SourcePartition, at: SourceOffset, bounds: OffsetRange) -> None:
    """Refuse an offset that Kafka does not have, or of another topic with this name.

    Raises:
        TopicReplacedError: the offset is one of another topic.
        OffsetsLostError: it is not among those that Kafka has.
    """
    if at.topic_id != bounds.topic.id:
        message = f"topic {source.topic!r} is not the one that the table has read up to {at}"
        hint = "it was deleted and made again; tablectl sink seek --to earliest accepts the new one"
        theirs = bounds.topic.id
        raise TopicReplacedError(
            message, hint=hint, source=str(source), ours=at.topic_id, theirs=theirs
        )
    if not bounds.first <= at.number <= bounds.end:
        first, end = bounds.first, bounds.end
        message = f"{source} is read next at {at.number}, but Kafka has {first} to {end}"
        hint = "tablectl sink seek --to earliest accepts the loss, and records it"
        raise OffsetsLostError(
            message, hint=hint, source=str(source), next=at.number, first=first, end=end
        )


def is_offset(text: str) -> bool:
    """Tell whether a place is an offset."""
    return text.isascii() and text.isdigit()


def moment_of(text: str) -> int:
    """Read a time in milliseconds; one without a zone is in UTC, one before 1970 is 0.

    >>> moment_of("1970-01-01T00:00:01"), moment_of("1970-01-01T01:00:01+01:00")
    (1000, 1000)
    """
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError as error:
        message = f"{text!r} is not a place in a topic"
        hint = "use earliest, latest, an offset, or a time such as 2026-01-31T12:00:00Z"
        raise OptionError(message, hint=hint, key="place", value=text) from error
    zoned = time if time.tzinfo else time.replace(tzinfo=dt.UTC)
    return max(0, int(zoned.timestamp() * _MS))
