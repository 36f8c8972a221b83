"""Columns from other parts of a record, and raw values."""

from __future__ import annotations

import datetime as dt
import json

import pyarrow as pa
import pytest
from confluent_kafka import Message

from plait.errors import OptionError, SchemaMismatchError
from tests.support.records import column, places, read, record, spec_of

AT = 1_769_821_323_456
PAIRS = [("a", b"1"), ("b", None), ("a", b"\xc3\xa9")]


def test_every_part_of_a_record_becomes_its_column() -> None:
    spec = spec_of(
        "k string, v int, at timestamp, ms bigint, t string, p int, o bigint, h map<string,string>"
    )
    parts = ("key=k", "timestamp=at", "topic=t", "partition=p", "offset=o", "headers=h")
    include = dict(each.split("=") for each in parts)
    records = [
        record(7, {"v": 1, "k": "never", "o": -1}, "x", headers=PAIRS, timestamp=(1, AT)),
        record(9, {"v": 2}, timestamp=(0, -1)),
    ]
    changes = read(spec, *records, include=include)
    assert changes.bad == ()
    assert changes.rows.schema.names == spec.schema.names
    first, second = changes.rows.to_pylist()
    assert first["at"] == dt.datetime.fromtimestamp(AT / 1000, dt.UTC)
    assert (first["k"], first["v"], first["t"], first["p"], first["o"]) == ("x", 1, "t", 0, 7)
    assert dict(first["h"]) == {"a": "é", "b": None}
    assert (second["k"], second["at"], second["h"], second["o"]) == (None, None, [], 9)


def test_headers_are_texts_or_bytes_or_json_and_a_header_that_is_no_text_is_a_dead_letter() -> None:
    odd = [*PAIRS, ("c", b"\xff")]
    records = [record(0, {"v": 1}, headers=PAIRS), record(1, {"v": 2}, headers=odd)]
    include = {"headers": "h"}
    changes = read(spec_of("v int, h map<string,binary>"), *records, include=include)
    assert dict(changes.rows["h"][1].as_py()) == {"a": b"\xc3\xa9", "b": None, "c": b"\xff"}
    for kind in ("string", "map<string,string>"):
        changes = read(spec_of(f"v int, h {kind}"), *records, include=include)
        assert (places(changes), column(changes, "v")) == ([1], [1])
    changes = read(spec_of("v int, h string"), records[0], include=include)
    assert json.loads(str(column(changes, "h")[0])) == [["a", "1"], ["b", None], ["a", "é"]]


class Unreadable(Message):
    """A record with a header whose name is no UTF-8: what the library then does."""

    def headers(self) -> None:
        message = "returned a result with an exception set"
        raise SystemError(message)


@pytest.mark.parametrize("kind", ["map<string,binary>", "string"])
def test_a_header_whose_name_is_no_text_is_a_dead_letter(kind: str) -> None:
    odd = Unreadable(topic="t", partition=0, offset=1, value=b'{"v": 2}')
    records = [record(0, {"v": 1}), odd, record(2, {"v": 3})]
    changes = read(spec_of(f"v int, h {kind}"), *records, include={"headers": "h"})
    assert (places(changes), column(changes, "v")) == ([1], [1, 3])


def test_a_time_is_a_timestamp_or_milliseconds_and_one_that_none_has_is_a_dead_letter() -> None:
    """Producers choose the times of records, and a topic may accept all of them."""
    record_of = record(0, {}, timestamp=(2, AT))
    changes = read(spec_of("v int, ms bigint"), record_of, include={"timestamp": "ms"})
    assert column(changes, "ms") == [AT]
    times = [AT, 2**62, -(2**62), 2**63 - 1, 0]
    changes = read(
        spec_of("v int, at timestamp"),
        *(record(n, {"v": n}, timestamp=(1, each)) for n, each in enumerate(times)),
        include={"timestamp": "at"},
    )
    assert (places(changes), column(changes, "v")) == ([1, 2, 3], [0, 4])
    assert changes.rows["at"].cast(pa.int64()).to_pylist() == [AT * 1000, 0]


