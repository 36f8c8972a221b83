"""Records become changes: rows, and the keys that tombstones remove, in the order of the topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from plait.arrow.ingest import identities
from plait.arrow.merge import last_removals
from plait.kafka.records.decode import Kept, Undecodable
from plait.kafka.records.formats import decoder_of, registry_of
from plait.kafka.records.includes import Includes
from plait.kafka.records.record_keys import KeyDecoder
from plait.kafka.records.row_check import RowCheck
from plait.kafka.settings import SinkSettings
from plait.model.plan import TableSpec

if TYPE_CHECKING:
    from confluent_kafka import Message

_NAMELESS = "it has neither a value nor a key"


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """What some records of one partition change."""

    rows: pa.Table
    removals: pa.Table | None = None
    """Keys that are removed before the rows come."""
    bad: tuple[Undecodable, ...] = ()
    bytes: int = 0
    """Size of the values of the records."""


class ChangeReader:
    """Makes changes of records: a record without a value removes its key from a keyed table."""

    def __init__(self, spec: TableSpec, settings: SinkSettings) -> None:
        """Read for a table.

        Raises:
            OptionError: the formats of values and keys cannot make rows of this table.
            SchemaMismatchError: a column that is named is not there, or has another type.
        """
        schema = spec.schema.arrow
        self._spec = spec
        registry = registry_of(settings)
        decoder = partial(KeyDecoder, name=settings.key_format, registry=registry)
        self._includes = Includes(schema, settings.include, decoder)
        rest = [each for each in schema if each.name not in self._includes.columns]
        self._values = decoder_of(settings, pa.schema(rest), registry)
        self._check = RowCheck.of(spec)
        keys = pa.schema([schema.field(name) for name in spec.key])
        self._keys = decoder(keys) if spec.keyed else None
        self._key_check = RowCheck(keys, spec.key, spec.key)
        # Where keys are unique in the table, a key alone says which row it removes.
        where = () if spec.unique_in_table else spec.partition_sources
        self._elsewhere = [name for name in where if name not in spec.key]

    def read(self, records: Sequence[Message]) -> ChangeSet:
        """Return what records change, in their order.

        Raises:
            StorageError: the schema registry does not answer.
        """
        values = [record.value() for record in records]
        size = sum(map(len, filter(None, values)))
        return replace(self._read(records, values), bytes=size)

    def _read(self, records: Sequence[Message], values: list[bytes | None]) -> ChangeSet:
        absent = np.empty(0, np.int64)
        present = np.arange(len(values))
        if None in values:
            has = np.array([value is not None for value in values])
            present, absent = np.flatnonzero(has), np.flatnonzero(~has)
        found = Kept.of(self._values.decode([each for each in values if each is not None]), present)
        self._includes.add(records, found)
        found.drop(self._check.refused(found.rows))
        if not len(absent):
            return ChangeSet(found.rows, None, tuple(sorted(found.bad)))
        if self._keys is None or self._elsewhere:
            found.bad += [Undecodable(int(at), self._refusal()) for at in absent]
            return ChangeSet(found.rows, None, tuple(sorted(found.bad)))
        named = [records[at].key() for at in absent.tolist()]
        has = np.array([key is not None for key in named])
        found.bad += [Undecodable(int(at), _NAMELESS) for at in absent[~has]]
        keys = Kept.of(self._keys.decode([key for key in named if key is not None]), absent[has])
        keys.drop(self._key_check.refused(keys.rows))
        removals, rows = self._in_order(found, keys)
        return ChangeSet(rows, removals, tuple(sorted([*found.bad, *keys.bad])))

    def _refusal(self) -> str:
        """Say why no record can remove a row."""
        if self._keys is None:
            return "it has no value, and the table has no record key"
        return f"it has no value, and its key has no {', '.join(self._elsewhere)}"

    def _in_order(self, found: Kept, keys: Kept) -> tuple[pa.Table | None, pa.Table]:
        """Return the keys that were removed, each once, and the rows that came after."""
        rows = found.rows
        if not keys.rows.num_rows:
            return None, rows
        order = np.argsort(np.concatenate([found.at, keys.at]), kind="stable")
        every = pa.concat_tables([rows.select(list(self._spec.key)), keys.rows])
        batch = every.take(pa.array(order)).combine_chunks().to_batches()[0]
        removes = order >= rows.num_rows
        last, stays = last_removals(identities(batch, self._spec), removes)
        kept = np.flatnonzero(stays[~removes])
        removed = pa.Table.from_batches([batch]).take(pa.array(last[last >= 0]))
        return removed, rows if len(kept) == rows.num_rows else rows.take(pa.array(kept))
