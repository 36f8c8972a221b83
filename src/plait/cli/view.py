"""What a command has to show: plain data for programs, blocks for people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from plait.model.plain import iso

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_KIB = 1024


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values."""

    pairs: tuple[tuple[str, object], ...]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows under columns; a column whose title begins with ``>`` is aligned to the right."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[object]]
    spare: tuple[str, ...] = ()
    """Titles of columns that a narrow terminal does without, the first ones first."""


@dataclass(frozen=True, slots=True)
class Prose:
    """Lines of text, shown as they are."""

    text: str


Block: TypeAlias = Facts | Grid | Prose


@dataclass(frozen=True, slots=True)
class View:
    """One result. Both forms are made from the same values."""

    command: str
    table: str | None
    data: object
    blocks: tuple[Block, ...] = ()
    items: Iterable[object] | None = field(default=None)
    """The entries of a list: ``--jsonl`` writes each on a line. None if the result is no list."""


def cell(value: object) -> str:
    r"""Write one value for a person.

    Control characters are made visible: what a table holds must not steer a terminal.

    >>> cell("a\x1b[31mb"), cell(None), cell(True)
    ('a\\x1b[31mb', '-', 'yes')
    """
    if value is None or value in ("", (), []):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{cell(name)}: {cell(item)}" for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(cell(item) for item in value)
    return visible(str(value)).replace("\n", "\\n")


def visible(text: str) -> str:
    """Make control characters visible, line ends apart."""
    return _CONTROL.sub(lambda m: m[0] if m[0] == "\n" else repr(m[0])[1:-1], text)


def time_short(ms: int | None) -> str:
    """Write ms since the epoch for a person, UTC, to the second."""
    return "-" if ms is None else iso(ms)[:19].replace("T", " ")


def duration(ms: int | None) -> str:
    """Write a time span for a person.

    >>> duration(250), duration(12_300), duration(3_725_000)
    ('250 ms', '12.3 s', '1 h 02 min')
    """
    if ms is None:
        return "-"
    seconds = ms / 1000
    minutes = int(seconds // 60)
    if seconds < 1:
        return f"{ms} ms"
    if minutes < 2:  # noqa: PLR2004 - up to two minutes read well as seconds
        return f"{seconds:.1f} s"
    if minutes < 60:  # noqa: PLR2004 - minutes an hour
        return f"{minutes} min {int(seconds) % 60:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def size(count: int | None) -> str:
    """Write a number of bytes for a person.

    >>> size(512), size(3 << 20)
    ('512 B', '3.0 MiB')
    """
    if count is None:
        return "-"
    amount, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < _KIB or unit == "TiB":
            break
        amount /= _KIB
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"


def number(count: int | None) -> str:
    """Write a count for a person.

    >>> number(336776)
    '336,776'
    """
    return "-" if count is None else f"{count:,}"
