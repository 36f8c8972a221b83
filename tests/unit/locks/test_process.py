"""The queue of threads."""

from __future__ import annotations

import gc
import threading

import pytest

from plait.locks import process as fifo
from plait.locks.process import FifoLock, fifo_lock


def waiting(lock: FifoLock, count: int) -> None:
    """Wait until so many threads are in the queue."""
    pause = threading.Event()
    for _ in range(2000):
        if len(lock._waiters) == count:
            return
        pause.wait(0.001)
    pytest.fail(f"{len(lock._waiters)} wait, not {count}")


def test_waiters_are_served_in_the_order_of_their_coming() -> None:
    lock, served = FifoLock(), list[str]()
    assert lock.acquire("first", wait_s=0)

    def wait(name: str) -> None:
        assert lock.acquire(name, wait_s=30)
        served.append(name)
        lock.release()

    threads = []
    for number in range(5):
        thread = threading.Thread(target=wait, args=(str(number),))
        thread.start()
        threads.append(thread)
        waiting(lock, number + 1)
    lock.release()
    for thread in threads:
        thread.join()
    assert served == ["0", "1", "2", "3", "4"]
    assert lock.holder is None


def test_nobody_can_push_in_while_somebody_waits() -> None:
    lock = FifoLock()
    lock.acquire("first", wait_s=0)
    thread = threading.Thread(target=lock.acquire, args=("second",), kwargs={"wait_s": 30})
    thread.start()
    waiting(lock, 1)
    lock.release()
    assert not lock.acquire("first", wait_s=0)
    assert lock.holder == "second"
    thread.join()


def test_a_waiter_that_gives_up_leaves_the_queue() -> None:
    lock = FifoLock()
    lock.acquire("first", wait_s=0)
    assert not lock.acquire("second", wait_s=0.01)
    lock.release()
    assert lock.holder is None
    assert lock.acquire("third", wait_s=0)


@pytest.mark.parametrize("served", [False, True])
def test_an_interrupted_waiter_holds_nobody_up_and_passes_on_what_it_got_just_then(
    served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = FifoLock()
    lock.acquire("first", wait_s=0)

    def interrupt(*_: object) -> bool:
        if served:
            lock.release()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Event, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            lock.acquire("second", wait_s=30)
    if not served:
        lock.release()
    assert lock.holder is None
    assert lock.acquire("third", wait_s=0)


def test_one_name_is_one_lock_and_unused_ones_go() -> None:
    one, name = fifo_lock("name"), "name"
    assert fifo_lock(name) is one
    assert fifo_lock("other") is not one
    del one
    gc.collect()
    assert name not in fifo._LOCKS
