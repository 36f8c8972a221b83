"""A version of a table, pinned for good: every scan of it reads the same."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from plait.expr import Where
from plait.model.plan import Snapshot
from plait.read.scan import Scan
from plait.storage.port import Store


class Pinned:
    """What ``Table.snapshot()`` gives. Its files stay until it is dropped."""

    def __init__(self, store: Store, snapshot: Snapshot) -> None:
        """Keep a snapshot."""
        self._store, self._snapshot = store, snapshot

    @property
    def version(self) -> int:
        """The version."""
        return self._snapshot.version

    @property
    def store(self) -> Store:
        """Where the table is."""
        return self._store

    @property
    def schema(self) -> pa.Schema:
        """The columns at that version."""
        return self._snapshot.spec.schema.arrow

    def files(self) -> pa.Table:
        """Return one row per live file."""
        return self._snapshot.files

    def scan(self, columns: str | Sequence[str] | None = None, where: Where = None) -> Scan:
        """Say what to read of it; see ``Table.scan``."""
        scan = Scan(self._store, self._snapshot, columns=columns, where=where)
        scan.keep(self)
        return scan
