"""A repush over a restore that gave the columns narrower types (RFC 0025, RFC 0027)."""

from __future__ import annotations

import datetime as dt
import itertools

import pyarrow as pa
import pytest

from plait import RepushRefusedError, Table
from plait.model.schema import type_name

_NAMES = itertools.count()
WIDER = {
    "int": (pa.int32(), 5, pa.int64(), 2**40),
    "date": (pa.date32(), dt.date(2026, 1, 1), pa.timestamp("us"), dt.datetime(2026, 1, 1, 5)),  # noqa: DTZ001 - of no zone
    "float": (pa.float32(), 0.5, pa.float64(), 0.1),
}


def _narrow_again(kind: str) -> tuple[Table, int, int]:
    """Make a table that had wider values; return it with their version and that of its source."""
    narrow, small, wide, large = WIDER[kind]
    data = pa.table({"k": [1, 2, 3], "c": pa.array([small] * 3, narrow)})
    uris = [f"memory://narrow-{next(_NAMES)}" for _ in range(2)]
    table, source = (Table.create(uri, data.schema, record_key="k") for uri in uris)
    table.upsert(data.slice(0, 2))
    source.upsert(data)
    swapped = table.layout.repush(source=uris[1], buckets=2).version
    table.alter.columns().widen("c", type_name(wide)).commit()
    large_rows = pa.table({"k": [2, 4], "c": pa.array([large] * 2, wide)})
    version = table.upsert(large_rows).version
    table.upsert(pa.table({"k": [5], "c": pa.array([small], narrow)}))
    table.versions.restore(version=swapped)
    table.upsert(pa.table({"k": [6], "c": pa.array([small], narrow)}))
    return table, version, swapped


@pytest.mark.parametrize("kind", WIDER)
def test_an_undo_leads_over_values_that_a_restore_took_back(kind: str) -> None:
    """Its columns have no such values any more, and need none; a version that has is refused."""
    table, version, swapped = _narrow_again(kind)
    with pytest.raises(RepushRefusedError, match="'c'"):
        table.layout.repush(source=version)
    table.layout.cancel()
    assert table.scan().count() == 4
    table.layout.undo(swapped)
    found = table.scan().to_arrow()
    assert sorted(found["k"].to_pylist()) == [1, 2, 6]
    assert found["c"].to_pylist() == [WIDER[kind][1]] * 3
    assert not table.check.verify(data=True).problems
