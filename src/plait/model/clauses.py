"""The clauses of ``update`` and ``merge``: frozen values from the caller to the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self


class Matched:
    """A clause for rows of the table: ``Update`` or ``Delete``."""

    __slots__ = ()
    when: object


@dataclass(frozen=True, slots=True)
class Update(Matched):
    """Set columns of a row to new values; a clause of ``Table.merge``.

    A value is SQL text over the columns, a literal other than text, a pyarrow expression, or a
    function of the rows. In a merge, ``s.`` is the source's row and ``t.`` the table's row; a part
    of a column that is called so is ``t.s.part``.
    """

    values: Mapping[str, object] | None = None
    """Column: value. None: every column that the source has too."""
    when: object = None
    """A condition beside the match, as SQL text; None: always."""


@dataclass(frozen=True, slots=True)
class Delete(Matched):
    """Delete a row; a clause of ``Table.merge``."""

    when: object = None
    """A condition beside the match, as SQL text; None: always."""


@dataclass(frozen=True, slots=True)
class Insert:
    """Insert the source's row; a clause of ``Table.merge``."""

    values: Mapping[str, object] | None = None
    """Column: value; others get defaults. None: every column that the source has too."""
    when: object = None
    """A condition on the source's row, as SQL text; None: always."""


@dataclass(frozen=True, slots=True)
class Clauses:
    """All clauses of an update or a merge; in each list the first true one applies."""

    matched: tuple[Matched, ...] = ()
    not_matched: tuple[Insert, ...] = ()
    by_source: tuple[Matched, ...] = ()
    """For rows of the table that no row of the source matches."""
    merges: bool = True
    """Whether ``s`` and ``t`` before a dot are the rows of a merge, whatever columns there are."""

    @classmethod
    def of(
        cls,
        matched: Matched | Sequence[Matched],
        not_matched: Insert | Sequence[Insert],
        by_source: Matched | Sequence[Matched],
    ) -> Self:
        """Return the clauses from the arguments of a caller: lists, or single clauses."""
        return cls(
            (matched,) if isinstance(matched, Matched) else tuple(matched),
            (not_matched,) if isinstance(not_matched, Insert) else tuple(not_matched),
            (by_source,) if isinstance(by_source, Matched) else tuple(by_source),
        )
