"""Benchmarks that need no peer still run: in small, with their results thrown away."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

SMALL = {
    "dual_write": ("--rows", "2000", "--rounds", "1", "--batches", "10"),
    "planning": ("--buckets", "2000", "--rounds", "1"),
    "rewrites": ("--rows", "4000", "--upserts", "3"),
    "memory": ("--buffer", "1", "--times", "2"),
    "replica_repair": ("--rows", "4000", "--buckets", "8", "--damaged", "2"),
    "kafka_decode": ("--records", "200", "--rounds", "2"),
    "lost_slots": ("--writers", "2", "--commits", "2", "--latency", "1"),
}


@pytest.mark.long(2)
@pytest.mark.parametrize("program", SMALL)
def test_a_benchmark_runs_to_its_end(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody runs them with each change: `make bench` takes a quiet machine and half an hour."""
    module = importlib.import_module(f"benchmarks.{program}")
    monkeypatch.setattr(module, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(sys, "argv", [program, *SMALL[program]])
    assert module.main() in (None, 0)
    assert (tmp_path / "results.json").stat().st_size > 100
