"""Every decision on storage, one after another: seals, chain, names, gaps (INV-01, INV-02)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from plait.errors import CorruptMetadataError, FormatError, StorageError
from plait.model.decision import Decision
from plait.model.document import unseal
from plait.services.verify.report import Findings
from plait.storage.port import Store
from plait.timeline import codec, paths
from plait.timeline.archive import Archive
from plait.timeline.log import Timeline

_NUMBER = re.compile(r"\d{20}", re.ASCII)


@dataclass(slots=True)
class Walk:
    """Reads the timeline from its start, also beyond damage."""

    store: Store
    findings: Findings
    whole: bool = True
    """Whether every slot so far was there and could be read."""
    head: int = -1
    """The newest version found."""
    manifests: set[str] = field(default_factory=set)
    """Every manifest that a decision names."""
    seals: dict[int, int] = field(default_factory=dict)
    """A part of the checksum of each version that could be read."""
    emptied: int = -1
    """The newest version whose slot is empty."""
    _archive: Archive = field(init=False)
    _unread: int = field(default=-1, init=False)
    """The last version of the damaged file of the archive that was met."""
    _checksum: str | None = field(default="", init=False)
    """Checksum in the slot before; None if that slot could not be read."""

    def __post_init__(self) -> None:
        """Look into the archive where slots are empty."""
        self._archive = Archive(self.store)

    def decisions(self) -> Iterator[Decision]:
        """Return every decision that can be read, in the order of versions.

        The listing shows slots that nobody would look for, beyond a gap or under a wrong name.
        One that a listing under way missed is looked for by its name.
        """
        for info in self.store.list(paths.TIMELINE):
            version = _version_of(info.path)
            if version is None:
                message = "not a slot; it does no harm, and Plait does not delete it; move it away"
                self.findings.problem("INV-02", info.path, message)
                continue
            yield from self._up_to(version)
            yield from self._at(version)
        if self.head >= 0:
            yield from self.newer()

    def newer(self) -> Iterator[Decision]:
        """Return the decisions that were published meanwhile."""
        while (body := self._find(self.head + 1)) is not None:
            yield from self._take(self.head + 1, body)

    def _up_to(self, version: int) -> Iterator[Decision]:
        """Take the slots before a version; stop at the first that is not there."""
        while self.head + 1 < version:
            expected = self.head + 1
            body = self._find(expected)
            if body is None:
                self.findings.problem(
                    "INV-02",
                    paths.slot(expected),
                    f"the slot is missing, but version {version} exists",
                )
                self.whole, self._checksum, self.head = False, None, version - 1
                return
            yield from self._take(expected, body)

    def _at(self, version: int) -> Iterator[Decision]:
        if version <= self.head:
            return
        body = self._find(version)
        if body is None:
            self.findings.problem(
                "INV-02", paths.slot(version), "the slot disappeared while it was read"
            )
            self.whole = False
            return
        yield from self._take(version, body)

    def _find(self, version: int) -> bytes | None:
        try:
            return self.store.find(paths.slot(version), size_max=codec.SLOT_BYTES_MAX)
        except (FormatError, StorageError) as error:
            self._bad("INV-01", version, error.message)
            return b""

    def _take(self, version: int, data: bytes) -> Iterator[Decision]:
        self.head = version
        self.findings.count("versions")
        before, self._checksum = self._checksum, None
        path = paths.slot(version)
        data = data or self._archived(version)
        if not data:
            return
        try:
            checksum, document = unseal(data, path=path)
        except CorruptMetadataError as error:
            self._bad("INV-01", version, error.message)
            return
        if document.get("version") != version:
            number = str(document.get("version"))[:40]
            self._bad("INV-02", version, f"the slot contains the decision of version {number}")
            return
        self._checksum, self.seals[version] = checksum, part_of(checksum)
        if before is not None and document.get("previous") != before:
            message = f"it does not continue version {version - 1}: one of the two was replaced"
            self._bad("INV-01", version, message)
        self._note_manifests(document.get("changes"))
        try:
            yield self._decode(version, data)
        except (FormatError, StorageError) as error:
            self.whole = False
            self.findings.damage("INV-01", path, error)

    def _archived(self, version: int) -> bytes:
        """Return the decision of an empty slot, if there is one; report once what is damaged."""
        self.emptied = version
        if version <= self._unread:
            return b""
        try:
            bodies = self._archive.find(version)
        except (FormatError, StorageError) as error:
            path = str(error.facts.get("path", paths.ARCHIVE))
            name = paths.archive_of(path)
            self._unread = version if name is None else name.last
            self.whole = False
            self.findings.damage("INV-01", path, error)
            return b""
        if not bodies:
            self._bad("INV-01", version, "the slot is empty, and no archive contains its decision")
            return b""
        return bodies[0]

    def _decode(self, version: int, data: bytes) -> Decision:
        """Decode a slot; without its manifests, if they are damaged and it is not."""
        try:
            return Timeline(self.store).decode(version, data)
        except (FormatError, StorageError) as error:
            self.whole = False
            self.findings.damage("INV-01", paths.slot(version), error)
            return codec.decode(data, path=paths.slot(version), load=_nothing)

    def _note_manifests(self, changes: object) -> None:
        for section in changes.values() if isinstance(changes, dict) else ():
            path = section.get("manifest") if isinstance(section, dict) else None
            if isinstance(path, str):
                self.manifests.add(path)
                self.findings.count("manifests")

    def _bad(self, invariant: str, version: int, message: str) -> None:
        self.whole = False
        self.findings.problem(invariant, paths.slot(version), message)


def part_of(checksum: str) -> int:
    """Return 64 bits of a checksum."""
    return int(checksum[:16], 16)


def _nothing(_reference: object, schema: pa.Schema) -> pa.Table:
    return schema.empty_table()


def _version_of(path: str) -> int | None:
    name = path.rsplit("/", 1)[-1].removesuffix(".json")
    if not _NUMBER.fullmatch(name):
        return None
    return int(name) if paths.slot(int(name)) == path else None
