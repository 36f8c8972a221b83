"""The ports of the dual write: what writers ask of ``plait.replicate``, above them."""

from __future__ import annotations

import functools
from abc import abstractmethod
from importlib.metadata import entry_points
from typing import Final, Protocol

from plait.definition.table_def import TableDef
from plait.engine import ForwardingStaging, Staging
from plait.errors import MissingDependencyError, OptionError
from plait.model.decision import CommitResult
from plait.model.request import WritePlan, WriteRequest
from plait.model.sink_ledger import SinkLedger
from plait.txn.table_handle import TableHandle
from plait.txn.transaction import OptimisticTransaction

GROUP: Final = "plait.replication"


class ReplicatedStaging(ForwardingStaging):
    """A staging that sends rows to sinks before the one inside stages them."""

    @property
    @abstractmethod
    def ledger(self) -> SinkLedger | None:
        """What every sink holds of the rows that were staged; None if no row came."""

    @abstractmethod
    def end(self, result: CommitResult | None) -> None:
        """Learn how the commit ended; None if it failed or its outcome is unknown."""


class Replication(Protocol):
    """The sinks of a writer: ``plait.replicate.Replicas``."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the sinks."""
        ...

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


class SinksOfDefinition(Protocol):
    """Makes the sinks that the definition of a table names: the port to the room above."""

    def __call__(self, handle: TableHandle, table: TableDef) -> Replication:
        """Return them; raise ConsentError for one that the caller did not allow."""
        ...


@functools.cache
def _sinks_of_definition() -> SinksOfDefinition:
    """Return what is installed for the port; most tables have no sinks and never load it."""
    for point in entry_points(group=GROUP, name="definition"):
        found: SinksOfDefinition = point.load()
        return found
    message = f"the table names sinks, and no entry point in the group {GROUP!r} makes them"
    hint = "install Plait again: its metadata is missing, or older than its code"
    raise MissingDependencyError(message, hint=hint, library="plait", extra="")


def replication_of(handle: TableHandle, table: TableDef, asked: Replication | None) -> Replication:
    """Return the sinks of a writer to a table that names some: those, if it asked for none.

    Raises:
        ConsentError: the definition names a sink that the caller did not allow.
        OptionError: it asked for others, or a sink's address is not understood here.
        MissingDependencyError: the definition names sinks, and Plait's metadata is not installed.
    """
    if asked is None:
        return _sinks_of_definition()(handle, table)
    left_out = ", ".join(sorted(set(table.replicas).difference(asked.names)))
    if left_out:
        message = f"replicas leaves out sinks that the table's definition names: {left_out}"
        hint = "name them too, under the same names; or omit replicas"
        raise OptionError(message, hint=hint, key="replicas", value=left_out)
    return asked


def replicated(
    replicas: Replication,
    staging: Staging,
    plan: WritePlan,
    txn: OptimisticTransaction,
    *,
    elsewhere: bool,
) -> ReplicatedStaging:
    """Put the sinks before a staging, which is closed if they cannot stand there.

    Args:
        replicas: the sinks.
        staging: stages what all sinks hold.
        plan: what is written.
        txn: the transaction that it is written in.
        elsewhere: whether tasks in other processes stage it.

    Raises:
        OptionError: they cannot send their rows.
    """
    if elsewhere and not staging.relays:
        staging.close()
        message = "this engine cannot send rows to replicas"
        hint = "write Arrow data or a Spark DataFrame, or without replicas, and repair the sinks"
        raise OptionError(message, hint=hint, key="replicas", value=", ".join(replicas.names))
    return replicas.staging(staging, plan, txn)
