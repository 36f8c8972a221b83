"""The control topic when a process begins to read it, on brokers that have just come back."""

from __future__ import annotations

import pytest

from plait import AccessDeniedError, StorageError, TableNotFoundError
from plait.kafka.client import Clients
from plait.kafka.control import _BEGIN_S, ControlTopic
from plait.kafka.settings import SinkSettings
from plait.testing import SimClock

SETTINGS = SinkSettings("localhost:9", ("events",), client={"log_level": "0"})
MOVED = StorageError("not the leader yet")
UNKNOWN = TableNotFoundError("no topic yet")


class Restarting(ControlTopic):
    """Its brokers answer each of the first looks after a while, with an error."""

    def __init__(self, clock: SimClock, errors: list[Exception], answer_s: float) -> None:
        self.clock, self.errors, self.answer_s, self.looks = clock, errors, answer_s, 0
        super().__init__(Clients(SETTINGS.bootstrap, SETTINGS.client), SETTINGS)

    def _read_from_end(self) -> None:
        self.looks += 1
        if self.errors:
            self.clock.sleep(self.answer_s)
            raise self.errors.pop(0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimClock:
    made = SimClock()
    monkeypatch.setattr("plait.kafka.control.SystemClock", lambda: made)
    return made


def test_errors_of_brokers_that_have_just_come_back_are_borne(clock: SimClock) -> None:
    topic = Restarting(clock, [MOVED], answer_s=2 * _BEGIN_S)
    topic.close()
    assert topic.looks == 2, "how long the first answer took does not count"
    topic = Restarting(clock, [MOVED, UNKNOWN], answer_s=0)
    topic.close()
    assert topic.looks == 3


@pytest.mark.parametrize(
    ("error", "at_once"), [(MOVED, False), (UNKNOWN, False), (AccessDeniedError("no"), True)]
)
def test_errors_that_go_on_end_the_process_and_a_right_that_is_missing_at_once(
    clock: SimClock, error: Exception, *, at_once: bool
) -> None:
    began = clock.monotonic()
    with pytest.raises(type(error)):
        Restarting(clock, [error] * 1_000, answer_s=0)
    took_s = clock.monotonic() - began
    assert took_s == 0 if at_once else _BEGIN_S <= took_s < 2 * _BEGIN_S
