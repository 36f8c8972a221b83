"""The bounds that manifests say hold every value of a file (INV-17)."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from plait.interop.iceberg_files import data_entry
from plait.model.schema import Schema

SCHEMA = Schema.create(pa.schema([pa.field("money", pa.decimal128(38, 10))]))


@pytest.mark.parametrize(
    "text",
    [
        "1234567890123456789012345678.9012345678",
        "-1234567890123456789012345678.9012345678",
        "9999999999999999999999999999.9999999999",
        "-0.0000000001",
        "0.0000000128",
    ],
)
def test_bounds_of_decimals_keep_all_their_digits(text: str) -> None:
    """INV-17: rounded, a bound leaves out the value it was taken from, and engines skip its row."""
    number = SCHEMA.ids["money"]
    stats = json.dumps({str(number): [text, text, 0]})
    file = {"path": "data/a~b.parquet", "bytes": 9, "schema_id": 0, "rows": 1, "version": 1}
    said = data_entry({**file, "stats": stats}, "file:///t", {0: SCHEMA}, SCHEMA)["data_file"]
    assert isinstance(said, dict)
    for side in ("lower_bounds", "upper_bounds"):
        found = int.from_bytes(said[side][0]["value"], "big", signed=True)
        assert found == int(text.replace(".", ""))
