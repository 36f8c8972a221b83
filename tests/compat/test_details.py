"""What the specification says beside the rows holds in the golden tables: its own examples, bounds,
the order of sorted files, and digests of streams."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import zlib
from decimal import Decimal
from itertools import chain
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from tests.compat.golden import Golden
from tests.compat.reader import Reader
from tests.compat.values import (
    WORD,
    arrow_type,
    bucket_of,
    hashed,
    key_hashes,
    key_index,
    mixed,
    text_of,
)
from tests.compat.written import WRITTEN_ID

ROOT = Path(__file__).resolve().parents[2]
SPEC = (ROOT / "docs/spec/format.md").read_text(encoding="utf-8")
V1 = Path(__file__).parent / "v1"
TABLES = sorted(path.stem for path in V1.glob("*.json"))
LENGTH_MAX, BOUNDED_MAX = 64, 32


# --- examples ----------------------------------------------------------------------------------


EXACT = [
    "events/.meta/table.json",
    f"events/.meta/timeline/{0:020d}/{3:020d}.json",
    "events/.meta/pending/20260101000008000-029500000000001e.requested",
    "events/.meta/pending/20260101000008000-029500000000001e.inflight.d1",
    "events/.meta/leases/00000000000000000008-029500000000001f",
]


def decision_of(table: str, version: int) -> dict[str, object]:
    slot = V1 / table / ".meta/timeline" / f"{0:020d}" / f"{version:020d}.json"
    return json.loads(slot.read_text(encoding="utf-8"))["decision"]


def test_examples_of_the_specification_are_those_of_golden_tables() -> None:
    assert [path for path in EXACT if (V1 / path).read_text(encoding="utf-8") not in SPEC] == []
    shown = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", SPEC, re.DOTALL)]
    assert decision_of("large", 3)["changes"] in shown
    assert decision_of("wide", 1)["changes"] in shown
    checkpoint = V1 / "wide/.meta/checkpoints" / f"{2:020d}" / "state.json"
    assert json.loads(json.loads(checkpoint.read_text(encoding="utf-8"))["state"]) in shown


def directory_of(partition: str) -> str:
    """Follow the specification from the text of a partition to its directory."""
    texts = ["null" if value is None else value for value in json.loads(partition)]
    readable = re.sub(r"[^A-Za-z0-9.-]+", "-", "-".join(texts)).lstrip(".-_")[:40] or "p"
    return f"{readable}~{xxhash.xxh64_hexdigest(partition.encode())}" if texts else "data"


def test_directories_are_named_as_the_specification_says() -> None:
    for partition, directory in re.findall(r"^\| `(\[.*\])` \| `(.+~.+)` \|$", SPEC, re.MULTILINE):
        assert directory_of(partition) == directory
    for name in TABLES:
        for file in chain(*Reader(str(V1 / name)).added.values()):
            path = re.sub(r"^repush-[0-9a-f]{16}/", "", file["path"])
            assert path.startswith(directory_of(file["partition"]) + "/")


def hex_of(line: str) -> bytes:
    """Return the bytes that a line of an example shows."""
    found = re.search(rf"^({line}[0-9a-f ]*)$", SPEC, re.MULTILINE)
    assert found is not None
    return bytes.fromhex(found[1])


def test_sidecar_and_vectors_of_the_specification_hold_what_it_says(tmp_path: Path) -> None:
    reader = Reader(str(V1 / "large"))
    reader.root = str(tmp_path)
    (tmp_path / "a.keys.bin").write_bytes(hex_of("504c544b"))
    row = {"keys": "sidecar", "key_count": 2, "key_inline": None, "key_path": "a.keys.bin"}
    row |= {"bucket": 0, "version": 1}
    reader.touched = [row]
    assert list(reader.key_digests()) == [(row, [1, 2])]
    (tmp_path / "a.dv.bin").write_bytes(hex_of("01 00000022"))
    inline = {"inline": hex_of("d1d33964 "), "rows": 1, "path": ""}
    assert list(reader._hidden(inline, 2)) == [1]
    large = {"inline": None, "dv_path": "a.dv.bin", "dv_offset": 1, "dv_bytes": 34}
    assert list(reader._hidden({**inline, **large}, 2)) == [1]


VALUES = {"true": True, "empty text": "", "00ff": b"\0\xff", "Plait": "Plait", "x": "x"}
READ = {"date": dt.date.fromisoformat, "timestamp": dt.datetime.fromisoformat}


def test_hashes_of_the_specification_are_those_of_their_values() -> None:
    rows = re.findall(r"^\| (.+) \| (`.+`) \| `([0-9a-f]{16})` \| (\d) \|$", SPEC, re.MULTILINE)
    assert len(rows) == 12
    for values, kinds, digest, bucket in rows:
        columns = {}
        pairs = zip(values.split(", then "), kinds.split(", "), strict=True)
        for value, name in ((v.strip("`"), k.strip("`")) for v, k in pairs):
            kind, read = arrow_type(name), READ.get(name, Decimal if "(" in name else int)
            known = VALUES[value] if value in VALUES else read(value)
            columns[name] = pa.array([known], kind)
        found = key_hashes(pa.table(columns), list(columns))[0]
        assert (f"{found:016x}", bucket_of(found, 8)) == (digest, int(bucket)), values


# --- what stands beside the rows ---------------------------------------------------------------


def data_files(name: str, folder: Path = V1):
    """Give the live files of a table, each with all its rows, hidden ones too."""
    reader = Reader(str(folder / name))
    for file, _ in reader.live(reader.version):
        yield reader, file, reader._data(file, reader.table["schema_id"])


def bounds_of(column: pa.ChunkedArray) -> list[object]:
    """Return what ``stats`` must say of a column: lower, upper, nulls."""
    values = [value for value in column.to_pylist() if value is not None]
    if not values or any(isinstance(v, float) and math.isnan(v) for v in values):
        return [None, None, column.null_count]
    lower, upper = min(values), max(values)
    if isinstance(lower, float):
        lower, upper = (-0.0 if lower == 0 else lower), (0.0 if upper == 0 else upper)
    return [bound(lower, column.type), bound(upper, column.type, up=True), column.null_count]


def bound(value: object, kind: pa.DataType, *, up: bool = False) -> str | None:
    if isinstance(value, float):
        return float_text(np.float32(value) if pa.types.is_float32(kind) else np.float64(value))
    if isinstance(value, (str, bytes)) and len(value) > LENGTH_MAX:
        cut = value[:LENGTH_MAX]
        if not up:
            return text_of(cut)
        if isinstance(cut, bytes):
            kept = cut.rstrip(b"\xff")
            return text_of(kept[:-1] + bytes([kept[-1] + 1])) if kept else None
        return cut[:-1] + chr(ord(cut[-1]) + 1)
    return text_of(value)


def float_text(value: np.floating) -> str:
    """Write the fewest digits that read back, by trying."""
    if not math.isfinite(value):
        return str(float(value))
    digits = next(n for n in range(17) if type(value)(f"{value:.{n}e}") == value)
    mantissa, _, exponent = f"{value:.{digits}e}".partition("e")
    if not -4 <= int(exponent) < 16:
        return f"{mantissa}e{exponent}"
    return f"{float(f'{mantissa}e{exponent}')!r}"


@pytest.mark.parametrize("name", TABLES)
def test_bounds_are_those_of_the_rows(name: str) -> None:
    for reader, file, rows in data_files(name):
        schemas = {schema["id"]: schema for schema in reader.table["schemas"]}
        schema = schemas[reader.table["schema_id"]]
        if file["schema_id"] != schema["id"]:
            continue  # its rows come in newer types, and its bounds are those of its own
        plain = [f for f in schema["fields"] if isinstance(f["type"], str)]
        wanted = {str(f["id"]): bounds_of(rows[f["name"]]) for f in plain[:BOUNDED_MAX]}
        told = json.loads(file["stats"])
        told.pop(str(WRITTEN_ID), None)  # see written_versions
        assert told == wanted, file["path"]


@pytest.mark.parametrize("name", TABLES)
def test_sorted_files_are_in_the_order_of_the_key(name: str) -> None:
    for reader, file, rows in data_files(name):
        key = reader.table["bucket_spec"]["key"]
        if file["order"] == 0:
            found = [tuple(row.values()) for row in rows.select(key).to_pylist()]
            assert found == sorted(found)


def indexed(name: str, folder: Path = V1) -> int:
    """Check the key index of each live file against its keys; give how many there are."""
    seen = 0
    for reader, file, rows in data_files(name, folder):
        body = reader._read(file["path"])
        metadata = pq.read_metadata(pa.BufferReader(body)).metadata or {}
        found = key_index(body, metadata.get(b"plait.keys"), file["rows"])
        wanted: dict[int, set[int]] = {}
        for position, each in enumerate(key_hashes(rows, reader.table["bucket_spec"]["key"])):
            wanted.setdefault(each >> 32, set()).add(position)
        assert found in ({}, wanted), file["path"]
        seen += bool(found)
    return seen


@pytest.mark.parametrize("name", TABLES)
def test_key_indexes_lead_to_every_row(name: str) -> None:
    assert indexed(name) == (2 if name == "ordered" else 0)


def test_key_indexes_of_several_blocks_lead_to_every_row(tmp_path: Path) -> None:
    golden = Golden("indexed", "id bigint, v int", record_key=("id",), buckets=1)
    rows = [{"id": n, "v": n * 7919 % 10_007} for n in range(9_000)]
    golden.table.insert(golden.arrow(rows))
    with mock.patch("plait.arrow.output.ORDERED_GROUP_ROWS", 1_000):
        golden.table.maintenance.cluster(order_by="v")
    golden.save(tmp_path)
    assert indexed("indexed", tmp_path) == 1


def test_files_in_an_order_of_columns_tell_it_by_its_number() -> None:
    said = " ".join(SPEC.split())  # wherever its lines end
    assert '`["sort","day","city"]` has the number 1747281836' in said
    assert zlib.crc32(b'["sort","day","city"]') & 0x7FFFFFFF == 1747281836
    number = zlib.crc32(b'["sort","day","v"]') & 0x7FFFFFFF
    seen = [(file, rows) for _, file, rows in data_files("ordered") if file["order"] == number]
    for _, rows in seen:
        found = [tuple(row.values()) for row in rows.select(["day", "v"]).to_pylist()]
        assert found == sorted(found)
    assert len(seen) == 2


# --- digests of streams ------------------------------------------------------------------------


def counted(value: object, kind: pa.DataType, seed: int) -> int:
    """Return what a value counts under the seed of its column."""
    if value is None:
        return 0
    if pa.types.is_struct(kind):
        return mixed(seed + summed(value, kind.fields) & WORD)
    if pa.types.is_map(kind):
        value = [{"key": k, "value": v} for k, v in value]
        kind = pa.list_(pa.struct([kind.key_field, kind.item_field]))
    if pa.types.is_list(kind):
        step = 0x9E3779B97F4A7C15
        each = [counted(item, kind.value_type, 0) for item in value]
        total = sum(mixed(h + i * step & WORD) for i, h in enumerate(each))
        return mixed(seed + len(each) * step + total & WORD)
    if pa.types.is_floating(kind):
        bits = np.float64("nan" if math.isnan(value) else value + 0.0).tobytes()
        return xxhash.xxh64_intdigest(bits, seed=seed)
    return xxhash.xxh64_intdigest(hashed(value, kind), seed=seed)


def summed(row: object, fields: list[pa.Field]) -> int:
    seeds = [xxhash.xxh64_intdigest(field.name.encode()) for field in fields]
    pairs = zip(fields, seeds, strict=True)
    return mixed(sum(counted(row[field.name], field.type, seed) for field, seed in pairs) & WORD)


def test_digests_of_streams_are_those_of_their_rows() -> None:
    seen = 0
    for name in TABLES:
        reader = Reader(str(V1 / name), checkpoints=False)
        if reader.savepoints:
            continue  # restores undid its epochs, and a clean deleted their files
        for version, decision in reader.commits.items():
            for token in decision.get("tokens", []):
                added = [f for f in chain(*reader.added.values()) if f["version"] == version]
                tables = [reader._data(file, 0) for file in added]
                hashes = [summed(row, list(t.schema)) for t in tables for row in t.to_pylist()]
                assert token["digest"] == [len(hashes), f"{sum(hashes) & WORD:016x}"], version
                assert reader.streams[token["application"]]["epoch"] >= token["epoch"]
                seen += 1
    assert seen == 3
