"""Sinks by an address, as a person names them."""

from __future__ import annotations

from plait.errors import OptionError, redacted
from plait.kafka import TopicSink
from plait.model.replicas import is_sink_name
from plait.replicate import Sink, SqlSink, TableSink

_DATABASES = ("sqlite", "postgresql")


def sink_of(text: str) -> Sink:
    """Return the sink of ``NAME=ADDRESS``.

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
    name, _, address = text.partition("=")
    if not (is_sink_name(name) and address):
        message = f"not a sink: {redacted(text)!r}"
        hint = "use NAME=ADDRESS, such as eu=s3://bucket/flights"
        raise OptionError(message, hint=hint, key="sink", value=redacted(text))
    scheme, _, rest = address.partition("://")
    if scheme == "kafka":
        bootstrap, _, topic = rest.partition("/")
        _require(bool(bootstrap and topic), name, "the topic after '/'")
        return TopicSink(name, bootstrap, topic)
    if scheme.partition("+")[0] not in _DATABASES:
        return TableSink(name, address)
    url, _, table = address.rpartition("#")
    _require(bool(url and table), name, "the table after '#'")
    return SqlSink(name, url, table)


def _require(there: bool, name: str, what: str) -> None:  # noqa: FBT001 - as assert
    if not there:
        message = f"the address of sink {name} is not complete"
        raise OptionError(message, hint=f"name {what}", key="sink", value=name)
