"""Sinks by an address, as a person or the definition of a table names them."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from typing import Final

from plait.errors import OptionError, redacted
from plait.model.consent import AllowedAddress, Consent, absolute_path, given
from plait.model.replicas import is_sink_name
from plait.replicate.sink import Sink
from plait.replicate.sql_sink import SqlSink
from plait.replicate.table_sink import TableSink
from plait.storage import open_store

_DATABASES: Final = ("sqlite", "postgresql")
_TOPIC: Final = "plait.kafka:TopicSink"
"""In a room beside this one."""


def sink_of(text: str) -> Sink:
    """Return the sink of ``NAME=ADDRESS``; nothing is connected.

    The address is the place of a table of Plait; or the URL of a database with the name of the
    table after ``#``; or ``kafka://``, the brokers, and the topic after ``/``.

    Raises:
        OptionError: it is no such text.

    >>> sink_of("eu=s3://bucket/flights")
    TableSink(name='eu', uri='s3://bucket/flights')
    >>> sink_of("serving=sqlite:///serving.db#flights")
    SqlSink(name='serving', table='flights')
    >>> sink_of("log=kafka://one:9092,two:9092/flights")
    TopicSink(name='log', bootstrap='one:9092,two:9092', topic='flights')
    """
    name, address = _divided(text)
    return sink_at(name, given(address), Consent.of())


def parse_sink(text: str) -> tuple[str, str]:
    """Return the name and the address of ``NAME=ADDRESS``, as a table's definition keeps them.

    Raises:
        OptionError: it is no such text, or the address contains a user, a password or a token.

    A path on this machine is made absolute, so that it is one place for all writers.

    >>> parse_sink("eu=s3://bucket/flights")
    ('eu', 's3://bucket/flights')
    """
    name, address = _divided(text)
    address = _located(name, address)
    if redacted(address) != address:
        message = f"the address of sink {name} contains a user or a secret: {redacted(address)}"
        hint = (
            "everybody who reads the table reads its definition; let the environment of the "
            "writers provide it (PGUSER, PGPASSFILE, those of a cloud), or pass the "
            "sink to table.writer(replicas=...) under the same name"
        )
        raise OptionError(message, hint=hint, key="replicas", value=name)
    return name, address


def sink_at(name: str, allowed: AllowedAddress, consent: Consent) -> Sink:
    """Return the sink of a name at an address; nothing is connected.

    Args:
        name: the name of the sink.
        allowed: where it is.
        consent: what a sink that is a table may be connected with in its turn.

    Raises:
        OptionError: the address is not complete.
    """
    address = allowed.text
    scheme, _, rest = address.partition("://")
    if scheme == "kafka":
        bootstrap, _, topic = rest.partition("/")
        _require(bool(bootstrap and topic), name, "the topic after '/'")
        make: Callable[[str, str, str], Sink] = pkgutil.resolve_name(_TOPIC)
        return make(name, bootstrap, topic)
    if scheme.partition("+")[0] not in _DATABASES:
        return TableSink(name, address, allow=consent.patterns)
    url, _, table = address.rpartition("#")
    _require(bool(url and table), name, "the table after '#'")
    return SqlSink(name, url, table)


def _located(name: str, address: str) -> str:
    """Return an address as it is from any working directory; raise OptionError for a wrong one."""
    sink = sink_at(name, given(address), Consent())
    if isinstance(sink, TableSink):
        return open_store(address).spec.uri
    url, _, table = address.rpartition("#")
    scheme, _, path = url.partition("://")
    if not scheme.startswith("sqlite"):
        return address
    if path in ("", "/", "/:memory:"):
        message = f"the sink {name} is a database in the memory of each process"
        raise OptionError(message, hint="name a file: sqlite:///FILE#TABLE", key="sink", value=name)
    return f"{scheme}:///{absolute_path(path.removeprefix('/'))}#{table}"


def _divided(text: str) -> tuple[str, str]:
    name, _, address = str(text).partition("=")
    if not (is_sink_name(name) and address):
        shown = redacted(str(text))
        message = f"not a sink: {shown!r}"
        hint = "use NAME=ADDRESS, such as eu=s3://bucket/flights"
        raise OptionError(message, hint=hint, key="sink", value=shown)
    return name, address


def _require(there: bool, name: str, what: str) -> None:  # noqa: FBT001 - as assert
    if not there:
        message = f"the address of sink {name} is not complete"
        raise OptionError(message, hint=f"name {what}", key="sink", value=name)
