"""Which versions can be read, and which can be made readable again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from plait.errors import CorruptMetadataError
from plait.model.decision import Cleaned


class Raised(NamedTuple):
    """A horizon that can still be taken back."""

    version: int
    """The version of the clean that raised it."""
    horizon: int


@dataclass(frozen=True, slots=True)
class Horizons:
    """The oldest readable version of a table, and those before it that an undo can return to."""

    final: int = 0
    """The oldest version that can be read or made readable again: files that ended there or
    before may be condemned."""
    raised: tuple[Raised, ...] = ()
    """The horizons above ``final``, oldest first."""

    @property
    def oldest(self) -> int:
        """The oldest version that can be read."""
        return self.raised[-1].horizon if self.raised else self.final

    def after(self, cleaned: Cleaned, version: int, *, where: str) -> Horizons:
        """Return the horizons after a clean or an undo of cleans.

        Raises:
            CorruptMetadataError: an undo says that it leads to another horizon.
        """
        raised, final = self.raised, max(self.final, cleaned.final)
        if cleaned.undo is not None:
            raised = tuple(each for each in raised if each.version < cleaned.undo)
        elif cleaned.horizon > self.oldest:
            raised = (*raised, Raised(version, cleaned.horizon))
        result = Horizons(final, tuple(each for each in raised if each.horizon > final))
        if cleaned.undo is not None and result.oldest != cleaned.horizon:
            message = f"{where} takes cleans back to version {cleaned.horizon}, not {result.oldest}"
            found, expected = cleaned.horizon, result.oldest
            raise CorruptMetadataError(message, path=where, expected=expected, found=found)
        return result

    def to_dict(self) -> dict[str, object]:
        """Write them as JSON values, the form in checkpoints."""
        return {"final": self.final, "raised": [list(each) for each in self.raised]}

    @classmethod
    def from_dict(cls, value: Mapping[str, object], *, newest: int) -> Horizons:
        """Read what ``to_dict`` wrote; raise KeyError, TypeError or ValueError for nonsense."""
        final, entries = int(str(value["final"])), value["raised"]
        if not isinstance(entries, list):
            raise TypeError(entries)
        raised = tuple(Raised(int(version), int(horizon)) for version, horizon in entries)
        ordered = [0, final, *(each.horizon for each in raised), newest]
        if ordered != sorted(ordered):
            raise ValueError(ordered)
        return cls(final, raised)
