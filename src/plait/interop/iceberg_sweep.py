"""What a clean deletes of Iceberg metadata: what only versions need that are gone for good.

Every list that is named, or whose version may still be brought back, is read. What those name
stays; the rest goes, if it was written for a number that is decided. Nobody can come to name it:
whoever publishes begins with the newest metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from plait.interop.iceberg_files import (
    DELETES,
    POSITIONS,
    VECTORS,
    Json,
    read_list,
    read_manifest,
)
from plait.interop.iceberg_metadata import (
    BYTES_MAX,
    OWN,
    SNAPSHOTS_MAX,
    Metadata,
    MetadataDirectory,
    metadata_path,
)
from plait.storage.port import Store

_DELETED_AT_ONCE: Final = 50


@dataclass(frozen=True, slots=True)
class KeptVersions:
    """The versions that stay: all from one on, and those of savepoints."""

    oldest: int
    saved: frozenset[int]

    def has(self, version: int) -> bool:
        """Tell whether a version is one of them."""
        return version >= self.oldest or version in self.saved


def sweep(
    store: Store, directory: MetadataDirectory, newest: Metadata, shown: KeptVersions
) -> list[str]:
    """Delete what only versions need that are gone for good; return what went."""
    directory.point_to(newest.number)  # which may name metadata that goes
    numbers, _ = directory.list_metadata()
    older = [
        metadata_path(each)
        for each in numbers
        if each < newest.number and not _stays(directory, each, newest, shown)
    ]
    decided = [each for each in directory.list_own() if int(each["number"]) <= newest.number]
    names = {own_name(str(each["manifest-list"]), newest.location) for each in newest.snapshots}
    lists = {each[0] for each in decided if each["version"] is not None}
    kept = names | {
        each[0] for each in decided if each["version"] and shown.has(int(each["version"]))
    }
    needed = _needed(store, sorted(kept & lists), names, newest)
    rest = [each[0] for each in decided if each[0] not in lists and each[0] not in needed]
    gone = [older, sorted(lists - kept), rest]
    for paths in gone:  # a store may delete what it is given at once in any order
        for start in range(0, len(paths), _DELETED_AT_ONCE):
            store.delete(paths[start : start + _DELETED_AT_ONCE])
    return [path for paths in gone for path in paths]


def _stays(
    directory: MetadataDirectory, number: int, newest: Metadata, shown: KeptVersions
) -> bool:
    """Tell whether older metadata may stay: what it names can be read, or made so."""
    if number <= newest.number - SNAPSHOTS_MAX:
        return False
    found = directory.find(number)
    return found is not None and all(shown.has(each) for each in versions_of(found))


def _needed(
    store: Store, lists: Sequence[str], named: Collection[str], newest: Metadata
) -> set[str]:
    """Return the manifests that lists name, and the files of deletes that those name."""
    manifests: dict[str, int] = {}
    for name in lists:
        try:
            found = {
                own_name(str(each["manifest_path"]), newest.location): int(str(each["content"]))
                for each in _of_either(read_list, find_own(store, name))
            }
        except ValueError:
            if name in named:
                raise
            continue  # of a publisher that was not first, or from before the table was moved
        manifests |= found
    needed = set(manifests)
    for name, content in manifests.items():
        if content == DELETES and (body := store.find(name, size_max=BYTES_MAX)):
            files = (each["data_file"] for each in _of_either(read_manifest, body))
            needed |= {own_name(str(f["file_path"]), newest.location) for f in files}  # type: ignore[index]  # a record
    return needed


def find_own(store: Store, name: str) -> bytes:
    """Read a file of ours; raise ValueError if it is missing."""
    body = store.find(name, size_max=BYTES_MAX)
    if body is None:
        raise ValueError(f"{name} is missing")
    return body


def own_name(path: str, location: str) -> str:
    """Return a file of ours by the name that the store has for it."""
    name = path.removeprefix(f"{location}/")
    if OWN.fullmatch(name) is None:
        raise ValueError(f"{name[:100]!r} is no name of ours")
    return name


def versions_of(found: Metadata) -> list[int]:
    """Return the versions that metadata names."""
    return [int(str(each["snapshot-id"])) for each in found.snapshots]


def _of_either(read: Callable[[bytes, int], list[Json]], body: bytes) -> list[Json]:
    """Read what may be of before the format's version went up."""
    try:
        return read(body, POSITIONS)
    except ValueError:
        return read(body, VECTORS)
