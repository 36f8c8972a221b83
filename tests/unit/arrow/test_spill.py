"""Runs: sorted, local, bounded in number, and gone with their writer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from plait.arrow.buffer import FlushBatch
from plait.arrow.memory import MemoryLimits
from plait.arrow.sinks import FAN_IN, RunSink
from plait.errors import StorageError

LIMITS = MemoryLimits(bucket=1 << 20, buffer=4 << 20)
GROUP = ((), 0)


def order_of(ids: list[int], name: str = "a") -> FlushBatch:
    rows = pa.record_batch({"id": sorted(ids), "of": [name] * len(ids)})
    return FlushBatch(GROUP, [rows], rows.nbytes, lambda: None)


def test_a_run_is_sorted_and_holds_a_key_once(tmp_path: Path) -> None:
    sink = RunSink(("id",), None, LIMITS, str(tmp_path))
    first, second = order_of([5, 1, 9]), order_of([9, 2], "b")
    both = FlushBatch(GROUP, [*first.batches, *second.batches], 0, lambda: None)
    sink.flush([both])
    (run,) = sink.runs[GROUP]
    rows = pa.concat_tables(run.blocks())
    assert rows.to_pydict() == {"id": [1, 2, 5, 9], "of": ["a", "b", "a", "b"]}
    assert run.range is not None
    assert (run.range.lower, run.range.upper) == (1, 9)
    sink.close()
    assert not list(tmp_path.iterdir())


def test_a_large_run_is_sorted_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    batches = [
        pa.record_batch({"id": np.sort(rng.integers(0, 1 << 20, 20_000))}) for _ in range(10)
    ]
    size = sum(batch.nbytes for batch in batches)
    sink = RunSink(("id",), None, LIMITS, str(tmp_path))
    sink.flush([FlushBatch(GROUP, batches, size, lambda: None)])
    ids = pa.concat_tables(sink.runs[GROUP][0].blocks())["id"].to_pylist()
    assert ids == sorted({i for batch in batches for i in batch["id"].to_pylist()})
    sink.close()


def test_a_bucket_never_has_more_runs_than_can_be_merged_at_once(tmp_path: Path) -> None:
    sink = RunSink(("id",), None, LIMITS, str(tmp_path))
    for n in range(3 * FAN_IN):
        sink.flush([order_of([n, 10_000], str(n))])
        assert len(sink.runs[GROUP]) <= FAN_IN
    rows = pa.concat_tables([table for run in sink.runs[GROUP] for table in run.blocks()])
    kept = [row["of"] for row in rows.to_pylist() if row["id"] == 10_000]
    assert kept[-1] == str(3 * FAN_IN - 1)
    assert {*range(3 * FAN_IN), 10_000} == set(rows["id"].to_pylist())
    sink.close()


def test_a_local_disk_that_fails_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    sink = RunSink(("id",), None, LIMITS, str(tmp_path / "gone"))
    with pytest.raises(StorageError) as caught:
        sink.flush([order_of([1])])
    assert "TMPDIR" in caught.value.hint
