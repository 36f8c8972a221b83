"""The ports of the dual write: what writers and engines ask of ``plait.replicate``, above them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from plait.engine import Staging
from plait.model.changes import WriteStatus
from plait.model.decision import CommitResult
from plait.model.plan import Snapshot
from plait.model.replicas import SinkLedger, TaskLedger
from plait.model.request import WritePlan, WriteRequest
from plait.state.definition import TableDef
from plait.txn.transaction import OptimisticTransaction


class ReplicatedStaging(Staging, Protocol):
    """A staging that sends rows to sinks before it stages them."""

    @property
    def ledger(self) -> SinkLedger | None:
        """What every sink holds of the rows that were staged; None if no row came."""
        ...

    def end(self, result: CommitResult | None) -> None:
        """Hear how the commit ended; None: it failed, or nobody knows."""
        ...


class Relay(Protocol):
    """Sends the rows of one task to the sinks, on an executor: a value that can be pickled."""

    def stage(
        self, inner: Staging, plan: WritePlan, task: str, rows: object, snapshot: Snapshot
    ) -> tuple[WriteStatus, TaskLedger | None]:
        """Send rows to every sink, then stage them; ``task`` names this attempt alone.

        Raises:
            ReplicationError: a sink failed. The task must fail, and be run again with all rows.
            RolledBackError: the commit was decided without this attempt.
        """
        ...


@runtime_checkable
class Relaying(Protocol):
    """A staging whose tasks elsewhere can send their rows to sinks before they stage them."""

    def relay_through(self, relay: Relay) -> None:
        """Have each task send its rows through this, from the first one on."""
        ...

    @property
    def relayed(self) -> Sequence[TaskLedger]:
        """What the attempts that count sent, a task each."""
        ...


class Replication(Protocol):
    """The sinks of a writer: ``plait.replicate.Replicas``."""

    def require(self, request: WriteRequest, table: TableDef) -> None:
        """Raise OptionError for a write that cannot go to these sinks; nothing is written."""
        ...

    def require_removals(self) -> None:
        """Raise OptionError if a sink cannot remove rows."""
        ...

    def staging(
        self, staging: Staging, plan: WritePlan, txn: OptimisticTransaction
    ) -> ReplicatedStaging:
        """Return a staging that sends rows to the sinks first, then to ``staging``."""
        ...
