"""The directory ``metadata/`` beside a table: names, the newest metadata, what others wrote there.

Whatever lies in it may have been written by anybody, so nothing there is trusted: metadata of ours
is known by a checksum of what it says, sizes are bounded, and no path in it is opened, except for
names of ours in this directory.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from plait.errors import CorruptMetadataError, StorageError
from plait.interop.iceberg_files import Json
from plait.interop.publisher import require_near
from plait.storage.port import Store

DIRECTORY: Final = "metadata"
HINT: Final = f"{DIRECTORY}/version-hint.text"
MARK: Final = "plait."
"""How keys begin, of properties and of summaries, by which metadata says which version it shows."""
SNAPSHOTS_MAX: Final = 100
"""The most snapshots that metadata names, beside those of savepoints."""
_METADATA = re.compile(r"metadata/v([1-9]\d{0,14})\.metadata\.json", re.ASCII)
_OTHERS = re.compile(r"metadata/([\w.-]{1,200})\.metadata\.json", re.ASCII)
OWN: Final = re.compile(
    r"metadata/(?:snap-(?P<version>\d+)|[md]|x)-(?P<number>\d{1,15})-"
    r"(?:(?P<low>[0-9a-f]{16})-(?P<bits>\d{1,2})-|\d+-)?[0-9a-f]{16}\.(?:avro|parquet|puffin)",
    re.ASCII,
)
"""Names of the other files that we write there; ``number`` is that of the metadata they are for."""
BYTES_MAX: Final = 64 << 20
LOOKS_MAX: Final = 100
"""The most times that the directory is listed anew, because a clean deleted what was listed."""
_LOOKED_AT_MAX: Final = 1_000
_NAMED_MAX: Final = 100
"""The most names of metadata of others that ours notes; of more, it has a checksum."""


def metadata_path(number: int) -> str:
    """Return where metadata is.

    >>> metadata_path(7)
    'metadata/v7.metadata.json'
    """
    return f"{DIRECTORY}/v{number}.metadata.json"


@dataclass(frozen=True, slots=True)
class Metadata:
    """Metadata that the table wrote."""

    number: int
    said: Json
    version: int
    instant: str
    """The instant that the version completed: two histories of one table differ in it."""
    schema_id: int
    time_ms: int

    @property
    def location(self) -> str:
        """Where the table was when it was written."""
        return str(self.said["location"])

    @property
    def kind(self) -> int:
        """The format version."""
        return int(str(self.said["format-version"]))

    @property
    def snapshots(self) -> list[Json]:
        """The snapshots that it names, by rising version."""
        found = self.said["snapshots"]
        return list(found) if isinstance(found, list) else []

    @property
    def undone(self) -> tuple[str, ...]:
        """Names of metadata of others, beside ours, that were undone."""
        properties = self.said["properties"]
        text = properties.get(f"{MARK}undone", "") if isinstance(properties, dict) else ""
        return tuple(filter(None, str(text).split(",")))


def seal(said: Json) -> bytes:
    """Write metadata, with the checksum by which it is known as ours."""
    properties = said["properties"]
    if not isinstance(properties, dict):
        raise TypeError(properties)
    properties[f"{MARK}checksum"] = _checksum(said)
    return json.dumps(said, separators=(",", ":")).encode()


def _checksum(said: Mapping[str, object]) -> str:
    text = json.dumps(said, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _unsealed(body: bytes, number: int, identity: str) -> Metadata | None:
    """Read metadata of this very table that nobody changed; None for any other."""
    try:
        said = json.loads(body)
        properties = said["properties"]
        checksum = properties.pop(f"{MARK}checksum")
        if properties[f"{MARK}table"] != identity or checksum != _checksum(said):
            return None
        properties[f"{MARK}checksum"] = checksum
        return Metadata(
            number,
            said,
            int(properties[f"{MARK}version"]),
            str(properties[f"{MARK}instant"]),
            int(said["current-schema-id"]),
            int(said["last-updated-ms"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return None


def _shortened(names: Sequence[str]) -> tuple[str, ...]:
    """Return the first names, and instead of the others one that stands for exactly all of them.

    Its blanks tell it from the name of a file.
    """
    if len(names) <= _NAMED_MAX:
        return tuple(names)
    checksum = hashlib.sha256(",".join(names).encode()).hexdigest()
    return (*names[:_NAMED_MAX], f"and {len(names) - _NAMED_MAX} others ({checksum})")


@dataclass(frozen=True, slots=True)
class NewestMetadata:
    """The end of what is published."""

    number: int
    """The greatest number of metadata; 0 for none."""
    ours: Metadata | None = None
    """The newest metadata of this table and its history; None if there is none."""
    foreign: tuple[int, ...] = ()
    """The numbers after it, oldest first, which others wrote."""
    strange: tuple[str, ...] = ()
    """Names of metadata of others that has no number of ours, and was not undone yet."""
    named: tuple[str, ...] | None = None
    """All such names that are there, undone or not; None if nothing was listed."""
    known: bool = True
    """Whether some metadata is of this table, or there is none."""

    @property
    def others(self) -> int:
        """How many commits of others are still to be undone."""
        return len(self.foreign) + len(self.strange)

    @property
    def noted(self) -> tuple[str, ...]:
        """What the next metadata notes as undone: what is there, so that no name is told twice."""
        if self.named is None:
            return () if self.ours is None else self.ours.undone
        return self.named

    @property
    def clean(self) -> bool:
        """Whether nothing is to be undone."""
        return not self.others

    def then(self, ours: Metadata) -> NewestMetadata:
        """Return the end once metadata of ours is the newest."""
        return replace(self, number=ours.number, ours=ours, foreign=(), strange=())


class MetadataDirectory:
    """``metadata/`` of one table, as one client sees it."""

    def __init__(self, store: Store, identity: str) -> None:
        """Take the table's store and its identity; nothing is read yet."""
        self._store, self._identity = store, identity

    def find(self, number: int) -> Metadata | None:
        """Read metadata of this table; None if there is none, or it is not ours."""
        body = self._body(number)
        return None if body is None else _unsealed(body, number, self._identity)

    def _body(self, number: int) -> bytes | None:
        try:
            return self._store.find(metadata_path(number), size_max=BYTES_MAX)
        except CorruptMetadataError:  # too large for one of ours
            return b""

    def look(self, is_ours: Callable[[Metadata], bool]) -> NewestMetadata:
        """Find the newest metadata that is ours, and what others wrote after it.

        Raises:
            StorageError: what was listed was gone again and again.
        """
        for _ in range(LOOKS_MAX):
            newest = self._look(is_ours)
            if newest is not None:
                return newest
        message = f"{DIRECTORY} changed {LOOKS_MAX} times while it was read"
        raise StorageError(message, hint="try again", path=DIRECTORY)

    def _look(self, is_ours: Callable[[Metadata], bool]) -> NewestMetadata | None:
        """Find it by one listing; None if a clean deleted meanwhile what was listed."""
        numbers, every = self.list_metadata()
        strange = _shortened(every)
        last = numbers[-1] if numbers else 0
        foreign: list[int] = []
        known = not numbers and not strange
        for number in reversed(numbers[-_LOOKED_AT_MAX:]):
            body = self._body(number)
            if body is None:
                return None
            found = _unsealed(body, number, self._identity)
            known = known or found is not None
            if found is not None and is_ours(found):
                require_near(metadata_path(last), last, number)
                told = tuple(name for name in strange if name not in found.undone)
                return NewestMetadata(last, found, tuple(reversed(foreign)), told, strange)
            foreign.append(number)
        require_near(metadata_path(last), last, 0)
        if len(numbers) > len(foreign) and not known:
            self._require_own(numbers)
            known = True
        return NewestMetadata(last, None, tuple(reversed(foreign)), strange, strange, known)

    def _require_own(self, numbers: Sequence[int]) -> None:
        """Raise CorruptMetadataError unless the oldest metadata is of this table."""
        if self.find(numbers[0]) is None:
            first = metadata_path(numbers[-_LOOKED_AT_MAX])
            message = f"nothing in {DIRECTORY} since {first} is of this table"
            hint = f"delete what others wrote, or move {DIRECTORY} away if all of it is theirs"
            raise CorruptMetadataError(message, hint=hint, path=DIRECTORY)

    def guess(self) -> Metadata | None:
        """Look for the newest metadata where the hint says, and after it: no listing."""
        number = self._hint()
        found = self.find(number) if number else None
        while found is not None:
            after = self._body(found.number + 1)
            if after is None:
                return found
            found = _unsealed(after, found.number + 1, self._identity)
        return None

    def list_metadata(self) -> tuple[list[int], list[str]]:
        """List the numbers of metadata, rising, and the names of what has none."""
        numbers, strange = [], []
        for info in self._store.list(DIRECTORY):
            match, other = _METADATA.fullmatch(info.path), _OTHERS.fullmatch(info.path)
            if match:
                numbers.append(int(match[1]))
            elif other:
                strange.append(other[1])
        return sorted(numbers), sorted(strange)

    def list_own(self) -> Iterator[re.Match[str]]:
        """List the other files that we wrote."""
        for info in self._store.list(DIRECTORY):
            match = OWN.fullmatch(info.path)
            if match:
                yield match

    def put(self, number: int, said: Json) -> Metadata | None:
        """Publish metadata, if nobody has that number yet; None if somebody has.

        It alone makes a version visible. The hint follows: it is only a hint, and never goes back.
        """
        body = seal(said)
        if not self._store.put_if_absent(metadata_path(number), body):
            return None
        with suppress(StorageError):
            self.point_to(number)
        return _unsealed(body, number, self._identity)

    def point_to(self, number: int) -> None:
        """Let the hint name this metadata, if it names an older one or none that is there.

        A file cannot be compared and set. So whoever slept before he wrote it looks once more: if
        others went on meanwhile, he lets it name the newest. A clean may have deleted his own.
        """
        hint = self._hint()
        if not (hint < number or (hint > number and self._body(hint) is None)):
            return
        self._store.put(HINT, str(number).encode())
        if self._body(number + 1) is not None or self._body(number) is None:
            numbers, _ = self.list_metadata()
            if numbers and numbers[-1] > number:
                self.point_to(numbers[-1])

    def foreign_operations(self, number: int) -> list[str]:
        """Return what the newest snapshot of somebody's metadata says that it did."""
        try:
            said = json.loads(self._body(number) or b"")
            current = said["current-snapshot-id"]
            found = [each for each in said["snapshots"] if each["snapshot-id"] == current]
            return [str(each["summary"]["operation"])[:100] for each in found[:1]]
        except (ValueError, KeyError, TypeError, RecursionError):
            return []

    def _hint(self) -> int:
        try:
            text = self._store.find(HINT, size_max=100) or b""
        except CorruptMetadataError:
            return 0
        digits = text.strip()
        return int(digits) if digits.isdigit() and len(digits) < 16 else 0  # noqa: PLR2004 - digits
