"""Deletion vectors of foreign Delta logs: each is found, and none asks for much memory."""

from __future__ import annotations

import datetime as dt
import json
import tracemalloc
import zlib
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from plait import ConsentError, RepushRefusedError, Table, TableError, import_table
from plait.files.deletion import encode
from plait.interop.delta_actions import z85
from plait.repush.delta_vectors import find_vectors

Json = dict[str, object]
ROWS = 70_000
HIDDEN = np.array([0, 1, 65_535, 65_536, 69_999], dtype=np.uint64)


PLAIN = pa.table({"id": pa.array(range(ROWS), pa.int64())})


def table_of_one_file(place: Path, part: pa.Table = PLAIN) -> Json:
    """Write a table whose log may have vectors; return the action that added its file."""
    deltalake.write_deltalake(
        place, part, configuration={"delta.enableDeletionVectors": "true"}, mode="append"
    )
    lines = (place / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    (add,) = (action["add"] for action in map(json.loads, lines) if "add" in action)
    return add


def commit(place: Path, number: int, *actions: Json) -> None:
    text = "\n".join(map(json.dumps, actions))
    (place / "_delta_log" / f"{number:020d}.json").write_text(text)


def hide(place: Path, add: Json, vector: Json, number: int = 1) -> Json:
    """Add the file anew, as a delete does."""
    now = {**add, "deletionVector": vector, "stats": None}
    commit(place, number, {"add": now}, {"remove": {"path": add["path"], "dataChange": True}})
    return now


def inline(place: Path, vector: bytes, count: int) -> Json:
    text = z85(vector)
    return {
        "storageType": "i",
        "pathOrInlineDv": text,
        "sizeInBytes": len(vector),
        "cardinality": count,
    }


def framed(path: Path, vector: bytes) -> Json:
    path.parent.mkdir(exist_ok=True)
    head, seal = len(vector).to_bytes(4, "big"), zlib.crc32(vector).to_bytes(4, "big")
    path.write_bytes(b"\x01" + b"another vector" + head + vector + seal)
    return {"offset": 15, "sizeInBytes": len(vector)}


def relative(place: Path, vector: bytes, count: int) -> Json:
    name = UUID(int=count)
    where = framed(place / "ab" / f"deletion_vector_{name}.bin", vector)
    return {
        "storageType": "u",
        "pathOrInlineDv": "ab" + z85(name.bytes),
        "cardinality": count,
        **where,
    }


def absolute(place: Path, vector: bytes, count: int) -> Json:
    path = place / "a b.bin"
    where = framed(path, vector)
    text = f"file://{place}/a%20b.bin"
    return {"storageType": "p", "pathOrInlineDv": text, "cardinality": count, **where}


KINDS = [inline, relative, absolute]


@pytest.mark.parametrize("kind", KINDS)
def test_a_vector_hides_its_rows_wherever_it_is(
    kind: Callable[[Path, bytes, int], Json], tmp_path: Path
) -> None:
    """INV-17: and the newest vector of a file is the one in force."""
    old = tmp_path / "old"
    add = table_of_one_file(old)
    first = hide(old, add, inline(old, encode(HIDDEN[:2]), 2))
    hide(old, first, kind(old, encode(HIDDEN), len(HIDDEN)), number=2)
    report = import_table(f"delta:{old}", str(tmp_path / "new"))
    assert report.rows == ROWS - len(HIDDEN)
    found = Table.open(str(tmp_path / "new")).scan().to_arrow()["id"].to_pylist()
    assert sorted(found) == [each for each in range(ROWS) if each not in HIDDEN]


def test_rows_of_nested_columns_are_hidden_at_the_right_place(tmp_path: Path) -> None:
    """INV-17: over the edges of batches, with nulls at every depth."""
    pair = pa.struct([("n", pa.int64()), ("t", pa.timestamp("us", "UTC"))])
    kind = pa.struct([("m", pa.map_(pa.string(), pa.list_(pair))), ("d", pa.decimal128(9, 2))])
    values = [
        None,
        {"m": None, "d": Decimal("-1.25")},
        {"m": [], "d": None},
        {
            "m": [
                ("a", None),
                ("b", []),
                ("c", [None, {"n": None, "t": dt.datetime(1, 1, 1, tzinfo=dt.UTC)}]),
            ]
        },
    ]
    old = tmp_path / "old"
    ids = pa.array(range(ROWS), pa.int64())
    part = pa.table({"id": ids, "c": pa.array((values * ROWS)[:ROWS], kind)})
    add = table_of_one_file(old, part)
    hide(old, add, relative(old, encode(HIDDEN), len(HIDDEN)))
    import_table(f"delta:{old}", str(tmp_path / "new"), record_key="id")
    found = Table.open(str(tmp_path / "new")).scan().to_arrow().sort_by("id")
    shown = np.setdiff1d(np.arange(ROWS), HIDDEN)
    assert found["id"].to_pylist() == shown.tolist()
    assert found["c"].to_pylist() == part["c"].take(shown).to_pylist()


MANY = 1 << 29
"""Rows that a vector of some KiB may say to hide: as bits 64 MiB, as numbers 4 GiB."""


def of_runs(count: int) -> bytes:
    """Return a small vector of so many rows that follow one another."""
    import pyroaring

    bitmap = pyroaring.BitMap64()
    bitmap.add_range(0, count)
    bitmap.run_optimize()
    return b"\xd1\xd3\x39\x64" + bitmap.serialize()


@pytest.mark.parametrize("declared", [MANY, 2, ROWS])
@pytest.mark.parametrize("kind", KINDS)
def test_a_vector_of_more_rows_than_its_file_has_is_refused_in_bounded_memory(
    kind: Callable[[Path, bytes, int], Json], declared: int, tmp_path: Path
) -> None:
    """INV-17: whatever number of rows the log declares."""
    old = tmp_path / "old"
    add = table_of_one_file(old)
    hide(old, add, kind(old, of_runs(MANY), declared))
    tracemalloc.start()
    try:
        with pytest.raises(TableError, match=r"vector|positions|left over"):
            import_table(f"delta:{old}", str(tmp_path / "new"))
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
    if (tmp_path / "new").exists():
        assert Table.open(str(tmp_path / "new")).scan().count() == 0


@pytest.mark.parametrize(
    "change",
    [
        {"sizeInBytes": 7},
        {"sizeInBytes": 1 << 40},
        {"sizeInBytes": -1},
        {"offset": 3},
        {"offset": 1 << 50},
        {"offset": None},
        {"cardinality": 4},
        {"cardinality": -1},
        {"cardinality": "5"},
        {"storageType": "x"},
        {"pathOrInlineDv": "ab" + z85(UUID(int=7).bytes)},
        {"pathOrInlineDv": "short"},
        {"pathOrInlineDv": "ü" * 20},
    ],
    ids=str,
)
def test_a_descriptor_that_is_not_that_of_a_vector_is_refused(change: Json, tmp_path: Path) -> None:
    """INV-17: never read as a vector of other rows, nor as none."""
    old = tmp_path / "old"
    add = table_of_one_file(old)
    hide(old, add, {**relative(old, encode(HIDDEN), len(HIDDEN)), **change})
    with pytest.raises(TableError):
        import_table(f"delta:{old}", str(tmp_path / "new"))


def test_a_damaged_vector_is_refused(tmp_path: Path) -> None:
    old = tmp_path / "old"
    add = table_of_one_file(old)
    hide(old, add, relative(old, encode(HIDDEN), len(HIDDEN)))
    (file,) = (old / "ab").iterdir()
    body = bytearray(file.read_bytes())
    body[-6] ^= 1
    file.write_bytes(body)
    with pytest.raises(RepushRefusedError, match="another checksum"):
        import_table(f"delta:{old}", str(tmp_path / "new"))


def test_a_vector_elsewhere_is_asked_for_first(tmp_path: Path) -> None:
    old, elsewhere = tmp_path / "old", tmp_path / "elsewhere"
    add = table_of_one_file(old)
    elsewhere.mkdir()
    hide(old, add, absolute(elsewhere, encode(HIDDEN), len(HIDDEN)))
    with pytest.raises(ConsentError):
        import_table(f"delta:{old}", str(tmp_path / "new"))


# --- checkpoints of every form --------------------------------------------------------------------

VECTOR = {"storageType": "i", "pathOrInlineDv": "x", "offset": 1, "sizeInBytes": 34}


def adds(*counts: int) -> list[Json]:
    return [
        {"add": {"path": f"f{n}", "deletionVector": {**VECTOR, "cardinality": count}}}
        for n, count in enumerate(counts, start=1)
    ]


def parquet(path: Path, actions: list[Json]) -> None:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist([*actions, {"txn": {"appId": "a"}}]), path)


