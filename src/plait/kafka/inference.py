"""The schema of a table that does not exist yet, from the first records of its topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.json as pj

from plait.errors import SchemaError
from plait.kafka.client import Clients
from plait.kafka.library import translated
from plait.kafka.position import find_bounds

_SAMPLE: Final = 1_000
_WAIT_S: Final = 1.0
_TRIES: Final = 10


def infer_schema(clients: Clients, topics: Sequence[str], group: str = "") -> pa.Schema:
    """Find a schema that fits the first thousand JSON records of some topics.

    Texts in ISO 8601 become timestamps in UTC, and numbers without a fraction 64-bit integers. What
    a later record has in another form cannot be decoded then; a column that no record of the
    sample has does not come to be.

    Raises:
        SchemaError: there are no records, or they are no JSON objects, or a column is null in all.
        StorageError: the brokers do not answer.
    """
    values = _sample(clients, topics, group)
    if not values:
        message = f"{', '.join(topics)} has no record to take a schema from"
        raise SchemaError(message, hint="pass the schema: --create 'id bigint, ...'")
    try:
        body = b"\n".join(values)
        read = pj.ReadOptions(block_size=len(body) + 1)  # a value may have line breaks
        found = pj.read_json(pa.BufferReader(body), read_options=read).schema
    except (pa.ArrowException, ValueError) as error:
        message = f"the first records of {', '.join(topics)} have no common schema: {error}"
        raise SchemaError(message, hint="pass the schema: --create 'id bigint, ...'") from error
    empty = [field.name for field in found if pa.types.is_null(field.type)]
    if empty:
        message = f"column {empty[0]!r} is null in the first {len(values)} records"
        raise SchemaError(message, hint="pass the schema: --create 'id bigint, ...'")
    return pa.schema([(field.name, _stored(field.type)) for field in found])


def _sample(clients: Clients, topics: Sequence[str], group: str) -> list[bytes]:
    """Read the first records that have a value."""
    known = {name: clients.require_topic(name) for name in topics}
    places = [
        clients.place(*source, bounds.first)
        for source, bounds in find_bounds(clients, known)
        if bounds.first < bounds.end
    ]
    values: list[bytes] = []
    if not places:
        return values
    consumer = clients.consumer(group or None)
    try:
        with translated(f"read {', '.join(topics)}"):
            consumer.assign(places)
            for _ in range(_TRIES):
                came = consumer.consume(_SAMPLE - len(values), _WAIT_S)
                bodies = (message.value() for message in came if message.error() is None)
                values += [body for body in bodies if body is not None]
                if len(values) >= _SAMPLE or (values and not came):
                    break
    finally:
        consumer.close()
    return values


def _stored(kind: pa.DataType) -> pa.DataType:
    """Return the type of the column for one that Arrow inferred."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _stored(field.type)) for field in kind.fields])
    if pa.types.is_list(kind):
        return pa.list_(_stored(kind.value_type))
    return kind
