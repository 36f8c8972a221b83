"""Columns of old files, fitted to a newer schema by field ids at every depth."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pytest

from plait.errors import SchemaMismatchError
from plait.files.reader import fitted
from plait.model.schema import FIELD_ID


def field(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={FIELD_ID: str(number).encode()})


def struct(*fields: pa.Field) -> pa.DataType:
    return pa.struct(list(fields))


NOON = dt.datetime.fromisoformat("2020-01-02T12:00:00")
OLD = struct(field("a", pa.int32(), 3), field("b", pa.string(), 4))
NEW = struct(field("B", pa.string(), 4), field("a", pa.int64(), 3), field("c", pa.date32(), 9))
ROWS = [{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}]
FITTED = [{"B": "x", "a": 1, "c": None}, None, {"B": "y", "a": None, "c": None}]


@pytest.mark.parametrize("start", [0, 1, 2])
def test_fields_of_structs_are_renamed_added_widened_and_reordered(start: int) -> None:
    array = pa.array(ROWS, OLD).slice(start)
    found = fitted(array, field("s", OLD, 1), field("s", NEW, 1))
    found.validate(full=True)
    assert found.to_pylist() == FITTED[start:]


@pytest.mark.parametrize("start", [0, 1, 2])
def test_structs_inside_lists_and_maps_are_fitted_too(start: int) -> None:
    old = pa.list_(field("element", OLD, 2))
    new = pa.list_(field("element", NEW, 2))
    array = pa.array([ROWS, None, [], ROWS[:1]], old).slice(start)
    found = fitted(array, field("l", old, 1), field("l", new, 1))
    found.validate(full=True)
    assert found.to_pylist() == [FITTED, None, [], FITTED[:1]][start:]

    key = pa.field("key", pa.string(), nullable=False, metadata={FIELD_ID: b"5"})
    old, new = pa.map_(key, field("value", OLD, 6)), pa.map_(key, field("value", NEW, 6))
    array = pa.array([[("k", ROWS[0])], None, [], [("m", None)]], old).slice(start)
    found = fitted(array, field("m", old, 1), field("m", new, 1))
    found.validate(full=True)
    assert found.to_pylist() == [[("k", FITTED[0])], None, [], [("m", None)]][start:]


def test_field_that_was_dropped_and_made_anew_under_its_name_is_another_field() -> None:
    old, new = struct(field("a", pa.int32(), 3)), struct(field("a", pa.int32(), 8))
    found = fitted(pa.array([{"a": 1}], old), field("s", old, 1), field("s", new, 1))
    assert found.to_pylist() == [{"a": None}]


NARROWED = [
    (pa.int64(), pa.int32(), 5, 2**40),
    (pa.float64(), pa.float32(), 0.5, 0.1),
    (pa.float64(), pa.float32(), math.nan, 1e300),
    (pa.timestamp("us"), pa.date32(), dt.date(2020, 1, 2), NOON),
    (pa.decimal128(6, 3), pa.decimal128(4, 2), Decimal("1.230"), Decimal("1.234")),
]


@pytest.mark.parametrize(("wide", "narrow", "fits", "lost"), NARROWED)
def test_a_value_that_a_narrower_type_would_alter_is_refused(
    wide: pa.DataType, narrow: pa.DataType, fits: object, lost: object
) -> None:
    """INV-04: a cast alone rounds doubles and cuts times."""
    stored, wanted = field("a", wide, 1), field("a", narrow, 1)
    known = pa.array([fits, None], narrow)
    whole = fitted(known.cast(wide), stored, wanted)
    assert (whole.type, str(whole)) == (narrow, str(known))
    with pytest.raises(SchemaMismatchError, match="column 'a' has values of"):
        fitted(pa.array([None, lost], wide), stored, wanted)
