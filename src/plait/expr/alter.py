"""Changes of columns in SQL, as ``ALTER TABLE`` of Spark has them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from plait.expr.ddl import type_of
from plait.expr.parser import CHANGE, parsed, refused
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
    column_path,
    path_parts,
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
        added = parse_steps(generated[1])
        if len(added) > 1:
            raise refused(text, CHANGE, f"{text[:100]!r} adds several columns at once")
        return (*added, GenerateColumn(generated[2], generated[3].strip()))
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
            if actions:
                _require_only(tree, "this", "kind", "actions")
            steps = tuple(step for action in actions for step in _steps(action))
        except ValueError as error:
            raise refused(text, CHANGE, f"cannot read {text[:100]!r}: {error}") from error
    if not steps:
        raise refused(text, CHANGE, f"{text[:100]!r} changes no column")
    return steps


def _plain(name: str) -> str:
    return name.replace("`", "")


def _require_only(node: exp.Expr, *known: str) -> None:
    """Refuse what the parser read and nobody here would look at."""
    for name, value in node.args.items():
        if value and name not in known:
            if isinstance(value, list):
                shown = value[0].sql(dialect="spark")
            elif isinstance(value, (bool, str)):
                shown = name.upper()
            else:
                shown = f"{name.upper()} {value.sql(dialect='spark')}"
            raise ValueError(f"{shown[:80]} is not supported")


def _steps(action: exp.Expr) -> Iterator[Step]:
    match action.key:
        case "columndef":
            yield _added(action)
        case "schema":
            yield from (_added(column) for column in action.expressions)
        case "drop":
            yield from (DropColumn(path) for path in _dropped(action))
        case "renamecolumn":
            _require_only(action, "this", "to")
            yield RenameColumn(_path(action.this), _name(action.args["to"]))
        case "altercolumn":
            yield from _altered(action)
        case other:
            raise ValueError(f"{other} is not supported")


def _added(column: exp.Expr) -> AddColumn:
    nullable, default, comment, after = True, None, "", None
    kind, place = column.args.get("kind"), column.args.get("position")
    if column.key != "columndef" or kind is None:
        raise ValueError("expected a name and a type")
    _require_only(column, "this", "kind", "constraints", "position")
    constraints = {each.kind.key: each.kind for each in column.args.get("constraints") or ()}
    if len(constraints) < len(column.args.get("constraints") or ()):
        raise ValueError("expected NOT NULL, DEFAULT and COMMENT once")
    for key, each in constraints.items():
        match key:
            case "notnullcolumnconstraint":
                nullable = bool(each.args.get("allow_null"))
            case "defaultcolumnconstraint":
                default = _value(each.this)
            case "commentcolumnconstraint":
                comment = each.this.name
            case other:
                raise ValueError(f"{other} is not supported")
    if place is not None:
        after = "" if place.this is None else _name(place.this)
    return AddColumn(_path(column.this), type_of(kind), nullable, default, comment, after)


def _dropped(action: exp.Expr) -> Iterator[str]:
    _require_only(action, "this", "kind", "tables", "exists")
    if str(action.args.get("kind")) not in ("COLUMN", "COLUMNS") or action.args.get("exists"):
        raise ValueError("expected DROP COLUMN and a name")
    for each in action.args.get("tables") or [action.this]:
        if each.key == "schema":
            yield from map(_path, each.expressions)
        else:
            yield _path(each)


def _altered(action: exp.Expr) -> Iterator[Step]:
    path, given = _path(action.this), action.args
    if given.get("dtype") is not None:
        _require_only(action, "this", "dtype", "comment", "rename_to")
        yield WidenColumn(path, type_of(given["dtype"]))
        if given.get("comment"):
            yield CommentColumn(path, given["comment"].name)
        if given.get("rename_to"):  # CHANGE COLUMN names the column twice
            name = _name(given["rename_to"])
            if name != path_parts(path)[-1]:
                yield RenameColumn(path, name)
    elif given.get("comment"):
        _require_only(action, "this", "comment")
        yield CommentColumn(path, given["comment"].name)
    elif given.get("default") is not None:
        _require_only(action, "this", "default")
        yield DefaultColumn(path, _value(given["default"]))
    elif given.get("drop"):
        _require_only(action, "this", "drop", "allow_null")
        yield AllowNull(path) if given.get("allow_null") else DefaultColumn(path, None)
    else:
        raise ValueError("expected TYPE, SET or DROP")


def _name(node: exp.Expr) -> str:
    """Return the name of a column among its siblings, which is no path."""
    names = path_parts(_path(node))
    if len(names) > 1:
        raise ValueError(f"expected a name without a dot, not {'.'.join(names)}")
    return names[0]


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
    number = node.this if node.key == "neg" else node
    if number.key == "literal" and not number.is_string:
        return number.name if number is node else f"-{number.name}"
    if node.key == "cast":  # DATE '2026-01-31'
        node = node.this
    if node.key == "boolean":
        return bool(node.this)
    if node.key != "literal":
        raise ValueError(f"a default is a literal, not {node.sql(dialect='spark')[:60]}")
    return str(node.name)
