"""Records of Kafka, of the client library itself, and what a sink makes of them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from confluent_kafka import Message

from plait.expr import parse_ddl
from plait.kafka.records.change_sets import ChangeReader, ChangeSet
from plait.kafka.settings import SinkSettings
from plait.model.bucket import BucketSpec
from plait.model.plan import TableLayout, TableSpec
from plait.model.schema import Schema


def spec_of(ddl: str, *key: str, ordering: str | None = None) -> TableSpec:
    """Return a table's layout."""
    return TableSpec(
        Schema.create(parse_ddl(ddl)), TableLayout((), BucketSpec(0, key, 2), ordering, "cow")
    )


def record(at: int, value: object, key: object = None, **parts: object) -> Message:
    """Return a record; a value or key of bytes is taken as it is."""
    body, name = (
        each if isinstance(each, bytes) or each is None else json.dumps(each).encode()
        for each in (value, key)
    )
    return Message(
        **{"topic": "t", "partition": 0, "offset": at, "key": name, "value": body} | parts
    )


def read(spec: TableSpec, *records: tuple[object, ...] | Message, **settings: object) -> ChangeSet:
    """Return what records change; those of tuples are made with these arguments."""
    reader = ChangeReader(spec, SinkSettings("-", ("t",), **settings))
    return reader.read(
        [record(at, *each) if isinstance(each, tuple) else each for at, each in enumerate(records)]
    )


def places(changes: ChangeSet) -> list[int]:
    """Return where the bad records stand."""
    return [each.at for each in changes.bad]


def column(changes: ChangeSet, name: str) -> Sequence[object]:
    """Return a column of the rows."""
    return changes.rows[name].to_pylist()
