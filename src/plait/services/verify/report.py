"""The result of a verification: problems by invariant and path, notes, and counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from plait.errors import TableError
from plait.model.plain import Plain

INDEXED: Final = "INV-11"
"""The invariant of key indexes: to lose one costs time."""
_PROBLEMS_MAX = 1_000
_TEXT_MAX = 500


@dataclass(frozen=True, slots=True)
class Problem(Plain):
    """A broken invariant of the table."""

    invariant: str
    """The id of the invariant, such as ``INV-04``."""
    path: str
    """The file that shows the problem, relative to the table."""
    message: str


@dataclass(frozen=True, slots=True)
class Note(Plain):
    """An observation that breaks no invariant: a removable file, or a check that was skipped."""

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class VerifyReport(Plain):
    """The problems and notes of a verification, in the order of the checks."""

    KEYS = "problems notes checked"

    problems: tuple[Problem, ...]
    checked: dict[str, int]
    """How many items of each kind were checked."""
    notes: tuple[Note, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether every invariant that was checked holds."""
        return not self.problems


@dataclass(slots=True)
class Findings:
    """Collects the findings of the checks: a bounded number, each problem once."""

    checked: Counter[str] = field(default_factory=Counter)
    _problems: dict[tuple[str, str], Problem] = field(default_factory=dict)
    _notes: dict[str, Note] = field(default_factory=dict)
    _left_out: int = 0

    def problem(self, invariant: str, path: str, message: str) -> None:
        """Add a problem, unless there is one for the same invariant and path."""
        if len(self._problems) >= _PROBLEMS_MAX:
            self._left_out += (invariant, path) not in self._problems
            return
        self._problems.setdefault((invariant, path), Problem(invariant, path, message[:_TEXT_MAX]))

    def damage(self, invariant: str, path: str, error: TableError) -> None:
        """Add an error as a problem of the file that it names, else of ``path``."""
        named = error.facts.get("path")
        if isinstance(named, str) and named:
            path = named.split("#")[0]  # after it stands which section of a decision it is
        self.problem(invariant, path, error.message)

    def note(self, path: str, message: str) -> None:
        """Add a note, unless there is one for the same path."""
        if len(self._notes) < _PROBLEMS_MAX:
            self._notes.setdefault(path, Note(path, message[:_TEXT_MAX]))

    def count(self, what: str, number: int = 1) -> None:
        """Count checked items."""
        self.checked[what] += number

    def damaged(self, path: str) -> bool:
        """Return whether a file's rows are known to be damaged."""
        return any(known == path and broken != INDEXED for broken, known in self._problems)

    def report(self) -> VerifyReport:
        """Return the report."""
        if self._left_out:
            self.note(".", f"{self._left_out} more problems are not shown")
        return VerifyReport(
            tuple(self._problems.values()), dict(self.checked), tuple(self._notes.values())
        )
