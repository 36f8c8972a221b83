"""JSON records of any table come back equal, and bad ones among them are told apart exactly."""

from __future__ import annotations

import base64
import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from plait.kafka.records.decode import Decoded
from plait.kafka.records.json_values import JsonDecoder

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=6)
PLAIN = st.sampled_from(
    [
        pa.int8(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.bool_(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        pa.timestamp("us"),
        pa.timestamp("us", "UTC"),
        pa.decimal128(12, 3),
        pa.decimal128(38, 0),
    ]
)
TYPES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        inner.map(lambda kind: pa.list_(pa.field("element", kind))),
        st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(
            lambda fields: pa.struct(list(fields.items()))
        ),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
    ),
    max_leaves=4,
)
SCHEMAS = st.dictionaries(NAMES, TYPES, min_size=1, max_size=5).map(
    lambda fields: pa.schema(list(fields.items()))
)
SOME = {
    "string": st.text(st.characters(codec="utf-8"), max_size=12),
    "binary": st.binary(max_size=12),
    "bool": st.booleans(),
    "date32[day]": st.dates(),
    "timestamp[us]": st.datetimes(),
    "timestamp[us, tz=UTC]": st.datetimes(timezones=st.just(dt.UTC)),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "decimal128(12, 3)": st.decimals(-999_999_999, 999_999_999, places=3),
    "decimal128(38, 0)": st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
}


def values_of(kind: pa.DataType) -> st.SearchStrategy[object]:
    """Draw Python values of a type."""
    if pa.types.is_struct(kind):
        some = st.fixed_dictionaries({each.name: values_of(each.type) for each in kind.fields})
    elif pa.types.is_map(kind):
        some = st.dictionaries(SOME["string"], values_of(kind.item_type), max_size=3).map(
            lambda entries: list(entries.items())
        )
    elif pa.types.is_list(kind):
        some = st.lists(values_of(kind.value_type), max_size=3)
    elif pa.types.is_integer(kind):
        some = st.integers(-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
    else:
        some = SOME[str(kind)]
    return st.none() | some


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Draw a table."""
    schema = draw(SCHEMAS)
    row = st.fixed_dictionaries({each.name: values_of(each.type) for each in schema})
    return pa.Table.from_pylist(draw(st.lists(row, max_size=12)), schema=schema)


def as_json(value: object, kind: pa.DataType) -> object:
    """Return a value as producers write it."""
    if isinstance(value, dict):
        return {each.name: as_json(value[each.name], each.type) for each in kind.fields}
    if isinstance(value, list) and pa.types.is_map(kind):
        return {name: as_json(each, kind.item_type) for name, each in value}
    if isinstance(value, list):
        return [as_json(each, kind.value_type) for each in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (dt.date, dt.datetime)):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value


def shown(found: Decoded) -> tuple[list[str], list[int]]:
    """Return rows as texts, so that NaN equals NaN, and the places of the bad ones."""
    found.rows.validate(full=True)
    return list(map(repr, found.rows.to_pylist())), [each.at for each in found.bad]


@given(tables(), st.booleans(), st.sampled_from([None, 1]), st.data())
def test_rows_come_back_equal_and_exactly_the_bad_records_are_left_out(
    table: pa.Table,
    plain: bool,
    indent: int | None,
    data: st.DataObject,
) -> None:
    rows = table.to_pylist()
    kind = pa.struct(list(table.schema))
    values = [
        json.dumps(as_json(each, kind), ensure_ascii=plain, indent=indent).encode() for each in rows
    ]
    places = data.draw(st.sets(st.integers(0, len(values)), max_size=3))
    bad = st.sampled_from([b"", b"?", b"[]", b"{}{}", b"{}\n{}", b'{"":', b"{}\0", b'{"a\\x":1}'])
    for place in sorted(places):
        values.insert(place, data.draw(bad))
    found = JsonDecoder(table.schema).decode(values)
    assert [each.at for each in found.bad] == sorted(places)
    assert found.rows.schema == table.schema
    assert found.rows.to_pylist() == rows
    found.rows.validate(full=True)


PIECES = [
    b'{"a":',
    b'"a"',
    b"1",
    b'"x',
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b"\n",
    b"\0",
    b"\\u00e9",
]
PIECES += [b"{}", b'{"a": 1}', b"1e5", b"NaN", b"null", b"\xff", b" ", b'{"s": "2026-01-31"}', b":"]
PIECES += [b'{"s": "\xff"}', b'{"b": "\xff"}', b'{"s": "\xc3\xa9"}']
TEXTS = st.lists(st.sampled_from(PIECES), max_size=6).map(b"".join)
FUZZED = pa.schema([("a", pa.int64()), ("s", pa.string()), ("d", pa.date32()), ("b", pa.binary())])
MAPPED = pa.schema([("a", pa.map_(pa.string(), pa.int64())), ("s", pa.string())])


@given(
    st.lists(TEXTS | st.binary(max_size=20), min_size=1, max_size=8),
    st.sampled_from([FUZZED, MAPPED]),
)
def test_a_value_is_decoded_as_if_it_stood_alone_whatever_stands_beside_it(
    values: list[bytes], schema: pa.Schema
) -> None:
    """Random bytes raise nothing."""
    decoder = JsonDecoder(schema)
    rows, bad = shown(decoder.decode(values))
    alone = [shown(decoder.decode([each])) for each in values]
    assert bad == [at for at, (_, refused) in enumerate(alone) if refused]
    assert rows == [row for found, _ in alone for row in found]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("am", max_size=1), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["a", "s", "x"]), JSON), st.data())
def test_a_map_has_the_entries_of_its_object_and_damaged_texts_are_refused(
    value: dict[str, object], data: st.DataObject
) -> None:
    """Python's parser says what is JSON, and what it means."""
    text = json.dumps(value).encode()
    start = data.draw(st.integers(0, len(text)))
    cut = data.draw(st.integers(start, min(len(text), start + 2)))
    put = data.draw(st.sampled_from([b"", b"{", b"}", b'"', b",", b":", b"[", b"]", b"1"]))
    text = text[:start] + put + text[cut:]
    found = JsonDecoder(MAPPED).decode([text])
    try:
        expected = json.loads(text, object_pairs_hook=Pairs)
    except ValueError:
        assert found.bad
        return
    if not isinstance(expected, Pairs):
        assert found.bad
    elif not found.bad:
        assert found.rows["a"].to_pylist() == [expected.last("a")]
    elif all(is_plain(expected, name) for name in ("a", "s")):
        raise AssertionError(found.bad)


class Pairs(list[tuple[str, object]]):
    """A JSON object with all its members, in their order."""

    def last(self, name: str) -> object:
        return dict(self).get(name)


def is_plain(value: Pairs, name: str) -> bool:
    """Tell whether a member fits its column for certain."""
    if sum(each == name for each, _ in value) > 1:
        return False
    found = value.last(name)
    if name == "s":
        return found is None or isinstance(found, str)
    if not isinstance(found, Pairs):
        return found is None
    keys = [key for key, _ in found]
    numbers = all(type(each) is int or each is None for _, each in found)
    return numbers and len(set(keys)) == len(keys)
