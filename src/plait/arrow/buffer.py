"""The buffer: rows by partition and bucket, with an account of every byte they hold."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from plait.arrow.ingest import Chunk, Group
from plait.arrow.memory import MAPPED_MIN, MemoryLimits, detached, taken


@dataclass(slots=True)
class FlushPolicy:
    """Counts the bytes of each bucket in the buffer and says which buckets go.

    A bucket goes when it exceeds ``write.bucket.size``; all go when their sum exceeds
    ``write.buffer.size``. Time, threads and the speed of storage play no part.
    """

    limits: MemoryLimits
    sizes: dict[Group, int] = field(default_factory=dict)
    total: int = 0
    flushes: int = 0

    def add(self, arrived: Mapping[Group, int]) -> list[Group]:
        """Count rows that arrived; give the buckets to flush now, in the order to do it."""
        for group, size in arrived.items():
            self.sizes[group] = self.sizes.get(group, 0) + size
            self.total += size
        due = [group for group in arrived if self.sizes[group] > self.limits.bucket]
        self._flush(due)
        return due + self.rest() if self.total > self.limits.buffer else due

    def rest(self) -> list[Group]:
        """Return all buckets that have rows, to be flushed."""
        due = list(self.sizes)
        self._flush(due)
        return due

    def _flush(self, groups: Iterable[Group]) -> None:
        for group in groups:
            self.total -= self.sizes.pop(group)
            self.flushes += 1


class Ledger:
    """Bytes held by rows in the buffer, on the way to files, or being merged.

    Both sides of the hand-over use it: the one that buffers waits in ``admit`` while the bound
    leaves no room, the one that flushes gives bytes back.
    """

    def __init__(self, limits: MemoryLimits) -> None:
        self._most = limits.admitted
        self._held = 0
        self._flushing = 0
        self._changed = threading.Condition()

    @property
    def held(self) -> int:
        """The bytes that rows hold now."""
        return self._held

    @property
    def room(self) -> int:
        """The bytes that may still be held."""
        return max(0, self._most - self._held)

    def begin(self) -> None:
        """Note that a flush is in progress and will free memory."""
        with self._changed:
            self._flushing += 1

    def end(self) -> None:
        """Note that the flush is done."""
        with self._changed:
            self._flushing -= 1
            self._changed.notify_all()

    def admit(self, size: int) -> bool:
        """Wait until there is room for rows; False if no flush under way can make any."""
        with self._changed:
            self._changed.wait_for(lambda: not self._flushing or self._held + size <= self._most)
            return self._held + size <= self._most

    def take(self, size: int) -> None:
        """Count bytes."""
        with self._changed:
            self._held += size

    def give(self, size: int) -> None:
        """Count bytes that are free again."""
        with self._changed:
            self._held -= size
            self._changed.notify_all()


@dataclass(slots=True)
class _BufferedBatch:
    """A chunk in the buffer. Its memory goes when the last of its groups has gone."""

    rows: pa.RecordBatch
    spans: dict[Group, tuple[int, int]]
    size: int
    removes: bool = False
    away: int = 0
    """Stretches that were handed over and are still read from."""

    @property
    def wasted(self) -> int:
        live = sum(stop - start for start, stop in self.spans.values())
        rows: int = self.rows.num_rows
        return self.size - self.size * live // max(1, rows)


@dataclass(frozen=True, slots=True)
class FlushBatch:
    """One bucket's rows and removals, handed over to be flushed, in the order of arrival."""

    group: Group
    batches: Sequence[pa.RecordBatch]
    size: int
    done: Callable[[], None]
    """Must be called once, when the rows are no longer read."""
    removals: Sequence[tuple[int, pa.RecordBatch]] = ()
    """Keys that were removed, and how many of ``batches`` came before."""

    def parts(self) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """Return rows and removals in order; the flag tells removals."""
        taken = 0
        for at, keys in self.removals:
            for rows in self.batches[taken:at]:
                yield rows, False
            yield keys, True
            taken = at
        for rows in self.batches[taken:]:
            yield rows, False

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(batch.num_rows for batch in self.batches)


