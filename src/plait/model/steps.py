"""What a change of the columns and constraints of a table is made of (RFC 0027).

Columns are named by paths: names divided by dots, a name with a dot in backticks, as in Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa

from plait.errors import SchemaError

_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")


def path_parts(path: object) -> tuple[str, ...]:
    """Return the names that a path has, from the column on.

    Raises:
        SchemaError: it is no text, a name is empty, or a backtick is not closed.

    >>> path_parts("address.city"), path_parts("`a.b`.c"), path_parts("`a``b`")
    (('address', 'city'), ('a.b', 'c'), ('a`b',))
    """
    if not isinstance(path, str):
        message = f"not a column: {str(path)[:100]!r}"
        raise SchemaError(message, hint="give its name as a text", column=str(path)[:100])
    parts, at = list[str](), 0
    while found := _PART.match(path, at):
        quoted, plain = found.groups()
        parts.append(plain if quoted is None else quoted.replace("``", "`"))
        at = found.end()
        if at == len(path):
            return tuple(parts)
        if path[at] != ".":
            break
        at += 1
    hint = "divide names by dots, and put a name with a dot or a backtick in backticks: `a.b`"
    raise SchemaError(f"not a path of a column: {path!r}", hint=hint, column=path)


def column_path(parts: Iterable[str]) -> str:
    """Return the path of names; ``path_parts`` reads it again.

    >>> column_path(["address", "city"]), column_path(["a.b", "c"])
    ('address.city', '`a.b`.c')
    """
    return ".".join(map(_quoted, parts))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`" if "." in name or "`" in name else name


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A column that no row has yet: each row has its default, or null."""

    path: str
    data_type: pa.DataType
    nullable: bool = True
    default: object = None
    """Value for existing rows, and for new rows that come without the column."""
    comment: str = ""
    after: str | None = None
    """The column behind which it comes; "" for the first place, None for the last."""


@dataclass(frozen=True, slots=True)
class DropColumn:
    """A column goes; older versions still show it."""

    path: str


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """A column gets another name."""

    path: str
    name: str


@dataclass(frozen=True, slots=True)
class MoveColumn:
    """A column gets another place among the others."""

    path: str
    after: str
    """The column behind which it comes; "" for the first place."""


@dataclass(frozen=True, slots=True)
class WidenColumn:
    """A column gets a type that has every value of its type."""

    path: str
    data_type: pa.DataType


@dataclass(frozen=True, slots=True)
class AllowNull:
    """A column that was required may be null."""

    path: str


@dataclass(frozen=True, slots=True)
class CommentColumn:
    """A column gets another comment; "" for none."""

    path: str
    comment: str


@dataclass(frozen=True, slots=True)
class DefaultColumn:
    """Rows that come without the column get another value from now on; None: null."""

    path: str
    default: object


@dataclass(frozen=True, slots=True)
class RequireColumn:
    """A column may not be null any more."""

    path: str


@dataclass(frozen=True, slots=True)
class AddCheck:
    """A condition that no row may break."""

    name: str
    predicate: str
    """SQL text."""


@dataclass(frozen=True, slots=True)
class DropCheck:
    """A condition goes."""

    name: str


@dataclass(frozen=True, slots=True)
class GenerateColumn:
    """The value of a column comes from others of its row, or no longer does."""

    path: str
    expression: str | None
    """A transform or SQL text; None: rows bring the value again."""


ColumnStep: TypeAlias = (
    AddColumn
    | DropColumn
    | RenameColumn
    | MoveColumn
    | WidenColumn
    | AllowNull
    | RequireColumn
    | CommentColumn
    | DefaultColumn
)
Step: TypeAlias = ColumnStep | AddCheck | DropCheck | GenerateColumn
