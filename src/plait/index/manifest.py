"""The manifest of a record index: which runs it has, and up to which version they go (RFC 0028).

A manifest has a number; the greatest is the newest. One is published by put-if-absent, so of
clients that add to an index at once one wins. An older manifest is as right as a newer one: there
are more decisions since. A hint names the newest; it may be wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from plait.errors import CorruptMetadataError, FormatError, StorageError
from plait.index.run_file import RunFile
from plait.model.document import checksum_of, load_document
from plait.storage.port import Store
from plait.timeline import paths

FEATURES: Final = ("runs-1",)
_BYTES_MAX: Final = 64 << 20
_HINT_BYTES_MAX: Final = 64
_NONSENSE = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class IndexRun:
    """A sorted run: each of its files has a range of the hashes."""

    first: int
    """First version whose keys the run has."""
    last: int
    """... up to this one."""
    files: tuple[RunFile, ...]

    @property
    def entries(self) -> int:
        """How many it has."""
        return sum(file.entries for file in self.files)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an index has at a version of the table."""

    index: str
    """The name of the index."""
    number: int
    layout: int
    """The id of the bucket spec under which keys were hashed."""
    version: int
    """Version of which the index has every live key."""
    decision: str
    """The checksum of the decision of that version."""
    runs: tuple[IndexRun, ...] = ()
    """Oldest first."""

    @property
    def files(self) -> tuple[RunFile, ...]:
        """All files of all runs."""
        return tuple(file for run in self.runs for file in run.files)

    @property
    def entries(self) -> int:
        """How many it has, those included that are over."""
        return sum(run.entries for run in self.runs)

    @property
    def size_bytes(self) -> int:
        """Bytes of its files."""
        return sum(file.size_bytes for file in self.files)

    def to_bytes(self) -> bytes:
        """Write it, with a checksum."""
        runs = [[run.first, run.last, [f.to_list() for f in run.files]] for run in self.runs]
        document = {
            "features": list(FEATURES),
            "index": self.index,
            "number": self.number,
            "layout": self.layout,
            "version": self.version,
            "decision": self.decision,
            "runs": runs,
        }
        body = json.dumps(document, separators=(",", ":"))
        sealed = {"checksum": checksum_of(body.encode()), "manifest": body}
        return json.dumps(sealed, separators=(",", ":")).encode()

    @classmethod
    def parse(cls, data: bytes, path: str) -> Self:
        """Read what ``to_bytes`` wrote.

        Raises:
            CorruptMetadataError: it is damaged, or of a newer Plait.
        """
        try:
            sealed = load_document(data)
            body = str(sealed["manifest"])
            if sealed["checksum"] != checksum_of(body.encode()):
                raise ValueError("the checksum does not match the content")
            found = cls._from_dict(load_document(body.encode()))
            if paths.index_manifest(found.index, found.number) != path:
                raise ValueError("it is that of another index or number")
        except FormatError:
            raise
        except _NONSENSE as error:
            message = f"{path} is not the manifest of an index: {type(error).__name__}: {error}"
            raise CorruptMetadataError(message, path=path) from error
        return found

    @classmethod
    def _from_dict(cls, value: Mapping[str, object]) -> Self:
        features, runs = value["features"], value["runs"]
        if features != list(FEATURES) or not isinstance(runs, list):
            raise ValueError(features)
        return cls(
            str(value["index"]),
            _count(value["number"]),
            _count(value["layout"]),
            _count(value["version"]),
            str(value["decision"]),
            tuple(
                IndexRun(_count(first), _count(last), tuple(map(RunFile.from_list, files)))
                for first, last, files in runs
            ),
        )


def _count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(value)
    return value


def load_hinted(store: Store, index: str) -> Manifest | None:
    """Load the manifest that the hint names, else the newest; None if there is none that is whole.

    Raises:
        StorageError: the store cannot list.
    """
    number = _hinted(store, index)
    found = None if number is None else _load(store, index, number)
    return found or load_newest(store, index)


def load_newest(store: Store, index: str) -> Manifest | None:
    """List the manifests of an index and load the newest that is whole; None if there is none.

    Raises:
        StorageError: the store cannot list.
    """
    for number in reversed(list_manifests(store, index)):
        found = _load(store, index, number)
        if found is not None:
            return found
    return None


def list_manifests(store: Store, index: str) -> list[int]:
    """List the numbers of the manifests of an index, oldest first."""
    listed = (paths.index_manifest_of(info.path) for info in store.list(paths.index(index)))
    return sorted(number for number in listed if number is not None)


def publish_manifest(store: Store, manifest: Manifest) -> bool:
    """Publish a manifest; tell whether its number was free."""
    path = paths.index_manifest(manifest.index, manifest.number)
    if not store.put_if_absent(path, manifest.to_bytes()):
        return False
    newest = max(list_manifests(store, manifest.index), default=-1)
    if manifest.number == newest:  # it may have slept
        store.put(paths.INDEX_HINT, _hint(manifest))
    return True


def withdraw_manifest(store: Store, manifest: Manifest) -> None:
    """Delete a manifest of a table that is gone, and its hint; nothing of another table."""
    doomed = [paths.index_manifest(manifest.index, manifest.number)]
    if store.find(paths.INDEX_HINT, size_max=_HINT_BYTES_MAX) == _hint(manifest):
        doomed.append(paths.INDEX_HINT)
    store.delete(doomed)


def _hint(manifest: Manifest) -> bytes:
    return f"{manifest.index} {manifest.number}".encode()


def load_manifest(store: Store, index: str, number: int) -> Manifest | None:
    """Load a manifest; None if it is gone.

    Raises:
        CorruptMetadataError: it is damaged.
        StorageError: the store failed.
    """
    path = paths.index_manifest(index, number)
    body = store.find(path, size_max=_BYTES_MAX)
    return None if body is None else Manifest.parse(body, path)


def _load(store: Store, index: str, number: int) -> Manifest | None:
    """Load a manifest for a look-up; one that cannot be read is as good as lost (INV-11)."""
    try:
        return load_manifest(store, index, number)
    except (FormatError, StorageError):
        return None


def _hinted(store: Store, index: str) -> int | None:
    try:
        body = store.find(paths.INDEX_HINT, size_max=_HINT_BYTES_MAX)
    except (CorruptMetadataError, StorageError):  # a hint may be anything
        return None
    named, _, number = (body or b"").decode("ascii", "replace").partition(" ")
    return int(number) if named == index and number.isascii() and number.isdigit() else None
