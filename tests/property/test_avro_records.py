"""Avro records, written by fastavro, come back equal; bad ones are told apart exactly."""

from __future__ import annotations

import datetime as dt
import io
from dataclasses import dataclass
from decimal import Decimal

import fastavro
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from plait.kafka.records.avro.decoder import AvroDecoder
from plait.kafka.records.avro.schema import parse_schema
from plait.kafka.records.decode import Decoded

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
MILLIS = st.datetimes(timezones=st.just(dt.UTC)).map(
    lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)
)


@dataclass(frozen=True)
class Case:
    """A type of Avro, the column that takes it, and its values."""

    avro: object
    arrow: pa.DataType
    values: st.SearchStrategy[object]


def logical(kind: str, name: str, **more: object) -> dict[str, object]:
    return {"type": kind, "logicalType": name, **more}


def decimals(digits: int, places: int) -> st.SearchStrategy[object]:
    most = 10**digits - 1
    return st.integers(-most, most).map(
        lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), -places))
    )


PLAIN = [
    Case("int", pa.int32(), INT32),
    Case("int", pa.int64(), INT32),
    Case("long", pa.int64(), INT64),
    Case("long", pa.decimal128(20, 0), INT64),
    Case("float", pa.float32(), st.floats(width=32)),
    Case("float", pa.float64(), st.floats(width=32)),
    Case("double", pa.float64(), st.floats()),
    Case("boolean", pa.bool_(), st.booleans()),
    Case("string", pa.string(), TEXT),
    Case("bytes", pa.binary(), st.binary(max_size=12)),
    Case(logical("string", "uuid"), pa.string(), st.uuids().map(str)),
    Case(logical("int", "date"), pa.date32(), st.dates()),
    Case(logical("int", "none-that-is-known"), pa.int32(), INT32),
    Case(logical("long", "timestamp-millis"), pa.timestamp("us", "UTC"), MILLIS),
    Case(
        logical("long", "timestamp-micros"),
        pa.timestamp("us", "UTC"),
        st.datetimes(timezones=st.just(dt.UTC)),
    ),
    Case(logical("long", "local-timestamp-micros"), pa.timestamp("us"), st.datetimes()),
    Case(
        logical("bytes", "decimal", precision=12, scale=3),
        pa.decimal128(12, 3),
        decimals(12, 3),
    ),
    Case(
        logical("bytes", "decimal", precision=38, scale=0),
        pa.decimal128(38, 0),
        decimals(38, 0),
    ),
]


@st.composite
def cases(draw: st.DrawFn, path: str = "r", depth: int = 0) -> Case:
    """Draw a type; named ones are named by their path, so that no name comes twice."""
    kind = draw(st.integers(0, 12 if depth < 3 else 8))
    if kind <= 5:
        return draw(st.sampled_from(PLAIN))
    if kind == 6:
        symbols = ["A", "B", "C"]
        avro = {"type": "enum", "name": f"E_{path}", "symbols": symbols}
        return Case(avro, pa.string(), st.sampled_from(symbols))
    if kind == 7:
        size = draw(st.sampled_from([0, 1, 5]))
        fixed = {"type": "fixed", "name": f"F_{path}", "size": size}
        return Case(fixed, pa.binary(), st.binary(min_size=size, max_size=size))
    if kind == 8:
        size = draw(st.sampled_from([5, 16, 20]))
        fixed = {"type": "fixed", "name": f"D_{path}", "size": size}
        fixed |= {"logicalType": "decimal", "precision": 9, "scale": 2}
        return Case(fixed, pa.decimal128(11, 2), decimals(9, 2))
    inner = draw(cases(f"{path}_i", depth + 1))
    if kind == 9:
        field = pa.field("element", inner.arrow)
        return Case(
            {"type": "array", "items": inner.avro},
            pa.list_(field),
            st.lists(inner.values, max_size=4),
        )
    if kind == 10:
        return Case(
            {"type": "map", "values": inner.avro},
            pa.map_(pa.string(), inner.arrow),
            st.dictionaries(TEXT, inner.values, max_size=3),
        )
    if kind == 11 and not isinstance(inner.avro, list):
        order = [inner.avro, "null"] if draw(st.booleans()) else ["null", inner.avro]
        return Case(order, inner.arrow, st.none() | inner.values)
    return draw(records(path, depth + 1))


@st.composite
def records(draw: st.DrawFn, path: str = "r", depth: int = 0) -> Case:
    """Draw a record: fields that are columns, others, and columns that are no field."""
    count = draw(st.integers(1, 4))
    fields = [draw(cases(f"{path}_{at}", depth)) for at in range(count)]
    names = [f"f{at}" for at in range(count)]
    avro = [{"name": name, "type": each.avro} for name, each in zip(names, fields, strict=True)]
    skipped = draw(st.sets(st.sampled_from(names), max_size=count - 1))
    arrow = [(n, each.arrow) for n, each in zip(names, fields, strict=True) if n not in skipped]
    if draw(st.booleans()):
        arrow.append(("more", pa.int64()))
    values = st.fixed_dictionaries(
        {name: each.values for name, each in zip(names, fields, strict=True)}
    )
    record = {"type": "record", "name": f"R_{path}", "fields": avro}
    return Case(record, pa.struct(arrow), values)


