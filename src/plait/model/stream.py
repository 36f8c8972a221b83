"""The progress of streams, read from decisions (RFC 0007)."""

from __future__ import annotations

from dataclasses import dataclass

from plait.model.changes import Digest
from plait.model.decision import Span, Token
from plait.model.instant import Instant
from plait.model.plain import Plain


@dataclass(frozen=True, slots=True)
class Position:
    """The progress of an application: its last token, and the version of its decision.

    A writer always continues from here: ``end`` is where it reads its source next.
    """

    token: Token
    version: int
    since: int | None = None
    """The version of the replay that set the stream back to this token; None if none did."""

    @property
    def source(self) -> int:
        """The version that decided where the stream continues."""
        return self.version if self.since is None else self.since

    @property
    def epoch(self) -> int:
        """The last epoch that was applied."""
        return self.token.epoch

    @property
    def end(self) -> str:
        """The offsets up to which all rows are in the table."""
        return self.token.end

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return {**self.token.to_dict(), "version": self.version}


@dataclass(frozen=True, slots=True)
class EpochEntry(Plain):
    """One epoch in the timeline."""

    KEYS = "epoch start end offsets digest version instant completed=completed_ms rows undone_by"

    epoch: int
    start: str
    end: str
    version: int
    instant: Instant
    completed_ms: int
    rows: int
    """The number of input rows."""
    offsets: tuple[Span, ...] = ()
    """Offsets of the epoch in each source, if they were reported."""
    digest: Digest | None = None
    """The digest of its rows."""
    undone_by: int | None = None
    """The restore that undid it, so that the table does not contain it; None if none did."""

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        offsets = {span.source: [span.start, span.end] for span in self.offsets}
        digest = None if self.digest is None else f"{self.digest.hash:016x}"
        return Plain.to_dict(self) | {"offsets": offsets, "digest": digest}


@dataclass(frozen=True, slots=True)
class StreamProblem(Plain):
    """An epoch that does not continue the one before it."""

    kind: str
    """``gap``, ``repeat``, ``rewind`` or ``jump``."""
    version: int
    message: str


@dataclass(frozen=True, slots=True)
class Audit(Plain):
    """The epochs of one application in the timeline, oldest first."""

    KEYS = "application rows proven epochs problems"

    application: str
    epochs: tuple[EpochEntry, ...]
    problems: tuple[StreamProblem, ...]

    @property
    def contained(self) -> tuple[EpochEntry, ...]:
        """The epochs that the table contains: those that no restore undid."""
        return tuple(entry for entry in self.epochs if entry.undone_by is None)

    @property
    def rows(self) -> int:
        """The number of input rows in all epochs that the table contains."""
        return sum(entry.rows for entry in self.contained)

    @property
    def proven(self) -> int:
        """The number of epochs in the table whose offsets start where the epoch before ended.

        For the others only the numbers are checked, because the source did not report offsets.
        """
        before = (None, *self.contained)
        pairs = zip(before, self.contained, strict=False)
        return sum(bool(each.offsets and (last is None or last.offsets)) for last, each in pairs)


def find_gap(last: Token, token: Token) -> tuple[str, str, str] | None:
    """Return the first source that does not continue where the last epoch ended.

    Returns:
        The source, where the last epoch ended, and where this one starts; None if there is no such
        source, or one of the two tokens does not name it.
    """
    ends = {span.source: span.end for span in last.offsets}
    for span in token.offsets:
        if span.start != ends.get(span.source, span.start):
            return span.source, ends[span.source], span.start
    return None
