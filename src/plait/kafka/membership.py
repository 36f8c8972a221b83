"""Whether the user may be a member of a group, asked without joining it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from plait.kafka.client import ASK_S, Clients
from plait.kafka.library import is_transient, library, translated
from plait.ports import SystemClock

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, TopicPartition

_NO_PARTITION: Final = (1 << 31) - 1
_LOOK_S: Final = 0.5
_POLL_S: Final = 0.1


def may_join(clients: Clients, group: str, topic: str) -> bool:
    """Tell whether the user may be a member of a group; yes if the brokers do not answer in time.

    Asks to commit an offset in a partition that no topic has. Brokers look at the right to the
    group first, and then refuse the partition, so that nothing is written. To describe the group
    would be the straight way, but librdkafka 2.16 aborts the process if a coordinator restarts
    meanwhile (its issue 4605).

    Args:
        clients: make the client.
        group: the name of the group; it need not exist.
        topic: a topic that its members would read.

    Raises:
        StorageError: the client has stopped for good.
    """
    answers: list[KafkaError | None] = []
    consumer = clients.consumer(group, {"on_commit": lambda error, _: answers.append(error)})
    place, end = clients.place(topic, _NO_PARTITION, 0), SystemClock().monotonic() + ASK_S
    try:
        with translated(f"ask whether this user may join group {group!r}"):
            return _may_find(consumer, place, end) and _may_commit(consumer, place, end, answers)
    finally:
        consumer.close()


def _may_find(consumer: Consumer, place: TopicPartition, end: float) -> bool:
    """Wait until the coordinator has answered; tell whether the user may know the group.

    A commit would wait for the coordinator, and the end of the client for the commit.
    """
    kafka, clock = library(), SystemClock()
    while clock.monotonic() < end:
        try:
            consumer.committed([place], timeout=_LOOK_S)
        except kafka.KafkaException as error:
            event = consumer.poll(0)  # who asks for the coordinator in vain hears of it here
            errors = (error.args[0], None if event is None else event.error())
            if any(each is not None and _denies(each) for each in errors):
                return False
            if is_transient(error.args[0]):
                continue
        break
    return True


def _may_commit(
    consumer: Consumer, place: TopicPartition, end: float, answers: list[KafkaError | None]
) -> bool:
    clock = SystemClock()
    while clock.monotonic() < end:
        consumer.commit(offsets=[place], asynchronous=True)
        while not answers and clock.monotonic() < end:
            consumer.poll(_POLL_S)
        answer = answers.pop() if answers else None
        if answer is None or not is_transient(answer):
            return answer is None or not _denies(answer)
    return True


def _denies(error: KafkaError) -> bool:
    return error.code() == library().KafkaError.GROUP_AUTHORIZATION_FAILED
