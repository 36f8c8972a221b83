"""What a caller asks to be written: one value, from the call to the decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plait.model.bucket import Partition
from plait.model.clauses import Clauses
from plait.model.decision import ReadSet, Token
from plait.model.instant import Operation


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """What a caller asks of a writer or of a transaction, checked against the table."""

    operation: Operation
    commit_id: str | None = None
    on_conflict: str = "raise"
    on_duplicate: str = "raise"
    overwrite: str = "table"
    predicate: Mapping[str, object] | None = None
    """Of the rows that are replaced, updated or deleted, as JSON."""
    partitions: tuple[Partition, ...] = ()
    """Known before any data is written; more are announced as they come."""
    read_set: ReadSet | None = None
    """What the rows were computed from, if the caller says so."""
    token: Token | None = None
    """Which epoch of a stream this is."""
    clauses: Clauses | None = None
    """What an update, a merge or a partial upsert does to rows."""

    @property
    def joins(self) -> bool:
        """Whether rows come in that meet the table's in clauses."""
        return self.clauses is not None and self.operation is not Operation.UPDATE

    @property
    def retries(self) -> bool:
        """Whether the operation may be run again where others changed the same rows."""
        return self.on_conflict == "retry"
