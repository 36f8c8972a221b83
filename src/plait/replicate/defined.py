"""The sinks that the definition of a table names, as a writer uses them."""

from __future__ import annotations

from plait.replicate.address import sink_at
from plait.replicate.replicas import Replicas
from plait.state.definition import TableDef


def replicas_of(table: TableDef) -> Replicas:
    """Return the sinks of a table's definition; none is asked.

    Raises:
        OptionError: an address is not understood by this version of Plait.
    """
    sinks = [sink_at(name, address) for name, address in table.replicas.items()]
    return Replicas(sinks, batch_size=table.options.count("replicas.batch.size"))
