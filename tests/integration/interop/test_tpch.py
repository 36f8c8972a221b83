"""The 22 queries of TPC-H over tables of ours have the answers of plain Parquet."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes


@pytest.mark.filterwarnings("ignore::UserWarning:polars")
def test_every_query_has_the_answer_of_plain_parquet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-04: by DuckDB and Polars, copy-on-write, and merge-on-read after RF1 and RF2."""
    tpch = importlib.import_module("benchmarks.tpch")
    monkeypatch.setattr(tpch, "RESULTS", tmp_path / "results.json")
    options = ("--scale", "0.01", "--rounds", "1", "--engines", "duckdb,polars")
    monkeypatch.setattr(sys, "argv", ["tpch", *options])
    tpch.main()  # it compares every answer
    results = json.loads((tmp_path / "results.json").read_text())
    for engine in ("duckdb", "polars"):
        for state in ("copy-on-write", "merge-on-read, refreshed"):
            assert len(results[f"{engine}, {state}"]["plait"]["seconds"]) == 22
