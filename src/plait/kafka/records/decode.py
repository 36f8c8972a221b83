"""What becomes of record values: rows, and records that are none, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Places = npt.NDArray[np.int64]
Decode = Callable[[Sequence[bytes]], pa.Table]

_ALONE: Final = 1
_SMALLER: Final = 8
_LARGER: Final = 2
_REASON_MAX: Final = 300


class Undecodable(NamedTuple):
    """A record that is no row."""

    at: int
    """Position among the records that were decoded together."""
    reason: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """The rows of some records, in their order, and those that are none."""

    rows: pa.Table
    bad: tuple[Undecodable, ...] = ()


class Decoder(Protocol):
    """Makes rows of record values."""

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """Return a row for each value that is one.

        Raises:
            StorageError: what tells how values are encoded cannot be reached.
        """
        ...


def isolated(values: Sequence[bytes], decode: Decode) -> Decoded:
    """Decode values all at once; in pieces where some are bad, until each of these stands alone.

    A piece is smaller after one that was bad, and larger after a good one. So a few bad values
    cost a few calls each, and where all are bad, each costs one.

    ``decode`` returns a row for each value, or raises ValueError, as the errors of Arrow are.
    There must be at least one value.
    """
    bad: list[Undecodable] = []
    rows: list[pa.Table] = []
    first, size = 0, len(values)
    while first < len(values):
        piece = values[first : first + size]
        try:
            rows.append(decode(piece))
        except (ValueError, pa.ArrowException) as error:
            if len(piece) > _ALONE:
                size = max(_ALONE, len(piece) // _SMALLER)
                continue
            bad.append(Undecodable(first, str(error)[:_REASON_MAX]))
        else:
            size *= _LARGER
        first += len(piece)
    return Decoded(pa.concat_tables(rows) if rows else decode(()), tuple(bad))


@dataclass(slots=True)
class Kept:
    """Rows, and from which records they are."""

    rows: pa.Table
    at: Places
    """The place of the record of each row."""
    bad: list[Undecodable] = field(default_factory=list)
    """The other records, by their places."""

    @classmethod
    def of(cls, decoded: Decoded, at: Places) -> Self:
        """Say from which records the values came that were decoded."""
        bad = [Undecodable(int(at[each.at]), each.reason) for each in decoded.bad]
        return cls(decoded.rows, np.delete(at, [each.at for each in decoded.bad]), bad)

    def drop(self, refused: Iterable[Undecodable]) -> None:
        """Leave out rows, named by their places among the rows."""
        reasons = dict(reversed(list(refused)))  # of several reasons, the first
        if not reasons:
            return
        places = np.array(sorted(reasons), dtype=np.int64)
        self.bad += [Undecodable(int(self.at[place]), reasons[int(place)]) for place in places]
        self.at = np.delete(self.at, places)
        stays = np.ones(self.rows.num_rows, dtype=np.bool_)
        stays[places] = False
        self.rows = self.rows.filter(pa.array(stays))
