"""Bytes from a copy of a table, where something in the table proves that they are the lost ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import CorruptMetadataError, StorageError, TableError
from plait.files.data_file import LiveFile, live_files, unmasked
from plait.files.deletion import load_masked
from plait.files.reader import OpenFile, Schemas
from plait.model.decision import ArchiveFile
from plait.model.document import unseal
from plait.state.state import TableState
from plait.storage.port import Store
from plait.timeline import codec, paths
from plait.timeline.archive import Archive
from plait.timeline.columns import BYTES_MAX

_Damage = (CorruptMetadataError, StorageError)
_FILE_BYTES_MAX = 1 << 40
Unsealed = tuple[str, dict[str, object], bytes]


@dataclass(slots=True)
class Backup:
    """A table and a copy of it, which may be older or damaged elsewhere."""

    store: Store
    copy: Store
    _references: dict[str, str] | None = None
    _archives: tuple[Archive, Archive] = field(init=False)
    """Archives of the table and of the copy."""

    def __post_init__(self) -> None:
        """Look into the archives too."""
        self._archives = Archive(self.store), Archive(self.copy)

    def is_of_table(self) -> bool:
        """Tell whether the copy has the identity of the table."""
        ours, theirs = (_find(store, paths.TABLE) for store in (self.store, self.copy))
        return ours is not None and ours == theirs

    def find_slot(self, version: int) -> bytes | None:
        """Find the bytes of a slot whose checksum the next decision names.

        They may be in the table's own archive. The next decision is one of the table's, or one
        that was proven in this way itself.
        """
        later = version + 1
        while (found := self._whole(later)) is None:
            if _find(self.copy, paths.slot(later)) is None:
                return None  # nothing after it proves anything
            later += 1
        _, document, _ = found
        body: bytes | None = None
        for number in range(later - 1, version - 1, -1):
            expected = document.get("previous")
            proven = [each for each in self._others(number) if each[0] == expected]
            if not proven:
                return None
            _, document, body = proven[0]
        return body

    def proves(self, version: int) -> bool:
        """Tell whether the next decision names the checksum of a slot as it is."""
        mine, after = self._whole(version), self._whole(version + 1)
        return mine is not None and after is not None and after[1].get("previous") == mine[0]

    def _whole(self, version: int) -> Unsealed | None:
        """Return the decision of a version of the table, if its slot is whole, or was archived."""
        body = _find(self.store, paths.slot(version))
        return _unsealed(_archived(self._archives[0], version) if body == b"" else body, version)

    def _others(self, version: int) -> Iterator[Unsealed]:
        """Return what the archives and the copy have as the decision of a version."""
        ours, theirs = self._archives
        bodies = (_archived(ours, version), _find(self.copy, paths.slot(version)))
        for body in (*bodies, _archived(theirs, version)):
            found = _unsealed(body, version)
            if found is not None:
                yield found

    def find_archive(self, file: ArchiveFile) -> bytes | None:
        """Find the bytes of a file of the archive by the SHA-256 that a decision names."""
        body = _find(self.copy, file.path, size_max=BYTES_MAX)
        same = body is not None and hashlib.sha256(body).hexdigest() == file.sha256
        return body if same else None

    def find_manifest(self, path: str) -> bytes | None:
        """Find the bytes of a manifest whose SHA-256 a decision of the table names."""
        if self._references is None:
            self._references = dict(self._named())
        body = _find(self.copy, path, size_max=BYTES_MAX)
        expected = self._references.get(path)
        if body is None or hashlib.sha256(body).hexdigest() != expected:
            return None
        return body

    def _named(self) -> Iterator[tuple[str, str]]:
        """Return the path and the digest of every manifest that a decision names."""
        version = 0
        while _find(self.store, paths.slot(version)) is not None:
            found = self._whole(version)
            changes = {} if found is None else found[1].get("changes")
            for section in changes.values() if isinstance(changes, dict) else ():
                if isinstance(section, dict) and "manifest" in section:
                    yield str(section["manifest"]), str(section.get("sha256"))
            version += 1

    def find_file(self, state: TableState, path: str) -> bytes | None:
        """Find the bytes of a data file with the size, footer and rows that its decision names."""
        file = data_file(self.store, state, path)
        if file is None:
            return None
        schema = state.table.spec.schema
        try:
            with OpenFile(self.copy, file, Schemas(schema, state.table.schemas)) as source:
                for group in range(source.group_count):
                    for _ in source.batches(group, schema.names):
                        pass
                for _ in source.indexed_keys():
                    pass
        except _Damage:
            return None
        return _find(self.copy, path, size_max=_FILE_BYTES_MAX)

    def find_vectors(self, state: TableState, path: str) -> bytes | None:
        """Find the bytes of a file of deletion vectors, all of which are as decisions name them."""
        folded = state.folded(self.store)
        masks = folded.masks.filter(pc.equal(folded.masks["dv_path"], path))
        at = pc.index_in(masks["path"], value_set=folded.files["path"].combine_chunks())
        rows = folded.files["rows"].take(at).to_pylist()
        try:
            for mask, count in zip(masks.to_pylist(), rows, strict=True):
                load_masked(self.copy, mask, rows=count)
        except _Damage:
            return None
        return _find(self.copy, path, size_max=_FILE_BYTES_MAX) if masks.num_rows else None


def data_file(store: Store, state: TableState, path: str) -> LiveFile | None:
    """Return what the decisions say of a data file, live or not; None for no file of the table."""
    folded = state.folded(store)
    row = folded.files.filter(pc.equal(folded.files["path"], path)).drop_columns(["until"])
    if row.num_rows != 1:
        return None
    version = row["version"][0].as_py()
    added: pa.Table = row.drop_columns(["version"])
    return next(live_files(unmasked(added, version=version)))


def _unsealed(body: bytes | None, version: int) -> Unsealed | None:
    """Return checksum, document and bytes of a decision that is whole and of this version."""
    if not body:
        return None
    try:
        checksum, document = unseal(body, path=paths.slot(version))
    except CorruptMetadataError:
        return None
    return (checksum, document, body) if document.get("version") == version else None


def _archived(archive: Archive, version: int) -> bytes | None:
    try:
        return next(iter(archive.find(version)), None)
    except TableError:
        return None


def _find(store: Store, path: str, *, size_max: int = codec.SLOT_BYTES_MAX) -> bytes | None:
    try:
        return store.find(path, size_max=size_max)
    except TableError:
        return None
