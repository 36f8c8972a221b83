"""Reading ahead: in order, within bounds, and stopped when nobody listens."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from plait.read.ahead import read_ahead


def source(items: range, seen: list[int]) -> Callable[[], Iterator[int]]:
    def run() -> Iterator[int]:
        for item in items:
            seen.append(item)
            yield item

    return run


@pytest.mark.parametrize(("width", "depth"), [(1, 1), (2, 1), (4, 3)])
def test_items_come_in_the_order_of_their_sources(width: int, depth: int) -> None:
    sources = [source(range(n * 10, n * 10 + n), []) for n in range(12)]
    expected = [item for n in range(12) for item in range(n * 10, n * 10 + n)]
    assert list(read_ahead(sources, width=width, depth=depth)) == expected


def test_sources_run_ahead_no_further_than_allowed() -> None:
    seen: list[int] = []
    reader = read_ahead([source(range(1000), seen)] * 10, width=2, depth=3)
    assert next(reader) == 0
    reader.close()  # type: ignore[attr-defined]  # a generator
    # Each of two sources: 3 waiting, one in hand, one on the way to the consumer.
    assert len(seen) <= 2 * (3 + 2)


def test_error_is_raised_where_it_happened_after_what_came_before() -> None:
    def broken() -> Iterator[int]:
        yield 5
        message = "gone"
        raise OSError(message)

    reader = read_ahead([source(range(2), []), broken, source(range(9), [])], width=3, depth=2)
    assert [next(reader) for _ in range(3)] == [0, 1, 5]
    with pytest.raises(OSError, match="gone"):
        next(reader)


def test_closing_stops_every_thread() -> None:
    ended = threading.Semaphore(0)

    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            ended.release()

    reader = read_ahead([endless] * 5, width=3, depth=1)
    assert next(reader) == 1
    reader.close()  # type: ignore[attr-defined]  # a generator
    for _ in range(3):
        assert ended.acquire(timeout=300)


def test_program_that_leaves_a_reader_half_read_ends_at_once_and_well() -> None:
    program = (
        "import itertools\n"
        "from plait.read.ahead import read_ahead\n"
        "reader = read_ahead([itertools.count] * 3, width=2, depth=1)\n"
        "print(next(reader))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_nothing_runs_before_the_first_item_is_asked_for() -> None:
    seen: list[int] = []
    read_ahead([source(range(3), seen)], width=1, depth=1)
    assert seen == []
