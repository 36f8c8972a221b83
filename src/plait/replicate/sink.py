"""What a sink is: the one protocol that a store has to implement to receive a table's rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from plait.definition.sink_schema import SinkSchema

__all__ = ["Sink", "SinkSchema", "SinkSession"]


class SinkSession(Protocol):
    """One connection to a sink, for one task. One thread uses it at a time.

    Any method may raise. The caller then closes the session, opens a new one, and sends
    everything since the last ``flush`` again.
    """

    def batch_put(self, records: pa.RecordBatch) -> None:
        """Write records; each replaces the row with its key. The columns are those of the schema.

        Putting the same records again changes nothing. Of several records with one key, a later
        one counts as put later. With ``schema.ordering``, a row that has a greater value than the
        record stays; null is less than every value, and of equal values the record wins.
        """
        ...

    def batch_remove(self, keys: pa.RecordBatch) -> None:
        """Remove the rows with these keys, whose columns are ``schema.keys``; absent ones too.

        It is called only if the sink ``removes``.
        """
        ...

    def flush(self) -> None:
        """Return when the store has acknowledged everything so far and will not lose it."""
        ...

    def held(self) -> Iterator[pa.RecordBatch]:
        """Return every row that the sink holds, once, in any order, with the schema's columns."""
        ...

    def close(self) -> None:
        """Release the connection; what was not flushed may be lost. It raises nothing."""
        ...


class Sink(Protocol):
    """A store that receives a table's rows: a frozen value that can be pickled."""

    @property
    def name(self) -> str:
        """The sink's name in ledgers: letters, digits, ``.``, ``_`` and ``-``. It never changes."""
        ...

    @property
    def removes(self) -> bool:
        """Whether it can remove rows."""
        ...

    def open(self, schema: SinkSchema) -> SinkSession:
        """Connect; raise OptionError or SchemaMismatchError if it cannot hold such rows."""
        ...
