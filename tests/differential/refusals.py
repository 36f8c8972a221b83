"""Judges whether a refusal was needed: somebody changed a row that the refused one wrote or read.

What an operation *writes* is what it would insert, update or delete, judged row by row on every
version that was the head meanwhile. A replaced place (the table, or the partitions of the rows that
come in) is written whole, with every row that was, is or might be there; rows that a predicate
replaces are written where it holds for them. What it *reads* counts where reads count: under
``serializable``, and where a read was named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.differential.acts import Told
from tests.differential.evidence import Version
from tests.differential.model import DuplicateError, Ident, Rows, Saw, holds, ident, run
from tests.differential.program import Do, Row, Shape, Write

PLACES = ("overwrite", "overwrite_partitions")
REST = ("rest_drop", "rest_mark")
RESHAPES = ("schema", "repush")


class Refusals:
    """The part of the judge that knows what was written and read."""

    def __init__(
        self,
        shape: Shape,
        versions: Sequence[Version],
        states: Sequence[Rows],
        by: dict[int, Told],
    ) -> None:
        self.shape, self.versions, self.states, self.by = shape, versions, states, by

    def needed(self, told: Told, low: int, heads: Iterable[int]) -> bool:
        """Tell whether a version after ``low`` changed what a refused turn wrote or read."""
        seen = [head for head in heads if head > low and self.by.get(head) is not told]
        window = [low, *seen]
        if any(self.versions[number].restored is not None for number in seen):
            return True
        if told.read_at is not None and any(self._reshapes(number) for number in seen):
            return True
        mine = self._written(told, window)
        if told.read_at is not None or self.shape.strict:
            mine |= self._looked_up(told, window)
        return any(self._meets(told, number, mine) for number in seen)

    def _meets(self, told: Told, number: int, mine: set[Ident]) -> bool:
        changed = self._changed(number)
        if mine & changed:
            return True
        rows = [row for at in changed for row in self._images(at, number)]
        other = self.by.get(number)
        if any(self._claims(told, row) for row in rows):
            return True
        if not self.shape.keyed and any(at in self.states[number - 1] for at in changed):
            return True  # rows without a key cannot be told apart
        if self.shape.policy == "file_group":  # the unit is the bucket, whatever its keys are
            if changed and (not self.shape.partitioned or self._reaches(told)):
                return True
            rows += [] if other is None else [row for do in other.did for row in do.rows]
            return bool(self._partitions(told, mine) & {self._partition(row) for row in rows})
        return self._places_meet(told, other)

    def _reshapes(self, number: int) -> bool:
        """Tell whether a version changed the columns, or what keys and places are called.

        What was read before is not compared with what was written under another layout.
        """
        return self.versions[number].operation in RESHAPES

    # --- what was changed --------------------------------------------------------------------

    def _changed(self, number: int) -> set[Ident]:
        """The rows that a version changed, or wrote as they were."""
        before, after = self.states[number - 1], self.states[number]
        found = {at for at in before.keys() | after.keys() if before.get(at) != after.get(at)}
        other = self.by.get(number)
        if other is not None:
            found |= self._written(other, [number - 1])
        return found

    def _images(self, at: Ident, number: int) -> list[Row]:
        rows = (self.states[number - 1].get(at), self.states[number].get(at))
        return [row for row in rows if row is not None]

    # --- what was written and read -----------------------------------------------------------

    def _written(self, told: Told, window: Iterable[int]) -> set[Ident]:
        """The rows that a turn inserts, updates or deletes on some version, even for a moment."""
        found: set[Ident] = set()
        for version in window:
            rows = self.states[version]
            for at in rows.keys() | {ident(self.shape, row) for do in told.did for row in do.rows}:
                alone = {at: rows[at]} if at in rows else {}
                try:
                    ran = run(self.shape, alone, told.steps)
                except DuplicateError as error:
                    found |= error.keys  # refused for a key, which it looked up
                    continue
                found |= {who for _, who in ran.events}
        return found

    def _looked_up(self, told: Told, window: Iterable[int]) -> set[Ident]:
        found = {ident(self.shape, row) for do in told.did for row in do.rows}
        ids = {r[0] for do in told.did if do.kind == "delete_keys" for r in do.rows}
        every = set().union(*(self.states[version] for version in window))
        return found | {at for at in every if at[-1] in ids}

    def _claims(self, told: Told, row: Row) -> bool:
        """Tell whether a row of before or after is among those that a turn replaces or reads."""
        strict = self.shape.strict
        for step in told.steps:
            if isinstance(step, Saw):
                named = isinstance(told.turn, Write) and told.turn.named != "scan"
                if strict and (named or holds(step.where, row)):  # a version is read whole
                    return True
                continue
            if self._replaces(step, row):
                return True
            if strict and step.kind in ("delete_where", "update") and holds(step.where, row):
                return True
            if strict and step.kind == "merge" and set(REST) & set(step.clauses):
                return True
        return False

    def _replaces(self, do: Do, row: Row) -> bool:
        places = {each[1] for each in do.rows}
        return (
            do.kind == "overwrite"
            or (do.kind == "overwrite_where" and holds(do.where, row))
            or (do.kind == "overwrite_partitions" and row[1] in places)
        )

    # --- places ------------------------------------------------------------------------------

    def _reaches(self, told: Told) -> bool:
        """Tell whether a turn looked for rows in every partition, where only buckets count."""
        return told.read_at is not None or any(do.where is not None for do in told.did)

    def _partition(self, row: Row) -> object:
        return row[1] if self.shape.partitioned else None

    def _partitions(self, told: Told, mine: set[Ident]) -> set[object]:
        rows = [row for do in told.did for row in do.rows]
        rows += [state[at] for state in self.states for at in mine if at in state]
        return {self._partition(row) for row in rows}

    def _places_meet(self, told: Told, other: Told | None) -> bool:
        """Tell whether one of the two replaced a place that the other wrote in."""
        if other is None:
            return False
        every = [row for state in self.states for row in state.values()]
        mine, theirs = ([*every, *(r for do in t.did for r in do.rows)] for t in (told, other))
        ours = self._written(told, range(len(self.states)))
        if self.shape.strict:  # a key that is not there was looked for in the place
            ours |= self._looked_up(told, range(len(self.states)))
        for do in other.did:
            if do.kind not in PLACES:
                continue
            written = [row for row in mine if ident(self.shape, row) in ours]
            if any(self._replaces(do, row) for row in written):
                return True
        touched = self._written(other, range(len(self.states)))
        return any(
            self._replaces(do, row)
            for do in told.did
            if do.kind in PLACES
            for row in theirs
            if ident(self.shape, row) in touched
        )
