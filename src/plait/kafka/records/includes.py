"""Columns from what a record carries beside its value: key, time, place and headers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from plait.errors import OptionError, SchemaMismatchError
from plait.kafka.library import headers_of
from plait.kafka.records.decode import Kept, Undecodable
from plait.kafka.records.record_keys import KeyDecoder
from plait.model.schema import type_name, unknown_column

if TYPE_CHECKING:
    from confluent_kafka import Message

KEY: Final = "key"
_HEADERS: Final = "headers"
_INSTANT: Final = pa.timestamp("us", "UTC")
_INSTANT_MS_MAX: Final = ((1 << 63) - 1) // 1000
"""The latest time that a timestamp in microseconds can hold."""
_TYPES: Final[Mapping[str, tuple[pa.DataType, ...]]] = {
    "timestamp": (_INSTANT, pa.int64()),
    "topic": (pa.string(),),
    "partition": (pa.int32(), pa.int64()),
    "offset": (pa.int64(),),
    _HEADERS: (
        pa.map_(pa.string(), pa.binary()),
        pa.map_(pa.string(), pa.string()),
        pa.string(),
    ),
}
"""What a record carries, and the types of columns that can take it."""
INCLUDED: Final = (KEY, *_TYPES)


class Includes:
    """Adds the columns that were asked for to rows that were decoded from values."""

    def __init__(
        self, schema: pa.Schema, wanted: Mapping[str, str], keys: Callable[[pa.Schema], KeyDecoder]
    ) -> None:
        """Check that each column takes what it is to have; ``keys`` makes decoders of keys.

        Raises:
            OptionError: a record carries no such thing, or one column is to take two.
            SchemaMismatchError: the table has no such column, or it has another type.
        """
        self._schema, self._wanted = schema, dict(wanted)
        for what, column in wanted.items():
            _require(schema, what, column)
        self.columns = frozenset(wanted.values())
        if len(self.columns) < len(wanted):
            message = "two parts of a record cannot be one column"
            shown = ", ".join(f"{what}={column}" for what, column in wanted.items())
            raise OptionError(message, hint="name a column each", key="include", value=shown)
        self._keys: KeyDecoder | None = None
        if KEY in wanted:
            self._keys = keys(pa.schema([schema.field(wanted[KEY])]))

    def add(self, records: Sequence[Message], found: Kept) -> None:
        """Add the columns to rows; leave out those of records whose parts do not fit."""
        if not self._wanted:
            return
        columns = {name: found.rows[name] for name in found.rows.column_names}
        mine = [records[at] for at in found.at.tolist()]
        refused: list[Undecodable] = []
        for what, name in self._wanted.items():
            kind = self._schema.field(name).type
            if what == KEY:
                columns[name] = self._key(mine, kind, refused)
            else:
                columns[name] = _MAKERS[what](mine, kind, refused)
        names = self._schema.names
        found.rows = pa.table([columns[name] for name in names], names=names)
        found.drop(refused)

    def _key(
        self, records: Sequence[Message], kind: pa.DataType, refused: list[Undecodable]
    ) -> pa.Array:
        """Return the keys, null where a record has none."""
        if self._keys is None:
            return pa.nulls(len(records), kind)
        keys = [record.key() for record in records]
        at = np.flatnonzero([key is not None for key in keys])
        present = Kept.of(self._keys.decode([key for key in keys if key is not None]), at)
        refused += present.bad
        rows = np.full(len(keys), -1)
        rows[present.at] = np.arange(len(present.at))
        return present.rows.column(0).combine_chunks().take(pa.array(rows, mask=rows < 0))


def _timestamps(
    records: Sequence[Message], kind: pa.DataType, refused: list[Undecodable]
) -> pa.Array:
    stamps = [record.timestamp() for record in records]
    times = [at if known else None for known, at in stamps]
    if kind != _INSTANT:
        return pa.array(times, pa.int64())
    for place, ms in enumerate(times):
        if ms is not None and abs(ms) > _INSTANT_MS_MAX:
            refused.append(Undecodable(place, f"its time, {ms} ms, is beyond every timestamp"))
            times[place] = None
    return pa.array(times, pa.int64()).cast(pa.timestamp("ms", "UTC")).cast(kind)


def _headers(records: Sequence[Message], kind: pa.DataType, refused: list[Undecodable]) -> pa.Array:
    """Return the headers: as a map, where of several with one name the last counts, or as JSON."""
    raw = pa.types.is_map(kind) and pa.types.is_binary(kind.item_type)
    made: list[object] = []
    for at, record in enumerate(records):
        given: Sequence[tuple[str, object]] = ()
        try:
            pairs = headers_of(record)
            given = pairs if raw else [(name, _text(value)) for name, value in pairs]
        except UnicodeDecodeError:
            reason = "a header is not UTF-8 text, which a map<string,binary> could take"
            refused.append(Undecodable(at, reason))
        except ValueError as error:
            refused.append(Undecodable(at, str(error)))
        made.append(list(dict(given).items()) if pa.types.is_map(kind) else _json(given))
    return pa.array(made, kind)


def _text(value: object) -> str | None:
    return value.decode() if isinstance(value, bytes) else None


def _json(pairs: Sequence[tuple[str, object]]) -> str:
    return json.dumps(pairs, ensure_ascii=False)


def _plain(read: Callable[[Message], object]) -> Maker:
    return lambda records, kind, _: pa.array([read(record) for record in records], kind)


Maker = Callable[[Sequence["Message"], pa.DataType, list[Undecodable]], pa.Array]
_MAKERS: Final[Mapping[str, Maker]] = {
    "timestamp": _timestamps,
    "topic": _plain(lambda record: record.topic()),
    "partition": _plain(lambda record: record.partition()),
    "offset": _plain(lambda record: record.offset()),
    _HEADERS: _headers,
}


def _require(schema: pa.Schema, what: str, column: str) -> None:
    if what not in INCLUDED:
        message = f"a record has no {what!r} that could be a column"
        raise OptionError(message, hint=f"one of {', '.join(INCLUDED)}", key="include", value=what)
    if column not in schema.names:
        raise unknown_column(column, schema.names, found=[what])
    kind = schema.field(column).type
    takes = _TYPES.get(what)
    if not (takes is None or kind in takes) or (what == KEY and pa.types.is_nested(kind)):
        message = f"column {column!r} is {type_name(kind)}, which cannot take the {what} of records"
        accepted = ", ".join(map(type_name, takes or ())) or "a type that is not nested"
        raise SchemaMismatchError(
            message, hint=f"it takes {accepted}", column=column, found=type_name(kind)
        )
