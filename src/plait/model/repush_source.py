"""Where the rows of a repush come from, if not from the table's newest version (RFC 0025)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from plait.errors import OptionError, redacted

VERSION, SAVEPOINT, TABLE = "version", "savepoint", "table"
DELTA, ICEBERG, PARQUET = "delta", "iceberg", "parquet"
KINDS: Final = (VERSION, SAVEPOINT, TABLE, DELTA, ICEBERG, PARQUET)
OWN: Final = (VERSION, SAVEPOINT)
"""Kinds that are versions of the table itself."""
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)


@dataclass(frozen=True, slots=True)
class SourceAddress:
    """A source as a person names it."""

    kind: str
    place: str
    """A version, the name of a savepoint, or a place."""

    @classmethod
    def of(cls, value: int | str) -> SourceAddress:
        """Read what a caller passed.

        A number is a version, a bare name a savepoint, and a place with a slash another table of
        Plait. Each kind can be said before a colon too; the others always are.

        Raises:
            OptionError: it is none of these.

        >>> [str(SourceAddress.of(each)) for each in (17, "before-import", "s3://bucket/trips")]
        ['version:17', 'savepoint:before-import', 'table:s3://bucket/trips']
        >>> SourceAddress.of("delta:./old")
        SourceAddress(kind='delta', place='./old')
        """
        text = str(value)
        kind, colon, place = text.partition(":")
        if not (colon and kind in KINDS):
            kind, place = _guessed(text), text
        fits = {VERSION: _NUMBER, SAVEPOINT: _NAME}.get(kind)
        if kind in KINDS and place and (fits is None or fits.fullmatch(place)):
            if redacted(place) != place:
                message = "the address of a source has a password"
                hint = "it is kept in the table's metadata: pass secrets as source_options"
                raise OptionError(message, hint=hint, key="source", value=redacted(place))
            return cls(kind, str(int(place)) if kind == VERSION else place)
        message = f"not a source: {redacted(text)!r}"
        hint = (
            "use a version, the name of a savepoint, the place of a table with a slash in it, "
            "or delta:PLACE, iceberg:PLACE or parquet:PLACE"
        )
        raise OptionError(message, hint=hint, key="source", value=redacted(text))

    @property
    def own(self) -> bool:
        """Whether it is a version of the table itself."""
        return self.kind in OWN

    def __str__(self) -> str:
        """Return text that is read as the same address."""
        return f"{self.kind}:{self.place}"


def _guessed(text: str) -> str:
    if _NUMBER.fullmatch(text):
        return VERSION
    if "/" in text:
        return TABLE
    return SAVEPOINT if _NAME.fullmatch(text) else ""


@dataclass(frozen=True, slots=True)
class RepushSource:
    """What a repush loads instead of the rows of its base, the same whoever goes on with it."""

    address: SourceAddress
    version: int
    """Of the table itself, of the other table, of Delta; the snapshot of Iceberg; else 0."""
    rows: int
    """How many rows it has."""
    digest: str = ""
    """Of the names, sizes and times of plain files; other sources have versions."""

    @property
    def kept(self) -> int | None:
        """The version of the table itself that must stay readable; None: it is elsewhere."""
        return self.version if self.address.own else None

    def to_dict(self) -> dict[str, object]:
        """Write it as JSON values."""
        return {
            "kind": self.address.kind,
            "place": self.address.place,
            "version": self.version,
            "rows": self.rows,
            **({"digest": self.digest} if self.digest else {}),
        }

    @classmethod
    def from_dict(cls, value: object) -> RepushSource:
        """Read what ``to_dict`` wrote; raise KeyError, TypeError or ValueError."""
        if not isinstance(value, Mapping):
            raise TypeError(value)
        kind, version, rows = str(value["kind"]), int(value["version"]), int(value["rows"])
        if kind not in KINDS or version < 0 or rows < 0:
            raise ValueError(value)
        address = SourceAddress(kind, str(value["place"]))
        return cls(address, version, rows, str(value.get("digest", "")))
