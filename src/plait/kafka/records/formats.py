"""The formats of record values, by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from plait.errors import OptionError, SchemaMismatchError
from plait.kafka.records.avro.decoder import AvroDecoder
from plait.kafka.records.avro.schema import Node, parse_schema
from plait.kafka.records.decode import Decoded, Decoder, isolated
from plait.kafka.records.json_values import JsonDecoder
from plait.kafka.records.registry import Registry
from plait.kafka.settings import AVRO, RAW, SinkSettings
from plait.model.schema import type_name, unknown_column


def registry_of(settings: SinkSettings) -> Registry | None:
    """Return the registry that a sink is to use, if any.

    Raises:
        OptionError: its URL or a setting of its client is wrong.
    """
    if settings.registry:
        return Registry(settings.registry, settings.registry_client)
    return None


def decoder_of(settings: SinkSettings, schema: pa.Schema, registry: Registry | None) -> Decoder:
    """Return the decoder of values into the columns of a schema.

    Raises:
        OptionError: the format cannot make such rows, or a file with a schema has none.
        SchemaMismatchError: there is no such column, or it has a type that cannot take values.
    """
    if not schema.names:
        message = "every column is made of something else than the value"
        hint = "leave a column for the value; --include takes its column away from the value"
        raise OptionError(message, hint=hint, key="include", value="")
    if settings.format == RAW:
        return RawDecoder(schema, settings.value_column)
    if settings.format == AVRO:
        return AvroDecoder(schema, registry or _schema_in(settings.schema_file))
    return JsonDecoder(schema)


def _schema_in(path: str) -> Node:
    try:
        return parse_schema(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        message = f"the file {path!r} has no Avro schema: {error}"
        hint = "pass a file with the JSON of a schema (.avsc)"
        raise OptionError(message, hint=hint, key="schema_file", value=path) from error


class RawDecoder:
    """Puts values into one column, as bytes or as text; the other columns are null.

    >>> decoder = RawDecoder(pa.schema([("value", pa.string()), ("at", pa.int64())]), "value")
    >>> found = decoder.decode([b"a", bytes([255])])
    >>> found.rows.to_pylist(), [each.at for each in found.bad]
    ([{'value': 'a', 'at': None}], [1])
    """

    def __init__(self, schema: pa.Schema, column: str) -> None:
        """Fill a column.

        Raises:
            SchemaMismatchError: there is no such column, or it takes neither bytes nor texts.
        """
        if column not in schema.names:
            raise unknown_column(column, schema.names)
        kind = schema.field(column).type
        if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
            message = f"column {column!r} is {type_name(kind)}, which cannot take raw values"
            hint = "name a column of type string or binary with --value-column"
            raise SchemaMismatchError(message, hint=hint, column=column, found=type_name(kind))
        self._schema = pa.schema([each.with_nullable(nullable=True) for each in schema])
        self._column = column

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """Return a row for each value, unless it is no UTF-8 and is to be a text."""
        return isolated(values, self._all)

    def _all(self, values: Sequence[bytes]) -> pa.Table:
        arrays = [
            pa.array(values, pa.binary()).cast(each.type)
            if each.name == self._column
            else pa.nulls(len(values), each.type)
            for each in self._schema
        ]
        return pa.Table.from_arrays(arrays, schema=self._schema)
