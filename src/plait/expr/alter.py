"""Changes of columns in SQL, as ``ALTER TABLE`` of Spark has them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from plait.expr.ddl import type_of
from plait.expr.parser import CHANGE, parsed, refused
from plait.model.column_path import column_path
from plait.model.steps import (
    AddCheck,
    AddColumn,
    AllowNull,
    CommentColumn,
    DefaultColumn,
    DropCheck,
    DropColumn,
    GenerateColumn,
    MoveColumn,
    RenameColumn,
    RequireColumn,
    Step,
    WidenColumn,
)

if TYPE_CHECKING:
    from sqlglot import exp

_NAME: Final = r"((?:`[^`]+`|\w+)(?:\.(?:`[^`]+`|\w+))*)"
_MOVE: Final = re.compile(
    rf"\s*(?:ALTER|CHANGE)\s+(?:COLUMN\s+)?{_NAME}\s+(?:FIRST|AFTER\s+{_NAME})\s*", re.IGNORECASE
)
"""The parser does not know it."""
_ONE: Final = r"(`[^`]+`|\w+)"
_CONSTRAINTS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Step]], ...]] = (
    (
        re.compile(
            rf"\s*ADD\s+CONSTRAINT\s+{_ONE}\s+CHECK\s*\((.*)\)\s*", re.IGNORECASE | re.DOTALL
        ),
        lambda found: AddCheck(_plain(found[1]), found[2].strip()),
    ),
    (
        re.compile(rf"\s*DROP\s+CONSTRAINT\s+{_ONE}\s*", re.IGNORECASE),
        lambda found: DropCheck(_plain(found[1])),
    ),
    (
        re.compile(rf"\s*ALTER\s+(?:COLUMN\s+)?{_NAME}\s+SET\s+NOT\s+NULL\s*", re.IGNORECASE),
        lambda found: RequireColumn(_plain(found[1])),
    ),
    (
        re.compile(
            rf"\s*ALTER\s+(?:COLUMN\s+)?{_NAME}\s+SET\s+EXPRESSION\s+AS\s*\((.*)\)\s*",
            re.IGNORECASE | re.DOTALL,
        ),
        lambda found: GenerateColumn(found[1], found[2].strip()),
    ),
    (
        re.compile(rf"\s*ALTER\s+(?:COLUMN\s+)?{_NAME}\s+DROP\s+EXPRESSION\s*", re.IGNORECASE),
        lambda found: GenerateColumn(found[1], None),
    ),
)
"""Conditions and expressions are not the parser's to read here."""
_GENERATED: Final = re.compile(
    r"(\s*ADD\s+COLUMN\s+(`[^`]+`|\w+)\s.*?)\s+GENERATED\s+ALWAYS\s+AS\s*\((.*)\)\s*",
    re.IGNORECASE | re.DOTALL,
)


def parse_steps(text: str) -> tuple[Step, ...]:
    """Return the changes of columns that a text asks for.

    Raises:
        SchemaError: it is none of those that are supported.

    >>> parse_steps("ALTER COLUMN n TYPE bigint")
    (WidenColumn(path='n', data_type=DataType(int64)),)
    """
    generated = _GENERATED.fullmatch(text)
    if generated is not None:
        return (*parse_steps(generated[1]), GenerateColumn(generated[2], generated[3].strip()))
    for pattern, make in _CONSTRAINTS:
        match = pattern.fullmatch(text)
        if match is not None:
            return (make(match),)
    move = _MOVE.fullmatch(text)
    if move is not None:
        return (MoveColumn(_plain(move[1]), _plain(move[2] or "")),)
    with parsed(text, CHANGE) as tree:
        actions = tree.args.get("actions") or ()
        try:
            steps = tuple(step for action in actions for step in _steps(action))
        except ValueError as error:
            raise refused(text, CHANGE, f"cannot read {text[:100]!r}: {error}") from error
    if not steps:
        raise refused(text, CHANGE, f"{text[:100]!r} changes no column")
    return steps


def _plain(name: str) -> str:
    return name.replace("`", "")


def _steps(action: exp.Expr) -> Iterator[Step]:
    match action.key:
        case "columndef":
            yield _added(action)
        case "schema":
            yield from (_added(column) for column in action.expressions)
        case "drop":
            yield from (DropColumn(path) for path in _dropped(action))
        case "renamecolumn":
            yield RenameColumn(_path(action.this), str(action.args["to"].name))
        case "altercolumn":
            yield _altered(action)
        case other:
            message = f"{other} is not supported"
            raise ValueError(message)


def _added(column: exp.Expr) -> AddColumn:
    nullable, default, comment, after = True, None, "", None
    kind, place = column.args.get("kind"), column.args.get("position")
    if column.key != "columndef" or kind is None:
        message = "expected a name and a type"
        raise ValueError(message)
    for each in column.args.get("constraints") or ():
        match each.kind.key:
            case "notnullcolumnconstraint":
                nullable = bool(each.kind.args.get("allow_null"))
            case "defaultcolumnconstraint":
                default = _value(each.kind.this)
            case "commentcolumnconstraint":
                comment = each.kind.this.name
            case other:
                message = f"{other} is not supported"
                raise ValueError(message)
    if place is not None:
        after = "" if place.this is None else str(place.this.name)
    return AddColumn(_path(column.this), type_of(kind), nullable, default, comment, after)


def _dropped(action: exp.Expr) -> Iterator[str]:
    if str(action.args.get("kind")) not in ("COLUMN", "COLUMNS") or action.args.get("exists"):
        message = "expected DROP COLUMN and a name"
        raise ValueError(message)
    for each in action.args.get("tables") or [action.this]:
        if each.key == "schema":
            yield from map(_path, each.expressions)
        else:
            yield _path(each)


def _altered(action: exp.Expr) -> Step:
    path, given = _path(action.this), action.args
    if given.get("dtype") is not None:
        return WidenColumn(path, type_of(given["dtype"]))
    if given.get("comment") is not None:
        return CommentColumn(path, given["comment"].name)
    if given.get("default") is not None:
        return DefaultColumn(path, _value(given["default"]))
    if given.get("drop") and given.get("allow_null"):
        return AllowNull(path)
    if given.get("drop"):
        return DefaultColumn(path, None)
    message = "expected TYPE, SET or DROP"
    raise ValueError(message)


def _path(node: exp.Expr) -> str:
    """Return a name with the parts that it has, as ``column.member``."""
    if node.key == "dot":
        return f"{_path(node.this)}.{_path(node.expression)}"
    if node.key == "column":
        return column_path(part.name for part in node.parts)  # type: ignore[attr-defined]  # of a column
    return column_path([str(node.name)])


def _value(node: exp.Expr) -> object:
    """Return a literal as text, which its column reads by its type; None for NULL."""
    if node.key == "null":
        return None
    sign = ""
    if node.key == "neg":
        sign, node = "-", node.this
    if node.key == "cast":  # DATE '2026-01-31'
        node = node.this
    if node.key == "boolean":
        return bool(node.this)
    if node.key != "literal":
        message = f"a default is a literal, not {node.sql(dialect='spark')[:60]}"
        raise ValueError(message)
    return sign + node.name
