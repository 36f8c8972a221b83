"""``tablectl import``: what it shows first, and what it did."""

from __future__ import annotations

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plait import Table
from plait.cli.exits import Exit


@pytest.fixture(name="source")
def source_fixture(tmp_path):
    """A folder of Parquet files."""
    (tmp_path / "old").mkdir()
    pq.write_table(pa.table({"id": [1, 2], "u": pa.array([1, 2], pa.uint8())}), tmp_path / "old/a")
    return tmp_path / "old"


def test_import_says_first_what_becomes_of_the_columns_and_then_brings_them(
    tablectl, source, tmp_path
):
    target = tmp_path / "new"
    asked = ("import", source, target, "--record-key", "id", "--buckets", "3")
    planned = tablectl(*asked, "--dry-run", "--json").data
    assert (planned["dry_run"], planned["report"]) == (True, None)
    assert planned["plan"]["columns"] == {"id": "bigint", "u": "smallint"}
    assert planned["plan"]["lost"] == ["u is uint8 and becomes smallint"]
    assert "u is uint8 and becomes smallint" in tablectl(*asked, "--dry-run").out
    assert not target.exists()
    done = tablectl(*asked, "--json").data
    assert (done["report"]["rows"], done["report"]["version"]) == (2, 2)
    described = Table.open(str(target)).inspect.describe()
    assert (described["rows"], described["bucket_spec"]["count"]) == (2, 3)
    assert "rows copied" in tablectl(*asked).out


def test_import_refuses_what_is_no_source_and_options_that_exclude_each_other(
    tablectl, source, tmp_path
):
    target = tmp_path / "new"
    assert tablectl("import", tmp_path / "none", target).code == Exit.USAGE
    both = ("--no-partitions", "--partition-by", "id")
    assert tablectl("import", source, target, *both).code == Exit.USAGE
    assert not target.exists()


def test_import_tells_how_many_versions_it_would_bring_and_brought(tablectl, tmp_path):
    for number in range(3):
        part = pa.table({"id": pa.array([number], pa.int64())})
        deltalake.write_deltalake(tmp_path / "old", part, mode="append")
    asked = ("import", tmp_path / "old", tmp_path / "new", "--record-key", "id", "--history")
    assert tablectl(*asked, "--dry-run", "--json").data["plan"]["versions"] == 3
    assert "versions" in tablectl(*asked, "--dry-run").out
    report = tablectl(*asked, "--json").data["report"]
    assert (report["versions"], report["rows"]) == (3, 3)
    assert "versions copied" in tablectl(*asked).out
    names = [
        each["commit_id"] or ""
        for each in tablectl("history", tmp_path / "new", "--json").data["entries"]
    ]
    assert sum("/old version " in each for each in names) == 3
