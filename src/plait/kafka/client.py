"""Clients of Kafka, made the way that exactly once needs; the one file that knows the library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from plait.errors import (
    MissingDependencyError,
    OptionError,
    StorageError,
    TableNotFoundError,
)
from plait.ports import SystemClock

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient

_ASK_S: Final = 30.0
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


@dataclass(frozen=True, slots=True)
class Clients:
    """Makes the clients of one sink."""

    bootstrap: str
    options: Mapping[str, str]
    """Further settings of librdkafka."""

    def consumer(self, group: str | None = None, **settings: str | int) -> Consumer:
        """Return a consumer whose offsets nobody but the caller sets.

        Only committed records are read, and an offset that is not there is an error.
        """
        made: dict[str, object] = {
            **self._common(),
            "group.id": group or f"{_CLIENT_ID}-none",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            **settings,
        }
        with _configured():
            return _library().Consumer(made)

    def producer(self, **settings: str | int) -> Producer:
        """Return a producer whose messages arrive once and in order, or with an error."""
        made: dict[str, object] = {
            **self._common(),
            "enable.idempotence": True,
            "acks": "all",
            **settings,
        }
        with _configured():
            return _library().Producer(made)

    def find_topics(self, names: Sequence[str]) -> dict[str, Topic]:
        """Look topics up; those that are not there are left out.

        Raises:
            StorageError: the brokers do not answer.
        """
        library = _library()
        found: dict[str, Topic] = {}
        admin = self._admin()  # its answers end with it
        with translated(f"describe {', '.join(names)}"):
            asked = admin.describe_topics(
                library.TopicCollection(list(names)), request_timeout=_ASK_S
            )
        for name, answer in asked.items():
            try:
                told = answer.result(_ASK_S)
            except library.KafkaException as error:
                if error.args[0].code() == library.KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise _unreachable(error, "describe", name) from error
            except TimeoutError as error:
                raise _silent(self.bootstrap) from error
            if str(told.topic_id) == _NO_ID:
                message = f"the brokers at {self.bootstrap} do not tell the id of topic {name!r}"
                hint = (
                    "a topic that is made again could not be told from the old one; use Kafka 2.8+"
                )
                raise StorageError(message, hint=hint)
            found[name] = Topic(name, str(told.topic_id), len(told.partitions))
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

    def make_topic(self, name: str, *, partitions: int = 1, settings: Mapping[str, str]) -> None:
        """Make a topic unless it is there; replicas as the brokers' default says."""
        library = _library()
        topic = library.NewTopic(name, partitions, config=dict(settings))
        admin = self._admin()  # its answers end with it
        answer = admin.create_topics([topic], request_timeout=_ASK_S)[name]
        try:
            answer.result(_ASK_S)
        except library.KafkaException as error:
            if error.args[0].code() != library.KafkaError.TOPIC_ALREADY_EXISTS:
                raise _unreachable(error, "create topic", name) from error
        except TimeoutError as error:
            raise _silent(self.bootstrap) from error

    def place(self, topic: str, partition: int, offset: int | None = None) -> TopicPartition:
        """Name a place in a topic, as the library does."""
        made = _library().TopicPartition
        return made(topic, partition) if offset is None else made(topic, partition, offset)

    def end_of(self, topic: str, partition: int) -> TopicPartition:
        """Name the end of a partition, wherever that is."""
        return self.place(topic, partition, _library().OFFSET_END)

    def bounds(self, consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
        """Return the first offset of a partition, and the one after the last.

        A broker that has just come back may take a moment to lead its partitions.

        Raises:
            StorageError: the brokers do not answer.
        """
        library, place, clock = _library(), self.place(topic, partition), SystemClock()
        moved = (
            library.KafkaError.NOT_LEADER_FOR_PARTITION,
            library.KafkaError.LEADER_NOT_AVAILABLE,
        )
        for left in reversed(range(_LOOKS)):
            try:
                found = consumer.get_watermark_offsets(place, timeout=_ASK_S)
                break
            except library.KafkaException as error:
                if not left or error.args[0].code() not in moved:
                    raise _unreachable(error, "look at", f"{topic}/{partition}") from error
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
                found = consumer.offsets_for_times(asked, timeout=_ASK_S)[0].offset
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
        library = _library()
        try:
            consumer.seek(self.place(topic, partition, offset))
        except library.KafkaException as error:
            if error.args[0].code() == library.KafkaError._STATE:  # noqa: SLF001 - a name of theirs
                return False
            raise _unreachable(error, "seek in", f"{topic}/{partition}") from error
        return True

    def begin_at(self, consumer: Consumer, topic: str, partition: int, offset: int) -> None:
        """Let a member of a group read a partition that it has from an offset, whatever its state.

        After an offset that is not there, a seek is refused for ever; this is not.

        Raises:
            StorageError: it cannot.
        """
        place = [self.place(topic, partition, offset)]
        with translated(f"begin {topic}/{partition} anew"):
            consumer.incremental_unassign(place)
            consumer.incremental_assign(place)
            consumer.resume(place)

    def _common(self) -> dict[str, str | int | float | bool]:
        return {
            "client.id": _CLIENT_ID,
            "allow.auto.create.topics": False,
            **self.options,
            "bootstrap.servers": self.bootstrap,
        }

    def _admin(self) -> AdminClient:
        common = self._common()
        del common["allow.auto.create.topics"]  # of consumers and producers alone
        with _configured():
            return _library().AdminClient(common)


def is_lost_offset(message: Message) -> bool:
    """Tell whether what a consumer gave says that the offset it stands at is not there."""
    error = message.error()
    kinds = _library().KafkaError
    return error is not None and error.code() in (
        kinds._AUTO_OFFSET_RESET,  # noqa: SLF001 - librdkafka's own errors begin so
        kinds.OFFSET_OUT_OF_RANGE,
    )


def require_usable(error: KafkaError, group: str, topic: str) -> None:
    """Raise if an error that a consumer was given does not go away by itself.

    Args:
        error: what it was given in place of a record.
        group: the consumer group; empty for none.
        topic: the topic that it reads, if that is known.

    Raises:
        StorageError: the client has stopped for good, or may not do what it is there for.
    """
    kinds = _library().KafkaError
    code, what = error.code(), f"group {group!r}" if group else f"topic {topic!r}"
    if code == kinds.GROUP_AUTHORIZATION_FAILED:
        hint = f"allow this user READ on {what} (an ACL)"
    elif code == kinds.TOPIC_AUTHORIZATION_FAILED:
        what = f"topic {topic!r}"
        hint = f"allow this user READ and DESCRIBE on {what} (an ACL)"
    elif code in (kinds.CLUSTER_AUTHORIZATION_FAILED, kinds.SASL_AUTHENTICATION_FAILED):
        hint = "see what the brokers allow this user"
    elif error.fatal() or code == kinds._FATAL:  # noqa: SLF001 - a name of theirs
        hint = "start the process again; if that does not help, see the options of the client"
    else:
        return
    message = f"could not read {what}: {error}"
    raise StorageError(message, hint=hint)


def is_absent(error: KafkaError) -> bool:
    """Tell whether an error says that a topic, or its partition, is not there."""
    kinds = _library().KafkaError
    return error.code() in (
        kinds.UNKNOWN_TOPIC_OR_PART,
        kinds.UNKNOWN_TOPIC_ID,
        kinds._UNKNOWN_TOPIC,  # noqa: SLF001 - librdkafka's own errors begin so
        kinds._UNKNOWN_PARTITION,  # noqa: SLF001
    )


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise errors of the library as StorageError."""
    try:
        yield
    except _library().KafkaException as error:
        raise _unreachable(error, what) from error


@contextmanager
def _configured() -> Iterator[None]:
    """Raise what the library says of its settings as OptionError; no value is shown."""
    try:
        yield
    except _library().KafkaException as error:
        reason = error.args[0].str() if error.args else str(error)
        message = f"a setting of the Kafka client is wrong: {reason}"
        hint = "librdkafka's documentation lists the settings"
        raise OptionError(message, hint=hint, key="client", value="") from error


def _unreachable(error: Exception, *what: str) -> StorageError:
    reason = error.args[0] if error.args else error
    message = f"could not {' '.join(what)}: {reason}"
    return StorageError(message, hint="see whether the brokers are up, and what they allow")


def _silent(bootstrap: str) -> StorageError:
    message = f"no broker at {bootstrap} answered within {_ASK_S:.0f} s"
    hint = "see whether they are up, and what they ask of clients: TLS, a password"
    return StorageError(message, hint=hint)


class _Library:
    """The names of the library that this room uses."""

    def __init__(self) -> None:
        import confluent_kafka  # noqa: PLC0415 - an extra
        from confluent_kafka import admin, cimpl  # noqa: PLC0415

        self.Consumer = confluent_kafka.Consumer
        self.Producer = confluent_kafka.Producer
        self.OFFSET_END = confluent_kafka.OFFSET_END
        self.TopicPartition = confluent_kafka.TopicPartition
        self.TopicCollection = confluent_kafka.TopicCollection
        self.KafkaException = confluent_kafka.KafkaException
        self.KafkaError = confluent_kafka.KafkaError
        self.AdminClient = admin.AdminClient
        self.NewTopic = cimpl.NewTopic


_known: list[_Library] = []


def _library() -> _Library:
    if not _known:
        try:
            _known.append(_Library())
        except ImportError as error:
            message = "the Kafka sink needs the library confluent-kafka"
            raise MissingDependencyError(message, hint="pip install 'plait[kafka]'") from error
    return _known[0]
