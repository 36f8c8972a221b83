"""A date becomes a time only if each row has a date that is one (RFC 0027)."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from plait import SchemaError
from tests.support.build import make

LAST = 106_751_991
"""Days from 1970 to the last day of which a timestamp in microseconds knows every moment."""
OFFSETS = pa.array([0, 1], pa.int32())
SHAPES: dict[str, tuple[str, str, Callable[[pa.Array], pa.Array]]] = {
    "column": ("date", "d", lambda days: days),
    "member": (
        "struct<x:date>",
        "d.x",
        lambda days: pa.StructArray.from_arrays([days], names=["x"]),
    ),
    "element": ("array<date>", "d.element", lambda days: pa.ListArray.from_arrays(OFFSETS, days)),
    "value": (
        "map<string,date>",
        "d.value",
        lambda days: pa.MapArray.from_arrays(OFFSETS, pa.array(["k"]), days),
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("day", "fits"), [(LAST, True), (LAST + 1, False), (-LAST - 3, False)])
def test_a_date_that_is_no_time_refuses_the_change(shape: str, day: int, fits: bool) -> None:
    """Every version stays readable, and the column can be corrected."""
    kind, path, put = SHAPES[shape]
    table = make(f"id bigint, d {kind}")
    days = pa.array([day], pa.int32()).cast(pa.date32())
    table.upsert(pa.table({"id": [1], "d": put(days)}))
    change = table.alter.columns().widen(path, "timestamp_ntz")
    if fits:
        change.commit()
    else:
        with pytest.raises(SchemaError, match="no timestamp"):
            change.commit()
    assert table.version == 1 + fits
    assert table.scan().to_arrow().num_rows == 1
    assert not table.check.verify(data=True).problems
