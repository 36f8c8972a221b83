"""The sinks that a writer sends its rows to, and what may be written to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from plait.definition.replicated_table import require_puts_in_order
from plait.definition.table_def import TableDef
from plait.engine import Staging
from plait.errors import OptionError
from plait.model.instant import Operation
from plait.model.request import WritePlan, WriteRequest
from plait.model.sink_ledger import is_sink_name
from plait.replicate.fan_out import Pace
from plait.replicate.lane import Retries
from plait.replicate.relay import RelayedStaging
from plait.replicate.sender import Sender
from plait.replicate.sink import Sink
from plait.replicate.staging import DualStaging
from plait.txn.transaction import OptimisticTransaction
from plait.write.replication import ReplicatedStaging

_WITHOUT: Final = "write without replicas and repair"
_REMOVED: Final = "remove the sinks from the table, and add and repair them afterwards"


@dataclass(frozen=True, slots=True)
class Replicas:
    """Sends each batch of a writer to all sinks, before the table's commit can name it.

    Args:
        sinks: each with a name of its own.
        batch_size: how many consecutive rows are sent as one batch.
        retries: how often a batch is sent to a sink again.
        patience_s: how long a batch may take at a sink, retries included. After that, the sink
            counts as failed; it may still take the batch later.

    >>> import pyarrow as pa
    >>> from plait import Table
    >>> from plait.replicate import Replicas, TableSink
    >>> t = Table.create("memory://doc-dual", "id bigint, v bigint", record_key=["id"])
    >>> copy = Table.create("memory://doc-dual-copy", "id bigint, v bigint", record_key=["id"])
    >>> replicas = Replicas([TableSink("copy", "memory://doc-dual-copy")], batch_size=100)
    >>> with t.writer("upsert", replicas=replicas) as w:
    ...     w.write(pa.table({"id": [1, 2], "v": [1, 1]}))
    >>> copy.scan().to_arrow().num_rows
    2
    """

    sinks: Sequence[Sink]
    batch_size: int = 1
    retries: Retries = field(default_factory=Retries)
    patience_s: float = 300.0

    def __post_init__(self) -> None:
        """Check the arguments; raise OptionError."""
        names = [sink.name for sink in self.sinks]
        bad = [name for name in names if not is_sink_name(name)]
        if bad or not names or len(set(names)) < len(names):
            message = f"invalid names of sinks: {bad or names}"
            hint = "give each sink a name of its own, of letters, digits, '.', '_' and '-'"
            raise OptionError(message, hint=hint, key="sinks", value=str(names))
        if self.batch_size < 1 or self.patience_s <= 0:
            message = f"invalid batch_size={self.batch_size} or patience_s={self.patience_s}"
            hint = "both must be greater than 0"
            raise OptionError(message, hint=hint, key="batch_size", value=self.batch_size)
        object.__setattr__(self, "sinks", tuple(self.sinks))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the sinks."""
        return tuple(sink.name for sink in self.sinks)

    def require(self, request: WriteRequest, table: TableDef) -> None:
        """Raise OptionError for a write that cannot go to these sinks; nothing is written."""
        require_puts_in_order(table)
        problem = _problem(request, _REMOVED if table.replicas else _WITHOUT)
        if problem is not None:
            key, message, hint = problem
            raise OptionError(message, hint=hint, key=key, value=request.operation.value)
        if request.operation is Operation.DELETE:
            self.require_removals()

    def require_removals(self) -> None:
        """Raise OptionError if a sink cannot remove rows."""
        keeping = [sink.name for sink in self.sinks if not sink.removes]
        if keeping:
            message = f"sink {', '.join(keeping)} cannot remove rows"
            hint = "nothing was written; write without that sink, then repair it"
            raise OptionError(message, hint=hint, key="replicas", value=keeping[0])

    def staging(
        self, staging: Staging, plan: WritePlan, txn: OptimisticTransaction
    ) -> ReplicatedStaging:
        """Return a staging that sends rows to the sinks first, then to ``staging``."""
        pace = Pace(self.batch_size, self.retries, self.patience_s)
        sender = Sender(txn.handle.store, txn.instant, txn.handle.ports, txn.check_alive)
        if staging.relays:
            return RelayedStaging(staging, plan, sender, self.sinks, pace)
        return DualStaging(staging, plan, sender, self.sinks, pace)


def _problem(request: WriteRequest, instead: str) -> tuple[str, str, str] | None:
    """Tell why a write cannot go to sinks: an argument, what is wrong, what to do."""
    whole = request.operation is Operation.UPSERT and request.clauses is None
    keys = request.operation is Operation.DELETE and request.predicate is None
    if not (whole or keys):
        message = f"{request.operation} cannot be sent to sinks before it is committed"
        hint = f"use upsert with whole rows, or delete with keys; or {instead}"
        return "operation", message, hint
    if request.retries:
        message = "on_conflict='retry' would commit rows in another order than sinks get them"
        return "on_conflict", message, "omit it; after a conflict, write the same rows again"
    return None
