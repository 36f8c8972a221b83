"""Starts worker processes and reads what they report."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.processes.worker import main
from tests.services.forked import Forked


class Worker(Forked):
    """One worker process; killed, also when stopped, at the end of the block."""

    def __init__(self, role: str, uri: str, place: str, *rest: object) -> None:
        super().__init__(main, role, uri, place, *map(str, rest))


@contextmanager
def fleet(count: int, uri: str, *rest: object) -> Iterator[list[Worker]]:
    """Start workers that wait for each other before they begin."""
    with ExitStack() as living:
        workers = [
            living.enter_context(Worker("upserts", uri, str(number), *rest))
            for number in range(count)
        ]
        for worker in workers:
            assert worker.hear()["event"] == "ready"
        for worker in workers:
            worker.go()
        yield workers
