"""Codecs give back what they were given, and accept nothing else."""

from __future__ import annotations

import datetime as dt
import string
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pyroaring
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.errors import CorruptMetadataError
from plait.files import deletion, roaring
from plait.files.data_file import EXTENSIONS, data_path, parse_path
from plait.files.hash import decode_hashes, encode_hashes
from plait.model.bucket import UNKEYED, partition_parse, partition_path, partition_text
from plait.model.instant import Instant
from plait.model.value import from_text, raw_text, raw_value, to_raw, to_text

_EXACT = Context(prec=60)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.one_of(
    st.tuples(st.just(pa.bool_()), st.booleans()),
    st.tuples(st.just(pa.int8()), st.integers(-128, 127)),
    st.tuples(st.just(pa.int16()), st.integers(-(2**15), 2**15 - 1)),
    st.tuples(st.just(pa.int32()), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just(pa.int64()), INT64),
    st.tuples(st.just(pa.float32()), st.floats(width=32)),
    st.tuples(st.just(pa.float64()), st.floats()),
    st.tuples(st.just(pa.string()), TEXT),
    st.tuples(st.just(pa.binary()), st.binary()),
    st.tuples(st.just(pa.date32()), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just(pa.timestamp("us")), INT64),
    st.tuples(st.just(pa.timestamp("us", "UTC")), INT64),
    st.tuples(
        st.just(pa.decimal128(38, 7)),
        st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(n).scaleb(-7, _EXACT)),
    ),
)


@given(VALUES)
def test_canonical_text_gives_back_every_plain_value(value: tuple[pa.DataType, object]) -> None:
    kind, raw = value
    text = raw_text(raw, kind)  # type: ignore[arg-type]  # the pairs above fit
    back = raw_value(text, kind)
    assert back == raw or (back != back and raw != raw)  # noqa: PLR0124 - NaN
    assert str(back) == str(raw)  # the sign of zero too
    assert raw_text(back, kind) == text
    assert to_text(from_text(text, kind), kind) == text


@given(VALUES, TEXT)
def test_canonical_text_is_the_only_spelling(value: tuple[pa.DataType, object], text: str) -> None:
    kind, _ = value
    try:
        raw = raw_value(text, kind)
    except ValueError:
        return
    assert raw_text(raw, kind) == text


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.decimal128(9, 2), pa.date32()])
def test_canonical_text_of_null_is_none(kind: pa.DataType) -> None:
    assert to_text(pa.scalar(None, kind), kind) is None


@given(st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)))  # noqa: DTZ001 - as is
def test_canonical_text_of_a_timestamp_is_iso_8601(moment: dt.datetime) -> None:
    kind = pa.timestamp("us")
    found = to_text(pa.scalar(moment, kind), kind)
    assert found is not None
    assert dt.datetime.fromisoformat(found.zfill(26)) == moment
    assert to_raw(from_text(found, kind)) == to_raw(pa.scalar(moment, kind))


POSITIONS = st.one_of(
    st.lists(st.integers(0, 2**63 - 1), max_size=50),
    st.lists(st.integers(0, 200_000), max_size=500),
    st.tuples(st.integers(0, 2**33), st.integers(0, 200_000), st.integers(1, 3)).map(
        lambda t: list(range(t[0], t[0] + t[1], t[2]))
    ),
)


@given(POSITIONS)
def test_roaring_gives_back_every_set_of_positions(positions: list[int]) -> None:
    expected = sorted(set(positions))
    body = roaring.encode(np.array(positions, dtype=np.uint64))
    assert roaring.decode(body, count=len(expected)).tolist() == expected
    plain = pyroaring.BitMap64(expected).serialize()  # without runs
    assert roaring.decode(plain, count=len(expected)).tolist() == expected


@given(POSITIONS, st.data())
def test_roaring_damaged_bytes_are_refused_or_still_a_sorted_set(
    positions: list[int], data: st.DataObject
) -> None:
    body = bytearray(roaring.encode(np.array(positions, dtype=np.uint64)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, min(len(body) - 1, 80)))
        body[at] = data.draw(st.integers(0, 255))
    count = len(set(positions))
    try:
        found = roaring.decode(bytes(body), count=count)
    except ValueError:
        return
    assert len(found) == count
    assert bool((np.diff(found.astype(object)) > 0).all())


@given(st.lists(st.integers(0, 5000), min_size=1), st.integers(0, 6000))
def test_deletion_vector_holds_only_positions_of_its_file(positions: list[int], rows: int) -> None:
    unique = sorted(set(positions))
    vector = deletion.encode(np.array(positions, dtype=np.uint64))
    if rows > unique[-1]:
        assert deletion.decode(vector, count=len(unique), rows=rows).tolist() == unique
    else:
        with pytest.raises(ValueError, match="mask"):
            deletion.decode(vector, count=len(unique), rows=rows)


PARTITIONS = st.lists(st.none() | TEXT, max_size=4).map(tuple)
INSTANTS = st.builds(
    Instant.at,
    st.integers(0, 4_000_000_000_000),
    st.text("0123456789abcdef", min_size=16, max_size=16),
)
ATTEMPTS = st.text(string.ascii_letters + string.digits + "-", min_size=1, max_size=64)


@given(
    PARTITIONS,
    st.integers(UNKEYED, 10**6),
    INSTANTS,
    ATTEMPTS,
    st.sampled_from(sorted(EXTENSIONS)),
)
def test_file_name_tells_whose_it_is_whatever_the_partition_values(
    partition: tuple[str | None, ...], bucket: int, instant: Instant, attempt: str, kind: str
) -> None:
    path = data_path(partition, bucket, instant, attempt, kind)
    found = parse_path(path)
    assert found is not None
    assert (found.bucket, found.instant, found.attempt, found.kind) == (
        bucket,
        instant,
        attempt,
        kind,
    )
    assert found.directory == partition_path(partition)
    assert path.isascii()
    assert not path.startswith((".", "_"))
    assert partition_parse(partition_text(partition)) == partition


@given(TEXT)
def test_foreign_file_name_is_nobody_s(text: str) -> None:
    assert parse_path(text) is None
    assert parse_path(f"data/{text}") is None


@given(st.lists(st.integers(0, 2**64 - 1)))
def test_key_hashes_come_back_sorted_and_once(values: list[int]) -> None:
    body = encode_hashes(np.array(values, dtype=np.uint64))
    assert decode_hashes(body).tolist() == sorted(set(values))


@given(st.binary(max_size=64))
def test_key_hashes_out_of_order_are_refused(body: bytes) -> None:
    try:
        found = decode_hashes(body)
    except CorruptMetadataError:
        return
    assert encode_hashes(found) == body