@dataclass(slots=True)
class Buffer:
    """Rows that are not yet in files. Used from one thread; orders may be done on another."""

    limits: MemoryLimits
    ledger: Ledger
    policy: FlushPolicy = field(init=False)
    _blocks: list[_BufferedBatch] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Guards which groups of a block are still needed, here or by a flush."""

    def __post_init__(self) -> None:
        """Start empty."""
        self.policy = FlushPolicy(self.limits)

    def add(self, chunk: Chunk) -> list[FlushBatch]:
        """Take a chunk; give the buckets that are to be flushed now.

        Waits only while rows handed over before leave no room in the bound.
        """
        while not self.ledger.admit(chunk.rows.nbytes) and self._compact():
            pass
        sizes = chunk.sizes
        # Large parts have memory of their own, to be free as soon as they are flushed.
        small = {group: span for group, span in chunk.spans.items() if sizes[group] < MAPPED_MIN}
        for group, span in chunk.spans.items():
            if group not in small:
                self._hold(chunk, {group: span})
        if small:
            self._hold(chunk, small)
        return [self._hand_over(group) for group in self.policy.add(sizes)]

    def _hold(self, chunk: Chunk, spans: Mapping[Group, tuple[int, int]]) -> None:
        """Copy neighbouring stretches out of a chunk."""
        starts, stops = zip(*spans.values(), strict=True)
        first = min(starts)
        rows = detached(chunk.rows.slice(first, max(stops) - first))
        self.ledger.take(rows.nbytes)
        moved = {group: (start - first, stop - first) for group, (start, stop) in spans.items()}
        self._blocks.append(_BufferedBatch(rows, moved, rows.nbytes, chunk.removes))

    def rest(self) -> list[FlushBatch]:
        """Hand over everything that is left."""
        return [self._hand_over(group) for group in self.policy.rest()]

    def clear(self) -> None:
        """Drop everything."""
        self.ledger.give(sum(block.size for block in self._blocks))
        self._blocks.clear()
        self.policy.rest()

    def _hand_over(self, group: Group) -> FlushBatch:
        batches: list[pa.RecordBatch] = []
        removals: list[tuple[int, pa.RecordBatch]] = []
        touched: list[_BufferedBatch] = []
        size = 0
        with self._lock:
            for block in self._blocks:
                span = block.spans.pop(group, None)
                if span is None:
                    continue
                block.away += 1
                batch = block.rows.slice(span[0], span[1] - span[0])
                size += batch.num_rows * block.size // max(1, block.rows.num_rows)
                if block.removes:
                    removals.append((len(batches), batch))
                else:
                    batches.append(batch)
                touched.append(block)
            self._blocks = [block for block in self._blocks if block.spans]

        def done() -> None:
            batches.clear()
            removals.clear()
            with self._lock:
                for block in touched:
                    block.away -= 1
                free = [block for block in touched if not block.away and not block.spans]
                touched.clear()
            self.ledger.give(sum(block.size for block in free))

        return FlushBatch(group, batches, size, done, removals)

    def _compact(self) -> bool:
        """Copy what is left of the block that wastes the most; False if none wastes any.

        It happens when single buckets were flushed out of blocks that others still need.
        """
        with self._lock:
            idle = [block for block in self._blocks if not block.away and block.wasted]
        if not idle:
            return False
        block = max(idle, key=lambda each: each.wasted)
        spans = list(block.spans.items())
        kept = np.concatenate([np.arange(start, stop) for _, (start, stop) in spans])
        block.rows = detached(taken(block.rows, kept))
        self.ledger.give(block.size - block.rows.nbytes)
        block.size = block.rows.nbytes
        at = 0
        for group, (start, stop) in spans:
            block.spans[group] = (at, at + stop - start)
            at += stop - start
        return True


class FlushSink(Protocol):
    """Where flushed buckets go."""

    def flush(self, orders: Sequence[FlushBatch]) -> None:
        """Take the rows of these buckets; call ``done`` on each once it is read."""
        ...


class Flusher:
    """One thread that does orders in the order in which they were given."""

    def __init__(self, sink: FlushSink, ledger: Ledger) -> None:
        self._sink = sink
        self._ledger = ledger
        self._thread = _one_thread()
        self._running: list[Future[None]] = []

    def submit(self, orders: Sequence[FlushBatch]) -> None:
        """Hand over buckets, and go on; raise what an earlier flush raised."""
        self._raise_failed()
        if not orders:
            return
        self._ledger.begin()
        try:
            self._running.append(self._thread.submit(self._run, list(orders)))
        except RuntimeError:  # no thread can be had: nothing of it ran, nor ever will
            self.close()
            self._thread = _one_thread()
            self._run(list(orders))

    def finish(self, orders: Sequence[FlushBatch]) -> None:
        """Do the last buckets, after all that was handed over; raise what a flush raised.

        In the caller's thread: it would only wait, and a small commit needs no other.
        """
        self.wait()
        if orders:
            self._ledger.begin()
            self._run(list(orders))

    def wait(self) -> None:
        """Wait for everything that was handed over; raise what a flush raised."""
        wait(self._running)
        self._raise_failed()

    def close(self) -> None:
        """End the thread; orders that it has not begun are dropped."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _raise_failed(self) -> None:
        # A flush that failed stays first for good: what it had is not in any file.
        while self._running and self._running[0].done():
            self._running[0].result()
            self._running.pop(0)

    def _run(self, orders: list[FlushBatch]) -> None:
        try:
            self._sink.flush(orders)
        finally:
            for order in orders:
                order.done()
            self._ledger.end()


def _one_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="plait-flush")
