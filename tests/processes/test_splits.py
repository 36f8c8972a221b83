"""Splits of a scan in processes of their own: together they have its rows, each alone its own."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from plait import CorruptMetadataError, ScanDataset, ScanSplit, Table
from tests.support.build import LITTLE, keys, make, rows

pytestmark = pytest.mark.processes
PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/read-from-python.md"
EXAMPLE = re.compile(r"-->\n```python\n(import operator\n.*?)^```", re.MULTILINE | re.DOTALL)


def read(split: ScanSplit) -> tuple[int, list[int]]:
    return os.getpid(), split.to_arrow()["id"].to_pylist()


def counted(dataset: ScanDataset) -> tuple[int, int]:
    return dataset.version, dataset.count_rows(filter=pc.field("id") < 50)


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as made:
        yield made


def changed(place: Path, table_type: str, **properties: str) -> Table:
    """Make a table with hidden rows, a renamed column, and files of many row groups."""
    table = make(
        "id bigint, v double, s string",
        uri=place,
        table_type=table_type,
        buckets=3,
        properties=properties,
    )
    table.upsert(rows(range(30_000), v=float, s=lambda key: f"text {key}"))
    table.upsert(rows(range(0, 30_000, 7), v=-1.0, s="x"))
    table.delete(keys=keys(range(10)))
    table.alter.columns().rename("s", "t").commit()
    return table


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("where", [None, "v < 0 OR id > 29000", pc.field("v") + 1 <= 0])
def test_splits_in_other_processes_have_the_rows_of_the_scan(
    tmp_path: Path, pool: ProcessPoolExecutor, table_type: str, where: object
) -> None:
    """INV-04: each row once, whatever the splits were divided by."""
    scan = changed(tmp_path / "t", table_type).scan(where=where)  # type: ignore[arg-type]
    expected = sorted(scan.to_arrow()["id"].to_pylist())
    for size in (1 << 30, 100_000, 20_000):
        splits = scan.splits(size_bytes=size)
        done = list(pool.map(read, splits))
        assert os.getpid() not in {pid for pid, _ in done}
        assert sorted(key for _, found in done for key in found) == expected
        assert all(split.schema.equals(scan.schema) for split in splits)
        assert all(split.size_bytes <= size + 50_000 for split in splits)
    assert len(splits) > 3


def test_a_split_is_sent_without_the_metadata_of_other_files(tmp_path: Path) -> None:
    """Its size is bounded: by what it reads, and not by the table or its columns."""
    names = [f"c{at}" for at in range(30)]
    ddl = ", ".join(f"{name} bigint" for name in names)
    table = make(f"id bigint, {ddl}", uri=tmp_path / "t", buckets=64)
    table.upsert(rows(range(2_000), **dict.fromkeys(names, 1)))
    splits = table.scan(["id"]).splits(size_bytes=1)
    assert len(splits) >= 64
    sizes = [len(pickle.dumps(split)) for split in splits]
    assert max(sizes) < 20_000
    whole = table.scan(["id"]).splits()
    assert len(whole) == 1
    assert len(pickle.dumps(whole[0])) < 64 * 1_000


def test_a_large_file_is_divided_by_row_group_and_none_is_read_twice(tmp_path: Path) -> None:
    table = make("id bigint, v bigint", uri=tmp_path / "t", record_key=())
    for at in range(3):
        table.append(rows(range(at * 400_000, (at + 1) * 400_000), v=at))
    scan = table.scan()
    splits = scan.splits(size_bytes=200_000)
    assert len(splits) > scan.plan.files.num_rows
    found = [split.to_arrow() for split in splits]
    assert pa.concat_tables(found)["id"].sort().equals(pa.chunked_array([range(1_200_000)]))


def test_a_split_is_read_while_its_files_are_kept_and_fails_after(
    tmp_path: Path, pool: ProcessPoolExecutor
) -> None:
    """INV-05: the process that made the splits keeps the files; a copy keeps nothing."""
    table = make(uri=tmp_path / "t", properties=LITTLE)
    table.upsert(rows(range(20), v=0))
    splits = table.scan().splits()
    body = pickle.dumps(splits)
    table.upsert(rows(range(20), v=1))
    table.maintenance.clean()
    assert [sorted(found) for _, found in pool.map(read, splits)] == [list(range(20))]
    del splits
    table.maintenance.clean()
    table.maintenance.clean()
    with pytest.raises(CorruptMetadataError):
        list(pool.map(read, pickle.loads(body)))


def test_a_dataset_is_opened_anew_in_another_process(
    tmp_path: Path, pool: ProcessPoolExecutor
) -> None:
    table = make(uri=tmp_path / "t")
    table.upsert(rows(range(100), v=0))
    dataset = table.scan().to_dataset()
    table.delete(where="id < 40")
    assert pool.submit(counted, dataset).result() == (1, 50)
    assert pool.submit(counted, table.scan().to_dataset()).result() == (2, 10)


def test_dask_reads_splits_in_its_processes(tmp_path: Path) -> None:
    bag = (
        pytest.importorskip("dask.bag") if not os.environ.get("CI") else __import__("dask.bag").bag
    )
    scan = changed(tmp_path / "t", "mor").scan(["id"], where="id >= 100")
    splits = scan.splits(size_bytes=20_000)
    parts = bag.from_sequence(splits, npartitions=len(splits)).map(read)
    done = parts.compute(scheduler="processes", num_workers=2)
    assert os.getpid() not in {pid for pid, _ in done}
    assert sum(len(found) for _, found in done) == scan.count()


def test_the_example_of_the_page_runs(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (program,) = re.findall(
        r"-->\n```python\n(import operator\n.*?)^```", text, re.MULTILINE | re.DOTALL
    )
    place = tmp_path / "example.py"
    place.write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(place)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "900\n"
