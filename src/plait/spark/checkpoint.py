"""What the checkpoint of a streaming query says of its sources, read as the files that it is.

Spark writes ``offsets/<batch>`` before it runs a batch: a line ``v1``, one of metadata, then one
line for each source, which says where the batch ends there. It tells a sink nothing of it, so the
sink reads the file: on a local disk, or where the table is, by the same file system and options.
Where it cannot, offsets stay unknown, and the digest of the rows alone tells batches apart.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from plait.errors import OptionError, TableError
from plait.model.decision import Span
from plait.model.store_address import StoreAddress
from plait.storage import open_store
from plait.storage.port import Store

_log = logging.getLogger(__name__)
_BYTES_MAX = 64 << 10
"""Offsets that take more are not kept: they would be in every checkpoint of the table."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_FORMAT = "v1"
_NOTHING_YET = "-"


@dataclass(frozen=True, slots=True)
class QueryCheckpoint:
    """The checkpoint of one query, where this process can read it."""

    store: Store | None
    place: str

    @classmethod
    def at(cls, place: str, table: StoreAddress) -> QueryCheckpoint:
        """Find a way to the files of a checkpoint; nothing is read yet."""
        path = _local_path(place)
        address = None if path is None else StoreAddress(path)
        try:
            if path is None and urlsplit(place).scheme == urlsplit(table.uri).scheme:
                address = StoreAddress(place, table.options)
            return cls(None if address is None else open_store(address), place)
        except (TableError, ValueError):
            return cls(None, place)

    def find_query(self) -> str | None:
        """Find the id of the query whose checkpoint it is; None if it cannot be read."""
        try:
            text = self._find("metadata")
            return None if text is None else str(json.loads(text)["id"])
        except (TableError, ValueError, KeyError, TypeError):
            return None

    def find_offsets(self, query: str, batch: int) -> tuple[Span, ...]:
        """Find from where to where a batch took each source; () if that cannot be told.

        Args:
            query: whose batch it is.
            batch: its number.

        Raises:
            OptionError: the checkpoint is that of another query.
        """
        if self.store is None:
            return ()
        try:
            self._require_of(query)
            ends = self._ends(batch)
            starts = self._ends(batch - 1) if batch else [""] * len(ends)
            spans = [Span(str(at), *both) for at, both in enumerate(zip(starts, ends, strict=True))]
        except OptionError:
            raise
        except (TableError, ValueError) as error:
            _log.warning("batch %d has no offsets in its token: %s", batch, error)
            return ()
        return tuple(sorted(spans))

    def _require_of(self, query: str) -> None:
        if not query:
            return
        found = self.find_query()
        if found is None:
            raise ValueError(f"{self.place} has no readable metadata")
        if found != query:
            message = f"{self.place} is the checkpoint of query {found}, not of {query}"
            hint = "pass the checkpointLocation of the stream's own query"
            raise OptionError(message, hint=hint, key="checkpoint", value=self.place)

    def _ends(self, batch: int) -> list[str]:
        text = self._find(f"offsets/{batch}")
        lines = [] if text is None else text.split("\n")
        if len(lines) < 3 or lines[0] != _FORMAT:  # noqa: PLR2004 - version, metadata, a source
            raise ValueError(f"{self.place} has no offsets of batch {batch} in a known form")
        return ["" if line == _NOTHING_YET else line for line in lines[2:]]

    def _find(self, path: str) -> str | None:
        body = None if self.store is None else self.store.find(path, size_max=_BYTES_MAX)
        return None if body is None else body.decode()


def name_of(place: str) -> str:
    """Return the name that a stream has by the location of its checkpoint.

    The same one for the same text, whatever is there; without a password.

    >>> name_of("file:///data/c/"), name_of("checkpoints//views"), name_of("s3a://u:p@b/c")
    ('/data/c', 'checkpoints/views', 's3a://b/c')
    """
    path = _local_path(place)
    if path is not None:
        return str(Path(path))
    try:
        parts = urlsplit(place)
    except ValueError:  # Spark will say what is wrong with it
        return place
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")


def _local_path(place: str) -> str | None:
    if place.startswith("file:/"):
        return "/" + place.removeprefix("file:").lstrip("/")
    return None if _URL.match(place) else place
