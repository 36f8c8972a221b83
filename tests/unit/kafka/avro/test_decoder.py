"""Avro values that are odd, hostile or of several schemas."""

from __future__ import annotations

import io
import json
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest

from plait.errors import OptionError
from plait.kafka.records.avro.decoder import AvroDecoder
from plait.kafka.records.avro.schema import Node, parse_schema
from plait.kafka.records.decode import Decoded
from tests.support.records import column, places, read, spec_of


def record(*fields: tuple[str, object], name: str = "R") -> dict[str, object]:
    listed = [{"name": each, "type": kind} for each, kind in fields]
    return {"type": "record", "name": name, "fields": listed}


def written(schema: object, row: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


def number(value: int) -> bytes:
    """Return a number as Avro writes it."""
    raw = ((value << 1) ^ (value >> 63)) & (2**64 - 1)
    body = b""
    while raw > 0x7F:
        body += bytes([raw & 0x7F | 0x80])
        raw >>= 7
    return body + bytes([raw])


class Known:
    """Schemas by their numbers, from 1."""

    def __init__(self, *schemas: object) -> None:
        self._nodes = [parse_schema(json.dumps(each)) for each in schemas]

    def find(self, number: int) -> Node | str:
        known = 0 < number <= len(self._nodes)
        return self._nodes[number - 1] if known else f"no schema {number}"


def header(number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big")


def decode(schema: object, ddl: dict[str, pa.DataType], *values: bytes) -> Decoded:
    found = AvroDecoder(pa.schema(ddl), parse_schema(json.dumps(schema))).decode(values)
    found.rows.validate(full=True)
    return found


LONG = {"a": pa.int64()}
HOSTILE = [
    ("string", pa.string(), number(1 << 40) + b"x"),
    ("string", pa.string(), number(-5) + b"x"),
    ("string", pa.string(), number(2) + b"\xff\xfe"),
    ("int", pa.int32(), number(1 << 31)),
    ("int", pa.int8(), number(128)),
    ("long", pa.int64(), b"\xff" * 9 + b"\x02"),
    ("long", pa.int64(), b"\xff" * 10 + b"\x01"),
    ("long", pa.int64(), b"\x80"),
    ("long", pa.float64(), number(2**53 + 1)),
    ("double", pa.int64(), b"\0\0\0\0\0\0\xe0\x3f"),
    ("double", pa.float32(), b"\x9a\x99\x99\x99\x99\x99\xb9\x3f"),
    ("boolean", pa.bool_(), b"\x02"),
    (["null", "long"], pa.int64(), number(2)),
    (["null", "long"], pa.int64(), number(-1)),
    (["boolean", "string", "long"], pa.int64(), number(1) + number(1) + b"7"),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.string(), number(1)),
    ({"type": "array", "items": "null"}, pa.list_(pa.int8()), number(1 << 40) + number(0)),
    ({"type": "array", "items": "null"}, pa.list_(pa.int8()), number(9_999) * 400 + b"\0"),
    ({"type": "array", "items": "int"}, pa.list_(pa.int32()), number(1 << 40) + b"\0"),
    ({"type": "array", "items": "int"}, pa.list_(pa.int32()), number(-(2**63)) + b"\0\0"),
    ({"type": "array", "items": "int"}, pa.list_(pa.int32()), number(1) + number(1)),
    ({"type": "map", "values": "int"}, pa.map_(pa.string(), pa.int32()), number(1) + b"\2\xff\0\0"),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1},
        pa.decimal128(4, 1),
        number(2) + b"\x27\x10",
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1},
        pa.decimal128(4, 1),
        number(17) + b"\1" + bytes(16),
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1},
        pa.decimal128(4, 1),
        number(0),
    ),
    ({"type": "long", "logicalType": "timestamp-nanos"}, pa.timestamp("us", "UTC"), number(1)),
    (
        {"type": "long", "logicalType": "timestamp-millis"},
        pa.timestamp("us", "UTC"),
        number(2**62),
    ),
]


