"""Seeks of a sink: a decision in the timeline sets where it continues, and shows what it skips."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from plait.errors import OptionError, TableNotFoundError
from plait.kafka.client import Clients, Topic
from plait.kafka.position import OffsetRange, find_bounds, find_place, find_problem, is_offset
from plait.kafka.sources import SourceOffset, SourcePartition
from plait.kafka.status import require_offsets
from plait.model.plain import Plain
from plait.model.stream import Position
from plait.table import Table


@dataclass(frozen=True, slots=True)
class Move(Plain):
    """A partition that is to be read elsewhere, or no more."""

    source: SourcePartition
    before: SourceOffset | None
    """Where it would be read next; None if the table has no offset of it."""
    after: SourceOffset | None
    """Where it will be read next; None if the sink forgets it."""

    @property
    def again(self) -> bool:
        """Whether records that are in the table would be read once more."""
        old, new = self.before, self.after
        if old is None or new is None:
            return False
        return old.topic_id == new.topic_id and old.number > new.number


@dataclass(frozen=True, slots=True)
class SeekPlan:
    """Where partitions would continue, as of a position of the stream."""

    position: Position | None
    moves: tuple[Move, ...]

    def require(self, *, again: bool) -> None:
        """Refuse a plan that does nothing, or reads records again without being asked to.

        Raises:
            OptionError: see ``seek``.
        """
        repeated = [each for each in self.moves if each.again]
        if repeated and not again:
            move = repeated[0]
            message = (
                f"{move.source} would be read again from {move.after}, and is at {move.before}"
            )
            hint = "records would be applied twice; pass --again if that is right"
            raise OptionError(message, hint=hint, key="again", value="false")
        if not self.moves:
            message = "every partition can go on where it is"
            hint = "name what to move: --to TOPIC/PARTITION=PLACE"
            raise OptionError(message, hint=hint, key="to", value="")


def plan_seek(
    table: Table,
    name: str,
    clients: Clients,
    places: Mapping[str, str],
    drop: Sequence[str] = (),
) -> SeekPlan:
    """Find where partitions would continue; nothing is written.

    Args:
        table: the table.
        name: the name of the sink.
        clients: of the brokers.
        places: by partition (``events/3``), topic, or "" for all partitions that cannot go on:
            earliest, latest, an offset, or a time.
        drop: topics or partitions that are gone from Kafka for good: the sink forgets their
            offsets.

    Raises:
        StreamError: the table has no such sink.
        OptionError: a place or a partition is invalid, an offset is given for several partitions,
            or what is dropped still exists or is all that the sink has.
        TableNotFoundError: a topic is not there, and every partition is asked for.
        OffsetsLostError: Kafka does not have an offset.
        StorageError: the brokers do not answer.
    """
    position = table.stream(name).position
    known = require_offsets(table, name, position)
    names = sorted({source.topic for source in known})
    topics = clients.find_topics(names)
    if "" in places:
        kept = {source.topic for source in known if not _named(source, drop)}
        _require_topics(sorted(kept.difference(topics)))
    left = dict.fromkeys(places)
    moves = list(_dropped(known, topics, drop))
    for source, bounds in find_bounds(clients, topics):
        before = known.get(source)
        target = next((key for key in (str(source), source.topic) if key in places), None)
        if target is None and "" in places and not _can_go_on(before, bounds):
            target = ""
        if target is None:
            continue
        left.pop(target, None)
        _require_one(source, target, places[target], topics[source.topic])
        after = find_place(clients, source, bounds, places[target])
        if after != before:
            moves.append(Move(source, before, after))
    left.pop("", None)
    if left:
        raise _not_found(next(iter(left)), known, "to")
    return SeekPlan(position, tuple(moves))


def _dropped(
    known: Mapping[SourcePartition, SourceOffset], topics: Mapping[str, Topic], drop: Sequence[str]
) -> Iterator[Move]:
    """Find the partitions that the sink forgets.

    Raises:
        OptionError: one of them still exists, or no other is left.
    """
    going = {source for source in known if _named(source, drop)}
    for each in drop:
        if not any(each in (str(source), source.topic) for source in going):
            raise _not_found(each, known, "drop")
    for source in sorted(going):
        topic = topics.get(source.topic)
        if topic is not None and source.partition < topic.partitions:
            message = f"{source} cannot be dropped, since Kafka still has it"
            hint = "records that are in the table would be applied twice; to move it, pass --to"
            raise OptionError(message, hint=hint, key="drop", value=str(source))
        yield Move(source, known[source], None)
    if going and len(going) == len(known):
        message = "these are all partitions of the sink"
        hint = "start a sink with another name for another topic"
        raise OptionError(message, hint=hint, key="drop", value=", ".join(drop))


def _named(source: SourcePartition, names: Sequence[str]) -> bool:
    return not {str(source), source.topic}.isdisjoint(names)


def _not_found(
    name: str, known: Mapping[SourcePartition, SourceOffset], option: str
) -> OptionError:
    gone = option == "to" and any(name in (str(each), each.topic) for each in known)
    message = f"Kafka has no {name!r}" if gone else f"the sink has no partition or topic {name!r}"
    hint = (
        f"if it was deleted for good: --drop {name}"
        if gone
        else f"its partitions: {', '.join(map(str, sorted(known)))}"
    )
    return OptionError(message, hint=hint, key=option, value=name)


def _require_topics(absent: Sequence[str]) -> None:
    """Refuse to say that all is well where a topic is not there."""
    for topic in absent:
        hint = f"make it again; or if it was deleted for good: --drop {topic}"
        raise TableNotFoundError(f"there is no topic {topic!r}, which the sink has read", hint=hint)


def _require_one(source: SourcePartition, target: str, place: str, topic: Topic) -> None:
    """Refuse an offset that is not meant for a partition, or for the only one of a topic."""
    if is_offset(place) and target != str(source) and (not target or topic.partitions > 1):
        message = f"the offset {place} cannot be meant for several partitions"
        raise OptionError(message, hint=f"name one: --to {source}={place}", key="to", value=place)


def seek(table: Table, name: str, plan: SeekPlan, *, again: bool = False) -> int:
    """Let a sink continue elsewhere, by one decision without rows; return its version.

    Stop the processes of the sink first: one that is at work ends.

    Raises:
        OptionError: records would be read again, which is not asked for; or there is no move.
        StreamError: a process of the sink has moved the stream since the plan.
    """
    plan.require(again=again)
    offsets = {str(move.source): str(move.after or "") for move in plan.moves}
    result = table.stream(name).seek(offsets, after=plan.position)
    return result.version


def _can_go_on(at: SourceOffset | None, bounds: OffsetRange) -> bool:
    if at is None:
        return True  # the sink itself says where it begins
    return not find_problem(at, bounds)
