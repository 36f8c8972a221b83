"""The control topic: the messages of one sink's group commit, on a topic of one partition.

Nothing on it must be kept: whoever misses a message asks again, and only the table says what is
decided. So a process reads it from its end, and stores no offset of it.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from plait.errors import (
    AccessDeniedError,
    CorruptMetadataError,
    StorageError,
    TableNotFoundError,
)
from plait.kafka.access import TOPIC, Right, access_denied
from plait.kafka.client import Clients
from plait.kafka.library import is_absent, require_allowed, require_usable, translated
from plait.kafka.settings import SinkSettings
from plait.ports import SystemClock
from plait.stream.message_schema import ACK, END, HELLO, START
from plait.stream.messages import EncodedMessage, Hello, decode, encode
from plait.stream.participant import name_taken
from plait.stream.transport import Endpoint

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

_log = logging.getLogger(__name__)

_PARTITION: Final = 0
_UNCOMMITTED: Final[Mapping[str, str | int]] = {"isolation.level": "read_uncommitted"}
_BATCH: Final = 500
_LOOK_S: Final = 0.1
_FLUSH_S: Final = 10.0
_KEPT_MS: Final = 3_600_000
_AGAIN_S: Final = 1.0
"""The time between two looks at a topic that gave an error."""
_BEGIN_S: Final = 10.0
"""Seconds of errors that are tolerated when a process begins to read."""
_CALM_S: Final = 10.0
"""The time without an error after which looks end."""
_DOUBT_S: Final = 60.0
"""Errors for this long end the process: twice as long as a broker may take for an answer."""
_SILENT_S: Final = 5.0
"""Whoever sends hears it too. If it does not for this long, it looks at the topic: of one that
was deleted, the library says nothing for half a minute."""
_CLAIM_S: Final = 10.0
_ANSWER_S: Final = 1.0
"""Seconds that a process waits for an answer to the question who uses the name."""
_ANSWERED_MAX: Final = 1_000
_TO_WRITERS: Final = (START, END, ACK)


class ControlTopic:
    """Carries messages between the processes of a sink; one for each process.

    Every endpoint gets what concerns its side, whichever process sent it, in the order in which
    the topic has it. A coordinator also gets what other coordinators send.
    """

    def __init__(self, clients: Clients, settings: SinkSettings) -> None:
        """Open the topic at its end; make it if it is absent.

        Raises:
            AccessDeniedError: the user lacks a right on the topic.
            StorageError: the brokers do not answer.
            MissingDependencyError: the library is not installed.
        """
        self._sink, self._topic = settings.name, settings.control
        self._clients = clients
        self._coordinators: list[queue.SimpleQueue[bytes]] = []
        self._writers: list[queue.SimpleQueue[bytes]] = []
        self._lock = threading.Lock()
        self._producer = clients.producer(**{"linger.ms": 0})
        # The group of the sink, which this client does not join: no right on another one is needed.
        # An open transaction of somebody else would hold committed messages back.
        self._consumer = clients.consumer(settings.name, _UNCOMMITTED)
        self._doubt = _ErrorWatch()
        self._id = ""
        self._begin()
        self.failed: Exception | None = None
        """Why nothing is heard any more; the process ends with it."""
        self._claim: _NameClaim | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, name="plait-control", daemon=True)
        self._thread.start()

    def require_alive(self) -> None:
        """Raise if the topic cannot be read any more.

        Raises:
            StorageError: it cannot be read, or made, or this process may not read it.
        """
        if self.failed is not None:
            raise self.failed

    def claim(self, table: str, life: str) -> None:
        """Claim the name of the sink for a table, before any partition of it is taken.

        Whoever comes to a name that another table has would take its partitions, and end it or
        wait without a word. So each process asks first, and those of another table answer, at any
        moment of their work. Of two that ask at once, the first on the topic has the name.

        Args:
            table: the table's identity.
            life: a random text of this process.

        Raises:
            StreamError: another table has the name. Nothing was taken from it.
        """
        claim = _NameClaim(table, life)
        self._claim = claim
        self.send(encode(Hello(table, "", life)))
        claim.asked.wait(_CLAIM_S)  # a topic that is in trouble shows it elsewhere
        claim.known.wait(_ANSWER_S)
        claim.decided = True
        if claim.other:
            raise name_taken(self._sink, table, claim.other)

    def coordinator(self) -> Endpoint:
        """Return a coordinator's end."""
        return self._endpoint(self._coordinators)

    def writer(self) -> Endpoint:
        """Return the end of one more writer."""
        return self._endpoint(self._writers)

    def close(self) -> None:
        """Send what is not sent yet, and let go of the topic; idempotent."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._thread.join()
        self._producer.flush(_FLUSH_S)
        self._consumer.close()

    def flush(self) -> None:
        """Wait until the topic has what was sent."""
        self._producer.flush(_FLUSH_S)

    def _endpoint(self, side: list[queue.SimpleQueue[bytes]]) -> Endpoint:
        mine: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        with self._lock:
            side.append(mine)
        return _End(self, mine)

    def send(self, message: EncodedMessage) -> None:
        """Send a message to all processes.

        Raises:
            StorageError: the client refuses it, and will refuse others.
        """
        self._doubt.sent()
        key = f"{self._sink}/{message.number}"
        try:
            with translated(f"send to {self._topic}", Right("WRITE", TOPIC, self._topic)):
                self._producer.produce(
                    self._topic,
                    message,
                    key.encode(),
                    partition=_PARTITION,
                    headers=[("kind", message.kind.encode())],
                    on_delivery=self._heard,
                )
        except BufferError:
            _log.warning("the control topic takes nothing; a message was left out")
        except StorageError as error:
            reason = error.__cause__.args[0] if error.__cause__ is not None else None
            if reason is None or not is_absent(reason):
                raise
            self._heard(reason, None)
        self._producer.poll(0)

    def release(self, endpoint: Endpoint) -> None:
        """Deliver nothing more to an end."""
        if isinstance(endpoint, _End):
            with self._lock:
                for side in (self._coordinators, self._writers):
                    side[:] = [each for each in side if each is not endpoint.mine]

    def _heard(self, error: KafkaError | None, _: object) -> None:
        """Note that a message was not delivered; its sender or receiver asks again."""
        if error is None:
            return
        _log.warning("a message was not delivered: %s", error)
        try:
            require_allowed(error, Right("WRITE", TOPIC, self._topic))
        except AccessDeniedError as denied:
            self.failed = denied
        if is_absent(error):
            self._doubt.begin()

    def _read(self) -> None:
        try:
            while not self._stopping.is_set():
                self._read_once()
        except Exception as error:  # noqa: BLE001 - raised by the process's own thread
            self.failed = error

    def _read_once(self) -> None:
        if self._doubt.due:
            self._look_again()
        try:
            with translated(f"read {self._topic}"):
                came = self._consumer.consume(_BATCH, _LOOK_S)
        except OSError:
            _log.warning("the control topic cannot be read now", exc_info=True)
            self._stopping.wait(_LOOK_S)
            return
        for message in came:
            self._deliver(message)

    def _look_again(self) -> None:
        """Read from the end of the topic after an error, or if another topic has its name.

        After an error, the library may read nothing more of a partition, and not say so again.

        Raises:
            StorageError: it cannot be read for a while.
        """
        erred = self._doubt.look()
        try:
            found = self._clients.find_topics([self._topic]).get(self._topic)
            if erred or found is None or found.id != self._id:
                self._read_from_end()
                _log.warning("the control topic is read from its end")
        except StorageError as error:
            if self._doubt.is_old:
                raise
            _log.warning("the control topic cannot be read now: %s", error)
            self._doubt.begin()
        if erred and self._doubt.is_old:
            message = f"the control topic {self._topic!r} could not be read for {_DOUBT_S:.0f} s"
            raise StorageError(message, hint="see whether the brokers are up, and what they say")

    def _begin(self) -> None:
        """Read from the end of the topic; a broker that has just come back may need a moment.

        Raises:
            AccessDeniedError: this process may not read it, or make it.
            StorageError: the brokers do not answer, or keep refusing it.
            TableNotFoundError: the brokers make it, and do not know it.
        """
        clock, until = SystemClock(), None
        while True:
            try:
                self._read_from_end()
            except AccessDeniedError:
                raise
            except (StorageError, TableNotFoundError) as error:  # one just made may be unknown yet
                now = clock.monotonic()
                until = now + _BEGIN_S if until is None else until
                if now >= until:
                    raise
                _log.warning("the control topic cannot be read yet: %s", error)
                clock.sleep(_AGAIN_S)
            else:
                return

    def _read_from_end(self) -> None:
        """Begin at the end of the topic; make it if it is absent."""
        clients, topic = self._clients, self._topic
        if not clients.find_topics([topic]):
            clients.make_topic(topic, settings={"retention.ms": str(_KEPT_MS)})
        found = clients.require_topic(topic)
        missing = found.missing("READ", "WRITE")
        if missing:
            raise access_denied(missing)
        _, end = clients.bounds(self._consumer, topic, _PARTITION)
        with translated(f"read {topic}"):
            self._consumer.assign([clients.place(topic, _PARTITION, end)])
        self._id = found.id

    def _deliver(self, message: Message) -> None:
        error, body, key = message.error(), message.value(), message.key()
        if error is not None:
            _log.warning("the control topic: %s", error)
            require_usable(error, self._sink, self._topic)
            self._doubt.begin()
            return
        self._doubt.received()
        if body is None or key is None or key.rpartition(b"/")[0] != self._sink.encode():
            return
        kind = dict(message.headers() or []).get("kind", b"")
        text = kind.decode("ascii", "replace") if isinstance(kind, bytes) else ""
        answer = None if self._claim is None else self._claim.receive(body, text)
        if answer is not None:
            self.send(encode(answer))
        with self._lock:
            for each in self._coordinators:
                each.put(body)
            for each in self._writers if text in _TO_WRITERS else ():
                each.put(body)


class _NameClaim:
    """Finds out whether another table uses the name of the sink.

    It asks by a hello of no writer. Processes of another table send it back as one of theirs: with
    the life that asked. Only those answer whose own question stands earlier on the topic: whoever
    meets another table's question before its own comes too late.
    """

    def __init__(self, table: str, life: str) -> None:
        self._table, self._life = table, life
        self.asked, self.known = threading.Event(), threading.Event()
        """Asked: the question is on the topic. Known: somebody has answered it."""
        self.other = ""
        """The identity of the table that has the name, if another one has it."""
        self.decided = False
        self._answered: dict[str, None] = {}

    def receive(self, body: bytes, kind: str) -> Hello | None:
        """Look at a message; return the answer, if one is due."""
        if self.decided and kind != HELLO:
            return None
        try:
            message = decode(body)
        except CorruptMetadataError:
            return None  # who reads it says so
        asks = isinstance(message, Hello) and not message.writer
        if message.table == self._table:
            mine = isinstance(message, Hello) and message.life == self._life
            (self.asked if asks and mine else self.known).set()
            return None
        answers = asks and self.asked.is_set()
        if isinstance(message, Hello) and answers and message.life != self._life:
            return self._answer(message.life)
        if not self.decided:
            self._lose(message.table)
        return None

    def _answer(self, life: str) -> Hello | None:
        """Answer a process of another table that asks, once."""
        if life in self._answered:
            return None
        if len(self._answered) >= _ANSWERED_MAX:
            self._answered.clear()
        self._answered[life] = None
        return Hello(self._table, "", life)

    def _lose(self, other: str) -> None:
        self.other = other
        self.known.set()


class _ErrorWatch:
    """Whether the topic is still the one that is read, and since when that is asked.

    It lasts for a while after the last error, since a deletion takes a moment to show everywhere.
    """

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._erred = threading.Event()
        self._began: float | None = None
        self._sent: float | None = None
        """When the first message was sent that was not heard yet."""
        self._last = self._looked = -_DOUBT_S

    def begin(self) -> None:
        """Note an error; any thread may call it."""
        self._erred.set()

    def sent(self) -> None:
        """Note that a message was sent; any thread may call it."""
        if self._sent is None:
            self._sent = self._clock.monotonic()

    def received(self) -> None:
        """Note that a message came, whoever sent it."""
        self._sent = None

    @property
    def due(self) -> bool:
        """Whether it is time to look at the topic."""
        now, sent = self._clock.monotonic(), self._sent
        if sent is not None and now > sent + _SILENT_S:
            self._sent = None
            self._erred.set()
        if now < self._looked + _AGAIN_S:
            return False
        return self._erred.is_set() or self._began is not None

    def look(self) -> bool:
        """Begin to look; return whether there was an error since the last time."""
        now, erred = self._clock.monotonic(), self._erred.is_set()
        self._erred.clear()
        self._looked = now
        if erred:
            self._last = now
            self._began = now if self._began is None else self._began
        elif now > self._last + _CALM_S:
            self._began = None
        return erred

    @property
    def is_old(self) -> bool:
        """Whether there have been errors for too long."""
        began = self._began
        return began is not None and self._clock.monotonic() > began + _DOUBT_S


class _End:
    """One end of the topic."""

    def __init__(self, topic: ControlTopic, mine: queue.SimpleQueue[bytes]) -> None:
        self._topic, self.mine = topic, mine

    def send(self, message: EncodedMessage) -> None:
        self._topic.send(message)

    def receive(self, wait_s: float) -> bytes | None:
        try:
            return self.mine.get(timeout=wait_s) if wait_s > 0 else self.mine.get_nowait()
        except queue.Empty:
            return None
