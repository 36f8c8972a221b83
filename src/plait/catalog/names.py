"""Names in a catalog, and its rows: both may come from strangers, and are checked here alone."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from plait.errors import CorruptMetadataError, OptionError
from plait.timeline import paths

DIRECTORY: Final = paths.CATALOG
"""The table of names, in the root of the catalog."""
NAMESPACE, TABLE, CREATING = "namespace", "table", "creating"
DROPPED, PURGING = "dropped", "purging"
_UNLISTED: Final = (CREATING, DROPPED, PURGING)
_PLACE = re.compile(r"tables/[0-9a-f]{16}", re.ASCII)
_PART = re.compile(r"\w[\w-]*")
_CHARACTERS_MAX = 128
_CHANGED_MS_MAX = 1 << 53
"""Later than any clock; another change still fits into the column."""


class TableName(NamedTuple):
    """A table's name: ``str()`` returns ``namespace.table``.

    There is one rule for letters: a name is kept in lower case, and found in any.

    >>> str(TableName.parse("Sales.trips"))
    'sales.trips'
    """

    namespace: str
    table: str

    def __str__(self) -> str:
        """Return the text that users write."""
        return f"{self.namespace}.{self.table}"

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Read ``namespace.table`` in any case of letters; raise OptionError for anything else."""
        parts = [part.lower() for part in str(text).split(".")]
        if len(parts) != 2 or not all(map(_is_part, parts)):  # noqa: PLR2004 - two parts
            raise _refused(text, "a table", "a name is namespace.table, such as sales.trips")
        return cls(*parts)


def parse_namespace(text: str) -> str:
    """Read the name of a namespace in any case of letters; raise OptionError if it is none."""
    name = str(text).lower()
    if not _is_part(name):
        raise _refused(text, "a namespace", "a namespace has one part, such as sales")
    return name


def is_place(text: str) -> bool:
    """Tell whether this can be the place of a table, relative to the root."""
    return _PLACE.fullmatch(text) is not None


def _is_part(text: object) -> bool:
    return (
        isinstance(text, str)
        and 0 < len(text) <= _CHARACTERS_MAX
        and _PART.fullmatch(text) is not None
        and text == text.lower()
        and unicodedata.is_normalized("NFC", text)
    )


def _refused(text: object, what: str, form: str) -> OptionError:
    shown = repr(text)[:200]
    hint = f"{form}; each part has 1 to {_CHARACTERS_MAX} letters, digits, _ and - (in NFC)"
    message = f"{shown} is not the name of {what}"
    return OptionError(message, hint=hint, key="name", value=shown)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table of names."""

    namespace: str
    name: str = ""
    unlisted: str = ""
    """Empty where the name shows the row; else its place, so that a name can be given anew."""
    state: str = NAMESPACE
    place: str = ""
    changed_ms: int = 0
    """When it was changed, by the store's clock; greater with each change of the row."""

    @property
    def key(self) -> dict[str, object]:
        """The record key."""
        return {"namespace": self.namespace, "name": self.name, "unlisted": self.unlisted}

    @property
    def table(self) -> TableName:
        """The name, or the former one."""
        return TableName(self.namespace, self.name)

    @classmethod
    def of(cls, value: Mapping[str, object]) -> Row:
        """Read a row; raise CorruptMetadataError for one that this module would not write."""
        row = cls(**value)  # type: ignore[arg-type]  # the columns of the table are checked by it
        named = _is_part(row.namespace)
        if row.state == NAMESPACE:
            named = named and not (row.name or row.unlisted or row.place)
        else:
            unlisted = row.place if row.state in _UNLISTED else ""
            named = named and _is_part(row.name) and row.unlisted == unlisted
            named = named and row.state in (TABLE, *_UNLISTED)
            named = named and is_place(row.place)
            named = named and 0 <= row.changed_ms <= _CHANGED_MS_MAX
        if not named:
            found = repr(value)[:200]
            message = f"the catalog has an entry that no version of Plait writes: {found}"
            hint = "do not use this catalog before you know who wrote it"
            raise CorruptMetadataError(message, hint=hint, path=DIRECTORY, found=found)
        return row