def classic(log: Path, actions: list[Json]) -> None:
    parquet(log / f"{5:020d}.checkpoint.parquet", actions)


def in_parts(log: Path, actions: list[Json]) -> None:
    for number, action in enumerate(actions, start=1):
        name = f"{5:020d}.checkpoint.{number:010d}.{len(actions):010d}.parquet"
        parquet(log / name, [action])
    # The parts of a later one are not all there: its writer died.
    parquet(log / f"{6:020d}.checkpoint.{1:010d}.{2:010d}.parquet", [])


def with_sidecars(log: Path, actions: list[Json], *, as_json: bool) -> None:
    names = [f"{number}.parquet" for number in range(len(actions))]
    for name, action in zip(names, actions, strict=True):
        parquet(log / "_sidecars" / name, [action])
    # A whole path is allowed, and leads into that folder all the same.
    found: list[Json] = [{"sidecar": {"path": f"s3://x/_delta_log/_sidecars/{n}"}} for n in names]
    path = log / f"{5:020d}.checkpoint.{UUID(int=7)}.{'json' if as_json else 'parquet'}"
    if as_json:
        path.write_text("\n".join(map(json.dumps, [{"checkpointMetadata": {}}, *found])))
    else:
        parquet(path, found)


FORMS: list[Callable[[Path, list[Json]], None]] = [
    classic,
    in_parts,
    lambda log, actions: with_sidecars(log, actions, as_json=True),
    lambda log, actions: with_sidecars(log, actions, as_json=False),
]


