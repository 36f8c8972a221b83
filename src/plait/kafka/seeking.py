"""Setting where a sink continues: what is passed over, or read again, stands in the timeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plait.errors import OptionError
from plait.kafka.client import Clients
from plait.kafka.position import OffsetRange, find_bounds, find_place, find_problem
from plait.kafka.sources import SourceOffset, SourcePartition
from plait.kafka.status import require_offsets
from plait.model.stream import Position
from plait.table import Table


@dataclass(frozen=True, slots=True)
class Move:
    """A partition that is to be read elsewhere."""

    source: SourcePartition
    before: SourceOffset | None
    """Where it would be read next; None if the table has no offset of it."""
    after: SourceOffset

    @property
    def again(self) -> bool:
        """Whether records that are in the table would be read once more."""
        old = self.before
        return (
            old is not None
            and old.topic_id == self.after.topic_id
            and old.number > self.after.number
        )

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        before = None if self.before is None else str(self.before)
        return {"source": str(self.source), "before": before, "after": str(self.after)}


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


def plan_seek(table: Table, name: str, clients: Clients, places: Mapping[str, str]) -> SeekPlan:
    """Find where partitions would continue; nothing is written.

    Args:
        table: the table.
        name: the name of the sink.
        clients: of the brokers.
        places: by partition (``events/3``), topic, or "" for all partitions that cannot go on:
            earliest, latest, an offset, or a time.

    Raises:
        StreamError: the table has no such sink.
        OptionError: a place or a partition is none, or an offset is given for several partitions.
        OffsetsLostError: Kafka does not have an offset.
        StorageError: the brokers do not answer.
    """
    position = table.stream(name).position
    known = require_offsets(table, name, position)
    names = sorted({source.topic for source in known})
    topics = clients.find_topics(names)
    left = dict.fromkeys(places)
    moves = []
    for source, bounds in find_bounds(clients, topics):
        before = known.get(source)
        target = next((key for key in (str(source), source.topic) if key in places), None)
        if target is None and "" in places and not _can_go_on(before, bounds):
            target = ""
        if target is None:
            continue
        left.pop(target, None)
        after = find_place(clients, source, bounds, places[target])
        if after != before:
            moves.append(Move(source, before, after))
    left.pop("", None)
    if left:
        message = f"the sink has no partition or topic {next(iter(left))!r}"
        hint = f"its partitions: {', '.join(map(str, sorted(known)))}"
        raise OptionError(message, hint=hint, key="to", value=next(iter(left)))
    return SeekPlan(position, tuple(moves))


def seek(table: Table, name: str, plan: SeekPlan, *, again: bool = False) -> int:
    """Let a sink continue elsewhere, by one decision without rows; return its version.

    Stop the processes of the sink first: one that is at work ends.

    Raises:
        OptionError: records would be read again, which is not asked for; or there is no move.
        StreamError: a process of the sink has moved the stream since the plan.
    """
    plan.require(again=again)
    offsets = {str(each.source): str(each.after) for each in plan.moves}
    result = table.stream(name).seek(offsets, after=plan.position)
    return result.version


def _can_go_on(at: SourceOffset | None, bounds: OffsetRange) -> bool:
    if at is None:
        return True  # the sink itself says where it begins
    return not find_problem(at, bounds)