def test_the_key_of_a_table_comes_from_the_records_keys() -> None:
    spec = spec_of("id bigint, n string", "id")
    rows = (({"n": "a"}, 1), ({"n": "b"}, b"?"), (b"?", 2), (None, 1), ({"n": "c"}, {"id": 3}))
    more = (({"n": "d"}, 4), ({"n": "e"}, None), ({"n": "f"}, "5"), ({"n": "g"}, b'6,"n":7'))
    changes = read(spec, *rows, *more, include={"key": "id"})
    assert places(changes) == [1, 2, 6, 7, 8]
    assert changes.rows.to_pylist() == [{"id": 3, "n": "c"}, {"id": 4, "n": "d"}]
    assert changes.removals is not None
    assert changes.removals["id"].to_pylist() == [1]


@pytest.mark.parametrize(
    ("kind", "keys", "bad", "values"),
    [
        ("string", [b"{a", b"", b"\xff", b'"b"'], [2], ["{a", "", '"b"']),
        ("binary", [b"\xff", b"{"], [], [b"\xff", b"{"]),
        ("bigint", [b"5", b"5.0", b"", b"-7", b"9223372036854775808"], [1, 2, 4], [5, -7]),
        ("int", [b"0x1F", b"31", b"\xd9\xa3", b"+1"], [0, 2, 3], [31]),
    ],
)
def test_a_key_of_plain_text_is_what_it_says(
    kind: str, keys: list[bytes], bad: list[int], values: list[object]
) -> None:
    spec = spec_of(f"id {kind}, n int", "id")
    changes = read(
        spec, *(({"n": 1}, key) for key in keys), include={"key": "id"}, key_format="text"
    )
    assert (places(changes), column(changes, "id")) == (bad, values)
    changes = read(spec, *((None, key) for key in keys), key_format="text")
    assert changes.removals is not None
    assert sorted(changes.removals["id"].to_pylist()) == sorted(values)


@pytest.mark.parametrize(
    ("include", "error"),
    [
        ({"key": "ID"}, SchemaMismatchError),
        ({"offset": "none"}, SchemaMismatchError),
        ({"offset": "n"}, SchemaMismatchError),
        ({"partition": "f"}, SchemaMismatchError),
        ({"timestamp": "local"}, SchemaMismatchError),
        ({"headers": "other"}, SchemaMismatchError),
        ({"key": "other"}, SchemaMismatchError),
        ({"value": "n"}, OptionError),
        ({"key": "id", "offset": "id"}, OptionError),
    ],
)
def test_a_column_that_cannot_take_a_part_is_refused_at_the_start(
    include: dict[str, str], error: type[Exception]
) -> None:
    ddl = "id bigint, n string, f float, local timestamp_ntz, other array<string>"
    with pytest.raises(error):
        read(spec_of(ddl), include=include)


def test_raw_values_are_bytes_or_texts_as_they_came() -> None:
    given = [b"\xff\0", b"", b"\xc3\xa9\n"]
    changes = read(spec_of("value binary, n int"), *((each,) for each in given), format="raw")
    assert changes.rows.to_pylist() == [{"value": each, "n": None} for each in given]
    changes = read(
        spec_of("n int, body string"),
        *((each,) for each in given),
        format="raw",
        value_column="body",
        include={"partition": "n"},
    )
    assert (places(changes), column(changes, "body")) == ([0], ["", "é\n"])
    assert column(changes, "n") == [0, 0]


@pytest.mark.parametrize(
    ("ddl", "settings", "error"),
    [
        ("value int", {}, SchemaMismatchError),
        ("body string", {}, SchemaMismatchError),
        ("value string, n int", {"include": {"topic": "value"}}, SchemaMismatchError),
        ("value string", {"include": {"topic": "value"}}, OptionError),
    ],
)
def test_columns_that_cannot_take_raw_values_or_text_keys_are_refused_at_the_start(
    ddl: str, settings: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        read(spec_of(ddl), format="raw", **settings)
    with pytest.raises(OptionError):
        read(spec_of("a int, b int", "a", "b"), key_format="text")
