"""Addresses of sinks, as a person names them and the definition of a table keeps them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from plait.errors import OptionError, redacted
from plait.model.consent import absolute_path
from plait.model.sink_ledger import is_sink_name
from plait.storage import open_store

_DATABASES: Final = ("sqlite", "postgresql")


@dataclass(frozen=True, slots=True)
class SinkAddress:
    """Where a sink is.

    >>> SinkAddress.of("eu", "s3://bucket/flights").kind
    'table'
    >>> SinkAddress.of("serving", "sqlite:///serving.db#flights")
    SinkAddress(kind='database', place='sqlite:///serving.db', inside='flights')
    >>> SinkAddress.of("log", "kafka://one:9092,two:9092/flights")
    SinkAddress(kind='topic', place='one:9092,two:9092', inside='flights')
    """

    kind: Literal["table", "database", "topic"]
    place: str
    """The URI of the table, the URL of the database, or the brokers."""
    inside: str = ""
    """The table of the database, or the topic."""

    @classmethod
    def of(cls, name: str, address: str) -> SinkAddress:
        """Read the address of a sink of some name; raise OptionError if it is not complete."""
        scheme, _, rest = address.partition("://")
        if scheme == "kafka":
            brokers, _, topic = rest.partition("/")
            if not (brokers and topic):
                raise _incomplete(name, "the topic after '/'")
            return cls("topic", brokers, topic)
        if scheme.partition("+")[0] not in _DATABASES:
            return cls("table", address)
        url, _, table = address.rpartition("#")
        if not (url and table):
            raise _incomplete(name, "the table after '#'")
        return cls("database", url, table)

    def absolute(self, name: str) -> str:
        """Return the address as it is from any working directory, of a sink of some name.

        Raises:
            OptionError: it is a database in the memory of each process, or no place for a table.
        """
        if self.kind == "table":
            return open_store(self.place).address.uri
        if self.kind == "topic":
            return f"kafka://{self.place}/{self.inside}"
        scheme, _, path = self.place.partition("://")
        if not scheme.startswith("sqlite"):
            return f"{self.place}#{self.inside}"
        if path in ("", "/", "/:memory:"):
            message = f"the sink {name} is a database in the memory of each process"
            hint = "name a file: sqlite:///FILE#TABLE"
            raise OptionError(message, hint=hint, key="sink", value=name)
        return f"{scheme}:///{absolute_path(path.removeprefix('/'))}#{self.inside}"


def divided(text: str) -> tuple[str, str]:
    """Return the name and the address of ``NAME=ADDRESS``; raise OptionError for other texts."""
    name, _, address = str(text).partition("=")
    if not (is_sink_name(name) and address):
        shown = redacted(str(text))
        hint = "use NAME=ADDRESS, such as eu=s3://bucket/flights"
        raise OptionError(f"not a sink: {shown!r}", hint=hint, key="sink", value=shown)
    return name, address


def parse_sink(text: str) -> tuple[str, str]:
    """Return the name and the address of ``NAME=ADDRESS``, as a table's definition keeps them.

    Raises:
        OptionError: it is no such text, or the address contains a user, a password or a token.

    A path on this machine is made absolute, so that it is one place for all writers.

    >>> parse_sink("eu=s3://bucket/flights")
    ('eu', 's3://bucket/flights')
    """
    name, address = divided(text)
    address = SinkAddress.of(name, address).absolute(name)
    if redacted(address) != address:
        message = f"the address of sink {name} contains a user or a secret: {redacted(address)}"
        hint = (
            "everybody who reads the table reads its definition; let the environment of the "
            "writers provide it (PGUSER, PGPASSFILE, those of a cloud), or pass the "
            "sink to table.writer(replicas=...) under the same name"
        )
        raise OptionError(message, hint=hint, key="replicas", value=name)
    return name, address


def parse_replicas(texts: Iterable[str]) -> dict[str, str]:
    """Return addresses by the names of sinks; no sink is asked.

    Raises:
        OptionError: a text is not ``NAME=ADDRESS``, contains a secret, or a name comes twice.
    """
    found: dict[str, str] = {}
    for name, address in map(parse_sink, texts):
        if name in found:
            message = f"two sinks have the name {name}"
            raise OptionError(message, hint="use another name", key="replicas", value=name)
        found[name] = address
    return found


def _incomplete(name: str, what: str) -> OptionError:
    message = f"the address of sink {name} is not complete"
    return OptionError(message, hint=f"name {what}", key="sink", value=name)
