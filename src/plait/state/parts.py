"""Parts of checkpoints: events on storage, written once, reused by later checkpoints."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pyarrow as pa

from plait.errors import CorruptMetadataError, FormatError
from plait.files.bounds import Kinds
from plait.state.events import TABLES, Events, events_of
from plait.state.part_file import PartFile, read_whole, write_part_file
from plait.storage.port import Store
from plait.timeline import paths
from plait.timeline.log import Timeline

_log = logging.getLogger(__name__)

COMMIT_TABLES = ("commits", "tokens")
FILE_TABLES = tuple(name for name in TABLES if name not in COMMIT_TABLES)


@dataclass(frozen=True, slots=True)
class Part:
    """Events of the versions ``first`` to ``last``, one file a table that has any."""

    first: int
    last: int
    files: tuple[PartFile, ...]

    @property
    def rows(self) -> int:
        """Events in it."""
        return sum(file.rows for file in self.files if file.table in TABLES)

    def file(self, table: str) -> PartFile | None:
        """Return its file of a table; None if the table has no rows."""
        return next((file for file in self.files if file.table == table), None)

    def to_dict(self) -> dict[str, object]:
        """Write it as JSON values."""
        files = [file.to_list() for file in self.files]
        return {"first": self.first, "last": self.last, "files": files}

    @classmethod
    def from_dict(cls, value: object, *, where: str) -> Part:
        """Read what ``to_dict`` wrote; raise CorruptMetadataError for anything else."""
        try:
            if not isinstance(value, dict):
                raise TypeError(value)
            files = tuple(map(PartFile.from_list, value["files"]))
            return cls(int(value["first"]), int(value["last"]), files)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            message = f"{where} names a part that cannot be read: {str(value)[:120]}"
            raise CorruptMetadataError(message, path=where) from error


def write_part(
    store: Store, events: Events, places: pa.Table, *, first: int, last: int, nonce: str
) -> Part:
    """Write events, and their places (PLACES), under names that nobody else uses; read them back.

    Reading back is a pair assertion: an older part is let go only for one that is whole.
    """
    tables = {**events.tables(), "places": places}
    files = []
    for name, table in tables.items():
        if table.num_rows:
            path = paths.checkpoint(last, f"{nonce}-{first}-{name}.parquet")
            files.append(write_part_file(store, name, path, table))
            read_whole(store, files[-1])
    return Part(first, last, tuple(files))


def recover_part(
    store: Store, part: Part, tables: tuple[str, ...], kinds: Kinds | None = None
) -> Events:
    """Load some tables of a part; from its decisions, if it is damaged or gone (INV-11).

    A client that slept may rest on a part that was collected since.

    Raises:
        CorruptMetadataError: the decisions cannot be read either.
    """
    try:
        return load_part(store, part, tables, kinds)
    except CorruptMetadataError as error:
        _log.warning("reading versions %d to %d again: %s", part.first, part.last, error)
        # The decisions are the truth, and a part is only their digest. They may be in the archive
        # by now; that costs time (INV-11).
        count = part.last - part.first + 1
        try:
            decisions = list(Timeline(store).load_after(part.first - 1, limit=count))
        except FormatError:
            raise error from None
        if len(decisions) != count:
            raise
        every = events_of(decisions)
        return Events(**{name: getattr(every, name) for name in tables})


def load_part(
    store: Store, part: Part, tables: tuple[str, ...], kinds: Kinds | None = None
) -> Events:
    """Load some tables of a part; the others come empty.

    ``kinds``: fields whose typed bounds are loaded too.

    Raises:
        CorruptMetadataError: a file of it is damaged or gone.
    """
    loaded = {
        file.table: read_whole(store, file, kinds if file.table == "added" else None)
        for file in part.files
        if file.table in tables
    }
    return Events(**loaded)
