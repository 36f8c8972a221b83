"""What a frame of a scan holds: every value, so that written back it is the table that was read."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pandas as pd
import pyarrow as pa
import pytest

from plait import Table
from plait.errors import BadRecordError, SchemaMismatchError
from plait.read.scan import Scan
from tests.support.build import make
from tests.support.extremes import LEAVES, WRAPS, column

_NAMES = itertools.count()
_FORMS: dict[str, Callable[[Scan], object]] = {
    "arrow": lambda scan: scan.to_arrow(),
    "reader": lambda scan: scan.to_reader(),
    "pandas": lambda scan: scan.to_pandas(),
    "polars": lambda scan: scan.to_polars(),
    "duckdb": lambda scan: scan.to_duckdb(),
    "pylist": lambda scan: pa.Table.from_pylist(scan.to_arrow().to_pylist(), schema=scan.schema),
}


def _spelled(rows: pa.Table) -> list[str]:
    """Return values as texts: NaN is NaN, a zero keeps its sign, and no date is too late."""
    return sorted(str(rows.slice(at, 1).to_struct_array().chunk(0)) for at in range(len(rows)))


@pytest.mark.long(15)
@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("leaf", LEAVES)
def test_what_is_read_is_written_back_unchanged_in_every_form(leaf: str, wrap: str) -> None:
    ddl, values = column(leaf, wrap)
    uri = f"memory://frames-{next(_NAMES)}"
    table = Table.create(uri, f"id bigint not null, c {ddl}")
    table.append(pa.table({"id": list(range(len(values))), "c": values}))
    expected = _spelled(table.scan().to_arrow())
    for name, read in _FORMS.items():
        if name == "pylist" and (leaf in ("date", "timestamp", "timestamp_ntz")):
            continue  # Python has not all of these
        copy = Table.create(f"{uri}-{name}", f"id bigint not null, c {ddl}")
        copy.append(read(table.scan()))
        assert _spelled(copy.scan().to_arrow()) == expected, name


def test_the_types_of_a_pandas_frame_follow_from_the_columns_alone() -> None:
    ddl = "a bigint not null, b bigint, c boolean, d float, e array<bigint>, f date, g timestamp"
    table = make(ddl, record_key=())
    empty = table.scan().to_pandas().dtypes
    row = dict.fromkeys(table.schema.names) | {"a": 1}
    table.append(pa.Table.from_pylist([row], schema=table.scan().schema))
    found = table.scan().to_pandas().dtypes
    assert found.equals(empty)
    assert [str(found[name]) for name in "abcd"] == ["Int64", "Int64", "boolean", "Float32"]


def test_a_pandas_frame_that_arrow_cannot_take_is_refused() -> None:
    table = make("a bigint", record_key=())
    for frame in (
        pd.DataFrame([[1, 2]], columns=["a", "a"]),
        pd.DataFrame({"a": [1 << 70, 1]}),
        pd.DataFrame({"a": pd.arrays.SparseArray([1, 0])}),
        pd.DataFrame({"a": [1 + 2j]}),
    ):
        with pytest.raises((BadRecordError, SchemaMismatchError)) as told:
            table.append(frame)
        assert len(frame.columns) == 1 or told.value.column == "a"


def test_an_empty_pandas_frame_fits_columns_of_every_type() -> None:
    table = make("a bigint, s string, l array<int>", record_key=())
    table.append(pd.DataFrame({"a": [], "s": [], "l": []}))
    assert table.scan().count() == 0
