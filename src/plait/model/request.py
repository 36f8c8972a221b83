"""The request of a caller, and the plan of an engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plait.errors import OptionError
from plait.model.bucket import BucketId, Partition
from plait.model.clauses import Clauses
from plait.model.contract import Options
from plait.model.decision import ReadSet, Token
from plait.model.instant import Instant, Operation
from plait.model.order import Order
from plait.model.plan import TableSpec
from plait.model.schema import Schema
from plait.model.steps import AddColumn
from plait.model.store_address import StoreAddress
from plait.model.texts import is_text


def require_commit_id(commit_id: object) -> None:
    """Refuse an empty commit id, which all would share, and what is no text; raise OptionError."""
    if commit_id is None or (isinstance(commit_id, str) and commit_id and is_text(commit_id)):
        return
    message = f"commit_id={commit_id!r} names no commit"
    hint = "use a text that no other commit has, or omit it"
    raise OptionError(message, hint=hint, key="commit_id", value=str(commit_id))


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """What a caller asks to be written, from the call to the decision.

    ``write/request.py`` makes it of the arguments of a write, and checks them against the table.
    A transaction, a coordinator of a stream and a service that stages files make theirs themselves.
    """

    operation: Operation
    commit_id: str | None = None
    on_conflict: str = "raise"
    on_duplicate: str = "raise"
    overwrite: str = "table"
    predicate: Mapping[str, object] | None = None
    """The rows to replace, update or delete, as a predicate in JSON values."""
    partitions: tuple[Partition, ...] = ()
    """The partitions known before any data is written; others are announced later."""
    read_set: ReadSet | None = None
    """The read that the rows depend on, if the caller named one."""
    token: Token | None = None
    """The epoch of a stream that this write applies."""
    clauses: Clauses | None = None
    """The clauses of an update, a merge or a partial upsert."""
    columns: Schema | None = None
    """The columns that the predicate and the clauses name; None if there are no such."""
    with_row_version: bool = False
    """Whether rows come with the version that wrote them, in the hidden column: rows of another
    layout of the table, or of a copy of it. Only the Arrow engine takes such rows."""
    rejects_nan_in: str | None = None
    """Ordering column in which NaN is refused; see ``TableSpec``."""
    adds_columns: bool = False
    """Whether columns that the table lacks are added to it, by the decision that adds the rows."""
    added_columns: tuple[AddColumn, ...] | None = None
    """What the first rows have that the table lacked, once some came, if ``adds_columns``."""

    def __post_init__(self) -> None:
        """Refuse a commit id that names nothing; raise OptionError."""
        require_commit_id(self.commit_id)

    @property
    def joins(self) -> bool:
        """Whether input rows are matched with the table's by clauses."""
        return self.clauses is not None and self.operation is not Operation.UPDATE

    @property
    def retries(self) -> bool:
        """Whether the operation may run again if others changed the same rows."""
        return self.on_conflict == "retry"


@dataclass(frozen=True, slots=True)
class WritePlan:
    """What an engine needs to stage a request, in this process or on executors.

    ``plan_of`` (``write/request.py``) makes it for an instant, and a participant of a stream for
    its turn.
    """

    request: WriteRequest
    store: StoreAddress
    instant: Instant
    spec: TableSpec
    options: Options
    step: int = 0
    """The number of the operation among those of one instant; 0 for a single one."""
    claims: bool = False
    """Whether looked-up keys count as read, even if they change nothing."""
    digests: bool = False
    """Whether the status has a digest of the input rows, as for an epoch of a stream."""
    added: frozenset[int] = frozenset()
    """Ids of columns and members that the rows bring along: nobody else knows them yet."""
    indexed: bool = False
    """Whether the table has a record index: then the decision tells few keys itself."""

    def label(self, task: str) -> str:
        """Return a label for the files and records of a task, unique among the steps."""
        return f"s{self.step}-{task}" if self.step else task


@dataclass(frozen=True, slots=True)
class FileSet:
    """Files that a rewrite puts into one; those of a partition, in an order, into several."""

    bucket: BucketId
    sources: tuple[str, ...]
    bytes: int = 0
    """Size of the files together, as far as it is known."""
    order: Order | None = None
    """Order of the rows; None for the order of the record key, or of the files."""
