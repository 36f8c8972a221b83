"""A record index: the golden table that has one, and a reader of it from the specification alone.

Of Plait the reader imports nothing, as ``reader.py``.
"""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from tests.compat.golden import Golden
from tests.compat.golden import Row as Values
from tests.compat.reader import Reader, Row, parsed, require
from tests.compat.values import key_hashes

_MAGIC, _BLOCK = bytes.fromhex("504c545801000000"), 4096
Places = dict[tuple[int, str], int]
"""By key hash and partition: the version that wrote the key there last."""


def indexed() -> Golden:
    """Merge on read; an index that was dropped, one of two runs, and commits that are in none."""
    golden = Golden(
        "indexed",
        "id bigint, day string, v string",
        record_key=("id",),
        partition_by=("day",),
        table_type="mor",
        buckets=2,
        properties={"compact": "off", "checkpoint.interval": "5"},
    )
    table = golden.table
    rows: dict[object, Values] = {}

    def put(day: str, ids: range, v: str) -> None:
        some: list[Values] = [{"id": number, "day": day, "v": v} for number in ids]
        rows.update({(each["id"], day): each for each in some})
        table.upsert(golden.arrow(some))
        golden.shows(rows.values())

    def keep(which: object) -> None:
        golden.shows(rows.values())
        assert which is not None

    put("mon", range(30), "first")
    put("tue", range(100, 120), "first")
    keep(table.index.create())
    keep(table.index.drop())
    keep(table.index.create())
    put("mon", range(5), "second")
    put("wed", range(50, 55), "second")
    keep(table.index.build())
    keep(table.maintenance.compact(full=True))
    put("tue", range(100, 103), "in no run")
    table.delete(where="day = 'mon' AND id > 27")
    for number in (28, 29):
        del rows[number, "mon"]
    golden.shows(rows.values())
    put("thu", range(3), "in no run")
    return golden


def newest_manifest(reader: Reader) -> Row:
    """Return the manifest that counts, checked."""
    name = reader.table["index"]
    folder = Path(reader.root, ".meta", "index", name)
    path = f".meta/index/{name}/{max(each.name for each in folder.glob('*.json'))}"
    sealed = parsed(reader._read(path), path)
    require(set(sealed) == {"checksum", "manifest"}, f"{path} is no manifest")
    body = sealed["manifest"].encode()
    require(hashlib.sha256(body).hexdigest() == sealed["checksum"], f"{path} is damaged")
    manifest: Row = json.loads(body)
    require(manifest["features"] == ["runs-1"], f"features {manifest['features']}")
    require(f"{manifest['number']:020d}.json" == Path(path).name, f"{path} is of another number")
    require(manifest["layout"] == reader.table["bucket_spec"]["id"], "another layout")
    return manifest


def places_of(reader: Reader) -> tuple[Places, set[tuple[str, int]]]:
    """Return where each key was written last, and the buckets that are to be read whole."""
    manifest = newest_manifest(reader)
    found: Places = {}
    for _, last, files in manifest["runs"]:
        require(last <= manifest["version"], "a run of the future")
        for file in files:
            for number, partition, version in entries_of(reader._read(file[0]), file):
                found[number, partition] = max(version, found.get((number, partition), 0))
    whole = set()
    since = (each for each in reader.key_digests() if each[0]["version"] > manifest["version"])
    for row, hashes in since:
        if row["keys"] == "all":
            whole.add((row["partition"], row["bucket"]))
        told = hashes if row["keys"] != "files" else _in_files(reader, row)
        found.update({(number, row["partition"]): row["version"] for number in told})
    return found, whole


def _in_files(reader: Reader, row: Row) -> list[int]:
    """Return the keys in the files that a version added to a bucket."""
    here = (row["partition"], row["bucket"], row["version"])
    hashes = []
    for path, rows in reader.added.items():
        if any((each["partition"], each["bucket"], each["version"]) == here for each in rows):
            hashes += key_hashes(_table(reader, path), reader.table["bucket_spec"]["key"])
    return hashes


def entries_of(body: bytes, file: list[object]) -> list[tuple[int, str, int]]:
    """Read a run file, and check everything that the manifest and its footer say of it."""
    path, count, first, last, size, footer_size, footer_sum = file
    require(len(body) == size and body[:8] == _MAGIC, f"{path} is of another size")
    footer = body[-int(str(footer_size)) :]
    require(f"{xxhash.xxh64_intdigest(footer):016x}" == footer_sum, f"{path} has another footer")
    entries, listed = struct.unpack("<QQ", footer[-24:-8])
    require(footer[-8:] == _MAGIC and entries == count, f"{path} has {entries} entries")
    partitions = json.loads(footer[:listed])
    blocks = list(struct.iter_unpack("<QQ", footer[listed:-24]))
    found: list[tuple[int, str, int]] = []
    at = 8
    for start, checksum in blocks:
        some = min(_BLOCK, entries - len(found))
        block, at = body[at : at + 16 * some], at + 16 * some
        require(xxhash.xxh64_intdigest(block) == checksum, f"{path} has another block")
        hashes = struct.unpack_from(f"<{some}Q", block)
        require(hashes[0] == start, f"a block of {path} begins with another hash")
        numbers = struct.unpack_from(f"<{some}I", block, 8 * some)
        versions = struct.unpack_from(f"<{some}I", block, 12 * some)
        names = [partitions[number] for number in numbers]
        found += zip(hashes, names, versions, strict=True)
    hashes = [each[0] for each in found]
    require(len(found) == entries and hashes == sorted(hashes), f"{path} is in another order")
    require([f"{hashes[0]:016x}", f"{hashes[-1]:016x}"] == [first, last], f"{path} has other ends")
    return found


def live_keys(reader: Reader) -> list[tuple[int, Row]]:
    """Return the hash of the key of every live row, and the file that has it."""
    found = []
    for file, mask in reader.live(reader.version):
        hidden = reader._hidden(mask, file["rows"]) if mask and mask["rows"] else ()
        hashes = key_hashes(_table(reader, file["path"]), reader.table["bucket_spec"]["key"])
        found += [(each, file) for at, each in enumerate(hashes) if at not in hidden]
    return found


def _table(reader: Reader, path: str) -> pa.Table:
    return pq.read_table(pa.BufferReader(reader._read(path)))
