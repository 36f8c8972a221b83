"""The repush that is to lay a table out anew, and where its rows come from (RFC 0021, RFC 0025)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from plait.errors import OptionError, redacted
from plait.model.plan import TableLayout

VERSION, SAVEPOINT, TABLE = "version", "savepoint", "table"
DELTA, ICEBERG, HUDI, PARQUET = "delta", "iceberg", "hudi", "parquet"
KINDS: Final = (VERSION, SAVEPOINT, TABLE, DELTA, ICEBERG, HUDI, PARQUET)
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
            "or delta:PLACE, iceberg:PLACE, hudi:PLACE or parquet:PLACE"
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
    """Version that is read, of this or the other table or of Delta; an Iceberg snapshot; an instant
    of Hudi; else 0."""
    rows: int
    """How many rows it has."""
    digest: str = ""
    """Hash of the plain files, or those of Hudi; empty for sources whose versions tell them."""

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


REPUSH_STREAM: Final = "repush"
"""The application of whose tokens the table in the directory tells how far it is."""
_DIRECTORY = re.compile(r"repush-[0-9a-f]{16}", re.ASCII)


def repush_directory(nonce: str) -> str:
    """Name the directory of a repush by the nonce of the instant that began it.

    >>> repush_directory("00000000000000ab")
    'repush-00000000000000ab'
    """
    return f"repush-{nonce}"


def is_repush_directory(name: str) -> bool:
    """Tell whether this is the name of a repush's directory."""
    return _DIRECTORY.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class OpenRepush:
    """A repush that was begun, and neither swapped in nor cancelled."""

    directory: str
    """Directory of the table that is built, below the directory of this table."""
    base: int
    """The version since when it follows; every version from there on stays readable."""
    layout: TableLayout
    """What it leads to."""
    rows_per_task: int
    """How many rows one commit of the load takes, about."""
    properties: Mapping[str, object]
    """Options that change with the swap."""
    source: RepushSource | None = None
    """What it loads; None: the rows of its base."""
    commit_id: str | None = None
    """The commit id of its swap, if the caller named one."""

    @property
    def source_name(self) -> str:
        """What it loads, in words."""
        return "the table" if self.source is None else str(self.source.address)

    def to_dict(self) -> dict[str, object]:
        """Write it as JSON values."""
        return {
            "directory": self.directory,
            "base": self.base,
            "layout": self.layout.to_dict(),
            "rows_per_task": self.rows_per_task,
            "properties": dict(self.properties),
            **({} if self.source is None else {"source": self.source.to_dict()}),
            **({} if self.commit_id is None else {"commit_id": self.commit_id}),
        }

    @classmethod
    def from_dict(cls, value: object) -> OpenRepush:
        """Read what ``to_dict`` wrote; raise KeyError, TypeError or ValueError."""
        if not isinstance(value, dict):
            raise TypeError(value)
        directory, layout, properties = (
            value[name] for name in ("directory", "layout", "properties")
        )
        if not isinstance(layout, dict) or not isinstance(properties, dict):
            raise TypeError(value)
        if not isinstance(directory, str) or not is_repush_directory(directory):
            raise ValueError(f"{directory!r} is not the directory of a repush")
        return cls(
            directory,
            int(value["base"]),
            TableLayout.from_dict(layout),
            int(value["rows_per_task"]),
            properties,
            RepushSource.from_dict(value["source"]) if "source" in value else None,
            str(value["commit_id"]) if "commit_id" in value else None,
        )
