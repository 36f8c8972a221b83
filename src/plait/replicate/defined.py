"""The sinks that the definition of a table names, as a writer uses them."""

from __future__ import annotations

from plait.definition.table_def import TableDef
from plait.model.consent import SINK
from plait.replicate.address import sink_at
from plait.replicate.replicas import Replicas
from plait.replicate.sink import Sink
from plait.txn.table_handle import TableHandle


def replicas_of(handle: TableHandle, table: TableDef) -> Replicas:
    """Return the sinks of a table's definition; none is asked.

    Raises:
        ConsentError: the caller did not allow the address of one.
        OptionError: an address is not understood by this version of Plait.
    """
    sinks = [defined_sink(handle, name, address) for name, address in table.replicas.items()]
    return Replicas(sinks, batch_size=table.options.count("replicas.batch.size"))


def defined_sink(handle: TableHandle, name: str, address: str) -> Sink:
    """Return a sink that the definition of a table names; it is not asked.

    Raises:
        ConsentError: the caller did not allow its address.
        OptionError: the address is not understood by this version of Plait.
    """
    allowed = handle.consent.require(address, SINK, handle.store.address.uri)
    return sink_at(name, allowed, handle.consent)
