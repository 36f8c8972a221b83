"""Which old decisions are in the archive, and in which of its files."""

from __future__ import annotations

from dataclasses import dataclass

from plait.errors import CorruptMetadataError
from plait.model.decision import ArchiveFile, Decision
from plait.timeline.codec import parse_archive
from plait.timeline.features import ARCHIVE


@dataclass(frozen=True, slots=True)
class Archived:
    """The files of the archive at a version."""

    files: tuple[ArchiveFile, ...] = ()
    """Oldest first; they follow each other from version 0 on."""

    @property
    def last(self) -> int:
        """The newest archived version; -1 for none."""
        return self.files[-1].last if self.files else -1

    @property
    def features(self) -> tuple[str, ...]:
        """What a client must know since the first archive."""
        return (ARCHIVE,) if self.files else ()

    def after(self, decision: Decision, *, where: str) -> Archived:
        """Return the archive after a decision.

        Raises:
            CorruptMetadataError: it leaves out archived versions, or names some that come later.
        """
        files = decision.archived
        if not files:
            return self
        if not self.last <= files[-1].last < decision.version:
            message = f"{where} archives the versions up to {files[-1].last}"
            raise CorruptMetadataError(
                message, path=where, expected=self.last, found=files[-1].last
            )
        return Archived(files)

    def to_list(self) -> list[object]:
        """Write it as JSON values, the form in checkpoints."""
        return [file.to_list() for file in self.files]

    @classmethod
    def from_list(cls, value: object) -> Archived:
        """Read what ``to_list`` wrote; raise TypeError or ValueError for nonsense."""
        return cls(parse_archive(value))
