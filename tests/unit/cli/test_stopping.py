"""A command that is told to stop ends with 0, wherever the signal met it."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from plait.cli.stopping import Stopping


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Give the process its handlers back."""
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


def test_a_signal_ends_the_block_with_0() -> None:
    stopping = Stopping()
    with pytest.raises(SystemExit) as caught, stopping.at_once():
        signal.raise_signal(signal.SIGTERM)
    assert (caught.value.code, stopping.asked.is_set()) == (0, True)


def test_a_signal_that_a_function_in_c_takes_for_its_own_error_ends_the_block_with_0() -> None:
    """Python says so of a function that returned a value while the handler's exception was set."""
    with pytest.raises(SystemExit) as caught, Stopping().at_once():
        _in_c(signal.SIGINT)
    assert caught.value.code == 0
    with pytest.raises(SystemError), Stopping().at_once():
        raise SystemError


def test_later_signals_are_noted_alone() -> None:
    stopping = Stopping()
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGINT)
    assert stopping.asked.is_set()


def _in_c(number: signal.Signals) -> None:
    try:
        signal.raise_signal(number)
    except SystemExit as error:
        message = "returned a result with an exception set"
        raise SystemError(message) from error
