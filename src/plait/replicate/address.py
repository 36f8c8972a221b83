"""Sinks by an address, as a person or the definition of a table names them."""

from __future__ import annotations

from plait.kafka.topic_sink import TopicSink
from plait.model.consent import AllowedAddress, Consent, given
from plait.replicate.sink import Sink
from plait.replicate.sql_sink import SqlSink
from plait.replicate.table_sink import TableSink
from plait.write.sink_address import SinkAddress, divided


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
    name, address = divided(text)
    return sink_at(name, given(address), Consent.of())


def sink_at(name: str, allowed: AllowedAddress, consent: Consent) -> Sink:
    """Return the sink of a name at an address; nothing is connected.

    Args:
        name: the name of the sink.
        allowed: where it is.
        consent: what a sink that is a table may be connected with in its turn.

    Raises:
        OptionError: the address is not complete.
    """
    at = SinkAddress.of(name, allowed.text)
    if at.kind == "topic":
        return TopicSink(name, at.place, at.inside)
    if at.kind == "database":
        return SqlSink(name, at.place, at.inside)
    return TableSink(name, at.place, allow=consent.patterns)