@pytest.mark.parametrize(("kind", "arrow", "value"), HOSTILE, ids=str)
def test_bytes_that_are_no_value_of_the_column_are_a_dead_letter_among_good_ones(
    kind: object, arrow: pa.DataType, value: bytes
) -> None:
    schema = record(("b", ["null", kind]), ("c", "long"))
    good = written(schema, {"b": None, "c": 7})
    bad = number(1) + value + number(7)
    found = decode(schema, {"b": arrow, "c": pa.int64()}, good, bad, good)
    assert [each.at for each in found.bad] == [1]
    assert found.bad[0].reason
    assert found.rows.to_pylist() == [{"b": None, "c": 7}] * 2


def test_a_value_with_bytes_left_over_has_another_schema_and_is_a_dead_letter() -> None:
    found = decode(record(("a", "long")), LONG, number(1) + b"\0", number(2), b"", number(3))
    assert ([each.at for each in found.bad], found.rows["a"].to_pylist()) == ([0, 2], [2, 3])


def test_every_record_is_read_by_the_schema_that_it_names() -> None:
    old = record(("a", "int"), ("gone", {"type": "array", "items": "string"}))
    new = record(("b", ["null", "string"]), ("a", "long"), name="Other")
    other = record(("x", "long"))
    values = [
        header(1) + written(old, {"a": 1, "gone": ["x", "y"]}),
        header(2) + written(new, {"a": 2, "b": "two"}),
        header(7) + b"\2",
        header(1) + written(old, {"a": 3, "gone": []}),
        b"\1" + header(1)[1:] + b"\2",
        b"",
        header(1)[:4],
        header(3) + written(other, {"x": 1}),
        header(2) + written(new, {"a": 4, "b": None}),
        header(2),
    ]
    columns = pa.schema([("a", pa.int64()), ("b", pa.string())])
    found = AvroDecoder(columns, Known(old, new, other)).decode(values)
    assert [each.at for each in found.bad] == [2, 4, 5, 6, 7, 9]
    assert found.rows["a"].to_pylist() == [1, 2, 3, 4]
    assert found.rows["b"].to_pylist() == [None, "two", None, None]


def test_a_schema_that_holds_itself_is_passed_over_and_its_depth_is_limited() -> None:
    schema = record(("next", ["null", "R"]), ("a", "long"))
    rows = [{"next": None, "a": 1}, {"next": {"next": None, "a": 2}, "a": 3}]
    deep = number(1) * 1_000 + number(0) + number(5) * 1_001
    values = [*(written(schema, row) for row in rows), deep]
    found = decode(schema, LONG, *values)
    assert [each.at for each in found.bad] == [2]
    assert found.rows["a"].to_pylist() == [1, 3]
    kind = pa.struct([("a", pa.int64())])
    found = decode(schema, {"next": kind, "a": pa.int64()}, *values[:2])
    assert found.rows["next"].to_pylist() == [None, {"a": 2}]


def test_lists_in_several_blocks_with_their_sizes_are_one_list() -> None:
    schema = record(("l", {"type": "array", "items": "int"}), ("a", "long"))
    sized = number(-2) + number(2) + number(1) + number(2)
    value = sized + number(1) + number(3) + number(0) + number(9)
    found = decode(schema, {"l": pa.list_(pa.int32()), "a": pa.int64()}, value, value)
    assert found.rows.to_pylist() == [{"l": [1, 2, 3], "a": 9}] * 2
    assert decode(schema, LONG, value).rows["a"].to_pylist() == [9]


