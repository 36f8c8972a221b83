"""Clients of Kafka, configured as exactly-once delivery needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar

from plait.errors import OptionError, StorageError, TableNotFoundError
from plait.kafka.access import TOPIC, Right
from plait.kafka.library import (
    ASKED_OF_CLIENTS,
    is_transient,
    library,
    require_allowed,
    translated,
    unreachable,
)
from plait.ports import SystemClock

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._acl import AclOperation

_Answer = TypeVar("_Answer")

ASK_S: Final = 30.0
"""Seconds that brokers may take to answer."""
_TRIES: Final = 3
"""The first request gets one part in so many of that: rarely, the client loses an answer."""
_LOOKS: Final = 10
_LOOK_S: Final = 0.3
_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""How the library writes an id of zeros: that of old brokers, for every topic."""
_CLIENT_ID: Final = "plait"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the brokers know it."""

    name: str
    id: str
    """Another one if it is deleted and made again."""
    partitions: int
    granted: frozenset[str] = field(default=frozenset(), compare=False)
    """The operations that the user may do on it; empty if the brokers do not report them."""

    def missing(self, *operations: str) -> list[Right]:
        """Return the rights to operations that are known not to be granted."""
        if not self.granted:
            return []
        return [Right(each, TOPIC, self.name) for each in operations if each not in self.granted]


@dataclass(frozen=True, slots=True)
class Clients:
    """Makes the clients of one sink."""

    bootstrap: str
    options: Mapping[str, str]
    """Further settings of librdkafka."""

    def consumer(
        self,
        group: str | None = None,
        settings: Mapping[str, object] = MappingProxyType({}),
        *,
        defaults: Mapping[str, str | int] = MappingProxyType({}),
    ) -> Consumer:
        """Return a consumer whose offsets nobody but the caller sets.

        Only committed records are read, and an offset that is not there is an error. The user's
        settings go before ``defaults``, and ``settings`` before both.
        """
        made: dict[str, object] = {
            **defaults,
            **self._common(),
            "group.id": group or f"{_CLIENT_ID}-none",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            **settings,
        }
        with _configured():
            return library().Consumer(made)

    def producer(self, **settings: str | int) -> Producer:
        """Return a producer whose messages arrive once and in order, or with an error."""
        made: dict[str, object] = {
            **self._common(),
            "enable.idempotence": True,
            "acks": "all",
            **settings,
        }
        with _configured():
            return library().Producer(made)

    def find_topics(self, names: Sequence[str]) -> dict[str, Topic]:
        """Look topics up; those that are not there are left out.

        Raises:
            AccessDeniedError: the user may not see a topic, whether or not it is there.
            StorageError: the brokers do not answer.
        """
        kafka = library()
        found: dict[str, Topic] = {}
        admin = self._admin()  # its answers end with it
        with translated(f"describe {', '.join(names)}"):
            answers = self._answers(
                lambda left_s: admin.describe_topics(
                    kafka.TopicCollection(list(names)),
                    include_authorized_operations=True,
                    request_timeout=left_s,
                )
            )
        for name, answer in answers.items():
            if isinstance(answer, kafka.KafkaException):
                if answer.args[0].code() == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                require_allowed(answer.args[0], Right("DESCRIBE", TOPIC, name))
                raise unreachable(answer, "describe", name) from answer
            if str(answer.topic_id) == _NO_ID:
                message = f"the brokers at {self.bootstrap} do not tell the id of topic {name!r}"
                hint = (
                    "a topic that is made again could not be told from the old one; use Kafka 2.8+"
                )
                raise StorageError(message, hint=hint)
            granted = _names_of(answer.authorized_operations)
            found[name] = Topic(name, str(answer.topic_id), len(answer.partitions), granted)
        return found

    def require_topic(self, name: str) -> Topic:
        """Look a topic up; one that was just made may take a moment to appear.

        Raises:
            TableNotFoundError: it is not there.
            StorageError: the brokers do not answer.
        """
        clock = SystemClock()
        for _ in range(_LOOKS):
            topic = self.find_topics([name]).get(name)
            if topic is not None:
                break
            clock.sleep(_LOOK_S)
        else:
            message = f"no topic {name!r} at {self.bootstrap}"
            raise TableNotFoundError(message, hint="create it, or correct its name")
        return topic

    def make_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        settings: Mapping[str, str],
        dry_run: bool = False,
    ) -> None:
        """Make a topic unless it is there; replicas as the brokers' default says.

        Raises:
            AccessDeniedError: the user may not create it.
            StorageError: the brokers do not answer, or refuse it.
        """
        kafka = library()
        topic = kafka.NewTopic(name, partitions, config=dict(settings))
        admin = self._admin()  # its answers end with it
        answer = self._answers(
            lambda left_s: admin.create_topics(
                [topic], request_timeout=left_s, validate_only=dry_run
            )
        )[name]
        if not isinstance(answer, kafka.KafkaException):
            return
        if answer.args[0].code() != kafka.KafkaError.TOPIC_ALREADY_EXISTS:
            require_allowed(answer.args[0], Right("CREATE", TOPIC, name))
            raise unreachable(answer, "create topic", name) from answer

    def place(self, topic: str, partition: int, offset: int | None = None) -> TopicPartition:
        """Name a place in a topic, as the library does."""
        made = library().TopicPartition
        return made(topic, partition) if offset is None else made(topic, partition, offset)

    def end_of(self, topic: str, partition: int) -> TopicPartition:
        """Name the end of a partition, wherever that is."""
        return self.place(topic, partition, library().OFFSET_END)

    def bounds(self, consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
        """Return the first offset of a partition, and the one after the last.

        A broker that has just come back may take a moment to lead its partitions.

        Raises:
            StorageError: the brokers do not answer.
        """
        kafka, place, clock = library(), self.place(topic, partition), SystemClock()
        moved = (
            kafka.KafkaError.NOT_LEADER_FOR_PARTITION,
            kafka.KafkaError.LEADER_NOT_AVAILABLE,
        )
        for left in reversed(range(_LOOKS)):
            try:
                found = consumer.get_watermark_offsets(place, timeout=ASK_S)
                break
            except kafka.KafkaException as error:
                if not left or error.args[0].code() not in moved:
                    raise unreachable(error, "look at", f"{topic}/{partition}") from error
                clock.sleep(_LOOK_S)
        if found is None:
            message = f"the brokers do not tell the offsets of {topic}/{partition}"
            raise StorageError(message, hint="see whether they are up")
        return found

    def find_time(self, topic: str, partition: int, ms: int) -> int | None:
        """Return the offset of the first record that is not older; None if all are.

        Raises:
            StorageError: the brokers do not answer.
        """
        consumer = self.consumer()
        try:
            with translated(f"look for a time in {topic}/{partition}"):
                asked = [self.place(topic, partition, ms)]
                found = consumer.offsets_for_times(asked, timeout=ASK_S)[0].offset
        finally:
            consumer.close()
        return found if found >= 0 else None

    def known_end(self, consumer: Consumer, topic: str, partition: int) -> int:
        """Return the end of a partition that is being read, as the brokers told last; 0 if never.

        Nobody is asked.
        """
        found = consumer.get_watermark_offsets(self.place(topic, partition), cached=True)
        return max(0, found[1])

    def seek(self, consumer: Consumer, topic: str, partition: int, offset: int) -> bool:
        """Let a consumer go on elsewhere; return whether it could: not while it begins.

        Raises:
            StorageError: it cannot.
        """
        kafka = library()
        try:
            consumer.seek(self.place(topic, partition, offset))
        except kafka.KafkaException as error:
            if error.args[0].code() == kafka.KafkaError._STATE:  # noqa: SLF001 - a name of theirs
                return False
            raise unreachable(error, "seek in", f"{topic}/{partition}") from error
        return True

    def begin_at(self, consumer: Consumer, topic: str, partition: int, offset: int) -> None:
        """Let a member of a group read a partition that it has from an offset, whatever its state.

        After an offset that is not there, a seek is refused for ever; this is not.

        Raises:
            StorageError: it cannot.
        """
        place = [self.place(topic, partition, offset)]
        with translated(f"begin {topic}/{partition} anew"):
            consumer.resume(
                place
            )  # first: right after an assignment, the client forgets its offset
            consumer.incremental_unassign(place)
            consumer.incremental_assign(place)

    def _answers(
        self, ask: Callable[[float], Mapping[str, Future[_Answer]]]
    ) -> dict[str, _Answer | KafkaException]:
        """Return the answers to a request, or their errors, by name.

        A broker that restarts leaves the requests that it had begun without an answer, and may
        refuse others while it starts. The library does not repeat the requests of an
        administrator. None of them does anything twice, so they are repeated here, for as long as
        brokers may take to answer.

        Args:
            ask: sends the request, given the seconds that are left for it.

        Raises:
            StorageError: the brokers do not answer.
        """
        kafka, clock = library(), SystemClock()
        end, left_s = clock.monotonic() + ASK_S, ASK_S / _TRIES
        while True:
            answers: dict[str, _Answer | KafkaException] = {}
            again = False
            asked = ask(left_s)
            for name, answer in asked.items():
                try:
                    answers[name] = answer.result(left_s)
                except kafka.KafkaException as error:
                    answers[name] = error
                    again = again or is_transient(error.args[0])
                except TimeoutError:
                    again = True
                    break
            left_s = end - _LOOK_S - clock.monotonic()
            if again and left_s > 0:
                clock.sleep(_LOOK_S)
            elif len(answers) < len(asked):
                raise _silent(self.bootstrap)
            else:
                return answers

    def _common(self) -> dict[str, str | int | float | bool]:
        return {
            "client.id": _CLIENT_ID,
            "allow.auto.create.topics": False,
            # To start over from the bootstrap servers whenever all brokers are away, librdkafka
            # 2.16 throws their handles away: requests under way never end, and once in some
            # hundred restarts it aborts the process. Addresses that are known are tried again.
            "metadata.recovery.strategy": "none",
            **self.options,
            "bootstrap.servers": self.bootstrap,
        }

    def _admin(self) -> AdminClient:
        common = self._common()
        del common["allow.auto.create.topics"]  # of consumers and producers alone
        with _configured():
            return library().AdminClient(common)


@contextmanager
def _configured() -> Iterator[None]:
    """Raise what the library says of its settings as OptionError; no value is shown."""
    try:
        yield
    except library().KafkaException as error:
        reason = error.args[0].str() if error.args else str(error)
        message = f"a setting of the Kafka client is wrong: {reason}"
        hint = "librdkafka's documentation lists the settings"
        raise OptionError(message, hint=hint, key="client", value="") from error
    except (AttributeError, TypeError, ValueError) as error:  # of settings that are Python objects
        message = f"a setting of the Kafka client is wrong: {error}"
        hint = "callbacks and tables cannot be set here; see librdkafka's documentation"
        raise OptionError(message, hint=hint, key="client", value="") from error


def _silent(bootstrap: str) -> StorageError:
    message = f"no broker at {bootstrap} answered within {ASK_S:.0f} s"
    return StorageError(message, hint=ASKED_OF_CLIENTS)


def _names_of(operations: Sequence[AclOperation] | None) -> frozenset[str]:
    return frozenset(each.name for each in operations or ())
