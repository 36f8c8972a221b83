"""What a table contains and what may be applied again, in plain Python: RFC 0018, section 4.6.

A restore at version r to v undoes commits and takes no version back: the table contains at r what
it contained at v, and r itself. It shares nothing with the code under test.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Decided(Protocol):
    """What is asked of a version."""

    @property
    def number(self) -> int:
        """The version."""
        ...

    @property
    def commit_id(self) -> str | None:
        """Of a commit of rows."""
        ...

    @property
    def epoch(self) -> int | None:
        """Of the one stream."""
        ...

    @property
    def restored(self) -> int | None:
        """The version whose rows a restore gave back."""
        ...

    @property
    def allowed(self) -> tuple[str, ...]:
        """Commit ids that a replay lets be used again."""
        ...

    @property
    def back(self) -> int | None:
        """The epoch after which a replay lets the stream go on; -1: from its beginning."""
        ...


class Lineage:
    """The versions of a table, and what each head contains of them."""

    def __init__(self, versions: Sequence[Decided]) -> None:
        self._versions = versions
        self._contained: dict[int, frozenset[int]] = {}

    def contained(self, head: int) -> frozenset[int]:
        """Give the versions whose commits the table contains at a version."""
        if head not in self._contained:
            found: set[int] = set()
            at = head
            while at >= 0:
                found.add(at)
                to = self._versions[at].restored
                at = at - 1 if to is None else to
            self._contained[head] = frozenset(found)
        return self._contained[head]

    def position(self, head: int) -> tuple[int, int | None]:
        """Give the last epoch, and the version that decided so; None before the first."""
        found: tuple[int, int | None] = (-1, None)
        for version in self._versions[: head + 1]:
            if version.back is not None:
                found = (version.back, version.number)
            if version.epoch is not None:
                found = (version.epoch, version.number)
        return found

    def is_lost(self, head: int) -> bool:
        """Tell whether a restore undid what decided where the stream goes on."""
        _, at = self.position(head)
        return at is not None and at not in self.contained(head)

    def last_epoch(self, head: int) -> int:
        """Give the newest epoch that the table contains; -1 for none."""
        kept = self.contained(head)
        epochs = [v.epoch for v in self._versions if v.number in kept and v.epoch is not None]
        return epochs[-1] if epochs else -1

    def of_epoch(self, epoch: int, head: int) -> list[int]:
        """Give the versions up to one that applied an epoch."""
        return [v.number for v in self._versions[: head + 1] if v.epoch == epoch]

    def of_commit_id(self, name: str, head: int) -> list[int]:
        """Give the versions up to one that committed an id."""
        return [v.number for v in self._versions[: head + 1] if v.commit_id == name]

    def is_undone(self, name: str, head: int, kept: frozenset[int] | None = None) -> bool:
        """Tell whether a commit id may not be used: undone, and no replay of it since counts.

        ``kept`` are the versions that the table contains, if not those that it does at ``head``.
        """
        kept = self.contained(head) if kept is None else kept
        applied = self.of_commit_id(name, head)
        if not applied or kept.intersection(applied):
            return False
        return not any(
            name in v.allowed and v.number in kept and v.number > applied[-1]
            for v in self._versions[: head + 1]
        )

    def undone_ids(self, head: int, kept: frozenset[int] | None = None) -> tuple[str, ...]:
        """Give the commit ids that may not be used, by name."""
        known = {v.commit_id for v in self._versions[: head + 1] if v.commit_id is not None}
        return tuple(sorted(name for name in known if self.is_undone(name, head, kept)))
