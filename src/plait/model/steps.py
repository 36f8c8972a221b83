"""What a change of the columns and constraints of a table is made of (RFC 0027)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A column that no row has yet: each row has its default, or null."""

    path: str
    data_type: pa.DataType
    nullable: bool = True
    default: object = None
    """Of rows that are there, and of rows that come without the column."""
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
