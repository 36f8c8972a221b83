"""Metadata that is sealed and cannot be true: refused by name, or taken for what is safe."""

from __future__ import annotations

import json
import math
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from plait import Table
from plait.errors import CorruptMetadataError, TableError, UnsupportedFeatureError
from plait.index.run_file import RunFile
from plait.model.document import checksum_of, load_document, unseal
from plait.storage.local import LocalStore
from plait.timeline import paths
from plait.txn.read_pin import load_read_pins
from tests.support.forge import rewrite

ROWS = pa.table({"id": pa.array([1], pa.int64())})
Edit = Callable[[dict[str, object]], object]
ONE_TOO_MANY = [{"name": f"c{n}", "predicate": "id > 0"} for n in range(1_001)]


def buckets(**facts: object) -> Edit:
    return lambda d: d["table"]["bucket_spec"].update(facts)  # type: ignore[index]


def schema(**facts: object) -> Edit:
    return lambda d: d["table"]["schemas"][0].update(facts)  # type: ignore[index]


def a_column_twice(document: dict[str, object]) -> None:
    found = document["table"]["schemas"][0]  # type: ignore[index]
    found["fields"] = [found["fields"][0], {**found["fields"][0], "id": 2}]


EDITS: dict[str, tuple[int, Edit]] = {
    "base of 64 bits": (1, lambda d: d.update(base=2**63)),
    "huge base": (1, lambda d: d.update(base=10**400)),
    "time of 64 bits": (1, lambda d: d.update(completed_ms=2**63)),
    "schema id of 40 bits": (1, lambda d: d.update(schema_id=2**40)),
    "schema id below zero": (1, lambda d: d.update(schema_id=-1)),
    "bucket spec of 32 bits": (1, lambda d: d.update(bucket_spec_id=2**31)),
    "a column twice": (0, a_column_twice),
    "buckets": (0, buckets(count=10**30)),
    "buckets of 17 bits": (0, buckets(count=100_001)),
    "a count that is none": (0, buckets(count=True)),
    "id of a layout": (0, buckets(id=10**30)),
    "a name that is a number": (0, buckets(key=[1])),
    "partition fields": (0, lambda d: d["table"].update(partition_by=["id"] * 10_001)),  # type: ignore[attr-defined]
    "constraints": (0, schema(checks=ONE_TOO_MANY)),
    "id of a schema": (0, schema(id=1 << 31)),
}


@pytest.fixture
def root(tmp_path: Path) -> str:
    Table.create(str(tmp_path / "t"), ROWS.schema, record_key="id").upsert(ROWS)
    return str(tmp_path / "t")


@pytest.mark.parametrize("edit", EDITS)
def test_a_decision_or_definition_that_cannot_be_is_refused_by_name(root: str, edit: str) -> None:
    version, change = EDITS[edit]
    path = rewrite(LocalStore(root), version, change)
    with pytest.raises(CorruptMetadataError) as caught:
        Table.open(root).scan()
    assert caught.value.path == path


def test_a_field_that_is_there_twice_is_refused(root: str) -> None:
    """Readers would differ in which one they take."""
    store = LocalStore(root)
    path = paths.slot(1)
    _, document = unseal(store.find(path) or b"", path=path)
    inner = json.dumps(document)[:-1].encode() + b',"base":0}'
    digest = checksum_of(inner).encode()
    store.put(path, b'{"checksum":"%s",\n"decision":%s}\n' % (digest, inner))
    with pytest.raises(CorruptMetadataError) as caught:
        Table.open(root).scan()
    assert caught.value.path == path


def test_a_hundred_thousand_unknown_options_are_refused_in_one_line(root: str) -> None:
    """Each is looked up once, and the error names a few."""

    def change(document: dict[str, object]) -> None:
        document["table"]["properties"] = {f"p{n}" * 9: "1" for n in range(100_000)}  # type: ignore[index]

    rewrite(LocalStore(root), 0, change)
    LocalStore(root).delete([paths.slot(1)])
    with pytest.raises(UnsupportedFeatureError) as caught:
        Table.open(root).upsert(ROWS)
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize("value", ["[[],{}]", '{"a":[]}', "[1,22]", '["",""]'])
def test_metadata_is_refused_before_it_is_made_into_values_that_fill_the_memory(value: str) -> None:
    body = b'{"zzz":[' + b",".join([value.encode()] * 700_000) + b"]}"
    sealed = b'{"checksum":"%s",\n"decision":%s}\n' % (checksum_of(body).encode(), body)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptMetadataError):
            unseal(sealed, path="x")
        assert tracemalloc.get_traced_memory()[1] < 3 * len(sealed)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("body", [b'{"a":NaN}', b"[]", b'{"a":"\\ud800"}', b"[" * 100_000, b"\xff"])
def test_metadata_that_is_no_object_of_strict_json_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        load_document(body)


def test_a_footer_of_an_index_is_not_longer_than_what_it_says() -> None:
    def listed(footer: int) -> list[object]:
        return ["data/x", 1, "0" * 16, "0" * 16, 8 + 16 + footer, footer, "0" * 16]

    assert RunFile.from_list(listed(200)).footer_bytes == 200
    for footer in (5 << 30, 300 << 20, 20):
        with pytest.raises(ValueError):
            RunFile.from_list(listed(footer))


@pytest.mark.parametrize("ttl", [math.nan, 1e300, math.inf, -1])
def test_a_lease_runs_out_whatever_it_says(root: str, ttl: float) -> None:
    store = LocalStore(root)
    path = f"{paths.LEASES}/{0:020d}-{'a' * 16}"
    store.put(path, json.dumps({"version": 0, "ttl_s": ttl, "host": "h", "pid": 1}).encode())
    assert [lease.expired for lease in load_read_pins(Table.open(root)._handle)] == [False]
    os.utime(Path(root, path), (1, 1))
    handle = Table.open(root)._handle
    load_read_pins(handle)
    age = next(iter(handle.store.list(paths.LEASES))).modified_ms
    assert age == 1_000


def test_a_file_of_the_year_9999_does_not_seem_young_for_ever(root: str) -> None:
    path = f"{paths.LEASES}/{0:020d}-{'a' * 16}"
    store = LocalStore(root)
    store.put(path, b"{}")
    os.utime(Path(root, path), (253_402_300_000, 253_402_300_000))
    assert [info.modified_ms for info in store.list(paths.LEASES)] == [0]


@pytest.mark.parametrize("body", [None, b"", b"{}", b"[" * 5_000, b'{"format":1}', b"\xff"])
def test_the_identity_is_checked_when_a_table_opens(root: str, body: bytes | None) -> None:
    file = Path(root, paths.TABLE)
    file.unlink() if body is None else file.write_bytes(body)
    with pytest.raises(TableError) as caught:
        Table.open(root)
    assert caught.value.facts["path"] == paths.TABLE


def test_a_newer_format_is_refused(root: str) -> None:
    file = Path(root, paths.TABLE)
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": 2}))
    with pytest.raises(UnsupportedFeatureError):
        Table.open(root)
