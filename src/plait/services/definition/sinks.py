"""The sinks in a table's definition: one more, or one less, by one decision each (RFC 0022)."""

from __future__ import annotations

from dataclasses import replace

from plait.definition.replicated_table import require_elsewhere, with_replicas
from plait.definition.table_def import TableDef
from plait.errors import OptionError
from plait.model.decision import CommitResult
from plait.txn.table_decisions import change_table
from plait.txn.table_handle import Namespace, TableHandle
from plait.write.sink_address import parse_replicas


class DefinedReplicas(Namespace):
    """The sinks of a table: stores that writers send each row to before they commit it.

    ``plait.replicate`` tells how far each of them is, and sets one right.
    """

    def add(self, replica: str) -> CommitResult:
        """Have every writer send its rows to one more sink first, from this commit on.

        The sink lacks what the table has already, until it is repaired. A writer that began
        before and would commit without the sink gets a RetryableConflictError.

        Args:
            replica: ``NAME=ADDRESS``, without passwords: the place of a table; or a database and
                its table, such as ``serving=sqlite:///serving.db#flights``; or a topic, such as
                ``log=kafka://host:9092/flights``.

        Raises:
            OptionError: it is no such text, or does not fit the table; nothing was written.

        >>> from plait import Table
        >>> t = Table.create("memory://doc-add-replica", "id bigint", record_key=["id"])
        >>> t.replicas.add("eu=memory://doc-add-replica-eu").version
        1
        >>> t.replicas.remove("eu").version
        2
        """
        result, addresses = add_replica(self._handle, replica)
        consent = self._handle.consent.also(*addresses)
        self._opened.handle = replace(self._handle, consent=consent)
        return result

    def remove(self, name: str) -> CommitResult:
        """Have writers send nothing more to a sink; raise OptionError if the table has none."""
        return remove_replica(self._handle, name)


def add_replica(handle: TableHandle, replica: str) -> tuple[CommitResult, tuple[str, ...]]:
    """Name one more sink; return its address too, which the caller has allowed by naming it.

    Raises:
        OptionError: it does not fit, or its name is another sink's.
    """
    added = parse_replicas([replica])
    require_elsewhere(handle.store.address.uri, added)

    def changed(table: TableDef) -> TableDef:
        return with_replicas(table, {**table.replicas, **added})

    return change_table(handle, changed), tuple(added.values())


def remove_replica(handle: TableHandle, name: str) -> CommitResult:
    """Name a sink no more; raise OptionError if the definition does not name it."""

    def changed(table: TableDef) -> TableDef:
        if name not in table.replicas:
            message = f"the table's definition names no sink {name}"
            hint = f"it names: {', '.join(table.replicas) or 'none'}"
            raise OptionError(message, hint=hint, key="replicas", value=name)
        rest = {each: at for each, at in table.replicas.items() if each != name}
        return with_replicas(table, rest)

    return change_table(handle, changed)
