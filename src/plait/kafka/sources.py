"""Partitions of topics and their offsets, as they stand in the table.

A source is named ``<topic>/<partition>``. Its offset is ``<offset>@<topic id>``: the offset of the
record to read next, and the id that Kafka gave the topic when it was made. So offsets of a topic
that was deleted and made again never continue those of the old one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from plait.errors import EpochUnknownError

if TYPE_CHECKING:
    from confluent_kafka import Message

_PARTITION_MAX: Final = (1 << 31) - 1
_OFFSET_MAX: Final = (1 << 63) - 1
_HINT: Final = "give the sink a name of its own, which no other stream of the table has"


class SourcePartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Return its name in the table.

        >>> str(SourcePartition("events", 3))
        'events/3'
        """
        return f"{self.topic}/{self.partition}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a name in the table.

        Raises:
            EpochUnknownError: another kind of writer wrote this stream.

        >>> SourcePartition.parse("events/3").partition
        3
        """
        topic, slash, number = text.rpartition("/")
        if not (slash and topic and _is_number(number, _PARTITION_MAX)):
            message = f"{text[:80]!r} is not a partition of a topic"
            raise EpochUnknownError(message, hint=_HINT, end=text[:80])
        return cls(topic, int(number))

    @classmethod
    def of(cls, record: Message) -> Self:
        """Return where a record comes from."""
        return cls(record.topic() or "", record.partition() or 0)


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """Where a source is read next."""

    number: int
    topic_id: str

    def __str__(self) -> str:
        """Return it as it stands in the table.

        >>> str(SourceOffset(12, "Qk0"))
        '12@Qk0'
        """
        return f"{self.number}@{self.topic_id}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read an offset.

        Raises:
            EpochUnknownError: another kind of writer wrote this stream.
        """
        number, at, topic_id = text.partition("@")
        if not (at and topic_id and _is_number(number, _OFFSET_MAX)):
            message = f"{text[:80]!r} is not an offset of a Kafka sink"
            raise EpochUnknownError(message, hint=_HINT, end=text[:80])
        return cls(int(number), topic_id)


def _is_number(text: str, most: int) -> bool:
    """Whether a text is a number in digits that Kafka can have; others are not even computed."""
    digits = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    return digits and int(text) <= most


def by_partition(records: Iterable[Message]) -> dict[SourcePartition, list[Message]]:
    """Divide records by partition, in their order; this runs for each record, and does little."""
    groups: dict[tuple[str | None, int | None], list[Message]] = {}
    for record in records:
        place = record.topic(), record.partition()
        group = groups.get(place)
        if group is None:
            group = groups[place] = []
        group.append(record)
    return {SourcePartition(name or "", at or 0): group for (name, at), group in groups.items()}