def written(avro: object, value: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(avro), value)
    return out.getvalue()


def as_table(value: object, kind: pa.DataType) -> object:
    """Return a value as the column has it, as a text where NaN may be in it."""
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {each.name: as_table(value.get(each.name), each.type) for each in kind.fields}
    if pa.types.is_map(kind) and value is not None:
        pairs = value.items() if isinstance(value, dict) else value
        return [(key, as_table(each, kind.item_type)) for key, each in pairs]
    if pa.types.is_list(kind) and isinstance(value, list):
        return [as_table(each, kind.value_type) for each in value]
    if pa.types.is_decimal(kind) and value is not None:
        return Decimal(value)  # an int where Avro has a long
    if isinstance(value, dt.datetime):
        return value.isoformat()
    return repr(value) if isinstance(value, float) else value


def rows_of(found: Decoded) -> list[object]:
    found.rows.validate(full=True)
    kind = pa.struct(list(found.rows.schema))
    return [as_table(row, kind) for row in found.rows.to_pylist()]


@given(records(), st.data())
def test_rows_come_back_equal_and_exactly_the_bad_records_are_left_out(
    case: Case, data: st.DataObject
) -> None:
    given_rows = data.draw(st.lists(case.values, max_size=8))
    values = [written(case.avro, row) for row in given_rows]
    bad = data.draw(st.sets(st.sampled_from(range(len(values))))) if values else set()
    for at in bad:
        cut = data.draw(st.integers(0, len(values[at])))
        whole = cut == len(values[at])
        values[at] = values[at] + b"\0" if whole else values[at][:cut]
    decoder = AvroDecoder(pa.schema(list(case.arrow)), parse_schema(fastavro_text(case.avro)))
    found = decoder.decode(values)
    assert [each.at for each in found.bad] == sorted(bad)
    good = [as_table(row, case.arrow) for at, row in enumerate(given_rows) if at not in bad]
    assert rows_of(found) == good


def fastavro_text(avro: object) -> str:
    import json

    return json.dumps(avro)


FUZZED = {
    "type": "record",
    "name": "Fuzzed",
    "fields": [
        {"name": "n", "type": "int"},
        {"name": "u", "type": ["null", "string", "long"]},
        {"name": "l", "type": {"type": "array", "items": ["null", "bytes"]}},
        {"name": "m", "type": {"type": "map", "values": "boolean"}},
        {"name": "d", "type": logical("bytes", "decimal", precision=4, scale=1)},
        {"name": "skipped", "type": {"type": "array", "items": ["Fuzzed", "null"]}},
    ],
}
COLUMNS = pa.schema(
    [
        ("n", pa.int8()),
        ("u", pa.string()),
        ("l", pa.list_(pa.binary())),
        ("m", pa.map_(pa.string(), pa.bool_())),
        ("d", pa.decimal128(4, 1)),
    ]
)
SOUND = st.fixed_dictionaries(
    {
        "n": st.integers(-200, 200),
        "u": st.none() | TEXT | INT64,
        "l": st.lists(st.none() | st.binary(max_size=3), max_size=3),
        "m": st.dictionaries(TEXT, st.booleans(), max_size=2),
        "d": decimals(4, 1),
        "skipped": st.just([None]),
    }
).map(lambda row: written(FUZZED, row))


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    value = bytearray(draw(SOUND))
    for _ in range(draw(st.integers(0, 3))):
        value[draw(st.integers(0, len(value) - 1))] = draw(st.integers(0, 255))
    return bytes(value)


@given(st.lists(damaged() | st.binary(max_size=24), min_size=1, max_size=8))
def test_a_value_is_decoded_as_if_it_stood_alone_and_as_fastavro_does(
    values: list[bytes],
) -> None:
    """Random and damaged bytes raise nothing."""
    decoder = AvroDecoder(COLUMNS, parse_schema(fastavro_text(FUZZED)))
    found = decoder.decode(values)
    alone = [decoder.decode([value]) for value in values]
    assert [each.at for each in found.bad] == [at for at, one in enumerate(alone) if one.bad]
    assert rows_of(found) == [row for one in alone for row in rows_of(one)]
    kind = pa.struct(list(COLUMNS))
    for value, one in zip(values, alone, strict=True):
        if not one.bad:
            stream = io.BytesIO(value)
            peer = fastavro.schemaless_reader(stream, fastavro.parse_schema(FUZZED), None)
            assert stream.read() == b""
            assert rows_of(one) == [as_table(peer, kind)]
