"""The actions of a Delta log say what engines read, and never less than the bounds (INV-17)."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from plait.interop.delta_actions import DeltaSchema, add_action, protocol, remove_action, z85
from plait.model.schema import Schema

KINDS = {
    "tiny": pa.int8(),
    "single": pa.float32(),
    "real": pa.float64(),
    "money": pa.decimal128(15, 2),
    "wide": pa.decimal128(16, 2),
    "text": pa.string(),
    "raw": pa.binary(),
    "flag": pa.bool_(),
    "day": pa.date32(),
    "at": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"),
}
SCHEMA = Schema.create(pa.schema([pa.field(name, kind) for name, kind in KINDS.items()]))


def file(column: str, lower: str | None, upper: str | None, **others: object) -> dict[str, object]:
    """Return a live file with the bounds of one column."""
    number = str(SCHEMA.ids[column])
    stats = json.dumps({number: [lower, upper, 1]})
    place = {"path": "data/a~b.parquet", "bytes": 9, "schema_id": 0, "rows": 5, "stats": stats}
    return {**place, "masked": 0, "inline": None, "dv_path": None, **others}


def told(column: str, lower: str | None, upper: str | None, **others: object) -> dict[str, object]:
    action = add_action(file(column, lower, upper, **others), {0: SCHEMA})["add"]
    assert isinstance(action, dict)
    found = json.loads(action["stats"])
    return {key: found.get(key, {}).get(column) for key in ("minValues", "maxValues", "nullCount")}


@pytest.mark.parametrize(
    ("column", "lower", "upper", "least", "most"),
    [
        ("tiny", "-3", "7", -3, 7),
        ("real", "-0.0", "1e+300", -0.0, 1e300),
        ("real", "-inf", "inf", None, None),
        ("single", "0.1", "0.1", 0.10000000149011612, 0.10000000149011612),
        ("money", "-1.50", "2.25", -1.5, 2.25),
        ("wide", "-1.50", "2.25", None, None),
        ("text", "a", "é", "a", "é"),
        ("text", "a", None, "a", None),
        ("raw", "00", "ff", None, None),
        ("flag", "false", "true", None, None),
        ("day", "0001-01-01", "9999-12-31", "0001-01-01", "9999-12-31"),
        ("day", "-221-01-01", "10000-01-01", None, None),
        (
            *("at", "2026-01-01T00:00:00.000999Z", "2026-01-01T00:00:00.000001Z"),
            *("2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00.001Z"),
        ),
        (
            *("local", "2026-01-01T00:00:00.123456", "2026-12-31T23:59:59.999001"),
            *("2026-01-01T00:00:00.123", "2027-01-01T00:00:00.000"),
        ),
        ("at", "NaT", "9999-12-31T23:59:59.999999Z", None, None),
    ],
)
def test_a_bound_is_as_wide_as_the_values_or_left_out(
    column: str, lower: str, upper: str | None, least: object, most: object
) -> None:
    assert told(column, lower, upper) == {"minValues": least, "maxValues": most, "nullCount": 1}


def test_a_file_with_hidden_rows_has_bounds_that_are_not_tight() -> None:
    shown = add_action(file("tiny", "1", "2", masked=2, inline=b"1234"), {0: SCHEMA})["add"]
    assert isinstance(shown, dict)
    assert json.loads(shown["stats"])["tightBounds"] is False
    assert "tightBounds" not in str(add_action(file("tiny", "1", "2"), {0: SCHEMA}))
    vector = {"storageType": "i", "pathOrInlineDv": z85(b"1234"), "sizeInBytes": 4}
    assert shown["deletionVector"] == {**vector, "cardinality": 2}


def test_a_file_is_taken_away_under_the_identity_that_it_was_shown_under() -> None:
    masked = file("tiny", "1", "2", masked=2, dv_path="data/x.dv.bin", dv_offset=1, dv_bytes=40)
    shown, gone = add_action(masked, {0: SCHEMA})["add"], remove_action(masked)["remove"]
    assert isinstance(shown, dict)
    assert isinstance(gone, dict)
    assert shown["path"] == gone["path"] == "data/a~b.parquet"
    assert shown["deletionVector"] == gone["deletionVector"]
    assert shown["deletionVector"]["storageType"] == "u"


@pytest.mark.parametrize(
    ("features", "reader"), [((), 1), (("invariants",), 1), (("deletionVectors",), 3)]
)
def test_readers_need_no_more_than_the_features_that_are_theirs(
    features: tuple[str, ...], reader: int
) -> None:
    said = protocol(features)["protocol"]
    assert isinstance(said, dict)
    assert (said["minReaderVersion"], said["minWriterVersion"]) == (reader, 7)
    assert said.get("readerFeatures", []) == [each for each in features if reader > 1]
    assert {"plait", "inCommitTimestamp", *features} == set(said["writerFeatures"])


def test_every_type_of_a_column_has_a_name() -> None:
    nested = pa.struct([pa.field("x", pa.map_(pa.string(), pa.list_(pa.int16())), nullable=False)])
    schema = Schema.create(pa.schema([*SCHEMA.arrow, pa.field("deep", nested)]))
    fields = {each["name"]: each for each in json.loads(DeltaSchema(schema).text(()))["fields"]}
    assert fields["wide"]["type"] == "decimal(16,2)"
    assert fields["local"]["type"] == "timestamp_ntz"
    inner = fields["deep"]["type"]["fields"][0]
    assert (inner["nullable"], inner["type"]["valueType"]["elementType"]) == (False, "short")
