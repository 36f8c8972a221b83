"""What an administrator asks is answered, although an answer may be lost."""

from __future__ import annotations

import time
from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from plait import StorageError
from plait.kafka.client import Clients

ASK_S = 0.9
CLIENTS = Clients("127.0.0.1:1", {})


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.kafka.client.ASK_S", ASK_S)


def answered(what: str | int) -> Future[str]:
    """Return an answer: what it says, or the code of an error."""
    answer: Future[str] = Future()
    if isinstance(what, str):
        answer.set_result(what)
    else:
        answer.set_exception(KafkaException(KafkaError(what, "refused")))
    return answer


@pytest.mark.parametrize("code", [None, KafkaError._TRANSPORT, KafkaError._TIMED_OUT])
def test_a_request_whose_answer_is_lost_is_sent_again(code: int | None) -> None:
    lost: Future[str] = Future() if code is None else answered(code)
    answers = iter([lost, answered("granted")])
    given_s: list[float] = []

    def ask(left_s: float) -> dict[str, Future[str]]:
        given_s.append(left_s)
        return {"a": next(answers)}

    assert CLIENTS._answers(ask) == {"a": "granted"}
    assert given_s[0] < ASK_S / 2, "time is left for another request"


def test_brokers_that_never_answer_are_named_in_time() -> None:
    began = time.monotonic()
    with pytest.raises(StorageError, match=r"no broker at 127\.0\.0\.1:1 answered"):
        CLIENTS._answers(lambda _: {"a": Future()})
    assert time.monotonic() - began >= ASK_S


def test_the_last_error_is_given_when_brokers_refuse_for_too_long() -> None:
    codes = iter([KafkaError._TRANSPORT, *[KafkaError.NOT_COORDINATOR] * 100])
    told = CLIENTS._answers(lambda _: {"a": answered(next(codes))})["a"]
    assert isinstance(told, KafkaException)
    assert told.args[0].code() == KafkaError.NOT_COORDINATOR


def test_an_error_that_is_an_answer_is_taken_at_once() -> None:
    requests = [{"a": answered("there"), "b": answered(KafkaError.UNKNOWN_TOPIC_OR_PART)}]
    told = CLIENTS._answers(lambda _: requests.pop())
    assert told["a"] == "there"
    assert isinstance(told["b"], KafkaException)
