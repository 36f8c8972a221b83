"""The rows of the table machine: a key, a value, and a day that says whether a row has expired."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa

from plait.read.scan import Scan

Rows = dict[int, int]
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("day", pa.date32())])
OVER, FAR = dt.date(2001, 1, 1), dt.date(2901, 1, 1)
EXPIRED = {5, 6}


def rows(keys: set[int], value: int) -> pa.Table:
    ids = sorted(keys)
    days = [OVER if number in EXPIRED else FAR for number in ids]
    return pa.table({"id": ids, "v": [value] * len(ids), "day": days}, schema=SCHEMA)


def content_of(scan: Scan) -> Rows:
    """Read a scan as the machine knows rows."""
    table = scan.to_arrow()
    found = dict(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True))
    assert len(found) == table.num_rows, "INV-08"
    return found
