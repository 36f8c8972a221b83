"""Writers open no file whose bounds have none of the keys that came in, and miss none that has."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pytest

from plait import Table, Update
from plait.testing import CountingStore, open_wrapped
from tests.support.memory import forget

FILES, EACH = 12, 5
LONG = "x" * 300
Make = Callable[[int], object]
KINDS: dict[str, tuple[pa.DataType, Make]] = {
    "integers": (pa.int64(), lambda n: n),
    "texts": (pa.string(), lambda n: f"key {n:04}"),
    "texts that are alike for long": (pa.string(), lambda n: f"{LONG}{n:04}"),
    "bytes that are alike for long": (pa.binary(), lambda n: f"{LONG}{n:04}".encode()),
    "decimals": (pa.decimal128(20, 3), lambda n: Decimal(n) / 8),
    "dates": (pa.date32(), lambda n: dt.date(1969, 12, 1) + dt.timedelta(n)),
    "times": (
        pa.timestamp("us", "UTC"),
        lambda n: dt.datetime(1969, 12, 31, tzinfo=dt.UTC) + dt.timedelta(hours=n),
    ),
}


def filled(kind: pa.DataType, make: Make, table_type: str) -> str:
    uri = "memory://files-apart"
    forget(uri)
    schema = pa.schema([("k", kind), ("v", pa.int64())])
    table = Table.create(uri, schema, record_key="k", buckets=1, table_type=table_type)
    for file in range(FILES):
        keys = [make(file * EACH + at) for at in range(EACH)]
        with table.writer("upsert") as writer:
            writer.write(pa.table([pa.array(keys, kind), pa.array([0] * EACH)], schema=schema))
    return uri


@pytest.mark.long(7)
@pytest.mark.parametrize("operation", ["upsert", "delete", "merge"])
@pytest.mark.parametrize("name", KINDS)
def test_rows_are_found_in_the_files_that_may_have_them_and_no_other_is_opened(
    name: str, operation: str
) -> None:
    """INV-04: a row is replaced wherever it is; a file apart from all keys costs no call."""
    kind, make = KINDS[name]
    uri = filled(kind, make, "mor")
    table, store = open_wrapped(uri, CountingStore)
    table._handle.cache.refresh()
    store.reset()
    keys = pa.array([make(21), make(22)], kind)
    changed = pa.table([keys, [1, 1]], names=["k", "v"])
    if operation == "upsert":
        with table.writer("upsert") as writer:
            writer.write(changed)
    elif operation == "delete":
        table.delete(keys=changed.select(["k"]))
    else:
        table.merge(changed, matched=[Update()])
    opened = {call.path for call in store.calls if call.operation == "open_input"}
    found = table.scan().to_arrow().to_pydict()
    rows = dict(zip(found["k"], found["v"], strict=True))
    assert len(found["k"]) == len(rows) == FILES * EACH - 2 * (operation == "delete")
    assert [rows.get(each, 1) for each in keys.to_pylist()] == [1, 1]
    assert sum(rows.values()) == 2 * (operation != "delete")
    assert len(opened) <= (FILES + 2 if "alike" in name else 3), opened
