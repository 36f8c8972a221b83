"""The archive: old decisions in a few files, with the exact bytes of their slots.

An archived decision proves itself as one in a slot does: it is sealed, and the next one names its
checksum. So whoever needs one lists a small directory and asks no state; the archive also makes up
for lost checkpoints (INV-11). Which files belong to the table is said by decisions (``archived``).
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from plait.errors import CorruptMetadataError, InvariantError
from plait.model.decision import ArchiveFile
from plait.model.document import check_seal
from plait.model.instant import Instant
from plait.storage.port import Store
from plait.timeline import paths
from plait.timeline.columns import load_parquet

BODIES: Final = pa.schema(
    [
        pa.field("version", pa.int64(), nullable=False),
        pa.field("body", pa.binary(), nullable=False),
    ]
)
BYTES_MAX: Final = 16 << 20
"""Most bytes of decisions in one file, unless a single one has more. A file is read whole."""


def write_archive(
    store: Store, instant: Instant, first: int, bodies: Sequence[bytes]
) -> ArchiveFile:
    """Write consecutive decisions into a file of an instant, and read it back.

    Reading back is a pair assertion: slots are emptied only for a file that is whole (INV-01).
    """
    last, size = first + len(bodies) - 1, sum(map(len, bodies))
    path = paths.archive(first, last, instant)
    table = pa.table([range(first, last + 1), list(bodies)], schema=BODIES)
    sink = io.BytesIO()
    # A reader does not believe that a few bytes become very many.
    packed = "zstd" if size <= BYTES_MAX else "none"
    pq.write_table(
        table, sink, compression=packed, use_dictionary=["version"], write_page_checksum=True
    )
    data = sink.getvalue()
    if not store.put_if_absent(path, data):
        raise InvariantError(f"{path} already exists")
    file = ArchiveFile(path, first, last, size, hashlib.sha256(data).hexdigest())
    if load_archive(store, path, sha256=file.sha256) != list(bodies):
        message = f"{path} does not have the decisions that were written into it"
        raise CorruptMetadataError(message, path=path)
    return file


def load_archive(store: Store, path: str, *, sha256: str = "") -> list[bytes]:
    """Load the decisions of a file, as they were in their slots; each has its seal.

    Raises:
        CorruptMetadataError: the file is damaged or gone.
    """
    name = paths.archive_of(path)
    if name is None:
        raise CorruptMetadataError(f"{path} is not the name of a file of the archive", path=path)
    rows = load_parquet(store, path, BODIES, rows=name.last - name.first + 1, sha256=sha256)
    if rows["version"].to_pylist() != list(range(name.first, name.last + 1)):
        message = f"{path} does not have the versions {name.first} to {name.last}"
        raise CorruptMetadataError(message, path=path)
    bodies: list[bytes] = rows["body"].to_pylist()
    for body in bodies:
        check_seal(body, path=path)
    return bodies


class Archive:
    """The files of one table's archive: looked for when they are needed, the last one held."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._names: list[tuple[paths.ArchiveName, str]] = []
        self._held: tuple[int, list[bytes]] = (0, [])

    def find(self, version: int) -> list[bytes]:
        """Return the decisions from a version to the end of its file; none if no file has it.

        Raises:
            CorruptMetadataError: every file that has it is damaged.
        """
        first, bodies = self._held
        if first <= version < first + len(bodies):
            return bodies[version - first :]
        damage: CorruptMetadataError | None = None
        for listed in (self._known, self._list):  # what is known may have been merged into others
            for name, path in listed():
                if not name.first <= version <= name.last:
                    continue
                try:
                    bodies = load_archive(self._store, path)
                except CorruptMetadataError as error:
                    damage = error
                    continue
                self._held = name.first, bodies
                return bodies[version - name.first :]
        if damage is not None:
            raise damage
        return []

    def _known(self) -> list[tuple[paths.ArchiveName, str]]:
        return self._names

    def _list(self) -> list[tuple[paths.ArchiveName, str]]:
        listed = [info.path for info in self._store.list(paths.ARCHIVE)]
        named = ((paths.archive_of(path), path) for path in listed)
        self._names = sorted((name, path) for name, path in named if name is not None)
        return self._names
