"""The buffer: bounded, predictable, and never in the way of the one who fills it (B1, B2, B12)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from plait.arrow.buffer import Buffer, FlushBatch, Flusher, Ledger
from plait.arrow.ingest import Chunk, Intake, split
from plait.arrow.memory import MemoryLimits, detached, owned
from plait.errors import StorageError
from plait.model.bucket import BucketSpec
from plait.model.plan import COW, TableLayout, TableSpec
from plait.model.schema import Schema

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
SPEC = TableSpec(Schema.create(SCHEMA), TableLayout((), BucketSpec(0, ("id",), 4), None, COW))
LIMITS = MemoryLimits(bucket=1 << 20, buffer=1 << 20)


def chunk_of(rows: int, seed: int = 0) -> Chunk:
    ids = np.random.default_rng(seed).integers(0, 1 << 40, rows)
    return split(pa.record_batch({"id": ids, "text": ["some text"] * rows}, schema=SCHEMA), SPEC)


def buffer_of(limits: MemoryLimits = LIMITS) -> Buffer:
    return Buffer(limits, Ledger(limits))


class Collecting:
    """Keeps what is flushed; waits for a signal first."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.fails = False

    def flush(self, orders: Sequence[FlushBatch]) -> None:
        self.begun.set()
        assert self.go_on.wait(300)
        if self.fails:
            message = "the disk is full"
            raise StorageError(message, path="somewhere")
        for order in orders:
            self.rows += [row for batch in order.batches for row in batch.to_pylist()]
            order.done()


def test_every_row_comes_out_once_and_no_more_is_held_than_admitted() -> None:
    limits = MemoryLimits(bucket=8_000, buffer=200_000)
    buffer = buffer_of(limits)
    wanted: list[int] = []
    found: list[int] = []
    most = 0

    def take(orders: Sequence[FlushBatch]) -> None:
        for order in orders:
            found.extend(i for batch in order.batches for i in batch["id"].to_pylist())
            order.done()

    for seed in range(100):
        # One bucket is flushed again and again out of blocks that the others still need.
        chunk = chunk_of(400, seed)
        wanted += chunk.rows["id"].to_pylist()
        take(buffer.add(chunk))
        most = max(most, buffer.ledger.held)
    assert buffer.policy.flushes > 50
    assert most <= limits.admitted
    take(buffer.rest())
    assert sorted(found) == sorted(wanted)
    assert buffer.ledger.held == 0


def test_buffering_goes_on_while_a_flush_is_under_way() -> None:
    buffer, sink = buffer_of(), Collecting()
    flusher = Flusher(sink, buffer.ledger)
    flusher.submit(buffer.add(chunk_of(1000)) + buffer.rest())
    assert sink.begun.wait(300)
    for seed in range(10):
        flusher.submit(buffer.add(chunk_of(1000, seed)))
    assert not sink.go_on.is_set()
    assert sum(buffer.policy.sizes.values()) > 0
    sink.go_on.set()
    flusher.submit(buffer.rest())
    flusher.wait()
    flusher.close()
    assert len(sink.rows) == 11_000


def test_a_flush_under_way_counts_in_the_bound() -> None:
    buffer, sink = buffer_of(), Collecting()
    flusher = Flusher(sink, buffer.ledger)
    seeds = iter(range(200))

    def fill() -> None:
        for seed in seeds:
            flusher.submit(buffer.add(chunk_of(1000, seed)))

    filling = threading.Thread(target=fill)
    filling.start()
    assert sink.begun.wait(300)
    filling.join(0.2)
    assert filling.is_alive()
    assert buffer.ledger.held <= LIMITS.admitted
    sink.go_on.set()
    filling.join()
    flusher.submit(buffer.rest())
    flusher.wait()
    flusher.close()
    assert len(sink.rows) == 200_000


def test_a_flush_that_fails_is_raised_to_the_writer_for_good() -> None:
    buffer, sink = buffer_of(), Collecting()
    sink.fails = True
    sink.go_on.set()
    flusher = Flusher(sink, buffer.ledger)
    flusher.submit(buffer.add(chunk_of(1000)) + buffer.rest())
    for _ in range(2):
        with pytest.raises(StorageError):
            flusher.wait()
    with pytest.raises(StorageError):
        flusher.submit([])
    flusher.close()
    assert buffer.ledger.held == 0


def test_small_batches_are_put_together() -> None:
    intake = Intake(MemoryLimits(bucket=1 << 20, buffer=64 << 10), SPEC)
    tiny = pa.record_batch({"id": [1], "text": ["x"]}, schema=SCHEMA)
    given = [came for _ in range(200) for came in intake.add(tiny)] + intake.rest()
    assert sum(came.rows.num_rows for came in given) == 200
    assert len(given) < 10


def test_removals_among_rows_come_first_and_take_away_what_was_before_them() -> None:
    """However often they alternate: a stream of changes is not divided in crumbs."""
    intake = Intake(MemoryLimits(bucket=1 << 20, buffer=64 << 10), SPEC)
    key = pa.schema([SCHEMA.field("id")])
    for number in range(30):
        row = {"id": [number % 5], "text": [f"{number}"]}
        assert not intake.add(pa.record_batch(row, schema=SCHEMA))
        if number % 4 == 0:  # the last one is of key 3, after its row 28
            assert not intake.add(pa.record_batch({"id": [number % 5]}, schema=key), removes=True)
    removals, rows = intake.rest()
    assert (removals.removes, rows.removes) == (True, False)
    assert removals.rows.to_pydict() == {"id": [0, 1, 2, 3, 4]}
    last = {0: 20, 1: 16, 2: 12, 3: 28, 4: 24}
    kept = [{"id": n % 5, "text": f"{n}"} for n in range(30) if n > last[n % 5]]
    assert rows.rows.to_pylist() == kept
    assert intake.rest() == []


def test_removals_and_rows_of_a_bucket_are_handed_over_in_order() -> None:
    buffer, key = buffer_of(), pa.schema([SCHEMA.field("id")])
    for number in range(6):
        removes = number in (1, 2, 4)
        rows = pa.record_batch({"id": [7], "text": [str(number)]}, schema=SCHEMA)
        chunk = split(rows.select(key.names) if removes else rows, SPEC)
        assert not buffer.add(replace(chunk, removes=removes))
    (order,) = buffer.rest()
    assert [removes for _, removes in order.parts()] == [False, True, True, False, True, False]
    assert [batch["text"][0].as_py() for batch in order.batches] == ["0", "3", "5"]
    order.done()
    assert buffer.ledger.held == 0


def test_a_slice_does_not_keep_a_large_parent_alive() -> None:
    large = pa.record_batch({"id": np.arange(1 << 20), "text": ["x"] * (1 << 20)}, schema=SCHEMA)
    piece = owned(large.slice(5, 10))
    assert piece.equals(large.slice(5, 10))
    assert piece.get_total_buffer_size() < 10_000


def test_rows_in_the_buffer_have_memory_of_their_own() -> None:
    nested = pa.schema([("n", pa.list_(pa.struct([("a", pa.string())]))), ("d", pa.date32())])
    rows = pa.record_batch(
        {"n": [[{"a": "x" * 50}], None, [], [{"a": None}]] * 5_000, "d": pa.nulls(20_000)},
        schema=nested,
    )
    kept = detached(rows.slice(3, 15_000))
    assert kept.equals(rows.slice(3, 15_000))
    assert kept.schema.equals(nested)
