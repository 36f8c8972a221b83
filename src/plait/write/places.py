"""Which partitions rows belong to, for a pending record that names them from the start."""

from __future__ import annotations

import pyarrow as pa

from plait.model.bucket import Partition
from plait.model.plan import TableSpec
from plait.model.value import texts_of


def partitions_of(rows: pa.Table, spec: TableSpec) -> tuple[Partition, ...]:
    """Give the partitions of rows that have the partition columns; () if they lack one."""
    if not spec.partition_by or not set(spec.partition_by) <= set(rows.column_names):
        return ()
    distinct = rows.select(list(spec.partition_by)).group_by(list(spec.partition_by)).aggregate([])
    columns = [texts_of(distinct[name]) for name in spec.partition_by]
    return tuple(zip(*columns, strict=True))
