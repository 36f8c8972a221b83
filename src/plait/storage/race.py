"""Races of real calls for one name: who wins, and what a reader sees meanwhile.

Used by the probe and by the conformance kit. A race can show that a store is unfit; it cannot
prove that it is fit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from plait.errors import StorageError, TableError
from plait.model.store_address import StoreAddress
from plait.storage.port import Store

BODY_BYTES = 64 << 10
TIMEOUT_S = 120.0
_SWITCH_S = 1e-5


@dataclass(frozen=True, slots=True)
class RaceResult:
    """What came of a number of races."""

    winners: tuple[int, ...]
    """How many callers were told that they won, a round."""
    torn: int
    """Different contents seen that were no caller's whole one, and rounds whose content changed."""
    errors: tuple[str, ...] = ()

    @property
    def fair(self) -> bool:
        """Whether each round had one winner, and nobody saw a part."""
        return not self.torn and not self.errors and all(count == 1 for count in self.winners)

    @classmethod
    def sum(cls, results: Sequence[RaceResult]) -> RaceResult:
        """Add up the results that several processes saw of the same rounds."""
        winners = tuple(map(sum, zip(*(result.winners for result in results), strict=True)))
        torn = sum(result.torn for result in results)
        return cls(winners, torn, tuple(error for result in results for error in result.errors))


def body_of(name: str) -> bytes:
    """Make content that shows whether it is whole."""
    line = f"{name}\n".encode()
    return line * (BODY_BYTES // len(line))


def is_whole(body: bytes) -> bool:
    """Tell whether this is the whole content of one caller."""
    return body == body_of(body.split(b"\n", 1)[0].decode("utf-8", "replace"))


BEFORE = body_of("before")
"""What a file holds that is raced for with ``replace``."""


def race_threads(
    stores: Sequence[Store], prefix: str, *, rounds: int, name: str, swap: bool = False
) -> RaceResult:
    """Race one thread a store in this process: with ``put_if_absent``, or with ``replace``."""
    results = [
        race_round(stores, f"{prefix}/{number}", name, swap=swap) for number in range(rounds)
    ]
    winners = tuple(result.winners[0] for result in results)
    errors = tuple(error for result in results for error in result.errors)
    return RaceResult(winners, sum(result.torn for result in results), errors)


def race_round(stores: Sequence[Store], path: str, name: str, *, swap: bool = False) -> RaceResult:
    """Let every store race once for a path, while one more thread reads it.

    Raises:
        StorageError: the system gives no thread; nobody is left waiting.
    """
    if swap:
        stores[0].put_if_absent(path, BEFORE)  # of several processes one makes it
    start, over = threading.Barrier(len(stores) + 1), threading.Event()
    won: list[bytes] = []
    seen: set[bytes] = set()
    errors: list[str] = []

    def contend(number: int, store: Store) -> None:
        body = body_of(f"{name}-{number}-{path}")
        if not _begins(start):
            return
        try:
            if _contend(store, path, body, swap=swap):
                won.append(body)
            seen.add(store.find(path) or b"")  # decided now: it must be there, whole
        except (TableError, OSError) as error:
            errors.append(f"{type(error).__name__}: {error}"[:500])

    def watch(store: Store) -> None:
        if not _begins(start):
            return
        while not over.is_set():
            try:
                body = store.find(path)
            except (TableError, OSError):
                continue  # the contenders report what fails
            if body is not None and body != BEFORE:
                seen.add(body)

    threads = [
        threading.Thread(target=contend, args=(number, store), daemon=True)
        for number, store in enumerate(stores)
    ]
    watcher = threading.Thread(target=watch, args=(stores[0],), daemon=True)
    _start_all([*threads, watcher], start, stores[0].address.uri)
    for thread in threads:
        thread.join()
    over.set()
    watcher.join()
    changed = len(seen) > 1 or bool(len(won) == 1 and seen - set(won))
    torn = sum(not is_whole(body) for body in seen) + changed
    return RaceResult((len(won),), torn, tuple(errors))


def _start_all(threads: Sequence[threading.Thread], start: threading.Barrier, uri: str) -> None:
    try:
        for thread in threads:
            thread.start()
    except RuntimeError as error:
        start.abort()
        raise _no_thread(error, uri) from error


def _begins(start: threading.Barrier) -> bool:
    """Wait for the others; False if one of them could not be started."""
    try:
        start.wait()
    except threading.BrokenBarrierError:
        return False
    return True


def _no_thread(error: RuntimeError, uri: str) -> StorageError:
    hint = "raise the limit of threads (ulimit -u, or the container's pids limit) and open it again"
    return StorageError(f"cannot probe the store: {error}", hint=hint, uri=uri)


def _contend(store: Store, path: str, body: bytes, *, swap: bool) -> bool:
    if swap:
        return store.replace(path, body, expected=BEFORE)
    return store.put_if_absent(path, body)


def race_processes(
    address: StoreAddress,
    prefix: str,
    *,
    rounds: int,
    processes: int = 3,
    threads: int = 2,
    swap: bool = False,
) -> RaceResult | None:
    """Race processes, each with some threads; None if none can be started.

    The options of the store go through a pipe as JSON, so that no secret is in a command line.

    Raises:
        StorageError: the system gives no thread.
    """
    order = {
        "uri": address.uri,
        "options": address.options,
        "prefix": prefix,
        "threads": threads,
        "swap": swap,
        "switch_s": _SWITCH_S,
    }
    try:
        orders = [json.dumps({**order, "name": f"process-{number}"}) for number in range(processes)]
        workers = [_start() for _ in range(processes)]
    except (TypeError, ValueError, OSError):
        return None
    watchdog = threading.Timer(TIMEOUT_S, _kill, [workers])
    watchdog.daemon = True
    try:
        watchdog.start()
        for worker, line in zip(workers, orders, strict=True):
            _tell(worker, line)
        if not all(_hear(worker) == "ready" for worker in workers):
            return None
        results = [_round(workers, number) for number in range(rounds)]
    except RuntimeError as error:
        raise _no_thread(error, address.uri) from error
    except (OSError, ValueError) as error:
        return RaceResult((), 0, (f"a racing process died: {error}",))
    finally:
        watchdog.cancel()
        _kill(workers)
    winners = tuple(result.winners[0] for result in results)
    errors = tuple(error for result in results for error in result.errors)
    return RaceResult(winners, sum(result.torn for result in results), errors)


def _start() -> subprocess.Popen[str]:
    package = Path(__file__).resolve().parents[2]
    paths = [str(package), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-m", "plait.storage.race_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )


def _tell(worker: subprocess.Popen[str], line: str) -> None:
    if worker.stdin is not None:
        worker.stdin.write(line + "\n")
        worker.stdin.flush()


def _hear(worker: subprocess.Popen[str]) -> str:
    return "" if worker.stdout is None else worker.stdout.readline().strip()


def _round(workers: Sequence[subprocess.Popen[str]], number: int) -> RaceResult:
    for worker in workers:
        _tell(worker, str(number))
    replies = [json.loads(_hear(worker)) for worker in workers]
    seen = [RaceResult((won,), torn, tuple(errors)) for won, torn, errors in replies]
    return RaceResult.sum(seen)


def _kill(workers: Sequence[subprocess.Popen[str]]) -> None:
    for worker in workers:
        worker.kill()
        worker.wait()
        for stream in (worker.stdin, worker.stdout):
            if stream is not None and not stream.closed:
                stream.close()
