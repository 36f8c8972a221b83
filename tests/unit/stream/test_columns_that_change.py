"""A table gets other columns while its streams run (RFC 0027)."""

from __future__ import annotations

import pyarrow as pa
import pytest

from plait import PlanStaleError
from tests.unit.stream.conftest import Make


def test_rows_that_were_made_for_other_columns_are_refused_and_nothing_is_lost(
    make: Make,
) -> None:
    """INV-04: a source reads them again, with the columns of the turn."""
    group = make("w")
    writer = group.writers["w"]
    before = writer.spec
    assert before is not None
    group.table.alter.columns().add("later", "string").commit()
    for _ in range(3):  # the turn of the older columns ends
        group.epoch()
        group.pump()
    spec = writer.spec
    assert spec is not None
    assert spec.schema.names == [*before.schema.names, "later"]
    row = dict.fromkeys(before.schema.names) | {"id": 1}
    made = pa.Table.from_pylist([row], schema=before.schema.arrow)
    at = writer.offset("w")
    with pytest.raises(PlanStaleError, match="make the rows again"):
        writer.write(made, source="w", start=at, end="1", schema_id=before.schema.id)
    assert writer.offset("w") == at
    again = pa.Table.from_pylist([row | {"later": "kept"}], schema=spec.schema.arrow)
    writer.write(again, source="w", start=at, end="1", schema_id=spec.schema.id)
    group.epoch()
    assert group.table.scan(["later"]).to_arrow()["later"].to_pylist() == ["kept"]
