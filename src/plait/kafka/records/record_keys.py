"""Keys of records become values of columns."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import OptionError
from plait.kafka.records.avro.decoder import AvroDecoder
from plait.kafka.records.decode import Decoded, Undecodable, isolated
from plait.kafka.records.json_values import JsonDecoder
from plait.kafka.records.registry import Registry
from plait.kafka.settings import AVRO, JSON, TEXT
from plait.model.schema import type_name

_ALONE: Final = re.compile(rb'\s*+("(?:[^"\\]++|\\.)*+"|[\w.+-]++)\s*+', re.DOTALL)
"""A text, a number or a word of JSON, and nothing beside it."""
_DIGITS: Final = "^-?[0-9]+$"
"""Arrow also takes hexadecimal digits for a number."""


class KeyDecoder:
    """Makes one row of each key: of an object with the columns' names, or of the only column.

    >>> decoder = KeyDecoder(pa.schema([("id", pa.int64())]), "json")
    >>> decoder.decode([b"1", b'{"id": 2}', b"1, 2"]).rows["id"].to_pylist()
    [1, 2]
    """

    def __init__(self, schema: pa.Schema, name: str, registry: Registry | None = None) -> None:
        """Decode into some columns; Avro with the schemas of a registry.

        Raises:
            OptionError: the format cannot fill these columns.
        """
        self._schema = pa.schema([each.with_nullable(nullable=True) for each in schema])
        self._json = JsonDecoder(schema) if name == JSON else None
        self._avro = AvroDecoder(schema, registry) if registry and name == AVRO else None
        if name == TEXT:
            self._require_text()

    def decode(self, keys: Sequence[bytes]) -> Decoded:
        """Return a row for each key that is one."""
        if self._json is not None:
            found = self._json.decode([self._object(key) for key in keys])
        elif self._avro is not None:
            found = self._avro.decode(keys)
        else:
            found = isolated(keys, self._texts)
        return Decoded(found.rows, tuple(Undecodable(at, f"key: {why}") for at, why in found.bad))

    def _object(self, key: bytes) -> bytes:
        """Return a key as a JSON object; what is none stays as it is, and is found to be bad."""
        if len(self._schema) > 1 or not _ALONE.fullmatch(key):
            return key
        return b"{" + json.dumps(self._schema.names[0]).encode() + b":" + key + b"}"

    def _texts(self, keys: Sequence[bytes]) -> pa.Table:
        column, kind = pa.array(keys, pa.binary()), self._schema.types[0]
        if not pa.types.is_binary(kind):
            column = column.cast(pa.string())
        if (
            pa.types.is_integer(kind)
            and not pc.all(pc.match_substring_regex(column, _DIGITS)).as_py()
        ):
            raise ValueError("it is no number in decimal digits")
        column = column.cast(kind)
        return pa.Table.from_arrays([column], schema=self._schema)

    def _require_text(self) -> None:
        kinds = self._schema.types
        plain = (pa.types.is_string, pa.types.is_binary, pa.types.is_integer)
        if len(kinds) == 1 and any(fits(kinds[0]) for fits in plain):
            return
        shown = ", ".join(f"{each.name} {type_name(each.type)}" for each in self._schema)
        message = f"keys of plain text cannot fill the columns {shown}"
        hint = "one column of texts, bytes or integers; for others use --key-format json"
        raise OptionError(message, hint=hint, key="key_format", value=TEXT)
