"""What a caller asks to be written, from the call to the decision; and the plan of an engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plait.model.bucket import Partition
from plait.model.clauses import Clauses
from plait.model.contract import Options
from plait.model.decision import ReadSet, Token
from plait.model.instant import Instant, Operation
from plait.model.plan import StoreSpec, TableSpec


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


@dataclass(frozen=True, slots=True)
class WritePlan:
    """What an engine needs to turn the rows of a request into files, here or on executors."""

    request: WriteRequest
    store: StoreSpec
    instant: Instant
    spec: TableSpec
    options: Options
    step: int = 0
    """Which of the operations that share an instant; 0 where it is the only one."""
    claims: bool = False
    """Whether keys that are looked up count as read, also where nothing comes of them."""
    digests: bool = False
    """Whether the status tells a digest of the rows that came in: they are an epoch of a stream."""

    def label(self, task: str) -> str:
        """Tell the files and records of a task from those of other steps."""
        return f"s{self.step}-{task}" if self.step else task
