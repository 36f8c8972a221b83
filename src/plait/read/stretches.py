"""Reads of some rows of each file, by their positions: what one task of a load has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from plait.errors import InvariantError
from plait.files.data_file import live_files
from plait.model.plan import Snapshot
from plait.read.frames import Frames
from plait.read.scan import Scan
from plait.read.slices import SliceReader
from plait.storage.port import Store


class StretchScan(Frames):
    """The rows in one stretch of each file of a snapshot that are not hidden.

    Each method reads when it is called, and reads again on every call. Only the row groups that
    have rows of a stretch are read, one after the other.
    """

    def __init__(
        self, store: Store, snapshot: Snapshot, spans: Sequence[range], columns: Sequence[str]
    ) -> None:
        """Say what to read.

        Args:
            store: the table's.
            snapshot: its files have the rows.
            spans: positions of rows, one stretch for each file, in the order of the files.
            columns: what to read, in this order.
        """
        if len(spans) != snapshot.files.num_rows:
            raise InvariantError(f"{len(spans)} stretches of {snapshot.files.num_rows} files")
        self.store, self.snapshot, self.spans = store, snapshot, tuple(spans)
        self._schema = Scan(store, replace(snapshot, total=None), columns=columns).schema

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return self._schema

    def divided(self, size: int) -> list[StretchScan]:
        """Divide it into reads of about so many bytes; together they have the same rows."""
        parts = []
        for at, (file, span) in enumerate(
            zip(live_files(self.snapshot.files), self.spans, strict=True)
        ):
            part = replace(self.snapshot, files=self.snapshot.files.slice(at, 1))
            share = file.size_bytes * len(span) // max(1, file.rows)
            step = -(-len(span) // (1 + share // size)) or 1
            for first in range(span.start, span.stop, step):
                piece = range(first, min(first + step, span.stop))
                parts.append(StretchScan(self.store, part, [piece], self.schema.names))
        return parts

    def _batches(self) -> Iterator[pa.RecordBatch]:
        reader = SliceReader.of(self.store, self.snapshot)
        for file, span in zip(live_files(self.snapshot.files), self.spans, strict=True):
            for part in reader.stretch(file, span, columns=self.schema.names):
                yield pa.record_batch(part.rows.columns, schema=self.schema)
