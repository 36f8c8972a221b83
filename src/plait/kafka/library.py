"""The client library: imported when it is first used, and what its errors mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from plait.errors import MissingDependencyError, StorageError
from plait.kafka.access import CLUSTER, GROUP, TOPIC, Right, access_denied

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

ASKED_OF_CLIENTS: Final = (
    "see whether the brokers are up, and what they ask of clients: TLS, a password, rights"
)


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


def library() -> _Library:
    """Return the library's names, imported at the first call.

    Raises:
        MissingDependencyError: the library is not installed.
    """
    if not _known:
        try:
            _known.append(_Library())
        except ImportError as error:
            message = "the Kafka sink needs the library confluent-kafka"
            raise MissingDependencyError(message, hint="pip install 'plait[kafka]'") from error
    return _known[0]


def headers_of(record: Message) -> list[tuple[str, str | bytes | None]]:
    """Return the headers of a record.

    Raises:
        ValueError: the name of one is not UTF-8 text; the library then forgets them all.
    """
    try:
        found = record.headers() or ()
    except (SystemError, UnicodeDecodeError) as error:
        raise ValueError("the name of a header is not UTF-8 text") from error
    return [*(found.items() if isinstance(found, dict) else found)]


def is_lost_offset(message: Message) -> bool:
    """Tell whether what a consumer gave says that the offset it stands at is not there."""
    error = message.error()
    kinds = library().KafkaError
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
        AccessDeniedError: the user may not do what the client is there for.
        StorageError: the client has stopped for good.
    """
    kinds = library().KafkaError
    code = error.code()
    of_group = code == kinds.GROUP_AUTHORIZATION_FAILED
    require_allowed(error, Right("READ", GROUP, group) if of_group else Right("READ", TOPIC, topic))
    if code == kinds.SASL_AUTHENTICATION_FAILED:
        hint = "check the user and the password of the client"
    elif code == kinds.INCONSISTENT_GROUP_PROTOCOL:
        hint = "other programs are in this group; end them, or give the sink another --name"
    elif error.fatal() or code == kinds._FATAL:  # noqa: SLF001 - a name of theirs
        hint = "start the process again; if that does not help, see the options of the client"
    else:
        return
    what = f"topic {topic!r}" if topic else f"the topics of group {group!r}"
    raise StorageError(f"could not read {what}: {error}", hint=hint)


def require_allowed(error: KafkaError, right: Right) -> None:
    """Raise if the brokers refused a request because the user lacks a right.

    Args:
        error: the error of the request.
        right: the right that the request needs.

    Raises:
        AccessDeniedError: the brokers do not grant it.
    """
    kinds = library().KafkaError
    if error.code() == kinds.CLUSTER_AUTHORIZATION_FAILED:
        right = Right(right.operation, CLUSTER, "kafka-cluster")
    elif error.code() not in (kinds.TOPIC_AUTHORIZATION_FAILED, kinds.GROUP_AUTHORIZATION_FAILED):
        return
    raise access_denied([right], error.str())


def is_absent(error: KafkaError) -> bool:
    """Tell whether an error says that a topic, or its partition, is not there."""
    kinds = library().KafkaError
    return error.code() in (
        kinds.UNKNOWN_TOPIC_OR_PART,
        kinds.UNKNOWN_TOPIC_ID,
        kinds._UNKNOWN_TOPIC,  # noqa: SLF001 - librdkafka's own errors begin so
        kinds._UNKNOWN_PARTITION,  # noqa: SLF001
    )


def is_transient(error: KafkaError) -> bool:
    """Tell whether an error says that a broker went away, was silent, or cannot answer yet."""
    kinds = library().KafkaError
    return error.code() in (
        kinds._TRANSPORT,  # noqa: SLF001 - librdkafka's own errors begin so
        kinds._TIMED_OUT,  # noqa: SLF001
        kinds.COORDINATOR_LOAD_IN_PROGRESS,
        kinds.COORDINATOR_NOT_AVAILABLE,
        kinds.NOT_COORDINATOR,
        kinds.NOT_CONTROLLER,
        kinds.LEADER_NOT_AVAILABLE,
        kinds.REQUEST_TIMED_OUT,
    )


@contextmanager
def translated(what: str, right: Right | None = None, *, hint: str = "") -> Iterator[None]:
    """Raise errors of the library as StorageError; of a known right, as AccessDeniedError."""
    try:
        yield
    except library().KafkaException as error:
        if right is not None:
            require_allowed(error.args[0], right)
        raise unreachable(error, what, hint=hint) from error


def unreachable(error: Exception, *what: str, hint: str = "") -> StorageError:
    """Return the error for a request that brokers did not answer, or refused."""
    reason = error.args[0] if error.args else error
    return StorageError(f"could not {' '.join(what)}: {reason}", hint=hint or ASKED_OF_CLIENTS)
