"""Parts of checkpoints: events on storage, written once, reused by later checkpoints."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass

from plait.errors import CorruptMetadataError, FormatError, InstantExpiredError
from plait.state.events import TABLES, Events, events_of
from plait.storage.port import Store, check_path
from plait.timeline import paths
from plait.timeline.columns import load_parquet, to_parquet
from plait.timeline.log import Timeline

_log = logging.getLogger(__name__)

COMMIT_TABLES = ("commits", "tokens")
FILE_TABLES = tuple(name for name in TABLES if name not in COMMIT_TABLES)
_ROWS_MAX = 1 << 31


@dataclass(frozen=True, slots=True)
class PartFile:
    """One events table of a part."""

    table: str
    path: str
    rows: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Part:
    """Events of the versions ``first`` to ``last``, one file a table that has any."""

    first: int
    last: int
    files: tuple[PartFile, ...]

    @property
    def rows(self) -> int:
        """Events in it."""
        return sum(file.rows for file in self.files)

    def to_dict(self) -> dict[str, object]:
        """Write it as JSON values."""
        files = [[f.table, f.path, f.rows, f.sha256] for f in self.files]
        return {"first": self.first, "last": self.last, "files": files}

    @classmethod
    def from_dict(cls, value: object, *, where: str) -> Part:
        """Read what ``to_dict`` wrote; raise CorruptMetadataError for anything else."""
        try:
            if not isinstance(value, dict):
                raise TypeError(value)
            files = []
            for table, path, rows, digest in value["files"]:
                inside = isinstance(path, str) and path.startswith(f"{paths.CHECKPOINTS}/")
                if table not in TABLES or not inside or not 0 < int(rows) < _ROWS_MAX:
                    raise ValueError(path)
                files.append(PartFile(table, check_path(path), int(rows), str(digest)))
            return cls(int(value["first"]), int(value["last"]), tuple(files))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            message = f"{where} names a part that cannot be read: {str(value)[:120]}"
            raise CorruptMetadataError(message, path=where) from error


def write_part(store: Store, events: Events, *, first: int, last: int, nonce: str) -> Part:
    """Write events under names that nobody else uses, and read them back.

    Reading back is a pair assertion: an older part is let go only for one that is whole.
    """
    files = []
    for name, table in events.tables().items():
        if not table.num_rows:
            continue
        path = paths.checkpoint(last, f"{nonce}-{first}-{name}.parquet")
        body = to_parquet(table)
        store.put_if_absent(path, body)
        entry = PartFile(name, path, table.num_rows, hashlib.sha256(body).hexdigest())
        load_parquet(store, path, TABLES[name], rows=entry.rows, sha256=entry.sha256)
        files.append(entry)
    return Part(first, last, tuple(files))


def recover_part(store: Store, part: Part, tables: tuple[str, ...]) -> Events:
    """Load some tables of a part; from its decisions, if it is damaged or gone (INV-11).

    A client that slept may rest on a part that was collected since.

    Raises:
        CorruptMetadataError: the decisions cannot be read either.
    """
    try:
        return load_part(store, part, tables)
    except CorruptMetadataError as error:
        _log.warning("reading versions %d to %d again: %s", part.first, part.last, error)
        count = part.last - part.first + 1
        try:
            decisions = list(Timeline(store).load_after(part.first - 1, limit=count))
        except (FormatError, InstantExpiredError):
            raise error from None
        if len(decisions) != count:
            raise
        every = events_of(decisions)
        return Events(**{name: getattr(every, name) for name in tables})


def load_part(store: Store, part: Part, tables: tuple[str, ...]) -> Events:
    """Load some tables of a part; the others come empty.

    Raises:
        CorruptMetadataError: a file of it is damaged or gone.
    """
    loaded = {
        file.table: load_parquet(
            store, file.path, TABLES[file.table], rows=file.rows, sha256=file.sha256
        )
        for file in part.files
        if file.table in tables
    }
    return Events(**loaded)
