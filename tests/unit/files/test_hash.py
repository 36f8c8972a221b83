"""Hashes of record keys: the same as Spark's, whatever way the rows come."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from plait.errors import SchemaError
from plait.files.hash import bucket_of, in_both, key_hashes, require_key_type, sorted_once
from plait.model.schema import plain_type
from plait.model.value import array_of

GOLDEN = Path(__file__).parents[2] / "golden" / "xxhash64.json"
VECTORS = json.loads(GOLDEN.read_text(encoding="utf-8"))["vectors"]


def _table(rows: list[list[str | None]], types: list[str]) -> pa.Table:
    columns = zip(*rows, strict=True)
    arrays = [array_of(texts, plain_type(t)) for texts, t in zip(columns, types, strict=True)]
    return pa.table({f"c{index}": array for index, array in enumerate(arrays)})


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: f"{v['types']}{v['values']}"[:60])
def test_hash_equals_what_spark_computed(vector: dict[str, list[str]]) -> None:
    table = _table([vector["values"]], vector["types"])
    found = key_hashes(table, table.column_names)
    assert found.view(np.int64).tolist() == [vector["hash"]]


@pytest.mark.parametrize("kinds", sorted({tuple(v["types"]) for v in VECTORS}))
def test_hash_of_many_rows_equals_spark_in_every_code_path(kinds: tuple[str, ...]) -> None:
    """Rows of equal length are hashed together, few rows one by one: both must agree."""
    vectors = [v for v in VECTORS if tuple(v["types"]) == kinds] * 50
    table = _table([v["values"] for v in vectors], list(kinds))
    found = key_hashes(table, table.column_names)
    assert found.view(np.int64).tolist() == [v["hash"] for v in vectors]


@pytest.mark.parametrize("length", [0, 3, 4, 7, 8, 31, 32, 33, 63, 64, 100, 511, 512, 513])
def test_hash_of_strings_equals_xxhash_library_at_every_length(length: int) -> None:
    texts = [f"{index:0{length}d}"[:length] for index in range(100)]
    found = key_hashes(pa.table({"k": pa.array(texts, pa.string())}), ["k"])
    expected = [xxhash.xxh64_intdigest(text.encode(), seed=42) for text in texts]
    assert found.tolist() == expected


def test_hash_ignores_how_rows_are_sliced_chunked_and_encoded() -> None:
    texts = [None if index % 7 == 0 else "k" * (index % 45) for index in range(500)]
    numbers = [None if index % 5 == 0 else index for index in range(500)]
    whole = pa.table({"s": texts, "n": pa.array(numbers, pa.int32())})
    chunked = pa.concat_tables([whole.slice(0, 1), whole.slice(1, 300), whole.slice(301)])
    expected = key_hashes(whole, ["s", "n"])
    assert key_hashes(chunked, ["s", "n"]).tolist() == expected.tolist()
    sliced = whole.slice(123).to_batches()[0]
    assert key_hashes(sliced, ["s", "n"]).tolist() == expected[123:].tolist()
    assert len(key_hashes(whole.slice(0, 0), ["s", "n"])) == 0
    encoded = whole.set_column(0, "s", whole["s"].dictionary_encode())
    assert key_hashes(encoded, ["s", "n"]).tolist() == expected.tolist()


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.list_(pa.int64()), pa.null()])
def test_hash_refuses_types_without_one_identity_and_names_the_column(kind: pa.DataType) -> None:
    with pytest.raises(SchemaError, match="'price'") as caught:
        key_hashes(pa.table({"price": pa.array([None], kind)}), ["price"])
    assert caught.value.column == "price"
    with pytest.raises(SchemaError):
        require_key_type(kind, "price")


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16, 1000])
def test_bucket_is_the_positive_remainder_of_the_signed_hash(count: int) -> None:
    signed = [0, 1, -1, 2**63 - 1, -(2**63), 12345, -12345]
    hashes = np.array(signed, dtype=np.int64).view(np.uint64)
    assert bucket_of(hashes, count).tolist() == [value % count for value in signed]


@pytest.mark.parametrize("sizes", [(0, 0), (0, 5), (5, 0), (1, 300), (300, 1), (200, 300)])
def test_sets_of_hashes_are_those_of_numpy(sizes: tuple[int, int]) -> None:
    numbers = np.random.default_rng(7)
    one, other = (numbers.integers(0, 250, size, dtype=np.uint64) for size in sizes)
    one[: len(one) // 9] = np.uint64(2**64 - 1)
    other[: len(other) // 9] = np.uint64(2**64 - 1)
    first, second = sorted_once(one), sorted_once(other)
    assert first.tolist() == np.unique(one).tolist()
    assert second.tolist() == np.unique(other).tolist()
    assert in_both(first, second).tolist() == np.intersect1d(one, other).tolist()
