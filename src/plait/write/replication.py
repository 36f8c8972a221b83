"""The ports of the dual write: what writers and engines ask of ``plait.replicate``, above them."""

from __future__ import annotations

import pkgutil
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Protocol

from plait.definition.table_def import TableDef
from plait.engine import ForwardingStaging, Staging
from plait.errors import OptionError
from plait.model.decision import CommitResult
from plait.model.replicas import SinkLedger
from plait.model.request import WritePlan, WriteRequest
from plait.txn.table_handle import TableHandle
from plait.txn.transaction import OptimisticTransaction


class ReplicatedStaging(ForwardingStaging):
    """A staging that sends rows to sinks before the one inside stages them."""

    @property
    @abstractmethod
    def ledger(self) -> SinkLedger | None:
        """What every sink holds of the rows that were staged; None if no row came."""

    @abstractmethod
    def end(self, result: CommitResult | None) -> None:
        """Hear how the commit ended; None: it failed, or nobody knows."""


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


_DEFINED = "plait.replicate.defined:replicas_of"
_PARSED = "plait.replicate.address:parse_sink"
_IN_STEP = "plait.replicate.status:require_in_step"
"""In a room above this one, and asked for by name: most tables have no sinks."""


def replication_of(
    handle: TableHandle, table: TableDef, asked: Replication | None
) -> Replication | None:
    """Return the sinks of a writer: those of the table's definition, if it asked for none.

    Raises:
        ConsentError: the definition names a sink that the caller did not allow.
        OptionError: it asked for others, or a sink's address is not understood here.
    """
    if not table.replicas:
        return asked
    if asked is None:
        load: Callable[[TableHandle, TableDef], Replication] = pkgutil.resolve_name(_DEFINED)
        return load(handle, table)
    left_out = ", ".join(sorted(set(table.replicas).difference(asked.names)))
    if left_out:
        message = f"replicas leaves out sinks that the table's definition names: {left_out}"
        hint = "name them too, under the same names; or omit replicas"
        raise OptionError(message, hint=hint, key="replicas", value=left_out)
    return asked


def require_in_step(handle: TableHandle, replica: str, sink: str | None) -> None:
    """Refuse to take rows from a sink that may have others than the table; raise OptionError."""
    require: Callable[[TableHandle, str, str | None], None] = pkgutil.resolve_name(_IN_STEP)
    require(handle, replica, sink)


def parse_replicas(texts: Iterable[str]) -> dict[str, str]:
    """Return addresses by the names of sinks; no sink is asked.

    Raises:
        OptionError: a text is not ``NAME=ADDRESS``, contains a secret, or a name comes twice.
    """
    parse: Callable[[str], tuple[str, str]] = pkgutil.resolve_name(_PARSED)
    found: dict[str, str] = {}
    for name, address in map(parse, texts):
        if name in found:
            message = f"two sinks have the name {name}"
            raise OptionError(message, hint="use another name", key="replicas", value=name)
        found[name] = address
    return found


def replicated(
    replicas: Replication,
    staging: Staging,
    plan: WritePlan,
    txn: OptimisticTransaction,
    *,
    elsewhere: bool,
) -> ReplicatedStaging:
    """Put the sinks before a staging.

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
        message = "this engine cannot send rows to replicas"
        hint = "write Arrow data or a Spark DataFrame, or without replicas, and repair the sinks"
        raise OptionError(message, hint=hint, key="replicas", value=", ".join(replicas.names))
    return replicas.staging(staging, plan, txn)
