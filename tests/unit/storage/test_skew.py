"""The clock of a store on another machine."""

from __future__ import annotations

import pytest

from plait.errors import ClockUnavailableError
from plait.model.instant import CLOCK_MS_MAX
from plait.storage.skew import AGE_S_MAX, ServerClock
from plait.testing import SimClock


class Server:
    """A server whose clock is an hour ahead."""

    def __init__(self, clock: SimClock) -> None:
        self.clock, self.asked = clock, 0

    def __call__(self) -> int:
        self.asked += 1
        return int(self.clock.monotonic() * 1000) + 3_600_000


def test_the_server_is_followed_and_asked_again_when_its_answer_may_be_wrong() -> None:
    clock = SimClock()
    server = Server(clock)
    store_clock = ServerClock(clock, server)
    for _ in range(5):
        assert store_clock.now_ms() == int(clock.monotonic() * 1000) + 3_600_000
        clock.advance(60)
    assert server.asked == 1
    clock.advance(AGE_S_MAX + 1)
    before = store_clock.now_ms()
    assert server.asked == 2, "the reading is old"
    clock.skew_ms = -7_200_000
    assert store_clock.now_ms() == before
    assert server.asked == 3, "somebody set our clock"
    clock.suspend(3_600)
    store_clock.now_ms()
    assert server.asked == 4, "the machine slept"


def test_an_answer_that_took_long_is_not_followed() -> None:
    clock = SimClock()
    server = Server(clock)

    def slow() -> int:
        answer = server()
        clock.advance(3)
        return answer

    store_clock = ServerClock(clock, slow)
    behind_ms = [int(clock.monotonic() * 1000) + 3_600_000 - store_clock.now_ms() for _ in range(3)]
    assert behind_ms == [0, 0, 0]
    assert server.asked == 3


@pytest.mark.parametrize("absurd_ms", [-1, CLOCK_MS_MAX + 1])
def test_an_absurd_answer_is_refused_and_asked_for_again(absurd_ms: int) -> None:
    answers = [absurd_ms, 5]
    store_clock = ServerClock(SimClock(), lambda: answers.pop(0))
    with pytest.raises(ClockUnavailableError) as caught:
        store_clock.now_ms()
    assert caught.value.found == absurd_ms
    assert store_clock.now_ms() == 5
