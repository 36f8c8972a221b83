"""JSON values become the rows they say, or dead letters: never other rows."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal

import pyarrow as pa
import pytest

from plait.errors import OptionError
from plait.kafka.records.json_values import JsonDecoder

BIG = 9_007_199_254_740_993
UTC = dt.UTC
INSTANT, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
PAIR = pa.struct([("x", pa.date32()), ("y", pa.list_(pa.binary()))])

GOOD = [
    (pa.int64(), "7", 7),
    (pa.int64(), "-9223372036854775808", -(2**63)),
    (pa.int64(), "null", None),
    (pa.float64(), "7", 7.0),
    (pa.float64(), "1e2", 100.0),
    (pa.float64(), str(BIG), float(BIG)),
    (pa.float64(), "123456789012345678901", 123456789012345678901.0),
    (pa.float64(), "Infinity", math.inf),
    (pa.float32(), "0.5", 0.5),
    (pa.float32(), "-Infinity", -math.inf),
    (pa.bool_(), "true", True),
    (pa.string(), r'"\u00e9\ud83d\ude00\n\u0000"', "é😀\n\0"),
    (pa.decimal128(10, 2), "1.5", Decimal("1.50")),
    (pa.decimal128(10, 2), '"1.5"', Decimal("1.50")),
    (pa.decimal128(38, 0), "1234567890" * 3 + "12345678", Decimal("1234567890" * 3 + "12345678")),
    (pa.decimal128(10, 2), "1e2", Decimal("100.00")),
    (pa.date32(), '"2026-01-31"', dt.date(2026, 1, 31)),
    (INSTANT, '"2026-01-31T01:02:03.5Z"', dt.datetime(2026, 1, 31, 1, 2, 3, 500_000, UTC)),
    (INSTANT, '"2026-01-31T01:02:03+02:00"', dt.datetime(2026, 1, 30, 23, 2, 3, 0, UTC)),
    (INSTANT, '"2026-01-31 01:02:03"', dt.datetime(2026, 1, 31, 1, 2, 3, 0, UTC)),
    (LOCAL, '"2026-01-31T01:02:03"', dt.datetime(2026, 1, 31, 1, 2, 3)),  # noqa: DTZ001 - no zone
    (pa.binary(), '"AP9h"', b"\0\xffa"),
    (pa.binary(), '""', b""),
    (pa.list_(pa.date32()), '["2026-01-31", null]', [dt.date(2026, 1, 31), None]),
    (PAIR, '{"y": ["AA=="], "z": [1]}', {"x": None, "y": [b"\0"]}),
]

BAD = [
    (pa.int64(), "1.5"),
    (pa.int64(), "1.0"),
    (pa.int64(), "1e2"),
    (pa.int64(), "9223372036854775808"),
    (pa.int64(), "NaN"),
    (pa.int64(), '"7"'),
    (pa.int64(), "true"),
    (pa.int64(), "[7]"),
    (pa.int8(), "128"),
    (pa.float64(), "1e400"),
    (pa.float64(), "01"),
    (pa.float64(), ".5"),
    (pa.float64(), '"1.5"'),
    (pa.float32(), "1e39"),
    (pa.bool_(), "1"),
    (pa.bool_(), '"true"'),
    (pa.string(), "7"),
    (pa.string(), "{}"),
    (pa.string(), r'"\ud83d"'),
    (pa.string(), r'"\udc00"'),
    (pa.string(), r'"\u12"'),
    (pa.string(), '"a\nb"'),
    (pa.decimal128(10, 2), "1.555"),
    (pa.decimal128(10, 2), '"1.555"'),
    (pa.decimal128(10, 2), "123456789"),
    (pa.decimal128(10, 2), '"NaN"'),
    (pa.date32(), "20484"),
    (pa.date32(), '"2026-02-30"'),
    (pa.date32(), '"2026-01-31T00:00:00"'),
    (INSTANT, "1769821323000"),
    (INSTANT, '"2026-01-31T01:02:03.1234567Z"'),
    (INSTANT, '"2026-01-31T24:00:00Z"'),
    (LOCAL, '"2026-01-31T01:02:03Z"'),
    (LOCAL, '"2026-01-31T01:02:03+02:00"'),
    (pa.binary(), '"a"'),
    (pa.binary(), '"AP9h\\n"'),
    (pa.binary(), '"é"'),
    (pa.list_(pa.date32()), '["x"]'),
    (pa.list_(pa.int64()), "7"),
    (PAIR, '{"x": 1}'),
    (PAIR, '{"x": "2026-01-31", "x": "2026-01-31"}'),
]

WHOLE = [
    b"",
    b" ",
    b"{",
    b"}",
    b"7",
    b"null",
    b"[1]",
    b'[{"a": 1}]',
    b'{"a": 1',
    b'{"a": 1}}',
    b'{"a": 1}{"a": 2}',
    b'{"a": 1} {"a": 2}',
    b'{"a": 1}\n{"a": 2}',
    b'{"a": 1}\0',
    b'{"a": 1}{"a": 2}\0}',
    b'{"a": 1, "a": 2}',
    b'{"a": 1,}',
    b"{'a': 1}",
    b'{"a": 1 /* one */}',
    b'\xef\xbb\xbf{"a": 1}',
    b'{"a\0": 1}',
    b'{"b": "}\n{"}',
    b'{"b": "\x1f"}',
]


def decoder(kind: pa.DataType) -> JsonDecoder:
    return JsonDecoder(pa.schema([("a", kind)]))


@pytest.mark.parametrize(("kind", "text", "value"), GOOD, ids=str)
def test_a_value_is_what_its_text_says(kind: pa.DataType, text: str, value: object) -> None:
    found = decoder(kind).decode([f'{{"a": {text}}}'.encode()])
    assert found.bad == ()
    assert found.rows.schema == pa.schema([("a", kind)])
    assert found.rows["a"].to_pylist() == [value]
    found.rows.validate(full=True)


@pytest.mark.parametrize(("kind", "text"), BAD, ids=str)
def test_a_text_that_is_no_value_of_its_column_is_a_dead_letter(
    kind: pa.DataType, text: str
) -> None:
    given = ["{}", f'{{"a": {text}}}', '{"a": null}']
    found = decoder(kind).decode([each.encode() for each in given])
    assert [each.at for each in found.bad] == [1]
    assert found.bad[0].reason
    assert found.rows["a"].to_pylist() == [None, None]


@pytest.mark.parametrize("value", WHOLE, ids=str)
@pytest.mark.parametrize("beside", [b'{"a": 3}', b'{"b": 0}', b"{}"], ids=str)
def test_what_is_not_one_object_is_a_dead_letter_and_changes_no_other_row(
    value: bytes, beside: bytes
) -> None:
    found = decoder(pa.int64()).decode([beside, value, beside])
    assert [each.at for each in found.bad] == [1]
    assert found.rows["a"].to_pylist() == [json.loads(beside).get("a")] * 2


@pytest.mark.parametrize(
    "text", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc3"]
)
@pytest.mark.parametrize("shape", [b'{"a": "%s"}', b'{"b": ["%s"]}', b'{"%s": 1}'])
def test_a_value_that_is_no_utf8_is_a_dead_letter(text: bytes, shape: bytes) -> None:
    given = [b'{"a": "\xc3\xa9"}', shape % text, b"{}"]
    found = decoder(pa.string()).decode(given)
    assert [each.at for each in found.bad] == [1]
    assert found.rows["a"].to_pylist() == ["\u00e9", None]


def test_an_object_is_one_value_whatever_stands_around_and_in_it() -> None:
    spread = b'\r\n {\n"b": {"c": [1,\n2]},\n"a": 1\n}\t\n'
    found = decoder(pa.int64()).decode([spread, b'{"a": 2}', spread])
    assert (found.bad, found.rows["a"].to_pylist()) == ((), [1, 2, 1])
    found = decoder(pa.float64()).decode([b'{"a": NaN}'])
    assert math.isnan(found.rows["a"][0].as_py())
    odd = [b'{"b": 1, "b": {"c": 2}}', b'{"b": 1e99}', b'{"b": [[{}], "x", null]}', b'{"A": 7}']
    found = decoder(pa.int64()).decode(odd)
    assert (found.bad, found.rows["a"].to_pylist()) == ((), [None] * 4)


def test_a_value_that_nests_a_million_deep_ends_nothing() -> None:
    deep = b'{"b": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b', "a": 1}'
    found = decoder(pa.int64()).decode([deep, deep[:-2], b'{"a": 2}'])
    assert [each.at for each in found.bad] == [1]
    assert found.rows["a"].to_pylist() == [1, 2]


def test_bad_values_among_many_are_found_by_their_places() -> None:
    values = [json.dumps({"a": number}).encode() for number in range(9_000)]
    places = [0, 1, 2_999, 3_000, 4_500, 8_999]
    for place in places:
        values[place] = b"?"
    found = decoder(pa.int64()).decode(values)
    assert [each.at for each in found.bad] == places
    assert found.rows["a"].to_pylist() == [n for n in range(9_000) if n not in places]


def test_a_map_whose_keys_are_not_texts_is_refused_at_the_start() -> None:
    with pytest.raises(OptionError) as caught:
        JsonDecoder(pa.schema([("m", pa.list_(pa.map_(pa.int64(), pa.int64())))]))
    assert caught.value.key == "format"


MAP = pa.map_(
    pa.string(), pa.struct([("x", pa.decimal128(20, 2)), ("m", pa.map_("string", "int8"))])
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("null", None),
        ("{ }", []),
        (
            '{"a" : {"x": 12345678901234567.25, "m": {}} , "\\u0062": null}',
            [("a", {"x": Decimal("12345678901234567.25"), "m": []}), ("b", None)],
        ),
        ('{"": {"m": {"{\\"": 1, "]": 2}, "y": [{"}": "{"}]}}', [
            ("", {"x": None, "m": [('{"', 1), ("]", 2)]}),
        ]),
    ],
)  # fmt: skip
def test_an_object_fills_a_map(text: str, expected: object) -> None:
    found = decoder(MAP).decode([f'{{"y": {{"a": 1}}, "a": {text}}}'.encode()])
    assert found.rows["a"].to_pylist() == [expected]


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '[{"key": "a", "value": null}]',
        "1",
        '{"a": null, "a": null}',
        '{"a": null, "\\u0061": null}',
        '{"a": {"m": {"x": 1, "x": 2}}}',
        '{"a": null,}',
        '{"a": }',
        '{"a" null}',
        '{"a": {"m": {"x": 300}}}',
        "{} {}",
        "{",
    ],
)
def test_what_is_not_an_object_with_different_keys_fills_no_map(text: str) -> None:
    good = b'{"a": {"k": null}}'
    found = decoder(MAP).decode([good, f'{{"a": {text}}}'.encode(), good])
    assert [each.at for each in found.bad] == [1]
    assert found.rows.num_rows == 2