def test_a_schema_that_no_value_of_fits_is_refused_where_it_is_the_only_one() -> None:
    wrong = [
        record(("a", "string")),
        record(("A", "long")),
        record(("a", ["null", {"type": "array", "items": "long"}])),
        {"type": "array", "items": "long"},
        "long",
    ]
    for schema in wrong:
        with pytest.raises(OptionError):
            decode(schema, {**LONG, "b": pa.int64()})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "{}",
        '"none"',
        '{"type": "record", "name": "R"}',
        '{"type": "record", "name": "R", "fields": [{"name": "a"}]}',
        '{"type": "fixed", "name": "F", "size": -1}',
        '{"type": "enum", "name": "E", "symbols": [1]}',
        '{"type": ' * 100 + '"int"' + "}" * 100,
        "[" * 100_000,
    ],
)
def test_a_text_that_is_no_schema_is_an_error_of_one_kind(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_schema(text)


def test_names_are_found_in_their_namespaces() -> None:
    inner = {"type": "fixed", "name": "F", "size": 1}
    schema = {**record(("x", inner), ("y", "F"), ("z", "a.b.F")), "namespace": "a.b"}
    found = decode(schema, {"x": pa.binary(), "y": pa.binary(), "z": pa.binary()}, b"123")
    assert found.rows.to_pylist() == [{"x": b"1", "y": b"2", "z": b"3"}]


def test_a_file_names_the_schema_of_values_that_name_none(tmp_path: Path) -> None:
    schema = record(("id", "int"), ("day", {"type": "int", "logicalType": "date"}))
    place = tmp_path / "events.avsc"
    place.write_text(json.dumps(schema))
    spec = spec_of("id bigint, day date", "id")
    changes = read(
        spec,
        (written(schema, {"id": 5, "day": 3}),),
        (b"\0",),
        (None, 7),
        format="avro",
        schema_file=str(place),
    )
    assert (places(changes), column(changes, "id")) == ([1], [5])
    assert str(column(changes, "day")[0]) == "1970-01-04"
    for text in ("{", json.dumps(record(("x", "int")))):
        place.write_text(text)
        with pytest.raises(OptionError):
            read(spec, format="avro", schema_file=str(place))
    with pytest.raises(OptionError):
        read(spec, format="avro", schema_file=str(tmp_path / "none"))


@pytest.mark.parametrize(
    "settings",
    [
        {"format": "avro"},
        {"format": "csv"},
        {"key_format": "avro"},
        {"key_format": "avro", "format": "avro", "schema_file": "x"},
        {"format": "avro", "registry": "http://x", "schema_file": "x"},
        {"registry": "http://x"},
        {"schema_file": "x"},
        {"format": "avro", "registry": "x"},
        {"format": "avro", "registry": "ftp://x"},
        {"format": "avro", "registry": ","},
        {"format": "avro", "registry": "http://x", "registry_client": {"basic.auth": "a"}},
        {"format": "avro", "registry": "https://x", "registry_client": {"ssl.ca.location": "/-"}},
    ],
    ids=str,
)
def test_settings_that_name_no_schemas_or_two_ways_to_them_are_refused(
    settings: dict[str, object],
) -> None:
    with pytest.raises(OptionError):
        read(spec_of("a bigint"), **settings)


def test_long_lists_of_few_records_and_short_ones_of_many_are_the_same() -> None:
    inner = record(("x", "long"), ("y", ["null", "string"]), name="Inner")
    schema = record(
        ("l", {"type": "array", "items": inner}),
        ("m", {"type": "map", "values": {"type": "array", "items": "boolean"}}),
        ("gone", {"type": "array", "items": ["null", "Inner"]}),
        ("a", "long"),
    )
    rows = [
        {
            "l": [{"x": at * 1_000, "y": "text" if at % 3 else None} for at in range(count)],
            "m": {str(at): [True] * (at % 5) for at in range(count)},
            "gone": [None, {"x": at, "y": "-"}] * count,
            "a": at,
        }
        for at, count in enumerate([0, 5_000, *([1, 2, 0] * 40), 300])
    ]
    kind = pa.struct([("x", pa.int64()), ("y", pa.string())])
    columns = {
        "l": pa.list_(kind),
        "m": pa.map_(pa.string(), pa.list_(pa.bool_())),
        "a": pa.int64(),
    }
    values = [written(schema, row) for row in rows]
    bad = len(values) - 1
    values[bad] = values[bad][:-1]
    found = decode(schema, columns, *values)
    assert [each.at for each in found.bad] == [bad]
    kept = found.rows.to_pylist()
    assert [{**row, "m": dict(row["m"])} for row in kept] == [
        {key: row[key] for key in columns} for row in rows[:bad]
    ]


def test_an_item_that_does_not_fit_refuses_its_record_alone() -> None:
    schema = record(("l", {"type": "array", "items": "long"}))
    rows = [{"l": [1, 2, 3, 4]}, {"l": [1, 2, 3, 300]}, {"l": [5]}]
    values = [written(schema, row) for row in rows]
    found = decode(schema, {"l": pa.list_(pa.int8())}, *values)
    assert ([each.at for each in found.bad], found.rows.to_pylist()) == ([1], [rows[0], rows[2]])
