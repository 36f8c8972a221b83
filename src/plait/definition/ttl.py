"""Time to live: when the rows of a table may disappear."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from plait.errors import OptionError
from plait.model.contract import Option

WRITTEN: Final = "written"
"""Stands for a column: the time of the commit that wrote a row, or that added a file."""
PARTITION, ROW = "partition", "row"
_UNITS: Final = (ROW, PARTITION)
_AFTER: Final = Option("ttl", "time", "", "", minimum=1)
_AFTER_MAX: Final = 10_000_000_000
"""Some 300 years: the time before which rows expire stays a date."""
_DAY_MS: Final = 86_400_000
_HINT: Final = (
    "for example 'day 30d partition', 'ts 12h row', 'written 30d row' or 'written 30d partition'"
)


@dataclass(frozen=True, slots=True)
class Ttl:
    """When rows expire: ``after`` seconds after the time in a column, or after they were written.

    >>> Ttl.parse("day 30d partition")
    Ttl(by='day', after=2592000, unit='partition')
    """

    by: str
    """A column of dates or timestamps; or ``written``."""
    after: int
    """Seconds."""
    unit: str = ROW
    """``row``: each row by itself; ``partition``: all rows of a partition together."""

    @classmethod
    def parse(cls, text: str) -> Ttl:
        """Read ``COLUMN TIME [row|partition]``.

        Raises:
            OptionError: it is something else.
        """
        by, _, rest = text.strip().partition(" ")
        words = rest.split()
        unit = words.pop() if words and words[-1] in _UNITS else ROW
        if not by or not words:
            message = f"ttl={text!r} is not a time to live"
            raise OptionError(message, hint=_HINT, key="ttl", value=text)
        seconds = _AFTER.parse(" ".join(words))
        return cls(by, int(seconds), unit).checked(exact=seconds)

    @classmethod
    def of(cls, value: Ttl | str | None) -> Ttl | None:
        """Return a time to live from its text, or as it is; raise OptionError for other text."""
        if value is None or isinstance(value, Ttl):
            return value
        if not isinstance(value, str):
            message = f"not a time to live: {str(value)[:100]!r}"
            raise OptionError(message, hint=_HINT, key="ttl", value=str(value)[:100])
        return cls.parse(value)

    def checked(self, exact: float | None = None) -> Ttl:
        """Return it if its values make sense; raise OptionError."""
        whole = type(self.after) is int and 1 <= self.after <= _AFTER_MAX
        whole = whole and exact in (None, self.after)
        if not whole or self.unit not in _UNITS or not self.by:
            message = f"a time to live of {self.after!r} seconds by {self.unit!r} is not allowed"
            hint = f"whole seconds, at least 1, by {' or '.join(_UNITS)}; {_HINT}"
            raise OptionError(message, hint=hint, key="ttl", value=str(self))
        return self

    @property
    def by_column(self) -> bool:
        """Whether a column tells the time."""
        return self.by != WRITTEN

    @property
    def by_row_written(self) -> bool:
        """Whether the time at which each row was written tells when it expires."""
        return self.by == WRITTEN and self.unit == ROW

    def cutoff(self, now_ms: int, kind: pa.DataType) -> int:
        """Return the raw value before which the values of a time column have expired.

        A date counts until its day is over, in UTC; a timestamp without a zone is taken as UTC.

        >>> Ttl("day", 86_400).cutoff(3 * 86_400_000, pa.date32())
        2
        """
        oldest_ms = now_ms - self.after * 1000
        return oldest_ms // _DAY_MS if pa.types.is_date32(kind) else oldest_ms * 1000

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return {"by": self.by, "after": self.after, "unit": self.unit}

    @classmethod
    def from_dict(cls, value: Mapping[str, object]) -> Ttl:
        """Read what ``to_dict`` wrote; raise KeyError, TypeError or ValueError for nonsense."""
        by, after, unit = value["by"], value["after"], value["unit"]
        if not (isinstance(by, str) and type(after) is int and isinstance(unit, str)):
            raise TypeError(value)
        try:
            return cls(by, after, unit).checked()
        except OptionError as error:
            raise ValueError(error.message) from error

    def __str__(self) -> str:
        """Return the text that ``parse`` reads."""
        return f"{self.by} {self.after}s {self.unit}"


def may_tell_time(kind: pa.DataType) -> bool:
    """Tell whether values of a type are times: integers are not, for nobody knows their unit."""
    return bool(pa.types.is_date32(kind) or pa.types.is_timestamp(kind))