def found_at(place: Path, version: int, *names: str) -> dict[str, int]:
    files = pafs.LocalFileSystem()
    found = find_vectors(files, str(place), version, names, lambda text: text)
    return {path: vector.count for path, vector in found.items()}


@pytest.mark.parametrize("form", FORMS)
def test_vectors_are_found_in_checkpoints_of_every_form(
    form: Callable[[Path, list[Json]], None], tmp_path: Path
) -> None:
    """INV-17: and later commits count before them."""
    log = tmp_path / "_delta_log"
    log.mkdir()
    form(log, adds(1, 2))
    commit(tmp_path, 6, {"add": {"path": "f2"}}, {"commitInfo": {}})
    commit(tmp_path, 7, {"add": {"path": "f3"}}, *adds(9))
    assert found_at(tmp_path, 5, "f1", "f2") == {"f1": 1, "f2": 2}
    assert found_at(tmp_path, 6, "f1", "f2") == {"f1": 1}
    assert found_at(tmp_path, 7, "f1", "f2", "f3") == {"f1": 9}
    with pytest.raises(ValueError, match="does not say how f4 came"):
        found_at(tmp_path, 7, "f1", "f4")
    (log / f"{6:020d}.json").unlink()
    with pytest.raises(ValueError, match="lacks version 6"):
        found_at(tmp_path, 7, "f2")
