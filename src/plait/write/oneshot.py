"""One-call writes: data that is in memory is checked whole before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from plait.model.decision import CommitResult
from plait.model.instant import Operation
from plait.model.plan import TableSpec
from plait.write.check import prepare
from plait.write.merging import Merging
from plait.write.order import Order
from plait.write.places import partitions_of
from plait.write.rules import source_spec
from plait.write.writer import Writer


def write_once(
    make: Callable[[Order], Writer], order: Order, spec: TableSpec, data: object
) -> CommitResult:
    """Write data in one commit.

    An Arrow table is checked first, and its partitions are then known at begin, which saves a
    record; a stream is checked batch by batch as it comes.
    """
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        if order.operation is Operation.MERGE and order.clauses is not None:
            source = source_spec(spec, data.schema)
            Merging.bind(order.clauses, spec, source)
            spec = source
        checked = pa.Table.from_batches(
            list(prepare(data, spec, order.operation)),
            None if data.num_rows else data.schema,
        )
        data = checked if checked.num_rows else data
        order = replace(order, partitions=partitions_of(checked, spec) if checked.num_rows else ())
    with make(order) as writer:
        if data is not None:
            writer.write(data)
    return writer.result
