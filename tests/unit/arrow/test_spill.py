"""Runs: sorted, local, bounded in number, and gone with their writer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from plait.arrow.buffer import FlushBatch
from plait.arrow.memory import MemoryLimits
from plait.arrow.merge import DuplicateRule, Merge
from plait.arrow.runs import FAN_IN, Incoming, RunSink
from plait.errors import StorageError
from plait.files.footer import Range

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


def test_a_local_disk_that_fails_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    sink = RunSink(("id",), None, LIMITS, str(tmp_path / "gone"))
    with pytest.raises(StorageError) as caught:
        sink.flush([order_of([1])])
    assert "TMPDIR" in caught.value.hint


def removing(ids: list[int], gone: list[int], name: str) -> FlushBatch:
    """Return rows that came after keys were removed."""
    keys = pa.record_batch({"id": sorted(gone)})
    after = order_of(ids, name)
    return FlushBatch(GROUP, after.batches, after.size, lambda: None, [(0, keys)])


def left_in(sink: RunSink) -> dict[int, str]:
    sources = Incoming(sink).sources(GROUP)
    rounds = list(Merge(("id",), None, DuplicateRule.REPLACE).rounds(sources, 1 << 20))
    rows = [each.rows if each.order is None else each.rows.take(each.order) for each in rounds]
    return {row["id"]: row["of"] for table in rows for row in table.to_pylist()}


def test_a_removal_stays_in_order_with_the_rows_however_many_runs_there_are(
    tmp_path: Path,
) -> None:
    """Its run is before the rows of its hand-over, and a fold keeps that."""
    sink = RunSink(("id",), None, LIMITS, str(tmp_path))
    wanted: dict[int, str] = {}
    for n in range(3 * FAN_IN):
        gone = [n - 1, n - 2, 5_000 + n]
        sink.flush([removing([n, 10_000], gone, str(n))] if n % 3 else [order_of([n, 3], str(n))])
        assert len(sink.runs[GROUP]) <= FAN_IN
        if n % 3:
            wanted = {key: of for key, of in wanted.items() if key not in gone}
            wanted |= {n: str(n), 10_000: str(n)}
        else:
            wanted |= {n: str(n), 3: str(n)}
        if n % 8 == 7:
            assert left_in(sink) == wanted
    removed = pa.concat_tables([t for run in sink.runs[GROUP] if run.removes for t in run.blocks()])
    assert set(removed["id"].to_pylist()) >= {5_000 + n for n in range(3 * FAN_IN) if n % 3}
    sink.close()
    assert not list(tmp_path.iterdir())


def test_rows_that_all_were_removed_leave_only_the_removal(tmp_path: Path) -> None:
    sink = RunSink(("id",), None, LIMITS, str(tmp_path))
    rows = order_of([1, 2, 3])
    keys = pa.record_batch({"id": [1, 2, 3, 4]})
    for _ in range(FAN_IN):
        sink.flush([FlushBatch(GROUP, rows.batches, 1, lambda: None, [(1, keys)])])
    assert sum(run.rows for run in sink.runs[GROUP] if not run.removes) == 0
    assert left_in(sink) == {}
    assert Incoming(sink).range(GROUP).upper == 4
    sink.close()


def test_the_range_of_what_came_has_the_removals_too(tmp_path: Path) -> None:
    """Those in runs, and those that were never flushed."""
    sink = RunSink(("id",), None, LIMITS, str(tmp_path))
    incoming = Incoming(sink, {GROUP: removing([5], [1, 9], "kept")})
    assert incoming.range(GROUP) == Range(1, 9)
    sink.flush([removing([6], [0, 11], "spilled")])
    assert incoming.range(GROUP) == Range(0, 11)
    sink.close()
