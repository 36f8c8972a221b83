"""What a Kafka sink is told: by options of ``tablectl``, by a file, or in Python."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import xxhash

from plait.errors import OptionError
from plait.kafka.monitoring import address_of
from plait.kafka.position import EARLIEST, require_place
from plait.stream.stream import check_application

REFUSE: Final = "refuse"
READ: Final = "read"
JSON: Final = "json"
TEXT: Final = "text"
RAW: Final = "raw"
AVRO: Final = "avro"
_ALL: Final = 100
_TOPIC_MAX: Final = 200
_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
"""What Kafka takes for the name of a topic."""
_OURS: Final = frozenset(
    {
        "bootstrap.servers",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "auto.offset.reset",
        "isolation.level",
        "partition.assignment.strategy",
        "enable.idempotence",
        "enable.partition.eof",
        "transactional.id",
        "acks",
    }
)
"""Settings of the client that exactly once rests on."""


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """The settings of a sink; every process of it has the same.

    >>> SinkSettings("localhost:9092", ("events",)).control
    'events-control'
    """

    bootstrap: str
    """Brokers to begin with, ``host:port,...``."""
    topics: tuple[str, ...]
    """What is read. The process that holds partition 0 of the first one by name coordinates."""
    name: str = ""
    """The name of the sink: of its stream in the table, and of its consumer group. By default the
    topics, joined by ``+``."""
    control: str = ""
    """The control topic; by default ``<name>-control``. It is made if it is absent."""
    begin: str = EARLIEST
    """Where a topic is read from at the first start: earliest, latest, or a time (ISO 8601)."""
    new_partitions: str = REFUSE
    """What becomes of partitions that are added later, in a table with a key and without an
    ordering column, where they may bring older rows of a key: refuse, or read."""
    format: str = JSON
    """How values are encoded: json, avro, or raw (the bytes of a value are one column)."""
    registry: str = field(default="", repr=False)
    """Where Avro schemas are asked for, ``http://HOST:PORT,...``; values and keys name theirs."""
    registry_client: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of the registry's client: see ``plait.kafka.records.registry``."""
    schema_file: str = ""
    """The file of the Avro schema of values, in place of a registry; they name none then."""
    value_column: str = "value"
    """The column of raw values, of type binary or string."""
    include: Mapping[str, str] = field(default_factory=dict)
    """Columns from other parts of a record: key, timestamp, topic, partition, offset, headers.
    Values do not fill these columns."""
    interval_s: float = 60.0
    """The time between two commits, if rows come."""
    rows_max: int = 5_000_000
    """A commit is made as soon as so many rows are held."""
    bytes_max: int = 1 << 30
    """A commit is made as soon as so many bytes are held, in memory or staged."""
    patience_s: float = 30.0
    """Seconds that a commit waits for a late writer before it goes on without it."""
    key_format: str = "json"
    """How keys are encoded, where they name a row to remove or are included: json (an object with
    the columns, or the value of the only one), text, or avro (with the registry)."""
    dead_letters: str = ""
    """The topic for records that cannot be decoded; without one, the first stops the sink."""
    dead_letter_percent: float = 1.0
    """Percentage of records that may be bad; more stop the sink."""
    fetch_rows: int = 10_000
    """The most records that are decoded at once."""
    memory: int = 1 << 29
    """Bytes for rows in one process, divided among its partitions: 4 MiB at least for each of
    three buffers. The client's queue, a sixteenth of it, and what is being decoded come to it."""
    metrics: str = ""
    """Where a process serves its metrics and its health, ``[HOST:]PORT``; empty for nowhere."""
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of librdkafka for every client: TLS, SASL, time-outs."""

    def __post_init__(self) -> None:
        """Check them; fill in what follows from others."""
        _require(bool(self.bootstrap), "bootstrap", self.bootstrap, "pass host:port")
        _require(bool(self.topics) and all(self.topics), "topics", "", "name a topic")
        _require(len(set(self.topics)) == len(self.topics), "topics", "", "name each topic once")
        require_place(self.begin)
        known = self.new_partitions in (REFUSE, READ)
        _require(known, "new_partitions", self.new_partitions, "use refuse or read")
        self._check_formats()
        self._check_numbers()
        if self.metrics:
            address_of(self.metrics)
        taken = sorted(_OURS.intersection(self.client))
        _require(not taken, "client", ", ".join(taken), "leave these settings to the sink")
        object.__setattr__(self, "name", self.name or "+".join(self.topics))
        object.__setattr__(self, "control", self.control or _control_of(self.name))
        self._check_topics()
        check_application(self.name)

    def _check_numbers(self) -> None:
        for name in ("interval_s", "patience_s", "rows_max", "bytes_max", "fetch_rows", "memory"):
            value = getattr(self, name)
            usable = 0 < value < math.inf
            _require(usable, name, str(value), "use a number above 0")
        percent = self.dead_letter_percent
        _require(0 <= percent <= _ALL, "dead_letter_percent", str(percent), "use 0 to 100")

    def _check_topics(self) -> None:
        """Refuse names that no topic has, and topics that would be read and written at once."""
        hint = "a topic's name has letters, digits, '.', '_' and '-'"
        for name in self.topics:
            _require(_TOPIC.fullmatch(name) is not None, "topics", name, hint)
        control, letters = self.control, self.dead_letters
        _require(_TOPIC.fullmatch(control) is not None, "control", control, hint)
        _require(control not in self.topics, "control", control, "use another topic")
        named = not letters or _TOPIC.fullmatch(letters) is not None
        _require(named, "dead_letters", letters, hint)
        apart = letters not in (control, *self.topics)
        _require(apart, "dead_letters", letters, "use a topic that the sink does not read")

    def _check_formats(self) -> None:
        known = self.format in (JSON, AVRO, RAW)
        _require(known, "format", self.format, "use json, avro or raw")
        known = self.key_format in (JSON, TEXT, AVRO)
        _require(known, "key_format", self.key_format, "use json, text or avro")
        both = bool(self.registry and self.schema_file)
        _require(not both, "schema_file", self.schema_file, "use a registry, or a file")
        has_schemas = bool(self.registry or self.schema_file) or self.format != AVRO
        _require(has_schemas, "format", AVRO, "say where its schemas are: registry, or schema_file")
        has_schemas = bool(self.registry) or self.key_format != AVRO
        _require(has_schemas, "key_format", AVRO, "say where its schemas are: registry")
        used = not self.schema_file or self.format == AVRO
        _require(used, "schema_file", self.schema_file, "pass format avro with it")
        used = not self.registry or AVRO in (self.format, self.key_format)
        _require(used, "registry", self.registry, "pass format or key_format avro with it")


def _control_of(name: str) -> str:
    """Name the control topic of a sink; what a topic's name cannot have becomes a hash.

    >>> _control_of("events"), _control_of("a+b")
    ('events-control', 'a.b-3e46ee0c-control')
    """
    plain = re.sub(r"[^A-Za-z0-9._-]", ".", name)[:_TOPIC_MAX]
    if plain != name:
        plain = f"{plain}-{xxhash.xxh3_64_hexdigest(name.encode())[:8]}"
    return f"{plain}-control"


def _require(holds: bool, key: str, value: str, hint: str) -> None:  # noqa: FBT001 - what is asked
    if not holds:
        message = f"{key} of a Kafka sink cannot be {value!r}"
        raise OptionError(message, hint=hint, key=key, value=value)
