"""The port of the dual write: what a writer asks of ``plait.replicate``, which stands above it."""

from __future__ import annotations

from typing import Protocol

from plait.engine import Removing, Staging
from plait.model.decision import CommitResult
from plait.model.request import WritePlan, WriteRequest
from plait.state.definition import TableDef
from plait.txn.transaction import OptimisticTransaction


class ReplicatedStaging(Staging, Removing, Protocol):
    """A staging that sends rows to sinks before it stages them."""

    def end(self, result: CommitResult | None) -> None:
        """Hear how the commit ended; None: it failed, or nobody knows."""
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
