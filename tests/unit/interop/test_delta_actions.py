"""The actions of a Delta log say what engines read, and never less than the bounds (INV-17)."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from plait.interop.delta_actions import (
    DeltaSchema,
    add_action,
    protocol,
    remove_action,
    table_action,
    z85,
)
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
    "fine": pa.decimal128(15, 5),
}
FIELD_9 = {"PARQUET:field_id": "9"}
SCHEMA = Schema.create(pa.schema([pa.field(name, kind) for name, kind in KINDS.items()]))


ONE = {name: Schema.create(pa.schema([pa.field(name, kind)])) for name, kind in KINDS.items()}


def file(column: str, lower: str | None, upper: str | None, **others: object) -> dict[str, object]:
    """Return a live file of one column, with its bounds."""
    number = str(ONE[column].ids[column])
    stats = json.dumps({number: [lower, upper, 1]})
    place = {"path": "data/a~b.parquet", "bytes": 9, "schema_id": 0, "rows": 5, "stats": stats}
    return {**place, "masked": 0, "inline": None, "dv_path": None, **others}


def told(column: str, lower: str | None, upper: str | None, **others: object) -> dict[str, object]:
    action = add_action(file(column, lower, upper, **others), {0: ONE[column]})["add"]
    assert isinstance(action, dict)
    found = json.loads(action["stats"])
    return {key: found.get(key, {}).get(column) for key in ("minValues", "maxValues", "nullCount")}


@pytest.mark.parametrize(
    ("column", "lower", "upper", "least", "most"),
    [
        ("tiny", "-3", "7", -3, 7),
        ("real", "-0.0", "1e+300", -0.0, 1e300),
        ("real", "-inf", "inf", None, None),
        ("real", "1.0", "nan", None, None),
        ("single", "0.1", "0.1", 0.10000000149011612, 0.10000000149011612),
        ("money", "-1.50", "2.25", -1.5, 2.25),
        ("wide", "-1.50", "2.25", None, None),
        ("text", "a", "é", "a", "é"),
        ("text", "a", None, None, None),
        ("fine", "0.00001", "0.00012", 0.0, 0.0002),
        ("fine", "-0.00012", "-0.00001", -0.0002, 0.0),
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
    count = None if least is None else 1
    assert told(column, lower, upper) == {"minValues": least, "maxValues": most, "nullCount": count}


def test_a_file_has_the_bounds_of_every_column_that_has_any_or_of_none() -> None:
    """deltalake leaves a file out if it lacks a bound of a column that the log has bounds of."""
    two = Schema.create(pa.schema([("a", pa.int64()), ("x", pa.float64()), ("b", pa.bool_())]))
    ids = two.ids

    def stats(**bounds: list[object]) -> dict[str, object]:
        entries = json.dumps({str(ids[name]): entry for name, entry in bounds.items()})
        action = add_action({**file("tiny", "1", "2"), "stats": entries}, {0: two})["add"]
        assert isinstance(action, dict)
        found: dict[str, object] = json.loads(action["stats"])
        return found

    whole = stats(a=["1", "2", 0], x=["0.5", "0.5", 1], b=["false", "true", 0])
    assert whole["minValues"] == {"a": 1, "x": 0.5}
    assert whole["nullCount"] == {"a": 0, "x": 1}
    assert stats(a=["1", "2", 0], x=[None, None, 5])["nullCount"] == {"a": 0, "x": 5}
    assert stats(a=["1", "2", 0], x=["0.5", None, 0]) == {"numRecords": 5}
    assert stats(a=["1", "2", 0]) == {"numRecords": 5}


def test_the_log_names_bounds_of_columns_that_every_file_may_have() -> None:
    first = Schema.create(pa.schema([("a`b", pa.int64()), ("flag", pa.bool_())]))
    later = Schema(1, first.arrow.append(pa.field("late", pa.int64(), metadata=FIELD_9)))

    def configured(schemas: dict[int, Schema]) -> dict[str, str]:
        schema = DeltaSchema.of(schemas, max(schemas))
        said = table_action("id", schema, (), start=0, start_ms=0)["metaData"]
        assert isinstance(said, dict)
        return {key: value for key, value in said["configuration"].items() if "kipping" in key}

    assert configured({0: first, 1: later}) == {"delta.dataSkippingStatsColumns": "`a``b`"}
    assert configured({0: ONE["flag"]}) == {"delta.dataSkippingNumIndexedCols": "0"}


def test_a_file_with_hidden_rows_has_bounds_that_are_not_tight() -> None:
    shown = add_action(file("tiny", "1", "2", masked=2, inline=b"1234"), {0: ONE["tiny"]})["add"]
    assert isinstance(shown, dict)
    assert json.loads(shown["stats"])["tightBounds"] is False
    assert "tightBounds" not in str(add_action(file("tiny", "1", "2"), {0: ONE["tiny"]}))
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
